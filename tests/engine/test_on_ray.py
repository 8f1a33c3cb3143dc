"""Stages on a real Ray cluster of two nodes: every result once, also when workers are killed."""

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs pip install 'prbench[ray]'")

import ray

from prbench.errors import DataError, RunError, UsageError
from prbench.evaluation.engines import Stage, WorkItem, open_engine
from prbench.evaluation.on_ray import RayEngine

pytestmark = pytest.mark.slow
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


@pytest.fixture
def engine(cluster: str) -> Iterator[RayEngine]:
    with RayEngine(address=cluster, workers=2) as opened:
        yield opened


@dataclass(frozen=True)
class Squares:
    """Makes workers that square numbers and note what they do; the first one that gets a number of `traps` hangs."""

    log: Path
    traps: tuple[int, ...] = ()

    def __call__(self) -> "SquaresWorker":
        return SquaresWorker(self)


class SquaresWorker:
    def __init__(self, how: Squares) -> None:
        self.how = how
        self.note("made")

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        is_second_time = any(f"begin {numbers[0]}\n" in line for line in self.how.log.open())
        self.note(f"begin {numbers[0]}")
        if numbers[0] in self.how.traps and not is_second_time:
            time.sleep(600)
        self.note(f"end {numbers[0]}")
        return [number * number for number in numbers]

    def note(self, text: str) -> None:
        with self.how.log.open("a") as file:
            file.write(f"{os.getpid()} {text}\n")


def kill_who_begins(number: int, log: Path) -> threading.Thread:
    """Kill the worker process that begins with this number, as soon as it does."""

    def watch() -> None:
        while True:
            for line in log.read_text().splitlines():
                process, what, *which = line.split()
                if what == "begin" and which == [str(number)]:
                    os.kill(int(process), signal.SIGKILL)
                    return
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_a_killed_worker_loses_nothing_and_repeats_nothing_that_was_finished(
    engine: RayEngine, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    killer = kill_who_begins(7, log)
    stage = Stage(name="squares", make_worker=Squares(log, traps=(7,)))
    results = list(engine.run(stage, (WorkItem(id=str(n), payload=n) for n in range(30))))
    killer.join(timeout=1)
    assert not killer.is_alive()
    assert sorted((int(item), result) for item, result in results) == [(n, n * n) for n in range(30)]
    noted = [line.split(maxsplit=1) for line in log.read_text().splitlines()]
    assert (
        len({process for process, what in noted if what == "made"}) == 3
    )  # two workers, and one in place of the dead
    begun = Counter(what for _, what in noted if what.startswith("begin"))
    ended = Counter(what for _, what in noted if what.startswith("end"))
    assert ended == {f"end {n}": 1 for n in range(30)}
    assert begun == {f"begin {n}": 2 if n == 7 else 1 for n in range(30)}


def test_work_that_kills_every_worker_ends_with_one_line(engine: RayEngine) -> None:
    stage: Stage[int, int] = Stage(name="deadly", make_worker=lambda: lambda _: os.kill(os.getpid(), 9))  # type: ignore[arg-type, return-value]
    with pytest.raises(RunError, match="deadly: workers died 4 times over the same work"):
        list(engine.run(stage, [WorkItem(id="x", payload=1)]))


def test_errors_that_a_user_can_fix_arrive_as_they_were_raised(engine: RayEngine) -> None:
    def make() -> None:
        raise DataError("weights.bin: is empty. Copy it again.")

    stage: Stage[int, int] = Stage(name="broken", make_worker=make)  # type: ignore[arg-type, return-value]
    with pytest.raises(DataError, match=r"^weights\.bin: is empty\. Copy it again\.$"):
        list(engine.run(stage, [WorkItem(id="x", payload=1)]))


def test_items_travel_in_groups_and_nothing_to_do_is_nothing(engine: RayEngine) -> None:
    stage = Stage(name="sizes", make_worker=lambda: lambda numbers: [len(numbers)] * len(numbers), items_per_call=2)
    found = dict(engine.run(stage, [WorkItem(id=str(n), payload=n) for n in range(5)]))
    assert found == {"0": 2, "1": 2, "2": 2, "3": 2, "4": 1}
    assert list(engine.run(stage, [])) == []


def test_the_pool_has_one_worker_per_node_with_the_threads_of_this_process(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    stage: Stage[int, str] = Stage(name="threads", make_worker=lambda: lambda _: [os.environ["OMP_NUM_THREADS"]])
    with RayEngine(address=cluster) as engine:
        assert (engine.workers, engine.worker_gpus) == (2, 0.0)
        assert list(engine.run(stage, [WorkItem(id="x", payload=1)])) == [("x", "3")]
    with pytest.raises(UsageError, match="4 CPUs and 0 GPUs, and a worker needs 1 and 1"):
        RayEngine(address=cluster, worker_gpus=1).__enter__()
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    "address,line", [("127.0.0.1:1", "nobody answers there"), ("somewhere", "write HOST:PORT of the cluster's head")]
)
def test_an_address_without_a_cluster_is_one_line(address: str, line: str) -> None:
    with pytest.raises(UsageError, match=line), open_engine("ray", address=address):
        pass
