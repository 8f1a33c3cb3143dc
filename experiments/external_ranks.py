"""Do methods rank alike on the lab and on text of others? From the figures that docs/research quotes, in seconds.

    python experiments/external_ranks.py         # writes results/meta/external_ranks.json

Twelve methods were trained and tested on the lab, on PersonaMem and on PrefEval, anew on each; so methods are ranked,
not models. The lab's figures are those of `results/train` and `results/lab`, the others' those of `results/folds`.
Spearman over methods, with interval and p over families of methods; beside them those over methods, as if each were
drawn by itself. `as printed` is the same from figures rounded to a tenth of a point, as tables have them: rounding
makes ties, and so other correlations where figures lie close.
"""

import json
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from prbench.insight.meta.board import BoardPair, board_of_scores
from prbench.insight.meta.predictors import spearman_interval
from prbench.insight.meta.statistics import over_families
from prbench.insight.meta.structural import NullSettings, structural_null
from prbench.metrics.correlation import coefficient, correlate

RESULTS = Path(__file__).parents[1] / "results"
SETS = ("lab", "personamem", "prefeval")
DRAWS = 10_000
# The same method as `results/train/figures.json` and `results/folds/figures.json` name it, and its family.
METHODS = {
    "rubric-chain": ("rubric-chain", "rubric-chain"),
    "planner": ("planner", "planner"),
    "head": ("head, topics", "head"),
    "summary": ("summary", "summary"),
    "head?kind=attention": ("head, attention", "head"),
    "head?kind=lowrank": ("head, lowrank", "head"),
    "head?knows_users=false": ("head, no users", "head"),
    "match": ("match", "match"),
    "bt?accumulate=1": ("bt", "bt"),
    "bt-profile?accumulate=2&lora_dropout=0&epochs=1": ("bt-profile", "bt"),
    "control:overlap": ("overlap", "overlap"),
    "control:embed": ("embed", "embed"),
}


def read_json(name: str) -> Any:
    """Read a file of results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def boards() -> dict[str, dict[str, dict[str, float]]]:
    """Return accuracy and swap gap of every method on every set."""
    trained = read_json("train/figures.json")
    floors = read_json("lab/figures.json")["runs"]
    others = read_json("folds/figures.json")
    found: dict[str, dict[str, dict[str, float]]] = {"accuracy": {}, "swap_gap": {}}
    for method, (arm, _) in METHODS.items():
        floor = floors.get(f"{method} test")
        ours = floor or {
            "accuracy": trained[method]["accuracy"]["test"],
            "swap_gap": trained[method]["swap_gap"],
        }
        for figure, rows in found.items():
            rows[method] = {"lab": ours[figure]["value"]} | {
                name: others[name][arm][figure]["value"] for name in SETS[1:]
            }
    return found


def pair_of(rows: dict[str, dict[str, float]], one: str, two: str) -> BoardPair:
    """Return two sets side by side, with the family of every method."""
    families = {method: family for method, (_, family) in METHODS.items()}
    first, second = (
        board_of_scores(name, {method: each[name] for method, each in rows.items()}, families=families)
        for name in (one, two)
    )
    return BoardPair(benchmark=first, downstream=second)


def compared(pair: BoardPair) -> dict[str, Any]:
    """Return how two sets rank the methods."""
    x, y = pair.benchmark.scores, pair.downstream.scores
    tested = correlate(x, y, draws=DRAWS)
    assert tested is not None
    assert pair.families is not None
    limits = over_families(x, y, pair.families)
    assert limits is not None
    low, high = spearman_interval(tested.value, x, y)
    printed = coefficient(np.round(100 * x, 1), np.round(100 * y, 1), "spearman")
    assert printed is not None
    return {
        "value": round(tested.value, 4),
        "low": round(limits.low, 4),
        "high": round(limits.high, 4),
        "p": round(limits.p, 4),
        "over methods": {
            "value": round(tested.value, 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "p": round(tested.p_value, 4),
        },
        "as printed": round(printed, 4),
    }


def main() -> None:
    """Rank the methods on the three sets, and write how far the rankings agree."""
    found = boards()
    ranks = {
        f"{figure}: {one}, {two}": compared(pair_of(rows, one, two))
        for figure, rows in found.items()
        for one, two in combinations(SETS, 2)
    }
    null = structural_null(pair_of(found["accuracy"], "lab", "personamem"), NullSettings())
    assert null is not None
    content = {
        "command": "python experiments/external_ranks.py",
        "families": len({family for _, family in METHODS.values()}),
        "methods": found,
        "spearman": ranks,
        "had both asked for the same, as wide as on the lab": asdict(null)["bands"]["spearman"],
    }
    (RESULTS / "meta" / "external_ranks.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: each for name, each in content.items() if name != "methods"}, indent=1))


if __name__ == "__main__":
    main()
