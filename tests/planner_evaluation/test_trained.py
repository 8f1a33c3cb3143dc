"""`prbench eval-planner` with a planner that was trained here: the same figures, and no language model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from prbench.context.aspect_planner import BankAspect, PlannerFolder, PlannerWeights
from prbench.data import DataSettings
from prbench.insight.planner_evaluation import PlannerSettings, TraitReader, measure_planner
from prbench.lab import default_dataset
from prbench.lab.gold import aspect_traits

ROWS = 6


class OneEach:
    """An encoder that gives every known question a direction of its own, and nothing to any other text."""

    name = "questions"
    identity = {"name": "questions"}  # noqa: RUF012

    def __init__(self, questions: Sequence[str]) -> None:
        self._place = {text: at for at, text in enumerate(questions)}

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), len(self._place)), dtype=np.float32)
        for row, text in enumerate(texts):
            if text in self._place:
                vectors[row, self._place[text]] = 1.0
        return vectors


class ByName(TraitReader):
    """Reads the trait of a planned aspect from its name, as the lab has it."""

    def read(self, planned: Sequence[str], subject: str) -> list[str]:
        return [aspect_traits()[piece.partition(": ")[0]][1] for piece in planned]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A planner that foresees, for each of the first questions, the first two aspects that anybody looks for."""
    rows = default_dataset("test")[:ROWS]
    rubrics: dict[str, dict[BankAspect, None]] = {}
    for row in rows:
        rubrics.setdefault(row.question, {}).update({BankAspect(one.aspect, one.reason): None for one in row.rubric})
    bank = tuple(dict.fromkeys(one for aspects in rubrics.values() for one in list(aspects)[:2]))
    shares = np.array([[float(one in list(aspects)[:2]) for one in bank] for aspects in rubrics.values()])
    encoder = OneEach(list(rubrics))
    monkeypatch.setattr("prbench.backends.encoders._load_once", lambda name: encoder)
    size = len(rubrics)
    one = np.ones(1, dtype=np.float32)
    weights = PlannerWeights(
        post_weight=np.zeros((1, size, 2), dtype=np.float32),
        post_bias=np.zeros((1, 1, 2), dtype=np.float32),
        aspect_weight=np.zeros((1, size, 1), dtype=np.float32),
        aspect_bias=np.zeros((1, 1, 1), dtype=np.float32),
        mix=np.zeros((1, 1, 1), dtype=np.float32),
        average=np.zeros((1, 1, 1), dtype=np.float32),
        scale=one,
        offset=one,
        prior=0 * one,
        questions=encoder.encode(list(rubrics)),
        shares=shares.astype(np.float32),
        nearness=np.array(100, dtype=np.float32),
        thresholds=np.array([0.5, 0.5, 0.5], dtype=np.float32),
    )
    PlannerFolder(weights=weights, bank=bank, encoder="questions").save(tmp_path / "planner")
    return tmp_path / "planner"


def test_a_trained_planner_has_precision_and_recall(folder: Path, tmp_path: Path) -> None:
    settings = PlannerSettings(planner=str(folder), posts=30)
    which = DataSettings(source="lab", limit=ROWS)
    summary = measure_planner(settings, which, tmp_path / "new" / "plans", reader=ByName())
    rows = default_dataset("test")[:ROWS]
    union: dict[str, list[str]] = {}
    for row in rows:
        union.setdefault(row.question, []).extend(one.aspect for one in row.rubric)
    planned = [list(dict.fromkeys(union[row.question]))[:2] for row in rows]
    hits = [
        sum(name in {one.aspect for one in row.rubric} for name in names)
        for row, names in zip(rows, planned, strict=True)
    ]
    assert summary["planned"]["value"] == 1.0
    assert summary["aspects_per_plan"] == 2.0
    assert summary["lab"]["precision"]["value"] == pytest.approx(sum(hits) / (2 * ROWS), abs=1e-6)
    assert summary["lab"]["recall"]["value"] == pytest.approx(
        sum(hits) / sum(len(row.rubric) for row in rows), abs=1e-6
    )
    assert (tmp_path / "new" / "plans" / "planner" / "summary.json").is_file()
    assert not (tmp_path / "new" / "plans" / "cache").exists()  # nobody was asked anything
