"""Planner quality: matching, reading, figures by hand, and the whole command on a script."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.planner_evaluation.probes import PROBES

from prbench.backends.llm import LLM, ChatRequest, FakeLLM, Finish, Message, Reply
from prbench.data import DataSettings
from prbench.data.rows import as_row
from prbench.errors import RunError, UsageError
from prbench.insight.planner_evaluation import (
    Matching,
    PlannerSettings,
    PlanRow,
    TraitReader,
    match_traits,
    measure_planner,
    read_matching,
    summarize_plans,
    wanted_traits,
)
from prbench.lab import default_dataset
from prbench.lab.gold import aspect_traits
from prbench.runs.files import lock_folder

SETTINGS = PlannerSettings(planner="fake:planner", judge="fake:judge")


@pytest.mark.parametrize(
    "pairs,size",
    [
        ((), 0),
        (((0, 0),), 1),
        (((0, 0), (0, 1), (0, 2)), 1),  # one vague guess serves everything, and counts once
        (((0, 0), (1, 0)), 1),
        (((0, 0), (0, 1), (1, 0)), 2),  # greedy from the left would find one
        (((0, 1), (1, 0), (1, 2), (2, 1)), 2),
        (((2, 0), (4, 1), (2, 1)), 2),
    ],
)
def test_an_aspect_counts_once_on_either_side(pairs: tuple[tuple[int, int], ...], size: int) -> None:
    assert Matching(pairs=tuple(pairs)).matched == size


@pytest.mark.parametrize(
    "text,pairs",
    [
        ('{"pairs": [{"guess": 1, "true": 2}]}', ((0, 1),)),
        ('{"pairs": []}', ()),
        ('Here you are:\n```json\n{"pairs": [{"guess": 2, "true": 1}, {"guess": 2, "true": 1}]}\n```', ((1, 0),)),
        ('<think>{"pairs": []}</think>{"pairs": [{"guess": 1, "true": 1},]}', ((0, 0),)),
        ('{"pairs": [[1, 2], ["2", "1"]]}', ((0, 1), (1, 0))),
        ('{"pairs": [{"guess": 3, "true": 1}]}', None),  # there are two guesses
        ('{"pairs": [{"guess": 0, "true": 1}]}', None),
        ('{"pairs": [{"guess": 1}]}', None),
        ('{"pairs": [{"guess": true, "true": 1}]}', None),
        ('{"pairs": [["%s", "1"]]}' % ("9" * 5000), None),
        ('{"pairs": [["١", "1"]]}', None),
        ('{"pairs": "none"}', None),
        ("1 and 2 say the same.", None),
        ("", None),
    ],
)
def test_replies_of_the_judge(text: str, pairs: Any) -> None:
    assert read_matching(Reply(text=text), planned=2, wanted=2).pairs == pairs


def test_why_a_reply_cannot_be_read_is_kept() -> None:
    assert read_matching(Reply(finish=Finish.ERROR, error="busy"), 1, 1).problem == "failed"
    assert read_matching(Reply(text='{"pairs": [', finish=Finish.LENGTH), 1, 1).problem == "out_of_tokens"
    assert read_matching(Reply(text='{"pairs": []}', finish=Finish.LENGTH), 1, 1).problem == "out_of_tokens"
    assert read_matching(Reply(text='{"pairs": []}', finish=Finish.WRONG_MODEL), 1, 1).problem == "wrong_model"
    assert read_matching(Reply(text="no"), 1, 1).problem == "no_verdict"


def row(user: str, wanted: int, planned: int, pairs: Any, problem: str = "") -> PlanRow:
    return PlanRow(
        id=f"{user}-{planned}",
        user_id=user,
        category="",
        wanted=("w",) * wanted,
        planned=("p",) * planned,
        problem=problem,
        judged=Matching(pairs=pairs, problem="" if pairs is not None else "no_verdict"),
    )


def test_figures_worked_out_by_hand() -> None:
    rows = [
        row("ann", 3, 2, ((0, 0), (1, 2))),  # both guesses right, two of three found
        row("ann", 2, 4, ((0, 0), (1, 0))),  # one counts
        row("bob", 3, 0, (), problem="no_verdict"),  # no plan: three missed
        row("cat", 2, 5, None),  # the judge's reply cannot be read: left out
    ]
    figures = summarize_plans(rows)
    judged = figures["judge"]
    assert judged["precision"]["value"] == pytest.approx(3 / 6)
    assert judged["recall"]["value"] == pytest.approx(3 / 8)
    assert judged["recall_with_plan"]["value"] == pytest.approx(3 / 5)
    assert judged["judged"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert judged["unreadable"] == {"no_verdict": 1}
    assert figures["planned"]["value"] == 0.75
    assert figures["no_plan"] == {"no_verdict": 1}
    assert figures["aspects_per_plan"] == pytest.approx(11 / 3, abs=1e-6)
    assert figures["lab"] is None
    for name in ("precision", "recall"):
        assert judged[name]["low"] <= judged[name]["value"] <= judged[name]["high"]


def test_a_planner_that_never_plans_has_no_precision() -> None:
    figures = summarize_plans([row("ann", 3, 0, (), problem="no_verdict")])["judge"]
    assert (figures["precision"], figures["recall"]["value"], figures["judged"]) == (None, 0.0, None)


def test_a_failed_request_is_no_score() -> None:
    rows = [row("ann", 2, 2, ((0, 0),)), row("bob", 3, 0, (), problem="failed"), row("cat", 1, 0, (), "no_verdict")]
    figures = summarize_plans(rows)
    assert (figures["examples"], figures["failed"], figures["users"]) == (3, 1, 3)
    assert figures["planned"]["value"] == 0.5
    assert figures["judge"]["recall"]["value"] == pytest.approx(1 / 3, abs=1e-6)  # of two and one, without bob's three
    assert figures["no_plan"] == {"failed": 1, "no_verdict": 1}


def test_where_every_request_fails_there_are_no_figures() -> None:
    figures = summarize_plans([row("ann", 3, 0, (), problem="failed")])
    assert (figures["planned"], figures["judge"], figures["lab"], figures["failed"]) == (None, None, None, 1)


def test_a_judge_that_fails_counts_as_failed() -> None:
    broken = replace(row("ann", 1, 1, None), judged=Matching(pairs=None, problem="failed"))
    figures = summarize_plans([broken, row("bob", 1, 1, ((0, 0),))])
    assert figures["failed"] == 1
    assert figures["judge"]["recall"]["value"] == 1.0


@pytest.mark.parametrize("share,code", [("0.5", 1), ("1", 0)])
def test_a_dead_server_is_exit_code_1_and_no_recall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, share: str, code: int
) -> None:
    from prbench.cli import main

    broken = FakeLLM(Reply(finish=Finish.ERROR, error="connection failed"), name="fake:dead")
    monkeypatch.setattr("prbench.context.plan.load_llm", lambda spec, seed: broken)
    args = ["--planner", "fake:dead", "--data", "lab", "--limit", "4", "--out", str(tmp_path), "--max-failed", share]
    monkeypatch.setattr("sys.argv", ["prbench", "eval-planner", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == code
    said = capsys.readouterr().out
    assert "4 examples broke because of failed requests" in said
    assert "None" not in said
    assert "recall" not in said


def test_traits_match_by_name() -> None:
    assert match_traits(["thrift", "", "time", "thrift"], ["time", "thrift"]).pairs == ((0, 1), (2, 0), (3, 1))


def test_the_lab_knows_its_own_rubrics_and_no_others() -> None:
    example = default_dataset()[0]
    wanted = wanted_traits(example)
    assert wanted is not None
    assert set(wanted) <= set(example.meta["wanted"])
    from prbench.schema import Aspect

    assert wanted_traits(replace(example, rubric=(Aspect(aspect="something else"),))) is None


@pytest.fixture(scope="module")
def reader() -> TraitReader:
    pytest.importorskip("torch")
    return TraitReader()


@pytest.mark.slow
def test_the_reader_of_traits_on_aspects_that_did_not_set_its_thresholds(reader: TraitReader) -> None:
    # These are the figures that docs/how-to/planner.md states.
    held_out = PROBES[1::2]
    found = [reader.read([text], subject)[0] for subject, text, _ in held_out]
    about = [(trait, read) for (_, _, trait), read in zip(held_out, found, strict=True) if trait]
    assert len(about) == 26
    assert sum(read == trait for trait, read in about) == 23
    assert sum(read not in (trait, "") for trait, read in about) == 0
    assert sorted(bool(read) for (_, _, trait), read in zip(held_out, found, strict=True) if not trait) == [0, 1, 1]


def scripted(mistake: Callable[[list[str]], list[str]] = lambda names: names) -> dict[str, FakeLLM]:
    """A planner that knows the rubric of the question's user, and a judge that matches by name."""
    examples = default_dataset()[:40]

    def plan(request: ChatRequest) -> str:
        text = request.messages[-1].content
        mine = [example for example in examples if example.user.id == request.owner and example.question in text]
        names = [aspect.aspect for aspect in mine[0].rubric]
        return "\n".join(f"- {name}: it shows in the posts" for name in mistake(names))

    def judge(request: ChatRequest) -> str:
        text = request.messages[-1].content
        wanted, guessed = (_numbered(text, name) for name in ("true", "guessed"))
        same = [{"guess": i, "true": j} for i, one in guessed for j, other in wanted if one == other]
        return json.dumps({"pairs": same})

    return {"planner": FakeLLM(plan, name="fake:planner"), "judge": FakeLLM(judge, name="fake:judge")}


