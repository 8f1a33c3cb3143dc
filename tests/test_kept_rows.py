"""Kept rows of a benchmark: whether another user's profile changes any score."""

import runpy
from pathlib import Path

import pytest

scores_move = runpy.run_path(str(Path(__file__).parents[1] / "experiments" / "kept_rows.py"))["scores_move"]


def row(seed: str, probe: str, chosen: str, rejected: str) -> dict[str, str]:
    return {"seed": seed, "id": "a", "probe": probe, "score_chosen": chosen, "score_rejected": rejected}


@pytest.mark.parametrize(
    ("swapped", "moves"), [(("0", "1.5", "0.5"), False), (("0", "1.5", "0.6"), True), (("1", "9.0", "0.5"), False)]
)
def test_scores_move_if_one_differs_within_a_run(swapped: tuple[str, str, str], moves: bool) -> None:
    seed, chosen, rejected = swapped
    rows = [row("0", "none", "7.0", "0.5"), row("0", "own", "1.5", "0.5"), row("1", "own", "9.0", "0.5")]
    assert scores_move([*rows, row(seed, "swap", chosen, rejected)], ("seed",)) is moves
