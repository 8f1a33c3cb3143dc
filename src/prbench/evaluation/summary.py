"""From rows to `summary.json`: every figure of a run, computed from its rows and nothing else."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass

from prbench.metrics import accuracy as acc
from prbench.metrics import personal
from prbench.metrics.accuracy import order_effects
from prbench.metrics.calibration import calibrate
from prbench.metrics.ratings import rated_contrast, rated_summary
from prbench.schema import Json, Probe, RatedRow, Row

FACTS = ("majority",)  # fields of `meta` that metrics read by themselves
DIGITS = 6
# The keys of every summary, in order. What does not apply is null, never absent.
KEYS = (
    "run_id",
    "model",
    "kind",
    "data",
    "context",
    "seed",
    "n_items",
    "coverage",
    "accuracy",
    "accuracy_readable",
    "accuracy_by_category",
    "macro_user_accuracy",
    "worst_decile_accuracy",
    "swap",
    "personalization_gain",
    "minority_accuracy",
    "majority_accuracy",
    "order",
    "tie_rate",
    "calibration",
    "truncated_items",
    "dropped_posts",
    "unreadable",
    "profile_sensitivity",
    "own_none_agreement",
    "dose_response",
    "groups",
    "ratings",
)

RATING_KEYS = ("alignment", "alignment_readable", "floor", "spearman", "kendall", "users", "users_left_out")


def summarize(rows: Sequence[Row | RatedRow], facts: Mapping[str, Json]) -> dict[str, Json]:
    """Return the summary of a run; the same rows give the same bytes, in whatever order they were written."""
    seed = int(facts["seed"])
    own = [row for row in rows if row.probe is Probe.OWN]
    figures: dict[str, Json] = {key: facts[key] for key in KEYS[:6]}
    figures |= {
        "n_items": len(own),
        "truncated_items": sum(row.posts_dropped > 0 for row in own),
        "dropped_posts": sum(row.posts_dropped for row in own),
    }
    pairs = [row for row in rows if isinstance(row, Row)]
    if pairs:
        figures |= _pair_figures(pairs, facts, seed)
    else:
        figures |= _rating_figures([row for row in rows if isinstance(row, RatedRow)], seed)
    return {key: _plain(figures.get(key)) for key in KEYS}


def _pair_figures(rows: Sequence[Row], facts: Mapping[str, Json], seed: int) -> dict[str, Json]:
    own = [row for row in rows if row.probe is Probe.OWN]
    worst = acc.worst_decile_accuracy(own, seed=seed)
    split = personal.majority_split(rows, seed=seed)
    calibration = calibrate(own, seed=seed)
    return {
        "coverage": acc.coverage(own, seed=seed),
        "accuracy": acc.accuracy(own, seed=seed),
        "accuracy_readable": acc.accuracy_readable(own, seed=seed),
        "accuracy_by_category": dict(acc.accuracy_by_group(own, "category", seed=seed).groups),
        "macro_user_accuracy": acc.macro_user_accuracy(own, seed=seed),
        "worst_decile_accuracy": {**asdict(worst.accuracy), "users": worst.users, "chance": worst.null},
        "swap": personal.swap(rows, seed=seed),
        "personalization_gain": personal.personalization_gain(rows, seed=seed),
        "minority_accuracy": split.minority if split else None,
        "majority_accuracy": split.majority if split else None,
        "order": order_effects(own, seed=seed),
        "tie_rate": acc.tie_rate(own, seed=seed),
        "calibration": calibration,
        "unreadable": acc.unreadable_counts(own),
        "own_none_agreement": personal.own_none_agreement(rows, seed=seed),
        "profile_sensitivity": personal.profile_sensitivity(rows, seed=seed),
        "dose_response": personal.dose_response(rows, seed=seed),
        "groups": {name: acc.accuracy_by_group(own, name, seed=seed) for name in facts["group_by"]} or None,
    }


def _rating_figures(rows: Sequence[RatedRow], seed: int) -> dict[str, Json]:
    own = [row for row in rows if row.probe is Probe.OWN]
    summary = rated_summary(own, seed=seed)
    problems = Counter(row.problem for row in own if row.score is None)
    return {
        "coverage": summary.coverage,
        "unreadable": {problem.value: count for problem, count in sorted(problems.items())},
        "ratings": {
            **{name: getattr(summary, name) for name in RATING_KEYS},
            "gain": rated_contrast(rows, Probe.NONE, seed=seed),
            "swap_gap": rated_contrast(rows, Probe.SWAP, seed=seed),
        },
    }


def _plain(value: Json) -> Json:
    """Return a figure as JSON holds it: records as objects, floats rounded."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain({name: getattr(value, name) for name in value.__dataclass_fields__})
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float) -> float:
    """Return six digits, after the point or in all: the last bits of a score depend on the batch it was in."""
    return float(f"{value:.{DIGITS}g}") if abs(value) > 1 else round(value, DIGITS) + 0.0
