"""`--log-to wandb:PROJECT`: Weights & Biases, into files on this machine unless `?mode=online` is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from prbench.errors import UsageError, needs
from prbench.schema import Json
from prbench.specs import Spec, option

# Nothing but what prbench logs: no list of packages, no facts or measures of the machine.
_QUIET = {
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


@dataclass(frozen=True, kw_only=True)
class WandbOptions:
    """Where it is logged to."""

    mode: Literal["offline", "online"] = option("offline", "offline: into ./wandb, for `wandb sync`; online: sent")
    entity: str | None = option(None, "the user or team that owns the project")


def load(spec: Spec, options: WandbOptions, name: str, config: Mapping[str, Json]) -> "WandbRun":
    """Open a run of the project that a spec names."""
    with needs("log", spec.text):
        import wandb
    settings = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, **_QUIET)
    try:
        run = wandb.init(
            project=spec.target,
            name=name,
            config=dict(config),
            mode=options.mode,
            entity=options.entity,
            settings=settings,
            reinit="finish_previous",
        )
    except wandb.Error as error:
        message = " ".join(str(error).split()).rstrip(".")
        raise UsageError(f"--log-to {spec.text}: {message}. Log in with `wandb login`, or leave mode out.") from error
    return WandbRun(run)


class WandbRun:
    """One run; the trainers of transformers join it."""

    report_to = "wandb"

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, figures: Mapping[str, float], step: int | None = None) -> None:
        """Log a step; figures of the whole run go into its summary."""
        if step is None:
            self._run.summary.update(dict(figures))
        else:  # trainers count steps of their own
            self._run.log({**figures, "prbench_step": step})

    def trainer_arguments(self) -> dict[str, Json]:
        """Return nothing: trainers find the open run."""
        return {}

    def close(self) -> None:
        """End the run."""
        self._run.finish()
