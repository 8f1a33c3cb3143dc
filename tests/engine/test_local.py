"""The engine of one process, and how engines are named."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from prbench.errors import UsageError
from prbench.evaluation.engines import LocalEngine, Stage, WorkItem, open_engine


class Doubles:
    """Doubles numbers, and keeps how they were handed to it."""

    def __init__(self) -> None:
        self.made = 0
        self.calls: list[list[int]] = []

    def make(self) -> "Doubles":
        self.made += 1
        return self

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append(list(numbers))
        return [2 * number for number in numbers]


def items(*numbers: int) -> list[WorkItem[int]]:
    return [WorkItem(id=f"n{number}", payload=number) for number in numbers]


def test_results_come_with_their_ids_and_items_are_handed_over_in_groups() -> None:
    worker = Doubles()
    stage = Stage(name="double", make_worker=worker.make, items_per_call=2)
    assert list(LocalEngine().run(stage, items(1, 2, 3))) == [("n1", 2), ("n2", 4), ("n3", 6)]
    assert worker.calls == [[1, 2], [3]]
    assert worker.made == 1


def test_a_result_is_there_before_the_next_item_is_asked_for() -> None:
    worker = Doubles()
    results = LocalEngine().run(Stage(name="double", make_worker=worker.make), items(1, 2))
    assert next(results) == ("n1", 2)
    assert worker.calls == [[1]]


def test_no_work_makes_no_worker() -> None:
    worker = Doubles()
    assert list(LocalEngine().run(Stage(name="double", make_worker=worker.make), [])) == []
    assert worker.made == 0


def test_a_worker_that_drops_a_result_is_refused() -> None:
    stage: Stage[int, int] = Stage(name="drop", make_worker=lambda: lambda numbers: [1], items_per_call=2)
    with pytest.raises(UsageError, match="drop: 1 results for 2 items"):
        list(LocalEngine().run(stage, items(1, 2)))


@pytest.mark.parametrize(
    "settings,line",
    [
        ({"name": "spark"}, "--engine spark: unknown. Use local or ray."),
        ({"workers": 2}, "--workers 2 needs --engine ray"),
        ({"worker_gpus": 0.0}, "--worker-gpus 0.0 needs --engine ray"),
        ({"address": "auto"}, "--ray-address auto needs --engine ray"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line), open_engine(**settings):
        pass


def test_where_ray_is_missing_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "prbench.evaluation.on_ray", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'prbench\[ray\]'"), open_engine("ray"):
        pass
