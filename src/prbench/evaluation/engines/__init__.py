"""Where a stage runs: in this process, or on a Ray cluster. The same stage gives the same results on both."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prbench.errors import UsageError
from prbench.evaluation.engines.local import LocalEngine
from prbench.evaluation.engines.stage import Engine, Stage, Worker, WorkItem

ENGINES = ("local", "ray")

__all__ = ["ENGINES", "Engine", "EngineSettings", "LocalEngine", "Stage", "WorkItem", "Worker", "open_engine"]


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """How the command line names an engine; the last three are for Ray."""

    name: str = "local"
    workers: int | None = None  # `None`: one per GPU of the cluster; without GPUs, one per node
    worker_gpus: float | None = None  # `None`: 1 where the cluster has GPUs, else 0
    address: str | None = None  # `None`: start Ray on this machine


@contextmanager
def open_engine(settings: EngineSettings) -> Iterator[Engine]:
    """Give the engine, and take down what it started."""
    match settings.name:
        case "local":
            _check_local_options(settings)
            yield LocalEngine()
        case "ray":
            from prbench.evaluation.engines.on_ray import RayEngine

            with RayEngine(
                workers=settings.workers, worker_gpus=settings.worker_gpus, address=settings.address
            ) as engine:
                yield engine
        case _:
            raise UsageError(f"--engine {settings.name}: unknown. Use {' or '.join(ENGINES)}.")


def _check_local_options(settings: EngineSettings) -> None:
    given = {"--workers": settings.workers, "--worker-gpus": settings.worker_gpus, "--ray-address": settings.address}
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} {value} needs --engine ray: the local engine is this one process.")
