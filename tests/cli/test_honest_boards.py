"""What a board, its page and its JSON say of a model that ignores the user, and of whom their intervals speak."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prbench.metrics.estimate import ratio_estimates

Command = Callable[..., Any]

NOISE = '''
from hashlib import sha256
from prbench import Score


class Noise:
    """Scores by chance, anew for every context: it answers, and knows nobody."""

    name = "noise"

    def score(self, inputs):
        texts = (f"{one.question}|{one.response}|{one.context}" for one in inputs)
        return [Score(value=int(sha256(text.encode()).hexdigest()[:8], 16) / 2**32) for text in texts]
'''


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """80 users who ask four of eight questions each; nobody says what most people want."""
    rows = [
        {
            "id": f"{user}-{turn}",
            "user_id": f"user-{user}",
            "question": f"What about subject {(user + turn) % 8}?",
            "profile": [{"id": "p", "text": f"I am person {user} and like things my way."}],
            "chosen": f"Do it slowly and with care, {user} and {turn}.",
            "rejected": f"Do it quickly and be done, {user} and {turn}.",
            "category": "life",
        }
        for user in range(80)
        for turn in range(4)
    ]
    path = tmp_path / "people.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "noise_model.py").write_text(NOISE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "python:noise_model:Noise"


def test_no_figure_of_a_model_that_ignores_the_user_says_that_it_knows_minorities(
    prbench: Command, people: Path, noise: str
) -> None:
    summary = prbench("eval", "--model", noise, "--data", str(people), "--json").json
    assert (summary["minority_accuracy"], summary["majority_accuracy"]) == (None, None)
    errors = summary["impersonal_errors"]
    # Half of what it got wrong without a profile it gets right with one, and with anybody else's as well.
    assert errors["own"]["value"] == pytest.approx(0.5, abs=0.12)
    assert errors["swapped"]["value"] == pytest.approx(0.5, abs=0.12)
    for gap in (errors["gap"], summary["swap"]["gap"], summary["personalization_gain"]):
        assert gap["low"] < 0 < gap["high"]
    ended = prbench("report", "runs", "--html", "board.html", "--csv", "board.csv")
    board = ended.out.splitlines()
    assert "*" not in next(line for line in board if line.startswith("a python:noise"))
    page = Path("board.html").read_text(encoding="utf-8")
    assert "Minority and majority" not in page
    assert "gap on impersonal errors" in page


def test_intervals_say_of_whom_they_speak_and_the_other_population_is_one_flag_away(
    prbench: Command, people: Path
) -> None:
    usual = prbench("eval", "--model", "control:overlap", "--data", str(people), "--json").json
    population = usual["population"]
    assert (population["of"], population["users"], population["questions"]) == (
        "new users with these questions", 80, 8,
    )  # fmt: skip
    assert population["these_questions"] is None
    board = prbench("report", "runs", "--json", "--resample", "users,questions").json[0]
    assert board["population"]["of"] == "new users and new questions"
    assert board["accuracy"] == population["new_questions"]["accuracy"]
    assert board["population"]["these_questions"]["accuracy"] == usual["accuracy"]
    assert board["accuracy"]["value"] == usual["accuracy"]["value"]
    printed = prbench("report", "runs").out
    assert "Intervals are 95 %, for new users with these questions. 80 users share 8 questions" in printed
    ended = prbench("report", "runs", "--resample", "pairs")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--resample pairs: unknown" in ended.err


def test_the_two_way_interval_adds_users_and_questions_less_their_cells(prbench: Command, people: Path) -> None:
    run = prbench("eval", "--model", "control:random", "--data", str(people), "--json").json
    rows = [json.loads(line) for path in Path("runs").glob("*/items.jsonl") for line in path.open(encoding="utf-8")]
    own = [row for row in rows if row["probe"] == "own"]
    points = np.array([{"chosen": 1.0, "tie": 0.5}.get(row["verdict"], 0.0) for row in own])
    users, questions = [row["user_id"] for row in own], [row["question_hash"] for row in own]
    cells = [f"{user} {question}" for user, question in zip(users, questions, strict=True)]
    ways = [ratio_estimates(points, np.ones(len(points)), clusters)[0] for clusters in (users, questions, cells)]
    found = run["population"]["new_questions"]["accuracy"]
    for end in ("low", "high"):
        user, question, cell = (abs(getattr(way, end) - points.mean()) for way in ways)
        expected = np.sqrt(max(user**2 + question**2 - cell**2, user**2, question**2))
        assert abs(found[end] - points.mean()) == pytest.approx(expected, abs=1e-6)
