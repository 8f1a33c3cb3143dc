"""From rows to `summary.json`, of a run that has just ended or of one on disk: every figure comes from its rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from textwrap import shorten
from types import NoneType

from prbench.errors import RunError, UsageError
from prbench.evaluation.settings import EvalSettings
from prbench.metrics import accuracy as acc
from prbench.metrics import official, personal
from prbench.metrics.accuracy import order_effects
from prbench.metrics.calibration import calibrate
from prbench.metrics.estimate import USERS, USERS_AND_QUESTIONS, Over
from prbench.metrics.groups import accuracy_by_group, group_figures
from prbench.metrics.ratings import rated_contrast, rated_summary
from prbench.runs import SUMMARY, StoredRun, find_runs
from prbench.runs.files import EVAL, read_json
from prbench.runs.manifest import require
from prbench.schema import BROKEN, RETRIED, Json, Probe, RatedRow, Row, Verdict

FACTS = ("majority", *official.FACTS)  # fields of `meta` that metrics read by themselves
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
    "coverage_of_probes",
    "not_recorded",
    "accuracy",
    "accuracy_missing",
    "accuracy_readable",
    "accuracy_by_category",
    "macro_user_accuracy",
    "worst_decile_accuracy",
    "swap",
    "unswapped",
    "personalization_gain",
    "minority_accuracy",
    "majority_accuracy",
    "impersonal_errors",
    "order",
    "tie_rate",
    "calibration",
    "truncated_items",
    "dropped_posts",
    "unreadable",
    "to_ask_again",
    "profile_sensitivity",
    "own_none_agreement",
    "dose_response",
    "groups",
    "ratings",
    "official",
    "population",
)
# What an interval speaks of, by what is thought of as drawn anew.
POPULATIONS: Mapping[Over, str] = {
    USERS: "new users with these questions",
    USERS_AND_QUESTIONS: "new users and new questions",
}
BESIDE_OF: Mapping[Over, str] = {USERS: "these_questions", USERS_AND_QUESTIONS: "new_questions"}
BESIDE = tuple(BESIDE_OF.values())  # where the intervals for the other population stand
FEWEST_QUESTIONS = 5  # fewer tell nothing of new ones
ONE_USER = "new pairs of this one user, as far as the pairs are independent"
OWN_QUESTIONS = "new users, who ask questions of their own"  # no question recurs, so new users bring new ones
LONGEST_DETAIL = 200  # characters
NAMED = 5  # items without a swap, of which the summary has the ids
MAX_FAILED = 0.5  # share of items whose request failed, beyond which there is no figure

RATING_KEYS = ("alignment", "alignment_readable", "floor", "spearman", "kendall", "users", "users_left_out")


def read_over(text: str, option: str = "resample") -> Over:
    """Return what an interval thinks of as drawn anew."""
    for over in POPULATIONS:
        if text.replace(" ", "") == over:
            return over
    raise UsageError(f"{option} {text}: unknown. Use {' or '.join(POPULATIONS)}.")


def summarize(
    rows: Sequence[Row | RatedRow], facts: Mapping[str, Json], probes: Sequence[str] = ()
) -> dict[str, Json]:
    """Return the summary of a run; the same rows give the same bytes, in whatever order they were written.

    `probes` are those that were asked for: only they tell an item that cannot be swapped from one that was not to be.
    """
    own = [row for row in rows if row.probe is Probe.OWN]
    figures: dict[str, Json] = {key: facts[key] for key in KEYS[:6]}
    figures |= {
        "n_items": len(own),
        "truncated_items": sum(row.posts_dropped > 0 for row in own),
        "dropped_posts": sum(row.posts_dropped for row in own),
        "to_ask_again": sum(row.problem in RETRIED for row in own),
    }
    if Probe.SWAP in probes and facts["context"] != "oracle":
        figures["unswapped"] = _unswapped(rows)
    figures |= _of_other_probes(rows)
    pairs = [row for row in rows if isinstance(row, Row)]
    if pairs:
        figures |= _pair_figures(pairs, facts)
    else:
        figures |= _rating_figures([row for row in rows if isinstance(row, RatedRow)], facts)
    if not figures.get("accuracy_missing"):
        figures["groups"] = summarize_groups(rows, facts["group_by"], int(facts["seed"])) or None
    return {key: _plain(figures.get(key)) for key in KEYS}


def _unswapped(rows: Sequence[Row | RatedRow]) -> dict[str, Json] | None:
    """Return the items for which there was nobody whose profile a model could tell from the user's; `None` of none."""
    swapped = {row.id for row in rows if row.probe is Probe.SWAP}
    found = sorted({row.id for row in rows if row.probe is Probe.OWN} - swapped)
    return {"items": len(found), "ids": found[:NAMED]} if found else None


