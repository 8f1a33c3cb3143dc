"""What an engine runs: a stage, which is a way to make a worker, and the work that the workers share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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

    @property
    def loads_in_workers(self) -> bool:
        """Are workers other processes, which must build all that they need?"""
        ...

    def run(self, stage: Stage[Payload, Result], items: Iterable[WorkItem[Payload]]) -> Iterator[tuple[str, Result]]:
        """Yield every item's id and result once, in any order, as soon as there are some."""
        ...


def call_worker(worker: Worker[Payload, Result], payloads: Sequence[Payload], stage_name: str) -> list[Result]:
    """Return one result per payload."""
    results = worker(payloads)
    if len(results) != len(payloads):
        raise UsageError(f"{stage_name}: {len(results)} results for {len(payloads)} items. There must be one each.")
    return results
