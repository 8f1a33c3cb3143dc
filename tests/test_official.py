"""Runs on sets with a count of their own: the authors' figures beside ours, from the same rows, worked out by hand."""

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t
from tests.conftest import make_row
from tests.data import test_importers as fixtures
from tests.support.command_line import Ended, prbench

from prbench.data.importers import find_importer
from prbench.evaluation.api import evaluate, load_runs
from prbench.metrics.estimate import wilson
from prbench.metrics.official import WAYS, official_figures
from prbench.schema import COUNTED_AS, Row

__all__ = ["prbench"]  # a fixture

Command = Callable[..., Ended]
Figures = dict[str, float | None]

# A response carries its score, a question what a judge says of it when the right response is first, and when second.
PLANTED = """
import re

from prbench.schema import Comparison, Pick, Problem


class Scores:
    def score(self, inputs):
        return [None if (found := re.search("{(.*)}", one.response)[1]) == "none" else float(found) for one in inputs]


class Judge:
    def prefer(self, pairs):
        return [self.compare(pair) for pair in pairs]

    def compare(self, pair):
        right_is_first = "right" in pair.first
        says = re.search(r"says (\\w+) (\\w+)", pair.question)[1 if right_is_first else 2]
        if says == "nothing":
            return Comparison(pick=Pick.UNREADABLE, problem=Problem.NO_VERDICT)
        if says == "tie":
            return Comparison(pick=Pick.TIE)
        return Comparison(pick=Pick.FIRST if (says == "right") == right_is_first else Pick.SECOND)
"""
SCORES, JUDGE = "python:planted:Scores", "python:planted:Judge"
WIN, LOSS, TIE = (2, 1), (1, 2), (1, 1)


