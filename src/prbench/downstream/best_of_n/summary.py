"""From scores and grades to figures: value against n with intervals over users, and what the curves say."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from prbench.downstream.best_of_n.estimator import (
    area_over_log_n,
    best_n,
    best_of_each,
    count_ties,
    fit_overoptimization,
    kl_bound,
    pooled_spread,
    sizes_up_to,
    win_rate_each,
)
from prbench.downstream.best_of_n.pool import FEWEST_USERS, Pool, PoolQuestion, group_of
from prbench.downstream.best_of_n.scores import Grades, Scores
from prbench.errors import RunError
from prbench.lab.population import rng
from prbench.metrics.compare import holm
from prbench.metrics.estimate import FloatArray, RatioDraws, ratio_draws
from prbench.schema import Json, Probe

RANDOM, ORACLE = "random", "oracle"
UNBOUNDED = (-math.inf, math.inf)
SHARE = (0.0, 1.0)
NOISE = 1e-12  # less than this to gain is rounding
ScoresById = Mapping[str, Sequence[float]]  # by question id
Estimator = Callable[[npt.ArrayLike, npt.ArrayLike], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedQuestions:
    """The questions that can be told about: sampled and graded in full."""

    ids: tuple[str, ...]
    users: tuple[str, ...]  # of each question
    values: Mapping[str, FloatArray]
    quality: Mapping[str, FloatArray] | None
    span: tuple[float, float]
    sizes: tuple[int, ...]  # the n that are shown; the last is N, all samples of a pool
    ceiling: FloatArray  # (questions, N): what an oracle gets


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Something that picks answers: a model, chance, or the truth itself."""

    name: str
    own: ScoresById
    swap: ScoresById | None = None  # `None`: it is shown no user
    missing: Mapping[str, str] = field(default_factory=dict)  # question id -> why it has no scores
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picks:
    """What one selector gets, question by question."""

    selector: Selector
    graded: GradedQuestions
    ids: tuple[str, ...]  # of the questions that have scores
    inside: npt.NDArray[np.bool_]  # (questions,): has scores
    own: FloatArray  # (questions, N): the expected value of the best of n
    headroom: FloatArray  # (questions, N): what there was to gain over one sample


@dataclass(slots=True)
class _Columns:
    """Ratios over questions that are estimated on the same draws of users."""

    graded: GradedQuestions
    names: list[tuple[str, int]] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    tops: list[FloatArray] = field(default_factory=list)
    bottoms: list[FloatArray] = field(default_factory=list)

    def add(
        self,
        name: str,
        n: int,
        top: FloatArray,
        inside: npt.NDArray[np.bool_],
        *,
        span: tuple[float, float] = UNBOUNDED,
        bottom: FloatArray | None = None,
    ) -> None:
        """Add the mean of `top` over the questions inside; with `bottom`, the ratio of their sums."""
        self.names.append((name, n))
        self.spans.append(span)
        self.tops.append(np.where(inside, top, 0.0))
        self.bottoms.append(np.where(inside, 1.0 if bottom is None else bottom, 0.0))

    def estimates(self, seed: int) -> dict[tuple[str, int], dict[str, Json] | None]:
        """Return every ratio with its interval; `None` where fewer than two users are behind it."""
        draws, bottoms = self._draws(seed), np.stack(self.bottoms, axis=1)
        found: dict[tuple[str, int], dict[str, Json] | None] = {}
        for column, (name, span) in enumerate(zip(self.names, self.spans, strict=True)):
            enough = draws.users[column] >= FEWEST_USERS and bottoms[:, column].sum() > 0
            found[name] = asdict(replace(draws, span=span).estimate(column)) if enough else None
        return found

    def p_values(self, seed: int) -> list[float]:
        """Return the p-value of a t test against 0 for every ratio, on the same draws; 1 with a single user."""
        from scipy.stats import t

        draws = self._draws(seed)
        found = []
        for value, samples, users in zip(draws.values, draws.samples.T, draws.users, strict=True):
            if users < FEWEST_USERS:
                found.append(1.0)
                continue
            # What is less than rounding differs in no draw: two models that pick alike.
            error = max(float(samples.std()) * math.sqrt(users / (users - 1)), NOISE)
            found.append(float(2 * t.sf(abs(value) / error, users - 1)))
        return found

    def _draws(self, seed: int) -> RatioDraws:
        tops, bottoms = np.stack(self.tops, axis=1), np.stack(self.bottoms, axis=1)
        return ratio_draws(tops, bottoms, self.graded.users, seed=seed)


