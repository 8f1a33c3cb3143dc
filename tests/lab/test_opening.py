"""The lab as `--data lab` opens it: the same rows as from a file, without the work of reading one."""

import pickle
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from prbench.data import DataSettings, open_data, open_examples
from prbench.errors import DataError, UsageError
from prbench.evaluation import evaluate, open_labels
from prbench.lab import DEFAULT_SIZES, LABEL_SPLITS, default_dataset, make_labels, pairs, population
from prbench.lab.population import CATEGORIES

FEW = 40


def rows_of(split: str) -> list[Any]:
    if split in LABEL_SPLITS:
        return list(islice(make_labels(split, DEFAULT_SIZES[LABEL_SPLITS[split]].users), FEW))
    return default_dataset(split)[:FEW]


@pytest.mark.parametrize("split", [*DEFAULT_SIZES, *LABEL_SPLITS])
def test_it_is_what_the_same_rows_are_when_they_are_checked(split: str) -> None:
    with open_examples(rows_of(split)) as checked, open_examples("lab", split=split, limit=FEW) as store:
        assert list(store) == list(checked)
        assert (store.content_hash, store.kind, store.bad_rows) == (checked.content_hash, "pairs", [])
        assert (store.users, store.categories) == (checked.users, checked.categories)
        for position in range(FEW):
            assert store.position(store[position].id) == position
            assert store.donor(position, seed=3) == checked.donor(position, seed=3)
        assert store[-1] == checked[-1]
        with pytest.raises(IndexError):
            store[FEW]


def test_the_whole_default_set_has_the_hash_that_runs_are_named_after() -> None:
    with open_examples("lab") as store, open_examples(default_dataset()) as checked:
        assert store.content_hash == checked.content_hash
        assert len(store) == DEFAULT_SIZES["test"].pairs


def test_records_can_be_sent_to_workers() -> None:
    with open_examples("lab", limit=2) as store:
        assert pickle.loads(pickle.dumps(list(store))) == list(store)


def test_a_category_and_a_limit_choose_rows() -> None:
    wanted = [example for example in default_dataset() if example.category == CATEGORIES[1]][:5]
    with open_examples("lab", subset=CATEGORIES[1], limit=5) as store:
        assert list(store) == wanted
    with pytest.raises(DataError, match="lab: no row has the wanted category"):
        open_examples("lab", subset="Sport")
    with pytest.raises(UsageError, match="The limit is 0"):
        open_examples("lab", limit=0)
    with pytest.raises(UsageError, match="lab: has no revision"):
        open_examples("lab", revision="main")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the rows that are made, checked, and read back."""
    counted: Counter[str] = Counter()

    def count(where: str, name: str) -> None:
        module_name, _, attribute = where.rpartition(".")
        module = __import__(module_name, fromlist=[attribute])
        function: Callable[..., Any] = getattr(module, attribute)

        def counting(*args: Any, **settings: Any) -> Any:
            counted[name] += 1
            return function(*args, **settings)

        monkeypatch.setattr(module, attribute, counting)

    count(f"{pairs.__name__}._example", "pairs made")
    count(f"{population.__name__}.draw_user", "users made")
    for border in ("to_example", "to_rated"):
        count(f"prbench.data.store.{border}", "rows checked")
    count("prbench.data.store.from_checked_row", "rows read back")
    return counted


def test_twelve_pairs_cost_twelve_pairs(calls: Counter[str], tmp_path: Path) -> None:
    run = evaluate("lab", "control:longest", which=DataSettings(limit=12), out=tmp_path)
    assert len(run.items) == 36
    assert calls["pairs made"] == 12
    assert calls["users made"] < 100  # of 400: those who ask, and those looked at for one who wants the opposite
    assert calls["rows checked"] == calls["rows read back"] == 0


def test_the_labs_own_labels_are_not_checked_either(calls: Counter[str]) -> None:
    labels = open_labels("lab", DataSettings(source="lab"))
    assert len(labels.of_user) == DEFAULT_SIZES["test"].users
    assert calls["rows checked"] == calls["rows read back"] == 0


def test_what_people_give_is_checked_whatever_its_type(calls: Counter[str]) -> None:
    with open_data(DataSettings(), default_dataset()[:3]) as store:
        assert calls["rows checked"] == 3
        assert len(list(store)) == calls["rows read back"] == 3
