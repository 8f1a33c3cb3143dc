"""Blend the models that `train_table.py` measured, from the scores that it kept.

    python experiments/train_blend.py --out results/train        # then: train_table.py --table

All that read posts and need no labels are blended, as `prbench train --method blend` does it: weights from the scores
of held-out users, then applied to all that the members were asked. A score is a weighted sum, so the models themselves
are not needed again; `tests/train/test_blend.py` and the note in docs/research/train.md say that the real blend
agrees.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import read_table, write_table
from numpy.typing import NDArray
from train_figures import WHOLE, slug
from train_table import COLUMNS, GROUPS, POSTS, Lab, cut_profiles, lines_of, make_lab, more

from prbench.evaluation import Run
from prbench.evaluation.summary import MAX_FAILED, summarize
from prbench.lab import DEFAULT_SIZES
from prbench.metrics.estimate import USERS
from prbench.schema import Example, Probe, Row, Verdict
from prbench.training.blend import BlendConfig, fit_weights
from prbench.training.folder import held_out_figures

ARM = "blend"
MEMBERS = ("encoder", "planner", "head", "summary", "rubric-chain")
PENALTY = BlendConfig(models="one,two").penalty
Key = tuple[str, str, str]  # what was asked, probe, id of the pair
Doubles = NDArray[np.float64]


def main() -> None:
    """Write the files of every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/train"))
    asked = parser.parse_args()
    rows = rows_by_question(make_lab(DEFAULT_SIZES, deal=0))
    for seed in asked.seeds:
        blend(seed, rows, asked.out)


def rows_by_question(lab: Lab) -> dict[str, dict[str, Example]]:
    """Return the pairs by the name of what was asked, and their ids."""
    asked = {"validation": lab.data.validation, WHOLE: lab.test, "test_population": lab.population}
    for dose in (1, 3, 10):
        asked[f"test, {dose} informative posts"] = list(cut_profiles(lab.test, dose))
    return {name: {example.id: example for example in examples} for name, examples in asked.items()}


def blend(seed: int, rows: Mapping[str, Mapping[str, Example]], out: Path) -> None:
    """Weigh the members of one seed, and write what the blend says."""
    scores = [read_scores(out / f"{slug(member)}-{seed}.csv.gz") for member in MEMBERS]
    known, alone = (fit_weights(margins(scores, "validation", probe), PENALTY) for probe in ("own", "none"))
    asked: dict[str, list[Row]] = {}
    for key in sorted(scores[0]):
        name, probe, item = key
        weights = alone if probe == "none" else known
        chosen, rejected = (float(weights @ [each[key][side] for each in scores]) for side in (0, 1))
        verdict = Verdict.CHOSEN if chosen > rejected else Verdict.REJECTED if chosen < rejected else Verdict.TIE
        asked.setdefault(name, []).append(as_row(rows[name][item], Probe(probe), verdict, (chosen, rejected)))
    runs = {name: Run(summary=summarize(some, facts(ARM, seed, some)), items=some) for name, some in asked.items()}
    members = [json.loads((out / f"{slug(member)}-{seed}.json").read_text(encoding="utf-8")) for member in MEMBERS]
    costs = {
        "seconds": round(sum(member["facts"]["seconds"] for member in members), 2),
        "peak_memory_mib": max(member["facts"]["peak_memory_mib"] for member in members),
    }
    record = {
        "arm": ARM,
        "seed": seed,
        "is_first": all(member["is_first"] for member in members),
        "command": shlex.join(["python", "experiments/train_blend.py", *sys.argv[1:]]),
        "device": ", ".join(sorted({member["device"] for member in members})),
        "config": {"models": list(MEMBERS), "penalty": PENALTY},
        "facts": {**costs, "weights": known.round(4).tolist(), "weights_without_posts": alone.round(4).tolist()},
        "responses_per_second": round(1 / sum(1 / member["responses_per_second"] for member in members), 1),
        "runs": {name: {**held_out_figures(run.summary), **more(run)} for name, run in runs.items()},
    }
    (out / f"{ARM}-{seed}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    write_table(out / f"{ARM}-{seed}.csv.gz", COLUMNS, lines_of(runs))
    print(f"{ARM} {seed}: test {100 * runs[WHOLE].summary['accuracy']['value']:.1f}, weights {known.round(2)}")


def read_scores(path: Path) -> dict[Key, tuple[float, float]]:
    """Return both scores of every pair."""
    return {
        (row["asked"], row["probe"], row["id"]): (float(row["score_chosen"]), float(row["score_rejected"]))
        for row in read_table(path)
    }


def margins(scores: Sequence[Mapping[Key, tuple[float, float]]], name: str, probe: str) -> Doubles:
    """Return a row of margins for every pair, one per member."""
    keys = [key for key in sorted(scores[0]) if key[:2] == (name, probe)]
    return np.array([[each[key][0] - each[key][1] for each in scores] for key in keys])


def as_row(
    example: Example,
    probe: Probe,
    verdict: Verdict,
    scores: Sequence[float | None] = (None, None),
    *,
    group_by: Sequence[str] = GROUPS,
    posts: int = POSTS,
) -> Row:
    """Return the row that an evaluation would have written."""
    groups = {name: example.meta[name] for name in (*group_by, "majority") if name in example.meta}
    return Row(
        id=example.id, probe=probe, user_id=example.user.id, category=example.category, verdict=verdict,
        score_chosen=scores[0], score_rejected=scores[1], posts_used=min(posts, len(example.user.profile)),
        groups=groups, question_hash=example.question,
    )  # fmt: skip


def facts(arm: str, seed: int, rows: Sequence[Row], group_by: Sequence[str] = GROUPS) -> dict[str, Any]:
    """Return what a summary is told of its run."""
    data = {"name": "lab", "users": len({row.user_id for row in rows})}
    return {
        "run_id": "", "model": arm, "kind": arm, "data": data, "context": "profile", "seed": seed,
        "group_by": list(group_by), "resample": USERS, "max_failed": MAX_FAILED,
    }  # fmt: skip


if __name__ == "__main__":
    main()