def summarize(
    questions: Sequence[PoolQuestion],
    pool: Pool,
    grades: Grades,
    scored: Mapping[str, tuple[str, Scores]],
    *,
    seed: int,
    group_by: Sequence[str] = (),
) -> dict[str, Json]:
    """Return the figures of all models; `scored` has for each name its context and its scores."""
    graded = _graded(questions, pool, grades)
    # Scores that know nothing: their curve shows what chance does to the others.
    uniforms = {each: rng("coin", seed, each) for each in graded.ids}
    selectors = [
        Selector(
            name=name,
            own=scores.values[Probe.OWN],
            swap=scores.values.get(Probe.SWAP),
            missing=scores.missing[Probe.OWN],
            context=context,
        )
        for name, (context, scores) in scored.items()
    ]
    selectors += [
        Selector(name=RANDOM, own={each: [dice.random() for _ in range(pool.n)] for each, dice in uniforms.items()}),
        Selector(name=ORACLE, own={each: tuple(graded.values[each]) for each in graded.ids}),
    ]
    gain = graded.ceiling - graded.ceiling[:, :1]
    picks = [
        _Picks(
            selector=selector,
            graded=graded,
            ids=tuple(each for each in graded.ids if each in selector.own),
            inside=np.array([each in selector.own for each in graded.ids]),
            own=_curves(best_of_each, graded.values, selector.own, graded),
            headroom=np.where(gain > NOISE, gain, 0.0),
        )
        for selector in selectors
    ]
    inside = [question for question in questions if question.id in grades.values]
    return {
        "n": pool.n,
        "sizes": list(graded.sizes),
        "users": len(set(graded.users)),
        "questions": len(graded.ids),
        "left_out": {"sampling": len(pool.incomplete), "grading": len(grades.missing)},
        "truncated": pool.truncated,
        "value_span": list(graded.span),
        "models": {each.selector.name: _figures(each, seed) for each in picks},
        "differences": _differences([each for each in picks if each.selector.name != ORACLE], seed),
        "groups": {field: _by_group([group_of(each, field) for each in inside], picks, seed) for field in group_by},
    }


def _graded(questions: Sequence[PoolQuestion], pool: Pool, grades: Grades) -> GradedQuestions:
    inside = [question for question in questions if question.id in grades.values]
    users = tuple(question.example.user.id for question in inside)
    if len(set(users)) < FEWEST_USERS:
        first = next(iter([*pool.incomplete.values(), *grades.missing.values()]), "no reason was given")
        raise RunError(
            f"{len(inside)} of {len(questions)} questions have all answers and grades, which is too few to go on. "
            f"The first reason: {first}. The same command tries the others again."
        )
    values = {question.id: np.array(grades.values[question.id], dtype=np.float64) for question in inside}
    return GradedQuestions(
        ids=tuple(values),
        users=users,
        values=values,
        quality=None if grades.quality is None else {i: np.array(grades.quality[i]) for i in values},
        span=grades.span,
        sizes=sizes_up_to(pool.n),
        ceiling=np.stack([best_of_each(worth, worth) for worth in values.values()]),
    )


def _curves(
    estimate: Estimator, values: Mapping[str, FloatArray] | ScoresById, scores: ScoresById, graded: GradedQuestions
) -> FloatArray:
    """Return (questions, N); zeros where there are no scores."""
    none = np.zeros(graded.sizes[-1])
    return np.stack([estimate(values[each], scores[each]) if each in scores else none for each in graded.ids])


def _figures(picks: _Picks, seed: int) -> dict[str, Json]:
    """Return the figures of one selector; `null` where too few of its questions have scores."""
    selector, graded = picks.selector, picks.graded
    reasons = Counter(selector.missing[each] for each in graded.ids if each in selector.missing)
    columns = _Columns(graded)
    _add_curves(columns, picks)
    _add_gap_and_swap(columns, picks)
    found = columns.estimates(seed)
    last = graded.sizes[-1]
    at_each: dict[str, dict[str, Json]] = {
        name: {str(n): found.get((name, n)) for n in graded.sizes}
        for name in ("value", "headroom", "regret", "win", "quality")
    }
    swapped = {name: found.get((f"swap_{name}", last)) for name in ("own", "value", "drop", "captured_headroom")}
    # What the mean curve says by itself, without intervals.
    shapes: dict[str, Json] = dict.fromkeys(("curve", "best_n", "area", "ties", "overoptimization"))
    if picks.ids:
        curve = picks.own[picks.inside].mean(axis=0)
        fitted = fit_overoptimization(curve, graded.sizes)
        scores = [np.asarray(selector.own[each]) for each in picks.ids]
        shapes = {
            "curve": curve.tolist(),
            "best_n": best_n(curve),
            "area": area_over_log_n(curve),
            "ties": asdict(count_ties([graded.values[each] for each in picks.ids], scores)),
            "overoptimization": fitted and asdict(fitted),
        }
    return {
        "context": selector.context,
        "questions": len(picks.ids),
        "left_out": dict(sorted(reasons.items())),
        "value_at": at_each["value"],
        "captured_headroom": found["headroom", last],
        "captured_headroom_at": at_each["headroom"],
        "regret": found["regret", last],
        "regret_at": at_each["regret"],
        "win_rate": found["win", last],
        "win_rate_at": at_each["win"],
        "quality_at": None if graded.quality is None else at_each["quality"],
        "swap": None if selector.swap is None else swapped,
        "proxy_gold_gap": found.get(("gap", last)),
        "kl_bound_at": {str(n): kl_bound(n) for n in graded.sizes},
        **shapes,
    }


