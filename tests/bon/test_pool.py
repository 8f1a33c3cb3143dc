"""The pool: sampled once, the same bytes however often it was interrupted, and another one for anything else."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.bon.conftest import Counting

from prbench.backends.llm import FakeLLM
from prbench.backends.policy import Prompt, Sample
from prbench.context import make_context
from prbench.data import open_examples
from prbench.downstream.best_of_n.pool import SAMPLES, Pool, PoolQuestion, kept_pool, make_pool, select_questions
from prbench.downstream.policies import ChatPolicy
from prbench.errors import DataError, RunError, UsageError
from prbench.runs.files import lock_folder

Rows = Callable[[int], list[dict[str, Any]]]


def pool_of(
    questions: list[PoolQuestion], policy: Any, out: Path, *, n: int = 4, context: str = "none", **more: Any
) -> Pool:
    settings = {"seed": 0, "data_hash": "d", **more}
    return make_pool(questions, policy, make_context(context, posts=2), out, n=n, **settings)


def test_what_is_there_is_not_sampled_again(questions: list[PoolQuestion], tmp_path: Path) -> None:
    policy = Counting()
    first = pool_of(questions, policy, tmp_path)
    assert policy.asked == [question.id for question in questions]
    assert pool_of(questions, policy, tmp_path) == first
    assert len(policy.asked) == 12
    assert first.answers["item-003"] == tuple(f"worth {number} of item-003" for number in range(4))


def test_a_pool_is_read_without_its_policy(questions: list[PoolQuestion], tmp_path: Path) -> None:
    pool = pool_of(questions, Counting(), tmp_path)
    before = (pool.folder / SAMPLES).read_bytes()
    assert kept_pool(pool.folder, questions, data_hash="d") == pool
    assert list(kept_pool(pool.folder, questions[:5], data_hash="d").answers) == [each.id for each in questions[:5]]
    assert (pool.folder / SAMPLES).read_bytes() == before


def test_what_is_no_pool_for_these_rows_is_refused_by_name(questions: list[PoolQuestion], tmp_path: Path) -> None:
    few = pool_of(questions[:5], Counting(), tmp_path)
    with pytest.raises(DataError, match="has no answers to item-005"):
        kept_pool(few.folder, questions, data_hash="d")
    with pytest.raises(DataError, match="other rows"):
        kept_pool(few.folder, questions[:5], data_hash="e")
    with pytest.raises(UsageError, match="is no pool"):
        kept_pool(tmp_path, questions[:5], data_hash="d")
    (few.folder / SAMPLES).unlink()
    with pytest.raises(UsageError, match="is no pool"):
        kept_pool(few.folder, questions[:5], data_hash="d")
    assert not (few.folder / SAMPLES).exists()  # nothing is made of what is not there
    (tmp_path / "manifest.json").write_text('{"kind": "pool", "config": {}}')
    (tmp_path / SAMPLES).write_text("")
    with pytest.raises(DataError, match="does not say how many"):
        kept_pool(tmp_path, questions[:5], data_hash="d")


def test_more_questions_of_the_same_data_join_the_pool(questions: list[PoolQuestion], tmp_path: Path) -> None:
    policy = Counting()
    few = pool_of(questions[:5], policy, tmp_path / "grown")
    assert pool_of(questions, policy, tmp_path / "grown").id == few.id
    assert len(policy.asked) == 12
    whole = pool_of(questions, Counting(), tmp_path / "whole")
    assert (few.folder / SAMPLES).read_bytes() == (whole.folder / SAMPLES).read_bytes()


def test_fewer_questions_leave_the_files_as_they_are(questions: list[PoolQuestion], tmp_path: Path) -> None:
    backwards = questions[::-1]  # ids in another order than the alphabet's
    pool = pool_of(backwards, Counting(), tmp_path)
    before = (pool.folder / SAMPLES).read_bytes()
    for some in (backwards[:5], backwards[6:9], backwards[-1:]):
        pool_of(some, Counting(), tmp_path)
        assert (pool.folder / SAMPLES).read_bytes() == before


def test_other_questions_join_without_moving_the_first(questions: list[PoolQuestion], tmp_path: Path) -> None:
    pool = pool_of(questions[4:8], Counting(), tmp_path)
    pool_of([*questions[:2], questions[6]], Counting(), tmp_path)
    ids = [json.loads(line)["id"] for line in (pool.folder / SAMPLES).read_text().splitlines()]
    numbers = [4, 5, 0, 7, 1, 6]  # 0, 1 and 6 in order, in the places that 6, 0 and 1 had
    assert ids == [questions[number].id for number in numbers]


def test_each_of_policy_data_context_size_and_seed_makes_another_pool(
    questions: list[PoolQuestion], tmp_path: Path
) -> None:
    class Other(Counting):
        name = "other"

    ids = [
        pool_of(questions, Counting(), tmp_path).id,
        pool_of(questions, Other(), tmp_path).id,
        pool_of(questions, Counting(), tmp_path, n=5).id,
        pool_of(questions, Counting(), tmp_path, context="profile").id,
        pool_of(questions, Counting(), tmp_path, seed=1).id,
        pool_of(questions, Counting(), tmp_path, data_hash="e").id,
    ]
    assert len(set(ids)) == len(ids)


def test_a_failed_sample_is_an_error_row_and_the_next_run_asks_again(
    questions: list[PoolQuestion], tmp_path: Path
) -> None:
    broken = Counting(failing=["item-002"])
    pool = pool_of(questions, broken, tmp_path)
    assert pool.incomplete == {"item-002": "HTTP 500"}
    assert "item-002" not in pool.answers
    kept = [json.loads(line) for line in (pool.folder / SAMPLES).read_text().splitlines()]
    assert kept[2]["samples"][-1] == {"error": "HTTP 500"}
    mended = Counting()
    assert not pool_of(questions, mended, tmp_path).incomplete
    assert mended.asked == ["item-002"]
    whole = pool_of(questions, Counting(), tmp_path / "whole")
    assert (pool.folder / SAMPLES).read_bytes() == (whole.folder / SAMPLES).read_bytes()


def test_the_policy_sees_posts_only_where_it_is_told_so(questions: list[PoolQuestion], tmp_path: Path) -> None:
    silent, told = Counting(), Counting()
    pool_of(questions, silent, tmp_path)
    pool_of(questions, told, tmp_path, context="profile")
    assert {prompt.context for prompt in silent.prompts} == {""}
    assert all("wrote post 3" in prompt.context and "low cost" not in prompt.context for prompt in told.prompts)
    knowing = Counting()
    pool_of(questions, knowing, tmp_path, context="oracle")
    assert all("low cost" in prompt.context and "wrote post 3" not in prompt.context for prompt in knowing.prompts)


def test_the_policy_sees_a_plan_and_is_not_asked_where_none_could_be_made(
    questions: list[PoolQuestion], tmp_path: Path
) -> None:
    plan = "- Low cost: Money is short."
    planner = FakeLLM(lambda request: "no plan" if "User 2" in request.messages[-1].content else plan)
    maker = make_context("plan", posts=2, planner=planner)
    policy = Counting()
    pool = make_pool(questions, policy, maker, tmp_path, n=4, seed=0, data_hash="d")
    untold = [question.id for question in questions if question.example.user.id == "user-2"]
    assert sorted(pool.incomplete) == sorted(untold) != []
    assert all("Low cost: Money is short." in prompt.context for prompt in policy.prompts)
    assert len(policy.prompts) == len(questions) - len(untold)


def test_posts_that_leave_no_room_for_an_answer_are_dropped(questions: list[PoolQuestion], tmp_path: Path) -> None:
    roomy = FakeLLM("Plant basil.")
    pool_of(questions[:2], ChatPolicy(roomy, temperature=1.0, max_tokens=20), tmp_path / "1", context="profile", n=1)
    texts = [request.messages[-1].content for request in roomy.requests]
    assert all(("wrote post 3" in text) and ("wrote post 2" in text) for text in texts)
    narrow = FakeLLM("Plant basil.", window=roomy.count_tokens(roomy.requests[0].messages) + 20 - 1)
    pool_of(questions[:2], ChatPolicy(narrow, temperature=1.0, max_tokens=20), tmp_path / "2", context="profile", n=1)
    texts = [request.messages[-1].content for request in narrow.requests]
    assert all(("wrote post 3" in text) and ("wrote post 2" not in text) for text in texts)


def test_an_unfinished_last_line_is_forgotten(questions: list[PoolQuestion], tmp_path: Path) -> None:
    pool = pool_of(questions, Counting(), tmp_path)
    path = pool.folder / SAMPLES
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    again = Counting()
    pool_of(questions, again, tmp_path)
    assert again.asked == ["item-011"]
    assert path.read_bytes() == whole


def test_a_damaged_line_is_named(questions: list[PoolQuestion], tmp_path: Path) -> None:
    path = pool_of(questions, Counting(), tmp_path).folder / SAMPLES
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(RunError, match=r"samples.jsonl:1: not a row of ours"):
        pool_of(questions, Counting(), tmp_path)


def test_a_second_writer_is_refused(questions: list[PoolQuestion], tmp_path: Path) -> None:
    pool = pool_of(questions, Counting(), tmp_path)
    with lock_folder(pool.folder), pytest.raises(RunError, match="another process"):
        pool_of(questions, Counting(), tmp_path)


def test_a_slow_policy_is_written_down_more_often(questions: list[PoolQuestion], tmp_path: Path) -> None:
    class Slow(Counting):
        at_once = 8
        steps: ClassVar[list[int]] = []

        def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
            self.steps.append(len(prompts))
            return super().sample(prompts, n=n, seed=seed)

    pool_of(questions, Slow(), tmp_path)
    assert Slow.steps == [2] * 6
    pool_of(questions, Slow(), tmp_path, n=20)
    assert Slow.steps[6:] == [1] * 12


def test_nothing_to_sample_is_refused(questions: list[PoolQuestion], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--n 0"):
        pool_of(questions, Counting(), tmp_path, n=0)


def test_rows_that_ask_the_same_are_one_question(rows: Rows) -> None:
    doubled = [*rows(6), *(row | {"id": f"again-{row['id']}", "chosen": "Other."} for row in rows(6))]
    with open_examples(doubled) as store:
        assert [question.id for question in select_questions(store)] == [row["id"] for row in rows(6)]


def test_users_and_limit_cap_the_questions(rows: Rows) -> None:
    with open_examples(rows(12)) as store:
        assert {q.example.user.id for q in select_questions(store, users=2)} == {"user-0", "user-1"}
        assert len(select_questions(store, users=2)) == 8
        assert [q.id for q in select_questions(store, users=2, limit=3)] == ["item-000", "item-001", "item-003"]
        with pytest.raises(UsageError, match="at least 2 users"):
            select_questions(store, limit=1)


def test_the_swapped_user_is_the_one_that_eval_shows(rows: Rows) -> None:
    with open_examples(rows(12)) as store:
        for place, question in enumerate(select_questions(store, seed=3)):
            assert question.donor == store.donor(place, 3)
            assert question.donor is not None
            assert question.donor.id != question.example.user.id


DYING = """
import os, signal, sys
from pathlib import Path
from prbench.downstream.best_of_n.pool import make_pool
from prbench.downstream.best_of_n.pool import select_questions
from prbench.context import make_context
from prbench.data import open_examples
from prbench.lab.policy import LabPolicy
from prbench.lab import default_dataset

class Dying(LabPolicy):
    calls = 0
    def sample(self, prompts, *, n, seed):
        self.calls += 1
        if self.calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().sample(prompts, n=n, seed=seed)

with open_examples(default_dataset("test")[:60]) as store:
    make_pool(select_questions(store), Dying(), make_context("none"), Path(sys.argv[1]), n=32, seed=0, data_hash="d")
"""


def test_killed_and_resumed_it_has_the_same_bytes(tmp_path: Path) -> None:
    def run(out: Path, calls_to_live: int) -> int:
        return subprocess.run([sys.executable, "-c", DYING, str(out), str(calls_to_live)]).returncode

    assert run(tmp_path / "whole", 0) == 0
    codes = [run(tmp_path / "killed", calls) for calls in (3, 2, 0)]
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    (whole,), (killed,) = (list((tmp_path / name).rglob(SAMPLES)) for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()
    assert whole.read_bytes().count(b"\n") == 60
