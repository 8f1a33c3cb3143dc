"""`--log-to trackio:PROJECT`: Trackio, into its folder on this machine unless `?space=org/name` is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prbench.backends.trackers import environment_without
from prbench.errors import needs
from prbench.schema import Json
from prbench.specs import Spec, option

_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WEBHOOK_URL")


@dataclass(frozen=True, kw_only=True)
class TrackioOptions:
    """Where it is logged to."""

    space: str | None = option(None, "a Space on the hub that gets the logs; default: none, they stay here")


def load(spec: Spec, options: TrackioOptions, name: str, config: Mapping[str, Json]) -> "TrackioRun":
    """Open a run of the project that a spec names."""
    with needs("log", spec.text):
        import trackio
    return TrackioRun(trackio, spec.target, options.space, name, config)


class TrackioRun:
    """One run; trainers end it when they are done, and it is opened again for what comes after."""

    report_to = "trackio"

    def __init__(self, trackio: Any, project: str, space: str | None, name: str, config: Mapping[str, Json]) -> None:
        self._trackio, self._project, self._space = trackio, project, space
        self._name, self._config = name, dict(config)
        self._hidden = environment_without(*_ELSEWHERE)
        self._hidden.__enter__()
        self._open()

    def log(self, figures: Mapping[str, float], step: int | None = None) -> None:
        """Log a step, or the whole run as its last one."""
        if self._trackio.context_vars.current_run.get() is None:
            self._open()
        self._trackio.log(dict(figures), step=step)

    def trainer_arguments(self) -> dict[str, Json]:
        """Return what makes trainers continue this run."""
        return {"project": self._project, "run_name": self._name, "trackio_space_id": self._space}

    def close(self) -> None:
        """End the run."""
        try:
            if self._trackio.context_vars.current_run.get() is not None:
                self._trackio.finish()
        finally:
            self._hidden.__exit__(None, None, None)

    def _open(self) -> None:
        self._trackio.init(
            project=self._project,
            name=self._name,
            config=self._config,
            space_id=self._space,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