def _add_curves(columns: _Columns, picks: _Picks) -> None:
    graded, inside = picks.graded, picks.inside
    wins = _curves(win_rate_each, graded.values, picks.selector.own, graded)
    good = None if graded.quality is None else _curves(best_of_each, graded.quality, picks.selector.own, graded)
    for n in graded.sizes:
        here, start, ceiling = picks.own[:, n - 1], graded.ceiling[:, 0], graded.ceiling[:, n - 1]
        columns.add("value", n, here, inside, span=graded.span)
        columns.add("headroom", n, here - start, inside, bottom=picks.headroom[:, n - 1])
        columns.add("regret", n, ceiling - here, inside)
        columns.add("win", n, wins[:, n - 1], inside, span=SHARE)
        if good is not None:
            columns.add("quality", n, good[:, n - 1], inside, span=SHARE)


def _add_gap_and_swap(columns: _Columns, picks: _Picks) -> None:
    graded, own, swap = picks.graded, picks.selector.own, picks.selector.swap
    last = graded.sizes[-1]
    # How much more the model believes to have gained than the user did, both in deviations within a pool.
    believed_spread = pooled_spread([np.asarray(own[each]) for each in picks.ids])
    true_spread = pooled_spread([graded.values[each] for each in picks.ids])
    if believed_spread > 0 and true_spread > 0:
        believed = _curves(best_of_each, own, own, graded)
        believed_gain = (believed[:, -1] - believed[:, 0]) / believed_spread
        true_gain = (picks.own[:, -1] - picks.own[:, 0]) / true_spread
        columns.add("gap", last, believed_gain - true_gain, picks.inside)
    if swap is not None:
        # What the user gets when the model is shown another user, on the questions that have both.
        both = picks.inside & np.array([each in swap for each in graded.ids])
        value, swapped = picks.own[:, -1], _curves(best_of_each, graded.values, swap, graded)[:, -1]
        columns.add("swap_own", last, value, both, span=graded.span)
        columns.add("swap_value", last, swapped, both, span=graded.span)
        columns.add("swap_drop", last, value - swapped, both)
        gain = swapped - graded.ceiling[:, 0]
        columns.add("swap_captured_headroom", last, gain, both, bottom=picks.headroom[:, -1])


def _differences(all_picks: Sequence[_Picks], seed: int) -> list[dict[str, Json]]:
    """Return the difference in value at the largest n of every two models, on the questions that both have.

    Each interval stands for itself; the p-values are adjusted by Holm over all pairs.
    """
    pairs = list(combinations(all_picks, 2))
    columns = _Columns(all_picks[0].graded)
    for place, (first, second) in enumerate(pairs):
        columns.add("difference", place, first.own[:, -1] - second.own[:, -1], first.inside & second.inside)
    found, p_values = columns.estimates(seed), columns.p_values(seed)
    known = [place for place in range(len(pairs)) if found["difference", place] is not None]
    adjusted = dict(zip(known, holm([p_values[place] for place in known]), strict=True))
    return [
        {
            "first": first.selector.name,
            "second": second.selector.name,
            "difference": found["difference", place],
            "holm_p": adjusted.get(place),
        }
        for place, (first, second) in enumerate(pairs)
    ]


def _by_group(groups: Sequence[str | None], picks: Sequence[_Picks], seed: int) -> list[dict[str, Json]]:
    """Return the captured headroom at the largest n, group by group; questions without the field are in none."""
    names = sorted({group for group in groups if group is not None}, key=_numbers_first)
    columns = _Columns(picks[0].graded)
    for place, name in enumerate(names):
        here = np.array([group == name for group in groups])
        for each in picks:
            gain = each.own[:, -1] - each.graded.ceiling[:, 0]
            columns.add(each.selector.name, place, gain, each.inside & here, bottom=each.headroom[:, -1])
    found = columns.estimates(seed)
    return [
        {
            "group": name,
            "questions": groups.count(name),
            "captured_headroom": {each.selector.name: found[each.selector.name, place] for each in picks},
        }
        for place, name in enumerate(names)
    ]


def _numbers_first(group: str) -> tuple[float, str]:
    """Sort 8 before 16, and words by the alphabet."""
    try:
        return float(group), ""
    except ValueError:
        return math.inf, group