def _numbered(text: str, name: str) -> list[tuple[int, str]]:
    inside = text.split(f"<{name}-")[1].split(f"</{name}-")[0].split("\n")[1:-1]
    return [(int(line.split(". ")[0]), line.split(". ", 1)[1].split(":")[0]) for line in inside]


class OwnWords:
    """Reads the lab's own names of aspects, so that this test needs no encoder."""

    def read(self, planned: list[str], subject: str) -> list[str]:
        return [aspect_traits().get(text.split(":")[0], ("", ""))[1] for text in planned]


def run(
    out: Path, models: Mapping[str, LLM], limit: int = 40, settings: PlannerSettings = SETTINGS, source: str = "lab"
) -> dict[str, Any]:
    which = DataSettings(source=source, limit=limit)
    return measure_planner(settings, which, out, models=models, reader=OwnWords())  # type: ignore[arg-type]


def test_a_planner_that_knows_the_rubric_is_perfect_by_both_means(tmp_path: Path) -> None:
    figures = run(tmp_path, scripted())
    for means in ("judge", "lab"):
        assert (figures[means]["precision"]["value"], figures[means]["recall"]["value"]) == (1.0, 1.0)
    assert figures["lab"]["precision_by_chance"] < 0.75


def test_a_planner_that_makes_one_up_and_forgets_one_is_seen_by_both_means(tmp_path: Path) -> None:
    figures = run(tmp_path, scripted(lambda names: ["What everybody wants", *names[1:]]))
    rows = [json.loads(line) for line in (tmp_path / "planner" / "items.jsonl").read_text().splitlines()]
    planned = sum(len(one["planned"]) for one in rows)
    wanted = sum(len(one["wanted"]) for one in rows)
    for means in ("judge", "lab"):
        assert figures[means]["precision"]["value"] == pytest.approx((planned - 40) / planned, abs=1e-6)
        assert figures[means]["recall"]["value"] == pytest.approx((planned - 40) / wanted, abs=1e-6)


