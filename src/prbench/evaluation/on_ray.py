"""A pool of actors on a Ray cluster, by Ray Data. Only this module knows Ray.

Each call of a worker is one block. What a dead worker had not delivered goes to another one or to its successor; what
it had delivered stays. The results come back to this process, which alone writes.
"""

import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, redirect_stdout
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from prbench.errors import PrbenchError, RunError, UsageError
from prbench.evaluation.engines import Payload, Result, Stage, Worker, WorkItem, call_worker

try:
    import ray
    import ray.data
    from ray import cloudpickle
    from ray.exceptions import RayActorError, RaySystemError
except ImportError as error:
    raise UsageError("--engine ray needs Ray. Install it with: pip install 'prbench[ray]'") from error

RETRIES = 3  # of one call whose worker died: work that kills every worker must end some time
CONNECT_SECONDS = 5.0


class RayEngine:
    """Runs a stage in a pool of actors; open it with `with`.

    If this process is connected to a cluster already, that one is used and left running. While the engine is open,
    what this process prints goes to stderr: Ray reports dead workers on stdout, which belongs to the results.
    """

    loads_in_workers = True

    def __init__(
        self, *, workers: int | None = None, worker_gpus: float | None = None, address: str | None = None
    ) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"--workers {workers} does no work. Give a number above 0.")
        self._workers = workers
        self._worker_gpus = worker_gpus
        self._address = address
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(redirect_stdout(sys.stderr))
            if not ray.is_initialized():
                _connect(self._address, self._workers)
                opening.callback(ray.shutdown)
            # How many workers there are, and what each of them gets.
            has = ray.cluster_resources()
            cpus, gpus = int(has.get("CPU", 0)), has.get("GPU", 0.0)
            self.worker_gpus = self._worker_gpus if self._worker_gpus is not None else float(gpus >= 1)
            if cpus < 1 or gpus < self.worker_gpus:
                raise UsageError(
                    f"The cluster has {cpus} CPUs and {gpus:g} GPUs, and a worker needs 1 and {self.worker_gpus:g}. "
                    "Add a node, or lower --worker-gpus."
                )
            nodes = sum(node["Alive"] for node in ray.nodes())
            self.workers = self._workers or int(gpus / self.worker_gpus if self.worker_gpus else nodes)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def run(self, stage: Stage[Payload, Result], items: Iterable[WorkItem[Payload]]) -> Iterator[tuple[str, Result]]:
        """Yield every item's id and result once, as they arrive."""
        waiting: set[str] = set()
        blocks = [ray.put(block) for block in _blocks(items, stage.items_per_call, waiting)]
        if not blocks:
            return
        for table in self._delivered(stage, blocks):
            for item, content, failed in zip(*(column.to_pylist() for column in table.columns), strict=True):
                result = cloudpickle.loads(content)
                if failed:
                    raise result
                waiting.remove(item)
                yield item, result
        if waiting:
            raise RunError(f"{stage.name}: Ray ended without {len(waiting)} results. Run the same command again.")

    def _delivered(self, stage: Stage[Payload, Result], blocks: list[Any]) -> Iterator[Any]:
        quiet = ray.data.DataContext.get_current().copy()
        quiet.enable_progress_bars = False  # the caller shows one of its own
        with ray.data.DataContext.current(quiet), warnings.catch_warnings():
            # Ray 2.60 has no other way to bound the retries, and warns that this one will go with 2.64.
            warnings.simplefilter("ignore")
            results = ray.data.from_arrow_refs(blocks).map_batches(
                _Host,
                fn_constructor_kwargs={
                    "make_worker": stage.make_worker,
                    "stage_name": stage.name,
                    "folder": str(Path.cwd()),
                },
                compute=ray.data.ActorPoolStrategy(size=min(self.workers, len(blocks))),
                batch_size=stage.items_per_call,
                batch_format="pyarrow",
                num_cpus=1,
                num_gpus=self.worker_gpus,
                runtime_env={
                    "env_vars": {
                        "OMP_NUM_THREADS": (os.environ.get("OMP_NUM_THREADS") or str(len(os.sched_getaffinity(0))))
                    }
                },
                max_task_retries=RETRIES,
            )
        try:
            # One block at a time: what has arrived can be written at once.
            yield from results.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        except (RayActorError, RaySystemError) as error:
            raise RunError(
                f"{stage.name}: workers died {RETRIES + 1} times over the same work, perhaps for lack of memory. "
                "What was finished is kept: run the same command again, with fewer --workers or a smaller batch."
            ) from error


class _Host:
    """Lives in an actor: builds the stage's worker once, and gives it one block after the other."""

    def __init__(self, make_worker: Callable[[], Worker[Any, Any]], stage_name: str, folder: str) -> None:
        self._make_worker = make_worker
        self._stage_name = stage_name
        self._worker: Worker[Any, Any] | None = None
        if Path(folder).is_dir():
            os.chdir(folder)  # so that a relative path means what it means where the command was typed

    def __call__(self, block: Any) -> Any:
        """Return the results of a block, or the error that the user can mend."""
        ids = block.column("id").to_pylist()
        payloads = [cloudpickle.loads(content) for content in block.column("payload").to_pylist()]
        try:
            # Not in the constructor: an actor that fails there is started again and again.
            self._worker = self._worker or self._make_worker()
            results = call_worker(self._worker, payloads, self._stage_name)
        except PrbenchError as error:
            return _result_block(ids, [error] * len(ids), failed=True)
        return _result_block(ids, results, failed=False)


def _blocks(items: Iterable[WorkItem[Payload]], size: int, waiting: set[str]) -> Iterator[Any]:
    """Yield the items in blocks of one call each, and note their ids."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        ids = [item.id for item in batch]
        repeated = [item for item in ids if item in waiting]
        assert not repeated, f"two items have the id {repeated[0]!r}"
        waiting.update(ids)
        payloads = [cloudpickle.dumps(item.payload) for item in batch]
        yield pa.table({"id": pa.array(ids, pa.string()), "payload": pa.array(payloads, pa.large_binary())})


def _result_block(ids: list[str], results: list[Any], *, failed: bool) -> Any:
    contents = [cloudpickle.dumps(result) for result in results]
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "result": pa.array(contents, pa.large_binary()),
            "failed": pa.array([failed] * len(ids)),
        }
    )


def _connect(address: str | None, workers: int | None) -> None:
    """Join the cluster at `address`, or start Ray on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine unless asked
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # dead workers are reported in words of our own
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its errors are raised here, with their causes
    said: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        cores = os.cpu_count() or 1
        ray.init("local", num_cpus=max(cores, (workers or 1) + 1), include_dashboard=False, **said)
        return
    _check_address_answers(address)
    try:
        ray.init(address, **said)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"--ray-address {address}: {error}") from error


def _check_address_answers(address: str) -> None:
    """Ask whether anybody listens there: Ray itself would try for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        if address == "auto":
            return
        raise UsageError(f"--ray-address {address}: write HOST:PORT of the cluster's head node, or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"--ray-address {address}: nobody answers there ({error}). Start a cluster with `ray start --head`."
        ) from error
