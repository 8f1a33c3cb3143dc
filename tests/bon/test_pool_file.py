"""`prbench bon --pool`: answers, gold and scores of others, against every subset counted by hand."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.command_line import Ended, prbench

__all__ = ["prbench"]  # a fixture

Command = Callable[..., Ended]
Row = Mapping[str, Any]

POOL: tuple[dict[str, Any], ...] = (
    {
        "id": "a",
        "user_id": "ana",
        "question": "Where to?",
        "answers": ["Home.", "To the lake.", "To the mall.", "Out."],
        "gold": [0, 3, 1, 2],
        "scores": {"rm": [1, 4, 2, 3], "length": [5, 12, 12, 4]},
    },
    {
        "id": "b",
        "user_id": "bo",
        "question": "Where to?",
        "answers": ["Home.", "To the lake.", "To the mall.", "Out."],
        "gold": [2, 0, 5, 0.5],
        "scores": {"rm": [9, 1, 3, 2], "length": [5, 12, 12, 4]},
    },
    {
        "id": "c",
        "user_id": "cy",
        "question": "What now?",
        "answers": ["Row.", "Rest.", "Row.", "Read on."],
        "gold": [1, 1, 1, 0],
        "scores": {"rm": [0, 1, 2, 3], "length": [4, 5, 4, 8]},
    },
)


def write(path: Path, rows: Sequence[Row] = POOL) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bon(prbench: Command, *more: str) -> dict[str, Any]:
    ended = prbench("bon", "--pool", "pool.jsonl", "--out", "bon", "--json", *more)
    assert ended.code == 0, ended.err
    summary: dict[str, Any] = ended.json
    return summary


def expected_value(gold: Sequence[float], scores: Sequence[float], n: int) -> float:
    """The mean, over all subsets of n answers, of what the best-scored is worth; equal ones share the pick."""
    picked = []
    for subset in combinations(range(len(gold)), n):
        best = max(scores[place] for place in subset)
        picked.append(fmean(gold[place] for place in subset if scores[place] == best))
    return fmean(picked)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_values_are_those_of_all_subsets(prbench: Command, tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"pool.{suffix}")
    ended = prbench("bon", "--pool", f"pool.{suffix}", "--out", "bon", "--json")
    assert ended.code == 0, ended.err
    summary = ended.json
    assert (summary["n"], summary["questions"], summary["users"]) == (4, 3, 3)
    assert summary["value_span"] == [0, 5]
    assert list(summary["models"]) == [f"scores:pool.{suffix}?model={name}" for name in ("rm", "length")] + [
        "random",
        "oracle",
    ]
    for name in ("rm", "length"):
        found = summary["models"][f"scores:pool.{suffix}?model={name}"]["value_at"]
        for n in (1, 2, 4):
            by_hand = fmean(expected_value(row["gold"], row["scores"][name], n) for row in POOL)
            assert isclose(found[str(n)]["value"], by_hand, abs_tol=1e-9)
    # At n = 4 `rm` takes 3 of a, 2 of b and 0 of c; the oracle 3, 5 and 1; one answer is worth 1.5, 1.875 and 0.75.
    rm = summary["models"][f"scores:pool.{suffix}?model=rm"]
    assert isclose(rm["value_at"]["4"]["value"], 5 / 3)
    assert isclose(rm["captured_headroom"]["value"], (5 - 4.125) / (9 - 4.125))


def test_where_some_questions_have_more_answers_all_of_them_count(prbench: Command, tmp_path: Path) -> None:
    fewer = {
        **POOL[1],
        "answers": POOL[1]["answers"][:3],
        "gold": [2, 0, 5],
        "scores": {"rm": [9, 1, 3], "length": [5, 12, 12]},
    }
    rows = [POOL[0], fewer, POOL[2]]
    write(tmp_path / "pool.jsonl", rows)
    summary = bon(prbench)
    assert (summary["n"], summary["sizes"]) == (3, [1, 2, 3])
    for name in ("rm", "length"):
        found = summary["models"][f"scores:pool.jsonl?model={name}"]["value_at"]
        for n in (1, 2, 3):
            by_hand = fmean(expected_value(row["gold"], row["scores"][name], n) for row in rows)
            assert isclose(found[str(n)]["value"], by_hand, abs_tol=1e-9)
    assert isclose(summary["models"]["oracle"]["value_at"]["3"]["value"], fmean([2.75, 5, 1]))


def test_page_is_written_and_models_may_be_asked_as_ever(prbench: Command, tmp_path: Path) -> None:
    write(tmp_path / "pool.jsonl")
    summary = bon(prbench, "--model", "control:longest", "--model", "scores:pool.jsonl?model=length")
    longest, recorded = (summary["models"][name] for name in list(summary["models"])[:2])
    assert longest["value_at"] == recorded["value_at"]  # the recorded scores are the lengths
    page = (tmp_path / "bon" / summary["run_id"] / "bon.html").read_text()
    assert "pool:pool.jsonl" in page
    assert "recorded gold" in page
    kept = sorted((tmp_path / "bon" / "pools").iterdir())
    assert bon(prbench, "--model", "control:longest")["pool"] == summary["pool"]
    assert sorted((tmp_path / "bon" / "pools").iterdir()) == kept


def test_scores_in_a_file_of_their_own_are_looked_up_by_text_or_place(prbench: Command, tmp_path: Path) -> None:
    write(tmp_path / "pool.jsonl", [{key: row[key] for key in row if key != "scores"} for row in POOL])
    by_text = [
        {"id": row["id"], "response": text, "score": len(text)}
        for row in POOL
        for text in dict.fromkeys(row["answers"])
    ]
    by_place = [{"id": row["id"], "scores": [len(text) for text in row["answers"]]} for row in POOL]
    write(tmp_path / "text.jsonl", [*by_text, {"id": "z", "response": "x", "score": 1}])
    write(tmp_path / "place.jsonl", by_place[:2])
    command = ("--model", "scores:text.jsonl", "--model", "scores:place.jsonl", "--model", "control:longest")
    ended = prbench("bon", "--pool", "pool.jsonl", "--out", "bon", *command)
    assert "scores:text.jsonl: 1 of its 4 recorded items are not among the rows that were read, e.g. z" in ended.err
    assert "scores:place.jsonl: 1 questions are left out, without a score: not recorded." in ended.out
    models = bon(prbench, *command)["models"]
    assert models["scores:text.jsonl"]["value_at"] == models["control:longest"]["value_at"]
    by_hand = fmean(expected_value(row["gold"], row["scores"]["length"], 4) for row in POOL[:2])
    assert isclose(models["scores:place.jsonl"]["value_at"]["4"]["value"], by_hand)
    assert models["scores:place.jsonl"]["questions"] == 2
    ended = prbench("bon", "--pool", "pool.jsonl")
    assert (ended.code, "There is no reward model to pick answers." in ended.err) == (2, True)


def test_missing_gold_leaves_a_question_out_and_is_counted(prbench: Command, tmp_path: Path) -> None:
    write(tmp_path / "pool.jsonl", [*POOL[:2], {**POOL[2], "gold": [1, None, 1, 0]}])
    summary = bon(prbench)
    assert (summary["questions"], summary["left_out"]) == (2, {"sampling": 0, "grading": 1})
    by_hand = fmean(expected_value(row["gold"], row["scores"]["rm"], 4) for row in POOL[:2])
    assert isclose(summary["models"]["scores:pool.jsonl?model=rm"]["value_at"]["4"]["value"], by_hand)


def test_changed_gold_is_another_run(prbench: Command, tmp_path: Path) -> None:
    write(tmp_path / "pool.jsonl")
    first = bon(prbench)
    write(tmp_path / "pool.jsonl", [{**POOL[0], "gold": [3, 0, 0, 0]}, *POOL[1:]])
    second = bon(prbench)
    assert first["run_id"] != second["run_id"]
    rm = "scores:pool.jsonl?model=rm"
    assert second["models"][rm]["value_at"]["4"]["value"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "changes,line",
    [
        ({"answers": "Home."}, "pool.jsonl:2: answers: is 'Home.', not a list of texts."),
        ({"answers": None}, "pool.jsonl:2: answers: is missing."),
        ({"gold": [1, 2]}, "pool.jsonl:2: gold: is 2 values, and there are 4 answers."),
        ({"gold": [1, 2, 3, "x"]}, "pool.jsonl:2: gold: holds 'x', not a number."),
        ({"scores": {"rm": [1]}}, "pool.jsonl:2: scores.rm: is 1 values, and there are 4 answers."),
        ({"id": "a"}, "pool.jsonl:2: id: 'a' was used before."),
        ({"user_id": "ana"}, "pool.jsonl:2: question: was asked by this user before, at pool.jsonl:1."),
        ({"question": " "}, "pool.jsonl:2: question: is empty."),
    ],
)
def test_bad_row_of_a_pool_is_one_line(prbench: Command, tmp_path: Path, changes: Row, line: str) -> None:
    write(tmp_path / "pool.jsonl", [POOL[0], {**POOL[1], **changes}])
    ended = prbench("bon", "--pool", "pool.jsonl")
    assert (ended.code, ended.err.strip().count("\n")) == (2, 0)
    assert line in ended.err


def test_what_means_nothing_beside_a_pool_is_refused(prbench: Command, tmp_path: Path) -> None:
    write(tmp_path / "pool.jsonl")
    for more, line in (
        (("--n", "2"), "Leave out --policy, --n and the like."),
        (("--n", "64"), "Leave out --policy, --n and the like."),  # the default
        (("--policy", "lab"), "Leave out --policy, --n and the like."),
        (("--data", "pairs.jsonl"), "Leave out --data."),
    ):
        ended = prbench("bon", "--pool", "pool.jsonl", *more)
        assert ended.code == 2
        assert line in ended.err
    write(tmp_path / "pool.jsonl", [{key: row[key] for key in row if key != "gold"} for row in POOL])
    assert "has no gold values. Add them, or name a judge with --judge." in prbench("bon", "--pool", "pool.jsonl").err
    write(tmp_path / "pool.jsonl", [{**row, "gold": [1, 1, 1, 1]} for row in POOL])
    assert "all gold values are the same, so there is nothing to gain" in prbench("bon", "--pool", "pool.jsonl").err
    assert "there is no such file" in prbench("bon", "--pool", "nowhere.jsonl").err


def test_a_judge_may_stand_in_for_gold(prbench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vowels.py").write_text(
        "from prbench.judging import Grade\n\n\n"
        "class Vowels:\n"
        "    identity, span = {'judge': 'vowels'}, (0, 9)\n\n"
        "    def check(self, examples):\n        pass\n\n"
        "    def grade(self, example, responses):\n"
        "        return [Grade(value=sum(letter in 'aeiou' for letter in text)) for text in responses]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path / "pool.jsonl", [{key: row[key] for key in row if key != "gold"} for row in POOL])
    summary = bon(prbench, "--judge", "python:vowels:Vowels")
    by_hand = fmean(
        expected_value([sum(letter in "aeiou" for letter in text) for text in row["answers"]], row["scores"]["rm"], 2)
        for row in POOL
    )
    assert isclose(summary["models"]["scores:pool.jsonl?model=rm"]["value_at"]["2"]["value"], by_hand, abs_tol=1e-9)


def test_recorded_models_meet_in_meta(prbench: Command, tmp_path: Path) -> None:
    """Three recorded models, ranked alike by accuracy and by what their picks are worth: correlations of 1."""
    pairs, scored = [], []
    for number in range(4):
        pairs.append(
            {
                "id": f"p{number}",
                "user_id": f"u{number}",
                "question": f"Why {number}?",
                "profile": [],
                "chosen": "good",
                "rejected": "bad",
            }
        )
        for model, right in (("best", 4), ("fair", 2), ("poor", 1)):
            won = number < right
            scored.append({"id": f"p{number}", "model": model, "chosen": int(won), "rejected": int(not won)})
    pool = [
        {
            "id": f"q{number}",
            "user_id": f"u{number}",
            "question": f"How {number}?",
            "answers": ["x", "y", "z"],
            "gold": [0, 1, 2],
            "scores": {"best": [1, 2, 3], "fair": [1, 3, 2], "poor": [3, 2, 1]},
        }
        for number in range(4)
    ]
    write(tmp_path / "pairs.jsonl", pairs)
    write(tmp_path / "scored.jsonl", scored)
    write(tmp_path / "pool.jsonl", pool)
    names = ("best", "fair", "poor")
    models = [word for name in names for word in ("--model", f"scores:scored.jsonl?model={name}")]
    assert prbench("eval", *models, "--data", "pairs.jsonl", "--out", "runs").code == 0
    accuracies = [summary["accuracy"]["value"] for summary in prbench("report", "runs", "--json").json]
    assert sorted(accuracies) == [1 / 4, 2 / 4, 1.0]
    run_id = bon(prbench)["run_id"]
    renames = "".join(f"scores:pool.jsonl?model={name},scores:scored.jsonl?model={name}\n" for name in names)
    (tmp_path / "names.csv").write_text(f"from,to\n{renames}")
    measured = ("--benchmark", "runs", "--downstream", f"bon/{run_id}", "--map", "names.csv", "--null-draws", "0")
    ended = prbench("meta", *measured, "--json")
    assert ended.code == 0, ended.err
    found = ended.json["predictions"][0]
    assert [(each["benchmark"], each["downstream"]) for each in found["models"]] == [
        (1.0, 2.0),
        (0.25, 0.0),
        (0.5, 1.0),
    ]
    assert found["statistics"]["spearman"]["value"] == 1.0
    # Deviations 5/12, -1/12, -4/12 against 1, 0, -1: a covariance of 3/4 over the root of 42/144 times 2.
    assert found["statistics"]["pearson"]["value"] == pytest.approx(0.75 / (2 * 42 / 144) ** 0.5)
