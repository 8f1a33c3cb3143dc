"""Where a stage runs: in this process, or on a Ray cluster. The same stage gives the same results on both."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from prbench.errors import UsageError

Payload = TypeVar("Payload")
Result = TypeVar("Result")

Worker = Callable[[Sequence[Payload]], list[Result]]  # one result per payload, in the same order


@dataclass(frozen=True, kw_only=True)
class WorkItem(Generic[Payload]):
    """One unit of work: it is handed out, and its result comes back, as a whole."""

    id: str  # unique within the stage
    payload: Payload


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[Payload, Result]):
    """One step of a pipeline that many workers can share.

    `make_worker` builds what a worker keeps, a model above all. It is called once in each worker. Where workers are
    other processes it must be picklable: let it carry a spec and load the model, never the model itself.
    """

    name: str
    make_worker: Callable[[], Worker[Payload, Result]]
    items_per_call: int = 1


class Engine(Protocol):
    """Where a stage runs."""

    loads_in_workers: bool  # whether workers are other processes, which must build all that they need

    def run(self, stage: Stage[Payload, Result], items: Iterable[WorkItem[Payload]]) -> Iterator[tuple[str, Result]]:
        """Yield every item's id and result once, in any order, as soon as there are some."""
        ...


def call_worker(worker: Worker[Payload, Result], payloads: Sequence[Payload], stage_name: str) -> list[Result]:
    """Return one result per payload."""
    results = worker(payloads)
    if len(results) != len(payloads):
        raise UsageError(f"{stage_name}: {len(results)} results for {len(payloads)} items. There must be one each.")
    return results


class LocalEngine:
    """Runs a stage here, item after item."""

    loads_in_workers = False

    def run(self, stage: Stage[Payload, Result], items: Iterable[WorkItem[Payload]]) -> Iterator[tuple[str, Result]]:
        """Yield every item's id and result, in order."""
        waiting = iter(items)
        worker = None
        while batch := list(islice(waiting, stage.items_per_call)):
            worker = worker or stage.make_worker()
            results = call_worker(worker, [item.payload for item in batch], stage.name)
            yield from zip((item.id for item in batch), results, strict=True)


ENGINES = ("local", "ray")


@contextmanager
def open_engine(
    name: str = "local", *, workers: int | None = None, worker_gpus: float | None = None, address: str | None = None
) -> Iterator[Engine]:
    """Give the engine that the command line names, and take down what it started. All but the name are for Ray.

    Without a number of `workers` there is one per GPU of the cluster or, without GPUs, one per node; each gets one GPU
    where there are any. Without an `address`, Ray is started on this machine.
    """
    match name:
        case "local":
            given = {"--workers": workers, "--worker-gpus": worker_gpus, "--ray-address": address}
            for option, value in given.items():
                if value is not None:
                    raise UsageError(f"{option} {value} needs --engine ray: the local engine is this one process.")
            yield LocalEngine()
        case "ray":
            from prbench.evaluation.on_ray import RayEngine

            with RayEngine(workers=workers, worker_gpus=worker_gpus, address=address) as engine:
                yield engine
        case _:
            raise UsageError(f"--engine {name}: unknown. Use {' or '.join(ENGINES)}.")
