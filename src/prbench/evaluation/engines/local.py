"""One worker, in this process."""

from collections.abc import Iterable, Iterator
from itertools import islice

from prbench.evaluation.engines.stage import Payload, Result, Stage, WorkItem, call_worker


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
