"""From rows to `summary.json`, of a run that has just ended or of one on disk: every figure comes from its rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from types import NoneType

from prbench.errors import RunError
from prbench.evaluation.settings import EvalSettings
from prbench.metrics import accuracy as acc
from prbench.metrics import personal
from prbench.metrics.accuracy import order_effects
from prbench.metrics.calibration import calibrate
from prbench.metrics.groups import accuracy_by_group, group_figures
from prbench.metrics.ratings import rated_contrast, rated_summary
from prbench.runs import SUMMARY, StoredRun, find_runs
from prbench.runs.files import EVAL, read_json
from prbench.runs.manifest import require
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
    figures["groups"] = summarize_groups(rows, facts["group_by"], seed) or None
    return {key: _plain(figures.get(key)) for key in KEYS}


def summarize_groups(rows: Sequence[Row | RatedRow], fields: Sequence[str], seed: int) -> dict[str, Json]:
    """Return the figures of the groups that each field makes, as they stand in a summary."""
    return {name: _plain(group_figures(rows, name, seed=seed).as_json()) for name in fields}


def _pair_figures(rows: Sequence[Row], facts: Mapping[str, Json], seed: int) -> dict[str, Json]:
    own = [row for row in rows if row.probe is Probe.OWN]
    worst = acc.worst_decile_accuracy(own, seed=seed)
    split = personal.majority_split(rows, seed=seed)
    calibration = calibrate(own, seed=seed)
    return {
        "coverage": acc.coverage(own, seed=seed),
        "accuracy": acc.accuracy(own, seed=seed),
        "accuracy_readable": acc.accuracy_readable(own, seed=seed),
        "accuracy_by_category": accuracy_by_group(own, "category", seed=seed),
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
    # Six digits, after the point or in all: the last bits of a score depend on the batch it was in.
    return (
        (float(f"{value:.{DIGITS}g}") if abs(value) > 1 else round(value, DIGITS) + 0.0)
        if isinstance(value, float)
        else value
    )


PLANNER = "planner"  # the folder of a planner's figures within that of a run
_FIGURE = (dict, NoneType)


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run as it stands on disk."""

    folder: Path
    manifest: Mapping[str, Json]
    summary: Mapping[str, Json]
    rows: Sequence[Row | RatedRow]
    note: str = ""  # settings that tell it from other runs of the same model and context
    planner: Mapping[str, Json] | None = None  # the figures of `prbench eval-planner`, where it was given this folder

    @property
    def model(self) -> str:
        """The model, with whatever tells this run from others of it."""
        return f"{self.summary['model']} {self.note}".strip()

    @property
    def name(self) -> str:
        """The model and the context."""
        return f"{self.model} · {self.summary['context']}"


@dataclass(frozen=True, kw_only=True)
class LoadedRuns:
    """The finished runs of some folders, and a line about each one that was left out."""

    runs: list[FinishedRun]
    left_out: list[str]


def load_runs(paths: Sequence[Path], *, group_by: Sequence[str] = (), all_facts: bool = False) -> LoadedRuns:
    """Return the runs in these folders, every figure computed anew; a folder of runs means all of them.

    A run that was interrupted has figures of its first items only, so it cannot stand beside the others. Rows keep the
    facts that figures need, or all of them.
    """
    found = find_runs(paths, kinds=(EVAL,), groups=None if all_facts else (*group_by, *FACTS))
    left_out = list(found.left_out)
    runs = [_load(run, group_by, left_out) for run in found.runs]
    named = []
    for run in runs:
        twins = [other for other in runs if _head(other) == _head(run)]
        settings = _settings(run)
        differ = [
            f"{key}={settings[key]}"
            for key in sorted(settings)
            if any(_settings(other)[key] != settings[key] for other in twins)
        ]
        named.append(replace(run, note=" ".join(differ)))
    return LoadedRuns(runs=named, left_out=left_out)


def _load(run: StoredRun, group_by: Sequence[str], left_out: list[str]) -> FinishedRun:
    facts = {**run.manifest["facts"], "group_by": list(group_by) or run.manifest["facts"]["group_by"]}
    try:
        planner = _planner_of(run.folder)
    except RunError as error:
        planner = None
        left_out.append(f"{error} The figures of its planner are left out.")
    return FinishedRun(
        folder=run.folder, manifest=run.manifest, summary=summarize(run.rows, facts), rows=run.rows, planner=planner
    )


def _planner_of(folder: Path) -> dict[str, Json] | None:
    """Return the figures of `prbench eval-planner`, as far as it was given this run's folder."""
    path = folder / PLANNER / SUMMARY
    if not path.exists():
        return None
    figures = read_json(path)
    require(path, figures, {"settings": {"planner": str}, "planned": _FIGURE, "judge": _FIGURE, "lab": _FIGURE})
    for means in ("judge", "lab"):
        if figures[means] is not None:
            require(path, figures[means], {"precision": _FIGURE, "recall": _FIGURE}, f"{means}.")
    return figures


def _settings(run: FinishedRun) -> dict[str, Json]:
    return EvalSettings.KEYS.values(EvalSettings.from_config(run.manifest["config"]["settings"]))


def _head(run: FinishedRun) -> tuple[str, str, str]:
    return run.summary["model"], run.summary["context"], run.summary["data"]["hash"]
