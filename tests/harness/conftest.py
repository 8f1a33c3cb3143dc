"""Pairs whose verdicts differ, as a file that harnesses open by its path."""

import json
from pathlib import Path

import pytest
from tests.conftest import make_row

MARKER = "ZQXJ-MARKER-77"  # in what no model under test may see


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty pairs of six users in one category; rubric and narrative are marked."""
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    lines = []
    for number in range(20):
        user = number % 6
        posts = [{"id": f"p{user}-{i}", "category": "garden", "text": f"User {user} on beans, {i}."} for i in range(3)]
        rubric = [{"aspect": MARKER, "evidence": MARKER, "reason": MARKER}]
        row = make_row(
            number,
            user_id=f"user-{user}",
            profile=posts,
            rubric_aspects=rubric,
            narrative=MARKER,
            category="Society_and_Culture",
            chosen=f"Sow beans, as {'User' if number % 3 else 'nobody'} {user + number % 2} does.",
            rejected=f"Buy {'beans' if number % 4 == 0 else 'the finest pots'}, number {number}.",
        )
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def marker() -> str:
    return MARKER