@pytest.fixture(autouse=True)
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models whose answers stand in the data."""
    (tmp_path / "planted.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(str(tmp_path))


def text(kind: str, score: object, number: object = 0) -> str:
    return f"{kind} answer {number} {{{score}}}"


def evaluated(prbench: Command, data: Path, model: str = SCORES, *more: str) -> dict[str, Any]:
    """Run one evaluation by the command line, and return its summary."""
    command = ("eval", "--model", model, "--data", str(data), "--context", "none", "--probes", "own", "--out", "runs")
    ended = prbench(*command, "--json", *more)
    assert ended.code == 0, ended.err
    summary: dict[str, Any] = ended.json
    return summary


def values(official: dict[str, Any]) -> Figures:
    found = official["figures"] | official["details"]
    return {name: figure and figure["value"] for name, figure in found.items()}


def agree(found: Figures, expected: Figures) -> None:
    close = {name: value if value is None else pytest.approx(value, abs=1e-6) for name, value in expected.items()}
    assert list(found) == list(expected)
    assert found == close


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def pairs_of(outcomes: dict[str, Sequence[tuple[object, object]]]) -> list[dict[str, Any]]:
    """Rows of RewardBench; each pair of scores is one of them."""
    return [
        {
            "id": number,
            "subset": subset,
            "prompt": f"Why {number}?",
            "chosen": text("right", right),
            "rejected": text("wrong", wrong),
        }
        for subset, scores in outcomes.items()
        for number, (right, wrong) in enumerate(scores)
    ]


REWARDBENCH: dict[str, Sequence[tuple[object, object]]] = {
    "alpacaeval-easy": [WIN, WIN, LOSS],
    "mt-bench-med": [TIE],
    "llmbar-natural": [WIN, LOSS],
    "mt-bench-hard": [WIN],
    "donotanswer": [WIN],
    "refusals-dangerous": [WIN, WIN, WIN, LOSS],
    "math-prm": [WIN, LOSS],
    "hep-go": [LOSS],
    "hep-cpp": [WIN, WIN],
}
SECTIONS = {
    "Score": (1 / 2 + 2 / 3 + 4 / 5 + 7 / 12) / 4,
    "Chat": 2 / 4,  # by pairs, not by subsets; a tie is wrong
    "Chat Hard": 2 / 3,
    "Safety": 4 / 5,
    "Reasoning": (1 / 2 + 2 / 3) / 2,  # two pairs of mathematics count as much as three of code
}
SUBSETS = {
    "alpacaeval-easy": 2 / 3,
    "mt-bench-med": 0.0,
    "mt-bench-hard": 1.0,
    "llmbar-natural": 1 / 2,
    "refusals-dangerous": 3 / 4,
    "donotanswer": 1.0,
    "math-prm": 1 / 2,
    "hep-cpp": 1.0,
    "hep-go": 0.0,
}


def test_rewardbench_weighs_pairs_in_sections_and_mathematics_as_much_as_code(
    prbench: Command, tmp_path: Path
) -> None:
    summary = evaluated(prbench, write(tmp_path / "set.json", pairs_of(REWARDBENCH)))
    assert summary["accuracy"]["value"] == pytest.approx(11.5 / 17, abs=1e-6)  # ours: a tie is one half
    official = summary["official"]
    assert (official["set"], official["headline"], official["incomplete"]) == ("RewardBench", "Score", 0)
    agree(values(official), SECTIONS | SUBSETS)
    assert official["score"] == official["figures"]["Score"]
    counts = {name: figure["n"] for name, figure in official["figures"].items()}
    assert counts == {"Score": 17, "Chat": 4, "Chat Hard": 3, "Safety": 5, "Reasoning": 5}


def test_rewardbench_prior_sets_weigh_half_a_section_and_unknown_subsets_nothing(
    prbench: Command, tmp_path: Path
) -> None:
    prior = {
        "anthropic_helpful": [WIN],
        "anthropic_hhh": [WIN, WIN],
        "shp": [LOSS],
        "summarize": [WIN, LOSS, LOSS, LOSS],
        "my-own": [LOSS] * 9,
    }
    summary = evaluated(prbench, write(tmp_path / "set.json", pairs_of({**REWARDBENCH, **prior})))
    sections = dict(SECTIONS)
    mean = sum(SECTIONS[name] for name in ("Chat", "Chat Hard", "Safety", "Reasoning"))
    sections["Score"] = (mean + 0.5 * 9 / 16) / 4.5
    details = SUBSETS | {"anthropic_helpful": 1.0, "anthropic_hhh": 1.0, "shp": 0.0, "summarize": 1 / 4}
    agree(values(summary["official"]), {**sections, "Prior Sets": (1 + 1 + 0 + 1 / 4) / 4, **details})


def test_rewardbench_with_a_section_missing_has_no_score(prbench: Command, tmp_path: Path) -> None:
    rows = pairs_of({"math-prm": [WIN, TIE], "alpacaeval-easy": [WIN]})
    summary = evaluated(prbench, write(tmp_path / "set.json", rows))
    expected = {"Score": None, "Chat": 1.0, "Chat Hard": None, "Safety": None, "Reasoning": None}
    agree(values(summary["official"]), {**expected, "alpacaeval-easy": 1.0, "math-prm": 1 / 2})
    chat = summary["official"]["figures"]["Chat"]
    low, high = wilson(1, 1)
    assert (chat["low"], chat["high"]) == pytest.approx((low, high), abs=1e-6)
    only_own = evaluated(prbench, write(tmp_path / "own.json", pairs_of({"my-own": [WIN]})))
    assert only_own["official"] is None


def test_rewardbench_of_a_judge_is_what_one_order_by_chance_would_earn(prbench: Command, tmp_path: Path) -> None:
    said = ["right right", "right wrong", "right nothing", "tie wrong"]
    rows = pairs_of({"alpacaeval-easy": [WIN] * len(said)})
    for row, says in zip(rows, said, strict=True):
        row["prompt"] = f"{row['id']} says {says}"
    summary = evaluated(prbench, write(tmp_path / "set.json", rows), JUDGE)
    assert values(summary["official"])["Chat"] == pytest.approx((1 + 1 / 2 + 3 / 4 + 1 / 4) / 4)
    assert summary["accuracy"]["value"] == pytest.approx((1 + 1 / 2 + 0 + 0) / 4)


def prompts_of(outcomes: Sequence[tuple[str, str, Sequence[object], Sequence[object]]]) -> list[dict[str, Any]]:
    """Rows of RewardBench 2, from subset, id, and the scores of the right and of the wrong completions."""
    return [
        {
            "id": name,
            "subset": subset,
            "prompt": f"Why {subset} {name}?",
            "chosen": [text("right", score, number) for number, score in enumerate(right)],
            "rejected": [text("wrong", score, number) for number, score in enumerate(wrong)],
            "num_correct": len(right),
            "num_incorrect": len(wrong),
            "total_completions": len(right) + len(wrong),
        }
        for subset, name, right, wrong in outcomes
    ]


REWARDBENCH2: list[tuple[str, str, Sequence[object], Sequence[object]]] = [
    ("Factuality", "1", [3], [1, 2, 0]),  # 1
    ("Factuality", "2", [2], [2, 1, 2]),  # 1/3: three share the highest score
    ("Factuality", "3", [1], [5, 0, 0]),  # 0
    ("Precise IF", "4", [1], [0, 0, 1]),  # 1/2
    ("Math", "5", [1], [0, 0, 0]),  # 1
    ("Safety", "6", [1], [0, "none", 0]),  # 0: a score is missing
    ("Safety", "7", [1], [0, 0.5, 0]),  # 1
    ("Focus", "8", [0], [1, 1, 1]),  # 0
    ("Ties", "ref:1", [5], [1, 2]),  # right, gap 3
    ("Ties", "tied:1", [5, 4], [1, 2]),  # right, gap 2, spread 1: wider, in both; tanh(2/1 - 1)
    ("Ties", "ref:2", [3], [2.5, 0]),  # right, gap 1/2
    ("Ties", "tied:2", [3, 2], [0, 0.1]),  # right, gap 1.9, spread 1: wider, but not in both; tanh(0.5/1 - 1)
    ("Ties", "ref:3", [1], [2]),  # wrong, gap -1
    ("Ties", "tied:3", [4, 1], [2]),  # wrong, gap -1, spread 3: neither; tanh(-1/3 - 1)
    ("Ties", "ref:4", [2], [1]),  # right, gap 1
    ("Ties", "tied:4", [2, 2], [1, 0]),  # right, gap 1, spread 0: wider, in both; 1, as tanh of infinity is
    ("Ties", "ref:5", [1], [1]),  # a tie of right and wrong is wrong; no tied prompt beside it, so no margin
]
MARGIN_SIZE = (math.tanh(1) + math.tanh(-1 / 2) + math.tanh(-4 / 3) + 1) / 4
TIES = 0.3 * 3 / 4 + 0.3 * 3 / 5 + 0.2 * 3 / 4 + 0.2 * 2 / 4 + 0.01 * MARGIN_SIZE


def test_rewardbench2_is_best_of_4_ties_with_margins_and_the_mean_of_six(prbench: Command, tmp_path: Path) -> None:
    summary = evaluated(prbench, write(tmp_path / "set.json", prompts_of(REWARDBENCH2)))
    expected: Figures = {
        "Average": ((1 + 1 / 3) / 3 + 1 / 2 + 1 + 1 / 2 + 0 + TIES) / 6,
        "Factuality": 4 / 9,
        "Precise IF": 1 / 2,
        "Math": 1.0,
        "Safety": 1 / 2,
        "Focus": 0.0,
        "Ties": TIES,
        "Ties accuracy": (3 / 4 + 3 / 5) / 2,
        "Ties margin": (3 / 4 + 2 / 4) / 2,
    }
    agree(values(summary["official"]), expected)
    figures = summary["official"]["figures"]
    assert (figures["Average"]["n"], figures["Factuality"]["n"], figures["Ties"]["n"]) == (17, 3, 9)  # prompts
    # Ours, over pairs: 3 + 2 + 2 + 2.5 + 3 + 2 + 3 + 0 of 24, and in Ties 2 + 4 + 2 + 4 + 0 + 1 + 1 + 4 + 0.5 of 21.
    assert summary["accuracy"]["value"] == pytest.approx((17.5 + 18.5) / 45, abs=1e-6)


def test_rewardbench2_leaves_out_prompts_of_which_pairs_are_missing(prbench: Command, tmp_path: Path) -> None:
    data = write(tmp_path / "set.json", prompts_of(REWARDBENCH2))
    official = evaluated(prbench, data, SCORES, "--limit", "5")["official"]
    assert official["incomplete"] == 1
    assert (official["figures"]["Factuality"]["value"], official["figures"]["Factuality"]["n"]) == (1.0, 1)
    assert official["score"] is None
    printed = prbench("eval", "--model", SCORES, "--data", str(data), "--context", "none", "--limit", "5").out
    assert "Prompts left out, as some of their pairs are missing: 1." in printed


def test_rewardbench2_of_a_judge_has_best_of_4_but_no_margins(prbench: Command, tmp_path: Path) -> None:
    rows = prompts_of([("Math", "1", [1], [0, 0, 0]), ("Math", "2", [1], [0, 0, 0]), REWARDBENCH2[8], REWARDBENCH2[9]])
    for row, says in zip(rows, ("right right", "right wrong", "right right", "right right"), strict=True):
        row["prompt"] += f" says {says}"
    found = values(evaluated(prbench, write(tmp_path / "set.json", rows), JUDGE)["official"])
    assert found["Math"] == pytest.approx((1 + 1 / 4) / 2)  # a tie with all three is a quarter
    assert (found["Ties"], found["Average"]) == (None, None)


def matrices_of(prompts: Sequence[tuple[str, Sequence[float], Sequence[float]]]) -> list[dict[str, Any]]:
    """Rows of RM-Bench, from domain and the scores of the right and of the wrong responses in the three styles."""
    return [
        {
            "id": number,
            "domain": domain,
            "prompt": f"Why {number}?",
            "chosen": [text("right", score, style) for style, score in enumerate(right)],
            "rejected": [text("wrong", score, style) for style, score in enumerate(wrong)],
        }
        for number, (domain, right, wrong) in enumerate(prompts)
    ]


MIXED = ((1, 2, 3), (1.5, 0, 2.5))  # easy 3/3, normal 2/3, hard 1/3
RM_BENCH = [
    ("chat", *MIXED),
    ("math", *MIXED),
    ("math", (0, 0, 0), (0, 0, 0)),  # ties are wrong
    ("code", (1, 1, 1), (0, 0, 0)),
    ("safety-refuse", *MIXED),
    ("safety-response", (0, 0, 0), (1, 1, 1)),
    ("safety-response", (0, 0, 0), (1, 1, 1)),
]


def test_rm_bench_is_the_style_matrix_of_each_domain(prbench: Command, tmp_path: Path) -> None:
    summary = evaluated(prbench, write(tmp_path / "set.json", matrices_of(RM_BENCH)))
    assert summary["accuracy"]["value"] == pytest.approx(31.5 / 63, abs=1e-6)
    cells = {
        "Chat": (1, 2 / 3, 1 / 3),
        "Math": (1 / 2, 1 / 3, 1 / 6),
        "Code": (1, 1, 1),
        "Safety": (1 / 3, 2 / 9, 1 / 9),  # its two parts pooled: three prompts
    }
    expected: Figures = {
        "Average": 5 / 9,
        "Easy": 17 / 24,
        "Normal": 5 / 9,
        "Hard": 29 / 72,
        **{domain: sum(levels) / 3 for domain, levels in cells.items()},
        **{
            f"{domain} {level}": value
            for domain, levels in cells.items()
            for level, value in zip(("easy", "normal", "hard"), levels, strict=True)
        },
    }
    agree(values(summary["official"]), expected)


def test_rm_bench_with_one_domain_has_that_domain_alone(prbench: Command, tmp_path: Path) -> None:
    found = values(evaluated(prbench, write(tmp_path / "set.json", matrices_of(RM_BENCH[:1])))["official"])
    assert {name: value for name, value in found.items() if value is not None} == pytest.approx(
        {"Chat": 2 / 3, "Chat easy": 1.0, "Chat normal": 2 / 3, "Chat hard": 1 / 3}, abs=1e-6
    )
    assert found["Average"] is found["Hard"] is None


def judged(source: str, *said: str, scores: Sequence[tuple[object, object]] = ()) -> list[dict[str, Any]]:
    """Rows of JudgeBench; the right response stands on either side by turns."""
    rows = []
    for number, says in enumerate(said):
        good, bad = (scores or [WIN] * len(said))[number]
        right, wrong = text("right", good), text("wrong", bad)
        rows.append(
            {
                "pair_id": f"{source}-{number}",
                "original_id": str(number),
                "source": source,
                "question": f"{source} {number} says {says}",
                "response_model": "m",
                "response_A": wrong if number % 2 else right,
                "response_B": right if number % 2 else wrong,
                "label": "B>A" if number % 2 else "A>B",
            }
        )
    return rows


JUDGEBENCH = [
    # A contradiction is wrong; beside a tie or nothing, one right order is enough, and one wrong order too much.
    *judged("mmlu-pro-law", "right right", "right wrong", "right nothing", "tie right", "wrong tie", "nothing right"),
    *judged("livebench-reasoning", "right right"),
    *judged("livebench-math", "tie tie", "nothing wrong"),
    *judged("livecodebench", "right right", "wrong wrong"),
]


def test_judgebench_joins_both_orders_and_counts_ties_as_wrong(prbench: Command, tmp_path: Path) -> None:
    summary = evaluated(prbench, write(tmp_path / "set.json", JUDGEBENCH), JUDGE)
    expected = {"Overall": 6 / 11, "Knowledge": 4 / 6, "Reasoning": 1.0, "Math": 0.0, "Coding": 1 / 2}
    agree(values(summary["official"]), expected)
    # Ours: a contradiction is a tie, hence one half, and a pair with an unreadable order is wrong.
    ours = (1 + 0.5 + 0 + 1 + 0 + 0) + 1 + (0.5 + 0) + (1 + 0)
    assert summary["accuracy"]["value"] == pytest.approx(ours / 11, abs=1e-6)


def test_judgebench_of_scores_counts_equal_ones_as_wrong(prbench: Command, tmp_path: Path) -> None:
    rows = judged("mmlu-pro-math", *["right right"] * 4, scores=[WIN, TIE, TIE, ("none", 1)])
    summary = evaluated(prbench, write(tmp_path / "set.json", rows))
    found = values(summary["official"])
    assert (found["Overall"], found["Knowledge"], found["Coding"]) == (0.25, 0.25, None)
    assert summary["accuracy"]["value"] == 0.5


def instances(*said: str, scores: Sequence[tuple[object, object]] = ()) -> list[dict[str, Any]]:
    """Rows of LLMBar; the right output is the first or the second by turns."""
    rows = []
    for number, says in enumerate(said):
        good, bad = (scores or [WIN] * len(said))[number]
        outputs = [text("right", good), text("wrong", bad)]
        first, second = reversed(outputs) if number % 2 else outputs
        rows.append({"input": f"{number} says {says}", "output_1": first, "output_2": second, "label": 1 + number % 2})
    return rows


def write_llmbar(folder: Path, subsets: dict[str, list[dict[str, Any]]]) -> Path:
    for name, rows in subsets.items():
        write(folder / f"{name}.json", rows)
    return folder


def test_llmbar_is_the_mean_of_orders_and_of_subsets(prbench: Command, tmp_path: Path) -> None:
    subsets = {
        "Natural": instances("right right", "right wrong"),
        "Neighbor": instances("wrong wrong"),
        "GPTInst": instances("right nothing"),
        "GPTOut": instances("nothing nothing"),
        "Manual": instances("tie tie", "right right", "right right"),
    }
    summary = evaluated(prbench, write_llmbar(tmp_path / "llmbar", subsets), JUDGE)
    expected: Figures = {
        "Average": (3 / 4 + 0 + 1 / 2 + 0 + 2 / 3) / 5,
        "Natural": 3 / 4,
        "Neighbor": 0.0,
        "GPTInst": 1 / 2,
        "GPTOut": 0.0,
        "Manual": 2 / 3,
        "Adversarial": (0 + 1 / 2 + 0 + 2 / 3) / 4,
        "Agreement": (1 / 2 + 1 + 0 + 1 + 1) / 5,
        "Natural agreement": 1 / 2,
        "Neighbor agreement": 1.0,
        "GPTInst agreement": 0.0,
        "GPTOut agreement": 1.0,  # the authors take two unreadable replies for agreement
        "Manual agreement": 1.0,
    }
    agree(values(summary["official"]), expected)
    # Ours: 1, 1/2; 0; 0 (unreadable); 0; 1/2, 1, 1.
    assert summary["accuracy"]["value"] == pytest.approx(4 / 8, abs=1e-6)


def test_llmbar_of_scores_takes_equal_and_missing_ones_for_a_contradiction(prbench: Command, tmp_path: Path) -> None:
    rows = instances(*["right right"] * 4, scores=[WIN, TIE, LOSS, ("none", 1)])
    summary = evaluated(prbench, write_llmbar(tmp_path / "llmbar", {"Natural": rows}))
    found = values(summary["official"])
    assert (found["Natural"], found["Natural agreement"]) == (0.5, 0.5)
    assert summary["accuracy"]["value"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)


def test_llmbar_in_one_order_has_no_agreement(prbench: Command, tmp_path: Path) -> None:
    rows = write_llmbar(tmp_path / "llmbar", {"Natural": instances("right right")})
    found = values(evaluated(prbench, rows, JUDGE, "--orders", "one")["official"])
    assert (found["Natural"], found["Agreement"]) == (1.0, None)
    assert "Natural agreement" not in found


@pytest.mark.parametrize(
    "rows,model,name,headline,ours,theirs",
    [
        (pairs_of(REWARDBENCH), SCORES, "RewardBench", "Score", "67.6", "63.7"),
        (prompts_of(REWARDBENCH2), SCORES, "RewardBench 2", "Average", "80.0", "51.7"),
        (matrices_of(RM_BENCH), SCORES, "RM-Bench", "Average", "50.0", "55.6"),
        (JUDGEBENCH, JUDGE, "JudgeBench", "Overall", "45.5", "54.5"),
        (
            [{**row, "subset": name} for name in ("Natural", "Neighbor", "GPTInst", "GPTOut", "Manual")
             for row in instances("right nothing", "right right")],
            JUDGE,
            "LLMBar",
            "Average",
            "50.0",
            "75.0",
        ),
    ],
)  # fmt: skip
def test_both_figures_are_named_wherever_a_run_is_shown(
    prbench: Command, tmp_path: Path, rows: Any, model: str, name: str, headline: str, ours: str, theirs: str
) -> None:
    for number, row in enumerate(rows):
        if name == "LLMBar":
            row["input"] = f"{number} {row['input']}"
    data = write(tmp_path / "set.json", rows)
    command = ("--model", model, "--data", str(data), "--context", "none", "--out", "runs")
    printed = prbench("eval", *command).out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert any(line.startswith(f"accuracy {ours} [") for line in lines), printed
    start = next(place for place, line in enumerate(lines) if line.startswith(f"as {name} counts (github.com/"))
    assert lines[start + 1].startswith(f"{headline} {theirs} ["), printed

    board = prbench("report", "runs", "--html", "board.html", "--csv", "board.csv").out
    assert f"As {name} counts:" in board
    page = (tmp_path / "board.html").read_text(encoding="utf-8")
    assert f"<h3>As {name} counts</h3>" in page
    assert f">{headline}</th>" in page

    (summary,) = prbench("report", "runs", "--json").json
    with (tmp_path / "board.csv").open(encoding="utf-8", newline="") as file:
        (cells,) = csv.DictReader(file)
    assert (cells["counted_as"], f"{100 * float(cells['accuracy']):.1f}") == (name, ours)
    assert float(cells[f"official_{headline.lower()}"]) == summary["official"]["score"]["value"]
    assert f"{100 * summary['official']['score']['value']:.1f}" == theirs

    (run,) = load_runs(tmp_path / "runs")
    assert run.summary["official"] == summary["official"]
    assert f", {name} {headline} 0." in repr(run)


def test_intervals_resample_what_the_rows_of_a_set_belong_to(prbench: Command, tmp_path: Path) -> None:
    rows = pairs_of({"math-prm": [WIN] * 40, "hep-go": [WIN, LOSS] * 30})
    official = evaluated(prbench, write(tmp_path / "set.json", rows))["official"]
    reasoning, code = official["figures"]["Reasoning"], official["details"]["hep-go"]
    # 0.25 / 59 is the variance of a mean of 60 coins. Mathematics is all right in 40 pairs: t of its error reaches as
    # far as Wilson's interval for none of 40.
    coins, certain = np.sqrt(0.25 / 59), (1 - wilson(40, 40)[0]) / t.ppf(0.975, 39)
    parts = np.array([certain, coins]) ** 2 / 4
    freedom = parts.sum() ** 2 / (parts**2 / np.array([39, 59])).sum()
    for found, value, error, df in ((code, 0.5, coins, 59), (reasoning, 0.75, np.sqrt(parts.sum()), freedom)):
        half = t.ppf(0.975, df) * error / (value * (1 - value))
        ends = [1 / (1 + np.exp(-(np.log(value / (1 - value)) + side * half))) for side in (-1, 1)]
        assert [found["low"], found["high"]] == pytest.approx(ends, abs=2e-6)
        assert found["value"] == pytest.approx(value)
    assert (reasoning["n"], code["n"]) == (100, 60)


def test_the_figures_do_not_depend_on_the_order_of_the_rows(tmp_path: Path) -> None:
    for rows in (prompts_of(REWARDBENCH2), matrices_of(RM_BENCH), pairs_of(REWARDBENCH)):
        run = evaluate(write(tmp_path / "set.json", rows), SCORES, "none", probes="own")
        pairs = [row for row in run.items if isinstance(row, Row)]
        assert official_figures(pairs[::-1]) == official_figures(pairs)


def test_own_rows_and_mixed_ones_are_counted_by_us_alone(prbench: Command, tmp_path: Path) -> None:
    own = [make_row(number) for number in range(4)]
    assert evaluate(own, "control:longest").summary["official"] is None
    mixed = [*pairs_of({"hep-go": [WIN]}), *judged("mmlu-pro-law", "right right")]
    assert evaluated(prbench, write(tmp_path / "mixed.json", mixed))["official"] is None
    unknown = [make_row(number, meta={COUNTED_AS: "nobody"}) for number in range(4)]
    assert evaluate(unknown, "control:longest").summary["official"] is None
    bare = [make_row(number, meta={COUNTED_AS: way}) for way in WAYS for number in range(2)]
    for way in WAYS:
        rows = [row for row in bare if row["meta"][COUNTED_AS] == way]
        evaluate(rows, "control:longest")  # rows of ours that only claim it do no harm


def test_every_way_of_counting_belongs_to_an_importer() -> None:
    foreign: list[dict[str, Any]] = [
        fixtures.REWARDBENCH,
        fixtures.REWARDBENCH2,
        fixtures.RM_BENCH,
        fixtures.JUDGEBENCH,
        fixtures.LLMBAR,
    ]
    found = [importer.to_rows(raw, "x")[0][COUNTED_AS] for raw in foreign if (importer := find_importer(raw))]
    assert found == list(WAYS)
