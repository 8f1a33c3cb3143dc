"""Stage `audit`: the checks of `prbench check` on the pairs as built, and which of them so few rows can bear."""

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist

from prbench.construction.build.folder import AUDIT, PAIRS
from prbench.construction.check import BAD, GOOD, LOOK, MINILM, SKIPPED, CheckFinding, check_store
from prbench.construction.check.finding import STEP, worst
from prbench.data import DataSettings, open_examples
from prbench.runs.files import write_json
from prbench.schema import Json, StepProgress

NO_PAIRS = "no pairs"
LEVEL = 0.95


def run_audit(
    folder: Path, *, encoder: str = MINILM, seed: int = 0, progress: StepProgress = lambda step: None
) -> dict[str, Json]:
    """Check the pairs of a build, write `audit.json`, and return what it holds.

    The file has figures and no texts of people; `prbench check --data DIR/dataset` shows samples.
    """
    path = folder / PAIRS
    if not path.exists() or not path.stat().st_size:
        audit = _without_pairs()
    else:
        with open_examples(path) as store:
            checked = check_store(store, DataSettings(source=str(path)), encoder=encoder, seed=seed, progress=progress)
        findings = [_as_row(finding) for finding in checked.findings]
        judged = [row["verdict"] for row in findings if row["judgeable"]]
        audit = {
            "rows": checked.rows,
            "users": checked.users,
            "hash": checked.hash,
            "verdict": worst(SKIPPED, *judged),
            "not_judgeable": [row["check"] for row in findings if not row["judgeable"]],
            "findings": findings,
        }
    write_json(folder / AUDIT, audit)
    return audit


def rows_needed(good_to: float) -> int:
    """Return how many rows of as many users tell chance from a floor that is bad: half an interval is that step."""
    z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
    return math.ceil((z * 0.5 / (good_to + STEP - 0.5)) ** 2)


def reasons(audit: Mapping[str, Json]) -> list[str]:
    """Return why an audit is not green: one line per check that is bad, or worth a look."""
    if not audit["rows"]:
        return [NO_PAIRS]
    return [
        f"{row['check']}: {row['verdict']}: {row['figure']}"
        for row in audit["findings"]
        if row["verdict"] in (BAD, LOOK)
    ]


def is_green(audit: Mapping[str, Json]) -> bool:
    """True if there are pairs, and no check that can be judged came out bad."""
    return bool(audit["rows"]) and audit["verdict"] != BAD


def _as_row(finding: CheckFinding) -> dict[str, Json]:
    row = finding.as_json()
    del row["samples"]
    accuracy = finding.values.get("accuracy")
    row["judgeable"] = finding.verdict != SKIPPED
    if accuracy and finding.verdict != BAD:  # an interval that lies outside the band says enough, however wide
        good_to = finding.values["good_to"]
        needed = rows_needed(good_to)
        is_wide = accuracy["high"] - accuracy["low"] > 2 * (good_to + STEP - 0.5)
        if is_wide or accuracy["n"] < needed:  # rows that all tie have no spread, and still are few
            row["judgeable"] = False
            row["note"] = f"{accuracy['n']} rows cannot tell; about {needed} rows of as many users can"
    return row


def _without_pairs() -> dict[str, Json]:
    return {"rows": 0, "users": 0, "hash": "", "verdict": SKIPPED, "not_judgeable": [], "findings": []}


__all__ = ["AUDIT", "GOOD", "is_green", "reasons", "rows_needed", "run_audit"]