def _of_other_probes(rows: Sequence[Row | RatedRow]) -> dict[str, Json]:
    """Return how much could be read without the profile and with another user's, and what was not recorded there."""
    coverage = {}
    for probe in (Probe.NONE, Probe.SWAP):
        if read := [_is_readable(row) for row in rows if row.probe is probe]:
            coverage[probe.value] = sum(read) / len(read)
    left_out = {
        "gain": personal.count_left_out(rows, Probe.OWN, Probe.NONE),
        "swap_gap": personal.count_left_out(rows, Probe.OWN, Probe.SWAP),
    }
    return {"coverage_of_probes": coverage or None, "not_recorded": left_out if any(left_out.values()) else None}


def _is_readable(row: Row | RatedRow) -> bool:
    return row.score is not None if isinstance(row, RatedRow) else row.verdict is not Verdict.UNREADABLE


def summarize_groups(rows: Sequence[Row | RatedRow], fields: Sequence[str], seed: int) -> dict[str, Json]:
    """Return the figures of the groups that each field makes, as they stand in a summary."""
    return {name: _plain(group_figures(rows, name, seed=seed).as_json()) for name in fields}


def failed_share(rows: Sequence[Row | RatedRow]) -> float:
    """Return the share of items whose request failed, which another try may mend."""
    own = [row for row in rows if row.probe is Probe.OWN]
    return sum(row.problem in BROKEN for row in own) / len(own)


def _pair_figures(rows: Sequence[Row], facts: Mapping[str, Json]) -> dict[str, Json]:
    own = [row for row in rows if row.probe is Probe.OWN]
    seed, over = int(facts["seed"]), facts["resample"]
    if len({row.question_hash for row in own}) < FEWEST_QUESTIONS:
        over = USERS
    missing = _why_missing(own, float(facts["max_failed"]))
    figures: dict[str, Json] = {
        "coverage": acc.coverage(own, over=over),
        "accuracy_missing": missing,
        "accuracy_readable": acc.accuracy_readable(own, over=over),
        "unreadable": acc.unreadable_counts(own),
        "tie_rate": acc.tie_rate(own, over=over),
        "order": order_effects(own),
    }
    if missing:
        return figures
    worst = acc.worst_decile_accuracy(own, seed=seed)
    split = personal.majority_split(rows, over=over)
    figures |= _headline(rows, over) | {
        "accuracy_by_category": accuracy_by_group(own, "category"),
        "macro_user_accuracy": acc.macro_user_accuracy(own),
        "worst_decile_accuracy": {**asdict(worst.accuracy), "users": worst.users, "chance": worst.null},
        "minority_accuracy": split.minority if split else None,
        "majority_accuracy": split.majority if split else None,
        "impersonal_errors": personal.impersonal_errors(rows, over=over),
        "calibration": calibrate(own),
        "own_none_agreement": personal.own_none_agreement(rows),
        "profile_sensitivity": personal.profile_sensitivity(rows),
        "dose_response": personal.dose_response(rows, over=over),
    }
    return figures | {"official": official.official_figures(own), "population": _population(rows, over)}


def _headline(rows: Sequence[Row], over: Over) -> dict[str, Json]:
    """Return the figures whose intervals are given for either population."""
    own = [row for row in rows if row.probe is Probe.OWN]
    return {
        "accuracy": acc.accuracy(own, over=over),
        "swap": personal.swap(rows, over=over),
        "personalization_gain": personal.personalization_gain(rows, over=over),
    }


