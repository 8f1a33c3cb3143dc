"""The simulated population, and what its instrument says texts are worth."""

from pathlib import Path

import pytest
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden

SPLITS = ("test", "train", "validation", "test_population", "test_general", "test_labels")


@pytest.mark.parametrize("split", SPLITS)
def test_texts_and_truths_of_a_population(golden: Golden, world: Path, split: str) -> None:
    golden(f"lab_{split}", ask.lab_population(world / "lab", split))


def test_another_seed_is_another_population(golden: Golden, tmp_path: Path) -> None:
    made = ask.make_lab(tmp_path, "other", users=100, pairs=120, seed=7)
    golden("lab_other_seed", {"splits": made, "test": ask.lab_population(tmp_path / "other", "test")})


def test_worth_of_texts(golden: Golden, world: Path) -> None:
    rows = ask.lab_rows(world / "lab", "test")[:12]
    known = {
        row["id"]: ask.gold_of([row["chosen"], row["rejected"]], row["meta"]["subject"], row["meta"]["wanted"])
        for row in rows
    }
    subject, wanted = rows[0]["meta"]["subject"], rows[0]["meta"]["wanted"]
    free = [
        "",
        "Sow cheap seeds, and count every penny.",
        f"{rows[0]['chosen']} {rows[0]['rejected']}",
        rows[0]["chosen"].lower().replace(".", "!"),
        "Buy second-hand pots. Ask the neighbours for cuttings. Keep bees away from the door.",
    ]
    golden("lab_gold", {"of the lab": known, "free": ask.gold_of(free, subject, wanted)})