def test_the_same_command_again_asks_nothing_and_writes_the_same(tmp_path: Path) -> None:
    run(tmp_path, scripted(), limit=10)
    before = {name: (tmp_path / "planner" / name).read_bytes() for name in ("summary.json", "items.jsonl")}
    again = scripted()
    run(tmp_path, again, limit=10)
    assert [len(llm.requests) for llm in again.values()] == [0, 0]
    assert {name: (tmp_path / "planner" / name).read_bytes() for name in before} == before


class Trained:
    """A client at one name whose weights can be trained anew."""

    def __init__(self, inner: FakeLLM, fingerprint: str) -> None:
        self.inner, self.fingerprint = inner, fingerprint
        self.name, self.window = inner.name, inner.window

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        return self.inner.complete(requests)

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return self.inner.count_tokens(messages)


def test_who_is_refused_has_asked_nothing(tmp_path: Path) -> None:
    run(tmp_path, scripted(), limit=6)
    again = scripted()
    with pytest.raises(RunError, match=r"another context\.posts \(10\), settings\.posts"):
        run(tmp_path, again, limit=6, settings=replace(SETTINGS, posts=3))
    with lock_folder(tmp_path / "planner"), pytest.raises(RunError, match="another process"):
        run(tmp_path, again, limit=10)
    assert [len(llm.requests) for llm in again.values()] == [0, 0]