def _why_missing(own: Sequence[Row], max_failed: float) -> dict[str, Json] | None:
    """Return why there is no accuracy: no verdict could be read, or more requests failed than may."""
    unreadable = Counter(row.problem for row in own if row.verdict is Verdict.UNREADABLE)
    if sum(unreadable.values()) < len(own) and failed_share(own) <= max_failed:
        return None
    reason, count = max(unreadable.items(), key=lambda each: (each[1], each[0].value))
    details = Counter(row.detail for row in own if row.problem is reason and row.detail)
    detail = max(details.items(), key=lambda each: (each[1], each[0]))[0] if details else ""
    return {
        "reason": reason.value or "unstated",
        "detail": shorten(detail, LONGEST_DETAIL, placeholder="…"),
        "items": count,
        "of": len(own),
    }


def _population(rows: Sequence[Row], over: Over) -> dict[str, Json]:
    """Return which population the intervals speak of, and those of the main figures for the other one."""
    own = [row for row in rows if row.probe is Probe.OWN]
    users, questions = ({getattr(row, name) for row in own} for name in ("user_id", "question_hash"))
    # Only where people share a question do new users and new questions differ; a few questions tell nothing of others.
    recur = FEWEST_QUESTIONS <= len(questions) < len({(row.user_id, row.question_hash) for row in own})
    beside: dict[str, Json] = dict.fromkeys(BESIDE)
    if recur:
        other = USERS_AND_QUESTIONS if over == USERS else USERS
        beside |= {BESIDE_OF[other]: _headline(rows, other)}
    alone = ONE_USER if len(users) < 2 else OWN_QUESTIONS if len(questions) >= len(own) else POPULATIONS[USERS]
    return {
        "over": over if recur else USERS,
        "of": POPULATIONS[over] if recur else alone,
        "users": len(users),
        "questions": len(questions),
        **beside,
    }


def _rating_figures(rows: Sequence[RatedRow], facts: Mapping[str, Json]) -> dict[str, Json]:
    own = [row for row in rows if row.probe is Probe.OWN]
    summary = rated_summary(own)
    problems = Counter(row.problem for row in own if row.score is None)
    return {
        "coverage": summary.coverage,
        "unreadable": {problem.value: count for problem, count in sorted(problems.items())},
        "ratings": {
            **{name: getattr(summary, name) for name in RATING_KEYS},
            "gain": rated_contrast(rows, Probe.NONE),
            "swap_gap": rated_contrast(rows, Probe.SWAP),
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


def load_runs(
    paths: Sequence[Path], *, group_by: Sequence[str] = (), over: Over | None = None, all_facts: bool = False
) -> LoadedRuns:
    """Return the runs in these folders, every figure computed anew; a folder of runs means all of them.

    A run that was interrupted has figures of its first items only, so it cannot stand beside the others. Rows keep the
    facts that figures need, or all of them. Intervals are `over` what is named, or over what each run was asked for.
    """
    found = find_runs(paths, kinds=(EVAL,), groups=None if all_facts else (*group_by, *FACTS))
    left_out = list(found.left_out)
    if over is None and len({run.manifest["facts"]["resample"] for run in found.runs}) > 1:
        over = USERS
        left_out.append(f"These runs were asked for other populations; all are shown for {POPULATIONS[USERS]}.")
    asked = {"group_by": list(group_by), "resample": over}
    runs = [_load(run, {key: value for key, value in asked.items() if value}, left_out) for run in found.runs]
    return LoadedRuns(runs=named_apart(runs), left_out=left_out)


def named_apart(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """Return the runs, those of one model, context and dataset with the settings that tell them apart."""
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
    return named


def _load(run: StoredRun, asked: Mapping[str, Json], left_out: list[str]) -> FinishedRun:
    facts = {**run.manifest["facts"], **asked}
    try:
        planner = _planner_of(run.folder)
    except RunError as error:
        planner = None
        left_out.append(f"{error} The figures of its planner are left out.")
    summary = summarize(run.rows, facts, probes_of(run.manifest))
    return FinishedRun(folder=run.folder, manifest=run.manifest, summary=summary, rows=run.rows, planner=planner)


def probes_of(manifest: Mapping[str, Json]) -> tuple[Probe, ...]:
    """Return the probes that a run was asked for."""
    return EvalSettings.from_config(manifest["config"]["settings"]).probes


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
