"""Scores and replies that another program recorded, by the command line: figures worked out by hand."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import make_row
from tests.data import test_importers as fixtures
from tests.support.command_line import Ended, prbench

from prbench import evaluate
from prbench.errors import UsageError
from prbench.runs.find import find_runs, item_values

__all__ = ["prbench"]  # a fixture

Command = Callable[..., Ended]
Rows = Sequence[Mapping[str, Any]]


def lines(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def table(path: Path, rows: Rows) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> list[dict[str, Any]]:
    """Four pairs of four people, in one category."""
    rows = [
        make_row(number, user_id=f"user-{number}", chosen=f"good {number}", rejected=f"bad {number}", category="c")
        for number in range(4)
    ]
    lines(tmp_path / "pairs.jsonl", rows)
    return rows


# Own: won, won, a tie, lost. Without a profile: won, lost, lost, lost. With another's: lost, won, a tie, lost.
OWN, NONE, SWAP = ((2, 1), (3, 1), (5, 5), (0, 1)), ((2, 1), (0, 1), (0, 1), (0, 1)), ((1, 2), (3, 1), (5, 5), (0, 1))
PROBES = {"own": OWN, "none": NONE, "swap": SWAP}
ACCURACY, GAIN, GAP = 2.5 / 4, 2.5 / 4 - 1 / 4, 2.5 / 4 - 1.5 / 4


def long(pairs: Rows) -> list[dict[str, Any]]:
    """One row for each response, with a column for each probe."""
    return [
        {"id": row["id"], "response": row[side], **{name: scores[n][place] for name, scores in PROBES.items()}}
        for n, row in enumerate(pairs)
        for place, side in enumerate(("chosen", "rejected"))
    ]


def by_index(pairs: Rows) -> list[dict[str, Any]]:
    return [
        {"id": row["id"], "probe": name, "index": place, "score": scores[n][place]}
        for n, row in enumerate(pairs)
        for name, scores in PROBES.items()
        for place in (1, 0)
    ]


def wide(pairs: Rows) -> list[dict[str, Any]]:
    return [
        {"id": row["id"], "probe": name, "chosen": scores[n][0], "rejected": scores[n][1]}
        for n, row in enumerate(pairs)
        for name, scores in PROBES.items()
    ]


def run(prbench: Command, model: str, *more: str) -> dict[str, Any]:
    ended = prbench("eval", "--model", model, "--data", "pairs.jsonl", "--out", "runs", "--json", *more)
    assert ended.code == 0, ended.err
    summary: dict[str, Any] = ended.json
    return summary


@pytest.mark.parametrize("layout", [long, by_index, wide])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_scores_of_all_probes_give_accuracy_gain_and_swap_gap(
    prbench: Command, tmp_path: Path, pairs: Any, layout: Any, suffix: str
) -> None:
    path = tmp_path / f"rm.{suffix}"
    rows = layout(pairs)
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        {"csv": table, "jsonl": lines}[suffix](path, rows)
    summary = run(prbench, f"scores:rm.{suffix}")
    assert summary["accuracy"]["value"] == ACCURACY
    assert summary["personalization_gain"]["value"] == GAIN
    assert summary["swap"]["gap"]["value"] == GAP
    assert (summary["tie_rate"]["value"], summary["coverage"]["value"]) == (0.25, 1.0)


def test_a_run_of_ours_and_its_rows_as_recorded_scores_have_the_same_figures(
    prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    first = run(prbench, "control:overlap")
    again = run(prbench, f"scores:runs/{first['run_id']}/items.jsonl")
    assert again["run_id"] != first["run_id"]
    for figure in ("accuracy", "personalization_gain", "swap", "coverage", "calibration"):
        assert again[figure] == first[figure]


def test_only_what_was_recorded_is_asked_and_the_board_says_so(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    table(tmp_path / "rm.csv", [row for row in wide(pairs) if row["probe"] == "own"])
    ended = prbench("eval", "--model", "scores:rm.csv", "--data", "pairs.jsonl", "--out", "runs")
    note = (
        "what it says without a profile or with another user's profile was not recorded, "
        "so it has no gain and no swap gap"
    )
    assert f"scores:rm.csv: {note}" in ended.err
    (folder,) = (tmp_path / "runs").glob("*/items.jsonl")
    assert {json.loads(line)["probe"] for line in folder.read_text().splitlines()} == {"own"}
    board = prbench("report", "runs", "--html", "board.html")
    assert note in " ".join(board.out.split())
    assert "was not recorded, so it has no gain and no swap gap" in (tmp_path / "board.html").read_text()
    (summary,) = prbench("report", "runs", "--json").json
    assert (summary["accuracy"]["value"], summary["personalization_gain"], summary["swap"]) == (ACCURACY, None, None)


def test_scores_without_a_profile_alone_are_for_a_run_without_a_profile(
    prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    table(tmp_path / "rm.csv", [row for row in wide(pairs) if row["probe"] == "none"])
    ended = prbench("eval", "--model", "scores:rm.csv", "--data", "pairs.jsonl")
    assert ended.code == 2
    assert "has records of none alone, and every figure is compared with the user's own profile." in ended.err
    assert run(prbench, "scores:rm.csv?context=none")["accuracy"]["value"] == 1 / 4
    table(tmp_path / "all.csv", wide(pairs))  # of all probes, a run without a profile takes the scores without one
    assert run(prbench, "scores:all.csv", "--context", "none")["accuracy"]["value"] == 1 / 4


def test_missing_score_is_unreadable_and_never_a_number(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    rows = [{"id": row["id"], "chosen": 2, "rejected": 1} for row in pairs]
    rows[1]["chosen"] = ""
    rows[2]["rejected"] = "nan"
    table(tmp_path / "rm.csv", [*rows[:3], {"id": "elsewhere", "chosen": 1, "rejected": 2}])
    ended = prbench("eval", "--model", "scores:rm.csv", "--data", "pairs.jsonl", "--out", "runs")
    assert (
        "scores:rm.csv: 1 of its 4 recorded items are not among the rows that were read, e.g. elsewhere" in ended.err
    )
    assert "unreadable: 3 items, not_recorded" in ended.out
    (summary,) = prbench("report", "runs", "--json").json
    assert (summary["accuracy"]["value"], summary["coverage"]["value"]) == (0.25, 0.25)
    assert summary["accuracy_readable"]["value"] == 1.0
    assert summary["to_ask_again"] == 0  # another try would not mend it
    (items,) = (tmp_path / "runs").glob("*/items.jsonl")
    details = {row["id"]: row["detail"] for row in map(json.loads, items.read_text().splitlines())}
    assert [details[row["id"]] for row in pairs] == [
        "",
        "line 3 holds no number",
        "line 4 holds no number",
        "no score of this item was recorded",
    ]


def test_index_and_text_must_agree(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    rows = [
        {"id": row["id"], "index": place, "response": row[side], "score": 1 - place}
        for row in pairs
        for place, side in enumerate(("chosen", "rejected"))
    ]
    rows[0]["response"] = "another text"
    lines(tmp_path / "rm.jsonl", rows)
    summary = run(prbench, "scores:rm.jsonl")
    assert summary["coverage"]["value"] == 0.75
    (items,) = (tmp_path / "runs").glob("*/items.jsonl")
    assert "the text recorded for the chosen response is another one (line 1)" in items.read_text()


def test_score_by_text_and_another_by_place_are_no_score(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    rows = [{"id": row["id"], "chosen": 2, "rejected": 1} for row in pairs]
    lines(
        tmp_path / "rm.jsonl",
        [*rows, *({"id": pairs[n]["id"], "response": f"good {n}", "score": 2 + n} for n in (0, 1))],
    )
    assert run(prbench, "scores:rm.jsonl")["unreadable"] == {"not_recorded": 1}
    (items,) = (tmp_path / "runs").glob("*/items.jsonl")
    assert "the chosen response has two scores: line 6 by its text, and line 2 by its place" in items.read_text()


def test_records_that_contradict_each_other_are_refused_with_file_and_lines(
    prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    row = {"id": pairs[0]["id"], "response": "good 0"}
    lines(tmp_path / "rm.jsonl", [{**row, "score": 1}, {**row, "score": 1}, {**row, "score": 2}])
    ended = prbench("eval", "--model", "scores:rm.jsonl", "--data", "pairs.jsonl")
    assert (ended.code, ended.err.strip().count("\n")) == (2, 0)
    assert (
        f"rm.jsonl: line 1 and line 3 give different scores for the same response to item {pairs[0]['id']!r} (own)."
        in ended.err
    )


def test_changed_file_is_another_run(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    lines(tmp_path / "rm.jsonl", wide(pairs))
    first = run(prbench, "scores:rm.jsonl")
    assert run(prbench, "scores:rm.jsonl")["run_id"] == first["run_id"]
    changed = wide(pairs)
    changed[0]["chosen"] = 0
    lines(tmp_path / "rm.jsonl", changed)
    second = run(prbench, "scores:rm.jsonl")
    assert second["run_id"] != first["run_id"]
    assert second["accuracy"]["value"] == ACCURACY - 1 / 4


def test_file_of_several_models_needs_a_name(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    rows = [{**row, "model": name} for name in ("rm-a", "rm-b") for row in wide(pairs)]
    for row in rows[len(rows) // 2 :]:
        row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    lines(tmp_path / "rm.jsonl", rows)
    assert run(prbench, "scores:rm.jsonl?model=rm-a")["accuracy"]["value"] == ACCURACY
    assert run(prbench, "scores:rm.jsonl?model=rm-b")["accuracy"]["value"] == 1 - ACCURACY
    for model, line in (
        ("scores:rm.jsonl", "holds records of 2 models: rm-a, rm-b. Name one: ?model=rm-a."),
        ("scores:rm.jsonl?model=rm_a", "holds no records of 'rm_a'. Known models: rm-a, rm-b. Did you mean 'rm-a'?"),
        ("scores:nowhere.jsonl", "there is no file nowhere.jsonl. Check the path."),
    ):
        ended = prbench("eval", "--model", model, "--data", "pairs.jsonl")
        assert ended.code == 2
        assert line in ended.err


def test_rows_that_hold_no_scores_are_named(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    good = {"id": "q", "response": "x", "score": 1}
    for bad, line in (
        ({"id": "q", "response": "x"}, "rm.jsonl:2: score: is missing"),
        ({"chosen": 1.5, "rejected": 0.5}, "rm.jsonl:2: id: is missing"),  # RewardBench's file of all scores
        ({**good, "score": "high"}, "rm.jsonl:2: score: is 'high', not a number"),
        ({**good, "score": True}, "rm.jsonl:2: score: is True, not a number"),
        ({**good, "probe": "mine"}, "rm.jsonl:2: probe: is 'mine'. Use one of: own, none, swap."),
        ({**good, "index": -1}, "rm.jsonl:2: index: is -1. Use 0, 1,"),
        ({"id": "q", "scores": "1 2"}, "rm.jsonl:2: scores: is '1 2', not a list of numbers."),
    ):
        lines(tmp_path / "rm.jsonl", [good, bad])
        ended = prbench("eval", "--model", "scores:rm.jsonl", "--data", "pairs.jsonl")
        assert ended.code == 2
        assert line in ended.err


def test_rated_rows_are_scored_by_id_alone(prbench: Command, tmp_path: Path) -> None:
    rated = [
        {**{k: make_row(n)[k] for k in ("id", "question", "profile")}, "user_id": "ana", "response": f"r{n}"}
        for n in range(4)
    ]
    lines(tmp_path / "pairs.jsonl", [{**row, "rating": n / 4} for n, row in enumerate(rated)])
    table(tmp_path / "rm.csv", [{"id": row["id"], "score": n * 10} for n, row in enumerate(rated)])
    assert run(prbench, "scores:rm.csv")["ratings"]["spearman"]["value"] == 1.0


# The output of other programs


def test_scores_of_rewardbench_are_read_as_its_program_writes_them(prbench: Command, tmp_path: Path) -> None:
    data = [{**fixtures.REWARDBENCH, "id": number, "prompt": f"Why {number}?"} for number in range(3)]
    lines(tmp_path / "pairs.jsonl", data)
    columns = {
        "id": [0, 1, 2],
        "subset": ["hep-go"] * 3,
        "results": [1, 0, 0],
        "scores_chosen": [[2.5], [1.0], [0.5]],
        "scores_rejected": [[1.5], [3.0], [0.5]],
        "text_chosen": ["…"] * 3,
        "model": "org/rm",
        "model_type": "Seq. Classifier",
    }
    (tmp_path / "rm.json").write_text(json.dumps(columns, indent=4))
    assert run(prbench, "scores:rm.json")["accuracy"]["value"] == 0.5
    (tmp_path / "rm.json").write_text(json.dumps(columns))
    assert run(prbench, "scores:rm.json")["accuracy"]["value"] == 0.5


def test_scores_of_rewardbench_2_are_one_list_for_each_prompt(prbench: Command, tmp_path: Path) -> None:
    lines(tmp_path / "pairs.jsonl", [fixtures.REWARDBENCH2])
    columns = {"id": ["12"], "subset": ["Math"], "num_correct": [2], "scores": [[5, 1, 3, 0, 2]], "text": [["…"] * 5]}
    (tmp_path / "rm.json").write_text(json.dumps({**columns, "model": "org/rm"}))
    # The right ones got 5 and 1, the wrong ones 3, 0 and 2: four of the six pairs are won.
    assert run(prbench, "scores:rm.json")["accuracy"]["value"] == pytest.approx(4 / 6, abs=1e-6)


def test_scores_of_rm_bench_are_two_lists_for_each_prompt(prbench: Command, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(json.dumps([fixtures.RM_BENCH]))
    scored = {**fixtures.RM_BENCH, "score_chosen": [1, 2, [3]], "score_rejected": [0, 2, 4]}
    (tmp_path / "rm.json").write_text(json.dumps([scored]))
    # Of the nine cells: 1, 2 and 3 beat 0, 3 beats 2, 2 ties with 2, and nothing beats 4.
    summary = run(prbench, "scores:rm.json")
    assert summary["accuracy"]["value"] == pytest.approx(4.5 / 9, abs=1e-6)
    assert summary["official"]["set"] == "RM-Bench"


DECIDED = ["A>B", "A>B"]  # A first, then B first: the right one is picked once, and then the other


def judged(number: int, label: str, decisions: Sequence[str | None], response: str = "[[A>B]]") -> dict[str, Any]:
    judgment = {"judge_model": "org/judge", "prompt": "…", "response": response}
    return {
        **fixtures.JUDGEBENCH,
        "pair_id": f"p{number}",
        "question": f"Why {number}?",
        "label": label,
        "judge_name": "arena_hard",
        "judgments": [{"judgment": judgment, "decision": said} for said in decisions],
    }


def test_judgments_of_judgebench_are_read_in_both_orders(prbench: Command, tmp_path: Path) -> None:
    rows = [
        judged(0, "A>B", ["A>B", "B>A"]),  # A is right, and picked where it stands first and where it stands second
        judged(1, "B>A", ["A>B", "B>A"]),  # A is wrong, and picked twice
        judged(2, "A>B", DECIDED),  # first place is picked twice: a tie
        judged(3, "A>B", ["A>B", None]),  # one order without a verdict
    ]
    data = ("pair_id", "question", "response_A", "response_B", "label", "source", "original_id", "response_model")
    lines(tmp_path / "pairs.jsonl", [{name: row[name] for name in data} for row in rows])
    lines(tmp_path / "judge.jsonl", rows)
    summary = run(prbench, "replies:judge.jsonl")
    assert summary["accuracy"]["value"] == 1.5 / 4
    assert summary["unreadable"] == {"no_verdict": 1}
    assert summary["order"]["consistent"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert summary["official"]["score"]["value"] == 0.5  # a verdict in one order is enough for its authors
    said = [{**judged(0, "A>B", ["B>A", "A>B"], "Result: A")}]  # the decision says B, and the reply A
    lines(tmp_path / "judge.jsonl", said)
    assert run(prbench, "replies:judge.jsonl", "--limit", "1")["accuracy"]["value"] == 0.0
    read_anew = run(prbench, "replies:judge.jsonl?format=result", "--limit", "1")
    assert (read_anew["accuracy"]["value"], read_anew["order"]["position_bias"]["value"]) == (0.5, 1.0)


# Replies


def replied(pairs: Rows, *said: tuple[str | None, str | None]) -> list[dict[str, Any]]:
    """What a judge says of each pair when the chosen response stands first, and when the rejected one does."""
    return [
        {"id": row["id"], "order": order, "reply": f"I compared them.\nResult: {pick}"}
        for row, picks in zip(pairs, said, strict=False)
        for order, pick in zip(("chosen_first", "rejected_first"), picks, strict=True)
        if pick
    ]


REPLIES = (("A", "B"), ("A", "A"), ("B", "A"), ("A", "neither of us can tell"))  # won, a tie, lost, unreadable


def test_replies_are_read_in_both_orders(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    lines(tmp_path / "judge.jsonl", replied(pairs, *REPLIES))
    summary = run(prbench, "replies:judge.jsonl")
    assert summary["accuracy"]["value"] == 1.5 / 4
    assert (summary["coverage"]["value"], summary["unreadable"]) == (0.75, {"no_verdict": 1})
    assert summary["order"]["consistent"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    by_text = [
        {"id": row["id"], "first": row[side], "reply": reply["reply"]}
        for row in pairs
        for side in ("chosen", "rejected")
        for reply in replied(pairs, *REPLIES)
        if (reply["id"], reply["order"]) == (row["id"], f"{side}_first")
    ]
    table(tmp_path / "judge.csv", by_text)
    assert run(prbench, "replies:judge.csv")["accuracy"] == summary["accuracy"]
    assert run(prbench, "replies:judge.jsonl", "--orders", "one")["order"]["consistent"] is None


def test_a_judges_run_of_ours_is_read_again_from_its_rows(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    first = run(prbench, "judge:fake:Result: A")
    rows = f"replies:runs/{first['run_id']}/items.jsonl"
    for model in (rows, f"{rows}?format=result"):
        again = run(prbench, model)
        for figure in ("accuracy", "order", "personalization_gain", "swap", "tie_rate"):
            assert again[figure] == first[figure]


def test_replies_of_one_order_are_enough_and_missing_ones_are_not_guessed(
    prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    one = [row for row in replied(pairs, *REPLIES) if row["order"] == "rejected_first"]
    lines(tmp_path / "judge.jsonl", one[:3])
    summary = run(prbench, "replies:judge.jsonl")
    assert summary["accuracy"]["value"] == 1 / 4  # B of the first pair is right; A of the next two is not
    assert summary["unreadable"] == {"not_recorded": 1}
    lines(tmp_path / "judge.jsonl", replied(pairs, ("A", "B"), ("A", None)))
    summary = run(prbench, "replies:judge.jsonl")
    assert (summary["accuracy"]["value"], summary["unreadable"]) == (1 / 4, {"not_recorded": 3})


def test_replies_that_cannot_be_used_are_named(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    good = replied(pairs, ("A", "B"))
    for rows, line in (
        ([*good, {**good[0], "reply": "Result: B"}], "judge.jsonl: line 1 and line 3 give different replies"),
        ([{"id": "q", "reply": "Result: A"}], "judge.jsonl:1: order: is missing."),
        ([{**good[0], "decision": "C"}], "judge.jsonl:1: decision: is 'C'. Use one of: "),
        ([{**good[0], "reply": 3}], "judge.jsonl:1: reply: is 3, not a text."),
    ):
        lines(tmp_path / "judge.jsonl", rows)
        ended = prbench("eval", "--model", "replies:judge.jsonl", "--data", "pairs.jsonl")
        assert ended.code == 2
        assert line in ended.err
    ended = prbench("eval", "--model", "replies:judge.jsonl?format=nobody", "--data", "pairs.jsonl")
    assert "Unknown kind 'nobody' of reply format" in ended.err
    ended = prbench("bon", "--model", "replies:judge.jsonl", "--data", "lab")
    assert "replies:judge.jsonl only compares, and Best-of-N needs a score for each response." in ended.err


FORMS = {
    "arena": ("[[A>B]]", "[[B>A]]"),
    "llmbar": ("Output (a)", "Output (b)"),
    "prometheus2": ("[RESULT] A", "[RESULT] B"),
}


@pytest.mark.parametrize("form", FORMS)
def test_replies_in_the_form_of_another_judge_are_read_by_its_name(
    form: str, prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    first, second = FORMS[form]
    said = ((first, second), (first, first), (second, first), (first, second))  # won, a tie, lost, won
    rows = [
        {"id": row["id"], "order": order, "reply": f"Both are fine, but one is nearer.\n{reply}"}
        for row, replies in zip(pairs, said, strict=False)
        for order, reply in zip(("chosen_first", "rejected_first"), replies, strict=True)
    ]
    lines(tmp_path / "judge.jsonl", rows)
    unread = prbench("eval", "--model", "replies:judge.jsonl", "--data", "pairs.jsonl")
    assert unread.code == 1
    assert "cannot be read (no_verdict)" in unread.err
    assert f"?format={form}" in unread.err
    summary = run(prbench, f"replies:judge.jsonl?format={form}")
    assert (summary["accuracy"]["value"], summary["coverage"]["value"]) == (2.5 / 4, 1.0)


# Where nothing can be looked up


def test_recorded_models_refuse_to_be_asked_anything_new(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    lines(tmp_path / "rm.jsonl", wide(pairs))
    with pytest.raises(UsageError, match="noise= or fail= asks for new ones"):
        evaluate(pairs, "scores:rm.jsonl?noise=1")


def test_parity_compares_recorded_scores_with_a_model(prbench: Command, tmp_path: Path, pairs: Any) -> None:
    run(prbench, "control:longest")
    (items,) = (tmp_path / "runs").glob("*/items.jsonl")
    models = ("--model", "control:longest", "--model", f"scores:{items}")
    ended = prbench("bench", "parity", *models, "--data", "pairs.jsonl", "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["n"], ended.json["max_abs"], ended.json["verdicts_agree"]) == (8, 0.0, 1.0)


def test_in_python_the_notes_are_with_the_run(tmp_path: Path, pairs: Any) -> None:
    path = table(
        tmp_path / "rm.csv",
        [{"id": pairs[0]["id"], "chosen": 2, "rejected": 1}, {"id": "x", "chosen": 1, "rejected": 1}],
    )
    found = evaluate(pairs, f"scores:{path}")
    assert found.summary["accuracy"]["value"] == 0.25
    assert [note.partition(": ")[2][:31] for note in found.notes] == [
        "1 of its 2 recorded items are n",
        "what it says without a profile ",
    ]


# What was not recorded under one of two probes is no evidence for their difference


def ignoring(pairs: Rows, blank: int, rights: Sequence[bool]) -> list[dict[str, Any]]:
    """A model that ignores the user; of the first right pairs, what it says of others was not recorded."""
    gone = [n for n, right in enumerate(rights) if right][:blank]
    rows = []
    for n, row in enumerate(pairs):
        for side in ("chosen", "rejected"):
            score = 1.0 if (side == "chosen") is rights[n] else 0.0
            others = "" if n in gone else score
            rows.append({"id": row["id"], "response": row[side], "own": score, "none": others, "swap": others})
    return rows


TWELVE = 12
RIGHTS = [n % 3 > 0 for n in range(TWELVE)]  # eight right


@pytest.fixture
def twelve(tmp_path: Path) -> list[dict[str, Any]]:
    rows = [
        make_row(
            n,
            user_id=f"user-{n % 4}",
            chosen=f"good {n}",
            rejected=f"bad {n}",
            category="c",
            meta={"region": "ns"[n % 2]},
        )
        for n in range(TWELVE)
    ]
    lines(tmp_path / "pairs.jsonl", rows)
    return rows


def test_pair_without_a_record_under_another_probe_is_in_no_paired_figure(
    prbench: Command, tmp_path: Path, twelve: Any
) -> None:
    table(tmp_path / "rm.csv", ignoring(twelve, 4, RIGHTS))
    summary = run(prbench, "scores:rm.csv", "--group-by", "region")
    gain, swap = summary["personalization_gain"], summary["swap"]
    assert (gain["value"], gain["low"], gain["high"], gain["n"]) == (0.0, 0.0, 0.0, 8)
    assert (swap["gap"]["value"], swap["gap"]["n"], swap["flip_rate"]["value"]) == (0.0, 8, 0.0)
    assert (summary["accuracy"]["n"], summary["accuracy"]["value"]) == (12, pytest.approx(8 / 12, abs=1e-6))
    assert summary["profile_sensitivity"]["n"] == summary["own_none_agreement"]["n"] == 8
    assert summary["impersonal_errors"]["gap"]["n"] == 4
    for figure in ("gain", "swap_gap"):
        found = summary["groups"]["region"][figure]["groups"]
        assert ({each["value"] for each in found.values()}, sum(each["n"] for each in found.values())) == ({0.0}, 8)
    assert summary["not_recorded"] == {"gain": 4, "swap_gap": 4}
    assert summary["coverage_of_probes"] == {"none": pytest.approx(2 / 3, abs=1e-6)} | {
        "swap": pytest.approx(2 / 3, abs=1e-6)
    }
    ended = prbench("eval", "--model", "scores:rm.csv", "--data", "pairs.jsonl", "--out", "runs")
    note = "4 of 12 items are left out of the gain and 4 of the swap gap"
    assert note in ended.out
    assert "coverage without a profile 66.7, with another user's 66.7" in ended.out
    assert note in " ".join(prbench("report", "runs").out.split())


def test_users_table_and_the_values_of_a_gap_leave_out_what_was_not_recorded(
    prbench: Command, tmp_path: Path, twelve: Any
) -> None:
    scores = table(tmp_path / "rm.csv", ignoring(twelve, 4, RIGHTS))
    for row in evaluate(twelve, f"scores:{scores}").users():
        assert row["gain"] in (0.0, None)
        assert row["swap_gap"] in (0.0, None)
    run(prbench, "scores:rm.csv")
    (stored,) = find_runs([tmp_path / "runs"]).runs
    values = item_values(stored, "swap.gap")
    gone = [n for n, right in enumerate(RIGHTS) if right][:4]
    assert sorted(each.item for each in values) == [row["id"] for n, row in enumerate(twelve) if n not in gone]
    assert {each.value for each in values} == {0.0}


def test_where_no_pair_has_both_records_there_is_no_gain_and_no_gap(
    prbench: Command, tmp_path: Path, twelve: Any
) -> None:
    table(tmp_path / "rm.csv", ignoring(twelve, 12, [True] * TWELVE))
    summary = run(prbench, "scores:rm.csv")
    assert (summary["personalization_gain"], summary["swap"]) == (None, None)
    assert summary["not_recorded"] == {"gain": 12, "swap_gap": 12}


def test_ratings_without_a_record_under_another_probe_are_in_no_paired_figure(
    prbench: Command, tmp_path: Path
) -> None:
    rated = [
        {
            **{k: make_row(n)[k] for k in ("id", "question", "profile")},
            "user_id": f"user-{n % 4}",
            "response": f"r{n}",
            "rating": n / 16,
        }
        for n in range(16)
    ]
    lines(tmp_path / "pairs.jsonl", rated)
    table(
        tmp_path / "rm.csv",
        [
            {"id": row["id"], "probe": probe, "score": "" if probe == "none" and n < 4 else n}
            for n, row in enumerate(rated)
            for probe in ("own", "none")
        ],
    )
    summary = run(prbench, "scores:rm.csv")
    gain = summary["ratings"]["gain"]["alignment"]
    assert (gain["value"], gain["low"], gain["high"], gain["n"]) == (0.0, 0.0, 0.0, 12)
    assert summary["not_recorded"] == {"gain": 4, "swap_gap": 0}


def test_verdict_that_was_asked_for_and_cannot_be_read_still_counts_as_wrong(
    prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    rows = [
        {"id": row["id"], "probe": probe, "order": order, "decision": said}
        for row in pairs
        for probe in ("own", "none")
        for order, said in (("chosen_first", "A"), ("rejected_first", "B" if probe == "own" else "unreadable"))
    ]
    lines(tmp_path / "judge.jsonl", rows)
    summary = run(prbench, "replies:judge.jsonl")
    assert (summary["personalization_gain"]["value"], summary["personalization_gain"]["n"]) == (1.0, 4)
    assert (summary["not_recorded"], summary["coverage_of_probes"]) == (None, {"none": 0.0})


# Which response stood first


def test_first_is_the_text_of_a_response_before_it_is_a_place(prbench: Command, tmp_path: Path) -> None:
    rows = [make_row(n, user_id=f"user-{n}", chosen="41", rejected="7", category="c") for n in range(2)]
    lines(tmp_path / "pairs.jsonl", rows)
    lines(
        tmp_path / "judge.jsonl",
        [{"id": row["id"], "first": first, "reply": "Result: A"} for row in rows for first in ("41", "7")],
    )
    summary = run(prbench, "replies:judge.jsonl")
    assert (summary["coverage"]["value"], summary["accuracy"]["value"], summary["tie_rate"]["value"]) == (
        1.0,
        0.5,
        1.0,
    )
    # The same file of two responses one of which reads like the place of the other
    rows = [make_row(n, user_id=f"user-{n}", chosen="1", rejected="0", category="c") for n in range(2)]
    lines(tmp_path / "pairs.jsonl", rows)
    lines(tmp_path / "judge.jsonl", [{"id": row["id"], "first": "1", "reply": "Result: A"} for row in rows])
    ended = prbench("eval", "--model", "replies:judge.jsonl", "--data", "pairs.jsonl")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "judge.jsonl:1: first: '1' is the text of the chosen response" in ended.err
    assert "Say in `order` which one stood first." in ended.err
    lines(
        tmp_path / "judge.jsonl",
        [{"id": row["id"], "order": "chosen_first", "first": "1", "reply": "Result: A"} for row in rows],
    )
    assert run(prbench, "replies:judge.jsonl")["accuracy"]["value"] == 1.0
    judged_rows = [{**judged(0, "A>B", ["A>B", "B>A"]), "response_A": "1", "response_B": "0"}]
    data = ("pair_id", "question", "response_A", "response_B", "label", "source", "original_id", "response_model")
    lines(tmp_path / "pairs.jsonl", [{name: row[name] for name in data} for row in judged_rows])
    lines(tmp_path / "judge.jsonl", judged_rows)  # its columns are texts, never places
    assert run(prbench, "replies:judge.jsonl")["accuracy"]["value"] == 1.0


def test_replies_that_contradict_each_other_in_different_forms_are_refused(
    prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    row = {"id": pairs[0]["id"]}
    by_order = {**row, "order": "chosen_first", "reply": "Result: B"}
    lines(tmp_path / "judge.jsonl", [by_order, {**row, "first": "good 0", "reply": "Result: A"}])
    ended = prbench("eval", "--model", "replies:judge.jsonl", "--data", "pairs.jsonl")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert (
        f"judge.jsonl: line 1 and line 2 give different replies for the same response to item {row['id']!r}"
        in ended.err
    )


@pytest.mark.parametrize(
    ("model", "row", "line"),
    [
        (
            "replies",
            {"response_A": "a", "response_B": "b", "judgments": ["A", "B"]},
            "judgments: holds 'A', not an object",
        ),
        ("replies", {"orders": None}, "orders: is None, not a list of objects"),
        ("replies", {"orders": [1]}, "orders: is [1], not a list of objects"),
        ("replies", {"orders": [{"order": "sideways", "pick": "first"}]}, "order: is 'sideways'"),
        ("replies", {"orders": [{"order": ["x"], "pick": "first"}]}, "order: is ['x']"),
        ("replies", {"order": "chosen_first", "decision": ["A"]}, "decision: is ['A']"),
        ("replies", {"order": ["x"], "reply": "Result: A"}, "order: is ['x']"),
        ("replies", {"order": 41, "reply": "Result: A"}, "order: is 41"),
        ("replies", {"order": "chosen_first", "reply": "A", "probe": ["own"]}, "probe: is ['own']"),
        ("scores", {"index": ["x"], "score": 1}, "index: is ['x']"),
        ("scores", {"subset": "s", "num_correct": "x", "scores": [1, 2]}, "num_correct: is 'x', with 2 scores"),
        ("scores", {"subset": "s", "num_correct": 5, "scores": [1, 2]}, "num_correct: is 5, with 2 scores"),
        (
            "scores",
            {"response": "a", "score": 1, "own": 1, "none": 1, "swap": 1},
            "score: stands beside own, none, swap",
        ),
        ("scores", {"response": "a", "probe": "none", "own": 1, "none": 1}, "probe: stands beside own, none"),
    ],
)
def test_record_of_another_type_or_said_twice_is_named_in_one_line(
    model: str, row: dict[str, Any], line: str, prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    lines(tmp_path / "said.jsonl", [{"id": pairs[0]["id"], **row}])
    ended = prbench("eval", "--model", f"{model}:said.jsonl", "--data", "pairs.jsonl")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert f"said.jsonl:1: {line}" in ended.err


def test_accuracy_of_one_order_with_the_chosen_response_always_in_one_place_is_no_evidence(
    prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    note = "the accuracy cannot be told from position bias"
    for place, pick in (("first", "A"), ("second", "B")):
        order = {"first": "chosen_first", "second": "rejected_first"}[place]
        rows = [{"id": row["id"], "order": order, "reply": f"Result: {pick}"} for row in pairs]
        lines(tmp_path / "judge.jsonl", rows)
        ended = prbench("eval", "--model", "replies:judge.jsonl", "--data", "pairs.jsonl", "--out", f"runs-{place}")
        assert f"the chosen response stood {place}, in one order alone, so {note}" in " ".join(ended.out.split())
        assert note in " ".join(prbench("report", f"runs-{place}").out.split())
        (summary,) = prbench("report", f"runs-{place}", "--json").json
        assert summary["order"]["chosen_stood"] == place
    rows[0]["order"] = "chosen_first"  # one pair the other way around tells
    lines(tmp_path / "judge.jsonl", rows)
    ended = prbench("eval", "--model", "replies:judge.jsonl", "--data", "pairs.jsonl", "--out", "runs-mixed")
    assert note not in " ".join(ended.out.split())


def test_format_with_options_is_named_with_its_question_mark_encoded(
    prbench: Command, tmp_path: Path, pairs: Any
) -> None:
    rows = [
        {"id": row["id"], "order": order, "reply": json.dumps({"best": pick})}
        for row in pairs
        for order, pick in (("chosen_first", "A"), ("rejected_first", "B"))
    ]
    lines(tmp_path / "judge.jsonl", rows)
    assert run(prbench, "replies:judge.jsonl?format=json%3Ffield=best")["accuracy"]["value"] == 1.0
