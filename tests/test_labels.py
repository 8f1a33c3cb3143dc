"""Labelled pairs of the same user on the way through an evaluation."""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prbench.data import DataSettings, open_examples
from prbench.errors import UsageError
from prbench.evaluation import evaluate, open_labels
from prbench.evaluation.engines import LocalEngine, Payload, Result, Stage, WorkItem
from prbench.people.annotate.records import ItemAnswer, Mode, Reason, Status
from prbench.people.annotate.rows import pair_rows
from prbench.people.annotate.store import Plan, Store, create
from prbench.reward_models.fake import FakeReward
from prbench.schema import Verdict

Rows = Callable[[int], list[dict[str, Any]]]


def recorder() -> FakeReward:
    return FakeReward(lambda each: float("thrift" in each.response))


def test_a_users_other_pairs_can_be_the_labels_of_each(rows: Rows) -> None:
    """Twelve pairs of three users serve as each other's labels: leave one out."""
    model = recorder()
    run = evaluate(rows(12), model, context="none", labels=rows(12), shots=30)
    own = [each for each in model.inputs if each.context]
    assert own
    for each in own:
        seen = each.user.labels
        assert each.question not in [label.question for label in seen]
        assert len(seen) in (3, 4)  # own: the user's three other pairs; swapped: all four of somebody else
        assert all("thrift" in label.chosen for label in seen)
    assert {each.context for each in model.inputs} - {each.context for each in own} == {""}  # probe `none`
    assert run.summary["context"] == "none, 30 labels"


def test_labels_are_added_to_the_posts(rows: Rows) -> None:
    model = recorder()
    evaluate(rows(3), model, context="profile", labels=rows(12)[3:], shots=2)
    for each in model.inputs:
        if each.context:
            assert len(each.user.labels) == 2
            assert len(each.user.segments) == 4


def test_a_run_with_labels_is_another_run(rows: Rows, tmp_path: Path) -> None:
    def run_id(**labels: Any) -> str:
        return str(evaluate(rows(4), "fake:keyword=thrift", out=tmp_path, **labels).summary["run_id"])

    plain = run_id()
    assert len({plain, run_id(labels=rows(9)), run_id(labels=rows(9), shots=1), run_id(labels=rows(8))}) == 4
    assert run_id() == plain


class InWorkers:
    """An engine whose worker gets a pickled copy of all it needs."""

    loads_in_workers = True

    def run(self, stage: Stage[Payload, Result], items: Iterable[WorkItem[Payload]]) -> Iterator[tuple[str, Result]]:
        return LocalEngine().run(pickle.loads(pickle.dumps(stage)), items)


def test_workers_see_the_same_labels(rows: Rows, tmp_path: Path) -> None:
    data = rows(6)
    here = evaluate(data, "control:overlap", out=tmp_path / "here", labels=rows(12))
    there = evaluate(data, "control:overlap", out=tmp_path / "there", labels=rows(12), engine=InWorkers())
    assert here.folder is not None
    assert there.folder is not None
    assert (here.folder / "items.jsonl").read_bytes() == (there.folder / "items.jsonl").read_bytes()
    assert [row.posts_used for row in there.rows(probe="own")] == [7] * 6  # three labels and four posts


def test_lab_labels_are_for_the_lab_only() -> None:
    with pytest.raises(UsageError, match=r"--labels lab are of the users of --data lab, not of pairs\.jsonl"):
        open_labels("lab", DataSettings(source="pairs.jsonl"))
    with pytest.raises(UsageError, match=r"none for the users of train\. Use --split with test, test_"):
        open_labels("lab", DataSettings(source="lab", split="train"))


def test_pairs_that_people_gave_in_the_annotation_app_serve_as_labels(rows: Rows, tmp_path: Path) -> None:
    """What `prbench annotate export --format pairs` writes, read back by `--labels`."""
    plan = Plan(mode=Mode.COLLECT, annotators=["ada"], overlap=1, data="pairs.jsonl")
    create(tmp_path / "study.db", open_examples(rows(6)), plan)
    store = Store(tmp_path / "study.db")
    store.save_about(1, ("I grow beans.",), seen=0, tab="t")
    for position, _, _ in store.positions(1):
        choice = (Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE)[position % 3]
        answer = ItemAnswer(choice=choice, why=(Reason(aspect="thrift"),))
        store.save(1, position, answer, Status.DONE, seen=0, tab="t", seconds=1.0)
    collected = pair_rows(store)
    store.close()
    assert len(collected) == 4  # of six, two were ties
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in collected))

    seen_before = [row | {"user_id": "ada", "id": f"test-{row['id']}"} for row in rows(6)]
    new = rows(7)[6:]
    model = recorder()
    evaluate([*seen_before, new[0] | {"user_id": "ada"}], model, context="none", labels=path)
    answers = {row["question"]: (row["chosen"], row["rejected"]) for row in collected}
    for each in model.inputs:
        seen = {label.question: (label.chosen, label.rejected) for label in each.user.labels}
        assert seen.items() <= answers.items()
        assert each.question not in seen  # ada judged this pair herself, under another id
        if each.context:
            assert len(seen) == (3 if each.question in answers else 4)