@pytest.mark.parametrize(
    "role, told", [("planner", r"context\.planner_fingerprint"), ("judge", r"judge\.fingerprint")]
)
def test_a_model_that_was_trained_anew_at_the_same_name_is_another_run(tmp_path: Path, role: str, told: str) -> None:
    first, second = (
        {name: Trained(llm, weights if name == role else "") for name, llm in scripted().items()}
        for weights in ("before", "after")
    )
    run(tmp_path, first, limit=6)
    run(tmp_path, first, limit=6)
    with pytest.raises(RunError, match=told):
        run(tmp_path, second, limit=6)
    assert [len(model.inner.requests) for model in second.values()] == [0, 0]


def test_the_data_says_whether_the_lab_knows_its_truth(tmp_path: Path) -> None:
    """Names of aspects that the lab has as well tell nothing: others may use the same words."""
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(as_row(example)) + "\n" for example in default_dataset()[:6]))
    figures = run(tmp_path / "out", scripted(), source=str(path))
    assert figures["lab"] is None
    assert figures["judge"]["recall"]["value"] == 1.0
    with pytest.raises(UsageError, match="Name a judge"):
        measure_planner(PlannerSettings(planner="fake:x"), DataSettings(source=str(path)), tmp_path / "other")


def test_replies_know_whose_they_are_so_that_they_can_be_forgotten(tmp_path: Path) -> None:
    from prbench.people.forget import forget

    run(tmp_path, scripted(), limit=6)
    user = json.loads((tmp_path / "planner" / "items.jsonl").read_text().splitlines()[0])["user_id"]
    report = forget(user, [tmp_path])
    assert report.is_gone
    assert {Path(path).name for path in report.removed} == {"items.jsonl", "llm.sqlite"}


def test_other_data_needs_a_judge(tmp_path: Path, rows: Callable[[int], list[dict[str, Any]]]) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows(3)))
    settings = PlannerSettings(planner="fake:- low cost: coins")
    with pytest.raises(UsageError, match="--judge"):
        measure_planner(settings, DataSettings(source=str(path)), tmp_path / "out")
    path.write_text("".join(json.dumps(one | {"rubric_aspects": []}) + "\n" for one in rows(3)))
    with pytest.raises(UsageError, match="rubric"):
        measure_planner(settings, DataSettings(source=str(path)), tmp_path / "out")


def test_the_command_on_data_with_a_judge(
    tmp_path: Path,
    rows: Callable[[int], list[dict[str, Any]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from prbench.cli import main

    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows(6)))
    judge = 'fake:{"pairs": [{"guess": 1, "true": 1}]}'
    planner = "fake:- low cost: counts coins\n- calm"
    args = ["--planner", planner, "--judge", judge, "--data", str(path), "--out", str(tmp_path / "out"), "--json"]
    monkeypatch.setattr("sys.argv", ["prbench", "eval-planner", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    figures = json.loads(capsys.readouterr().out)
    assert (figures["judge"]["precision"]["value"], figures["judge"]["recall"]["value"]) == (0.5, 1.0)
    assert figures == json.loads((tmp_path / "out" / "planner" / "summary.json").read_text())


def test_the_report_shows_the_planner_of_a_run(tmp_path: Path) -> None:
    from prbench.evaluation import evaluate
    from prbench.evaluation.summary import load_runs
    from prbench.pages.board import make_boards
    from prbench.pages.board_page import render
    from prbench.pages.items import Items

    folder = evaluate("lab", "control:longest", out=tmp_path, which=DataSettings(limit=10)).folder
    assert folder is not None

    def page() -> str:
        return render(make_boards(load_runs([tmp_path]).runs), Items())

    assert "Planners" not in page()
    run(folder, scripted(lambda names: names[:1]), limit=10)
    text = page()
    assert "<h2>Planners</h2>" in text
    assert "by the judge" in text
    assert "100.0 [" in text
