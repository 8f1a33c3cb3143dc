"""Experiment trackers (`--log-to`): where the figures of runs and trainings are logged, besides their own folders.

A tracker changes no result, so it is in no configuration and in no run id. Those that are open are found by
`active_trackers`, not passed down: training methods, also those of other packages, take data, settings, a folder and
progress. Nothing is sent to a server unless the spec of a tracker says so.
"""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from prbench.registry import TRACKERS
from prbench.schema import NOTHING, Json
from prbench.specs import parse_spec

_NEEDED = ("report_to", "log", "trainer_arguments", "close")


class Tracker(Protocol):
    """One run in an experiment tracker; what its loader returns is open, and has the run's name and config."""

    @property
    def report_to(self) -> str:
        """The name under which trainers of transformers and TRL know it; "" where they do not."""
        ...

    def log(self, figures: Mapping[str, float], step: int | None = None) -> None:
        """Log figures of a step, or of the whole run."""
        ...

    def trainer_arguments(self) -> dict[str, Json]:
        """Return what a trainer must be told so that its logs come to the same run."""
        ...

    def close(self) -> None:
        """Write what was logged; nothing comes after it."""
        ...


@dataclass(frozen=True)
class Trackers:
    """All trackers that are open; without any, nothing is logged."""

    of: tuple[Tracker, ...] = ()

    def log(self, figures: Mapping[str, Json], step: int | None = None) -> None:
        """Log the numbers among some figures; what is missing is not logged as one."""
        found = {name: float(value) for name, value in figures.items() if _is_number(value)}
        with redirect_stdout(sys.stderr):
            for tracker in self.of if found else ():
                tracker.log(found, step)

    def trainer_arguments(self, every_steps: int = 10) -> dict[str, Json]:
        """Return `report_to` for a trainer, and what else it must be told to log to the same runs."""
        names = [tracker.report_to for tracker in self.of if tracker.report_to]
        if not names:
            return {"report_to": "none"}
        found: dict[str, Json] = {"logging_strategy": "steps", "logging_steps": every_steps, "report_to": names}
        for tracker in self.of:
            found |= tracker.trainer_arguments()
        return found


_ACTIVE: ContextVar[Trackers] = ContextVar("trackers", default=Trackers())  # noqa: B039 (frozen)


def active_trackers() -> Trackers:
    """Return the trackers that are open around this call."""
    return _ACTIVE.get()


@contextmanager
def tracking(specs: Sequence[str], name: str, config: Mapping[str, Json] = NOTHING) -> Iterator[Trackers]:
    """Open one run in each of these trackers, e.g. `tensorboard:logs` and `wandb:project`."""
    with ExitStack() as opened:
        found = []
        for text in specs:
            spec = parse_spec(text, TRACKERS)
            kind = TRACKERS.find(spec.kind)
            with redirect_stdout(sys.stderr):  # what they print is no result of ours
                tracker: Tracker = kind.make(spec, kind.read_options(spec), name, dict(config), needs=_NEEDED)
            opened.callback(_close, tracker)
            found.append(tracker)
        token = _ACTIVE.set(Trackers(tuple(found)))
        try:
            yield _ACTIVE.get()
        finally:
            _ACTIVE.reset(token)


def _close(tracker: Tracker) -> None:
    with redirect_stdout(sys.stderr):
        tracker.close()


def figures_of(summary: Mapping[str, Json], within: str = "") -> dict[str, float]:
    """Return every number of a summary by its path: `swap/gap`, and `swap/gap/low` for the end of its interval."""
    found: dict[str, float] = {}
    for key, value in summary.items():
        name = within if key == "value" and within else f"{within}/{key}".lstrip("/")
        if isinstance(value, Mapping):
            found |= figures_of(value, name)
        elif _is_number(value):
            found[name] = float(value)
    return found


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@contextmanager
def environment_without(*names: str) -> Iterator[None]:
    """Hide some environment variables, which would send logs to where nobody asked for."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
