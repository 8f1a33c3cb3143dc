"""From scores and grades to figures: value against n with intervals over users, and what the curves say.

What the best of n samples is worth is estimated for every n up to the size of the pool, without bias and without
chance. Of a pool of N samples, every subset of n is as likely as any other to have been drawn. Ordered by score, the
sample of rank i is the best of C(i-1, n-1) of the C(N, n) subsets, so the expected value of the best of n is

    V(n) = sum over i = n..N of C(i-1, n-1) / C(N, n) * v(i)

Equal scores are one block: whichever of it is picked is a matter of chance, so each has the mean value of its block.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from prbench.downstream.best_of_n.pool import FEWEST_USERS, Grades, Pool, PoolQuestion, Scores, group_of
from prbench.errors import RunError, UsageError
from prbench.lab.population import rng
from prbench.metrics.compare import holm
from prbench.metrics.estimate import ClusteredRatios, FloatArray, clustered_ratios
from prbench.schema import NOTHING, Json, Probe

RANDOM, ORACLE = "random", "oracle"
UNBOUNDED = (-math.inf, math.inf)
SHARE = (0.0, 1.0)
NOISE = 1e-12  # less than this to gain is rounding
ScoresById = Mapping[str, Sequence[float]]  # by question id
Estimator = Callable[[npt.ArrayLike, npt.ArrayLike], FloatArray]


def best_of_each(values: npt.ArrayLike, scores: npt.ArrayLike) -> FloatArray:
    """Return the expected value of the best-scored of n samples, for n = 1..N."""
    expected: FloatArray = rank_weights(np.asarray(values).size) @ in_order_of_score(values, scores)
    return expected


def win_rate_each(values: npt.ArrayLike, scores: npt.ArrayLike) -> FloatArray:
    """Return how often the best-scored of n samples is worth more than one sample, for n = 1..N; equal is half a win.

    Both are drawn from the pool, independently of each other, so the rate is 1/2 at n = 1. That the one may be among
    the n adds (n-1) / (2N(n+1)) to an oracle's rate without ties, which is less than 1/(2N).
    """
    worth = np.asarray(values, dtype=np.float64)
    below = np.searchsorted(np.sort(worth), worth, side="left")
    not_above = np.searchsorted(np.sort(worth), worth, side="right")
    return best_of_each((below + not_above) / (2 * worth.size), scores)


def in_order_of_score(values: npt.ArrayLike, scores: npt.ArrayLike) -> FloatArray:
    """Return the values by ascending score, with the mean of the block where scores are equal."""
    worth, score = np.asarray(values, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if worth.ndim != 1 or worth.shape != score.shape or not worth.size:
        raise UsageError(f"{score.size} scores do not belong to {worth.size} values. Give one score for each sample.")
    if not (np.isfinite(worth).all() and np.isfinite(score).all()):
        raise UsageError("A value or a score is missing or infinite. Leave its question out.")
    _, block, size = np.unique(score, return_inverse=True, return_counts=True)
    means = np.bincount(block, weights=worth) / size
    ordered: FloatArray = np.repeat(means, size)
    return ordered


@cache
def rank_weights(size: int) -> FloatArray:
    """Return the weights of the ranks (columns) for every n (rows): 0 where fewer than n samples are ranked so low."""
    n = np.arange(1, size + 1)[:, None]
    rank = np.arange(1, size + 1)[None, :]
    with np.errstate(invalid="ignore"):
        # log C(i-1, n-1) - log C(N, n)
        logs = gammaln(rank) - gammaln(n) - gammaln(rank - n + 1)
        logs -= gammaln(size + 1) - gammaln(n + 1) - gammaln(size - n + 1)
    weights = np.where(rank >= n, np.exp(np.where(rank >= n, logs, 0.0)), 0.0)
    weights /= weights.sum(axis=1, keepdims=True)  # rounding of the logarithms, some 1e-14
    weights.setflags(write=False)
    return weights


def kl_bound(n: int) -> float:
    """Return log n - (n-1)/n: no more nats than this lie between the best of n and the policy (Beirami 2401.01879)."""
    if n < 1:
        raise UsageError(f"The best of {n} samples is nothing. Take 1 or more.")
    return float(np.log(n) - (n - 1) / n)


def sizes_up_to(size: int) -> tuple[int, ...]:
    """Return the n that are shown: powers of two, and the size of the pool."""
    powers = [2**power for power in range(size.bit_length()) if 2**power <= size]
    return tuple(dict.fromkeys([*powers, size]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overoptimization:
    """The fit of gain = d (alpha - beta d) with d the root of the KL bound (Gao 2210.10760, for Best-of-N)."""

    alpha: float
    beta: float
    peak_d: float | None  # where the fit is highest; `None` where it never turns down
    peak_gain: float | None
    is_within: bool  # the peak lies within the n that were sampled
    drop: float  # of the curve itself, from its highest point to the largest n
    rmse: float  # between fit and curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """How often the best score of a pool is shared, so that chance picks."""

    pools: float  # share of pools whose best score several samples have
    consequential: float  # share of pools in which those samples are not worth the same
    size: float  # samples that share the best score, on average over all pools


def best_n(curve: npt.ArrayLike) -> int:
    """Return the n at which the curve is highest; the smallest of several."""
    return int(np.argmax(np.asarray(curve))) + 1


def area_over_log_n(curve: npt.ArrayLike) -> float:
    """Return the mean height of the curve over log n, from 1 to N."""
    heights = np.asarray(curve, dtype=np.float64)
    if heights.size == 1:
        return float(heights[0])
    places = np.log(np.arange(1, heights.size + 1))
    return float(np.trapezoid(heights, places) / places[-1])


def fit_overoptimization(curve: npt.ArrayLike, sizes: Sequence[int]) -> Overoptimization | None:
    """Fit the law at the given n by least squares; with fewer than three of them above 1 there is nothing to fit."""
    heights = np.asarray(curve, dtype=np.float64)
    above = [n for n in sizes if n > 1]
    if len(above) < 3:
        return None
    d = np.sqrt([kl_bound(n) for n in above])
    gains = heights[np.array(above) - 1] - heights[0]
    design = np.stack([d, -(d**2)], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(design, gains, rcond=None)
    turns = alpha > 0 and beta > 0
    peak = float(alpha / (2 * beta)) if turns else None
    return Overoptimization(
        alpha=float(alpha),
        beta=float(beta),
        peak_d=peak,
        peak_gain=float(alpha**2 / (4 * beta)) if turns else None,
        is_within=peak is not None and peak <= float(d[-1]),
        drop=float(heights.max() - heights[-1]),
        rmse=float(np.sqrt(np.mean((design @ np.array([alpha, beta]) - gains) ** 2))),
    )


def count_ties(values: Sequence[FloatArray], scores: Sequence[FloatArray]) -> Ties:
    """Look at the best scores of all pools."""
    tops = [worth[score == score.max()] for worth, score in zip(values, scores, strict=True)]
    return Ties(
        pools=float(np.mean([top.size > 1 for top in tops])),
        consequential=float(np.mean([np.ptp(top) > 0 for top in tops])),
        size=float(np.mean([top.size for top in tops])),
    )


def pooled_spread(pools: Sequence[FloatArray]) -> float:
    """Return the standard deviation within pools, over all of them."""
    return float(np.sqrt(np.mean([np.var(pool) for pool in pools]))) if pools else 0.0


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
    headroom: FloatArray  # (questions, N): what there was to gain over one sample

    @classmethod
    def of(cls, questions: Sequence[PoolQuestion], pool: Pool, grades: Grades) -> "GradedQuestions":
        """Return those that have all answers and grades; too few of them are refused."""
        inside = [question for question in questions if question.id in grades.values]
        users = tuple(question.example.user.id for question in inside)
        if len(set(users)) < FEWEST_USERS:
            first = next(iter([*pool.incomplete.values(), *grades.missing.values()]), "no reason was given")
            raise RunError(
                f"{len(inside)} of {len(questions)} questions have all answers and grades, which is too few to go on. "
                f"The first reason: {first}. The same command tries the others again."
            )
        values = {question.id: np.array(grades.values[question.id], dtype=np.float64) for question in inside}
        # A question may have more answers than the fewest: all of them count in what the best of n is worth.
        ceiling = np.stack([best_of_each(worth, worth)[: pool.n] for worth in values.values()])
        gain = ceiling - ceiling[:, :1]
        return cls(
            ids=tuple(values),
            users=users,
            values=values,
            quality=None if grades.quality is None else {i: np.array(grades.quality[i]) for i in values},
            span=grades.span,
            sizes=sizes_up_to(pool.n),
            ceiling=ceiling,
            headroom=np.where(gain > NOISE, gain, 0.0),
        )

    def curves(
        self, estimate: Estimator, values: Mapping[str, FloatArray] | ScoresById, scores: ScoresById
    ) -> FloatArray:
        """Return (questions, N); zeros where there are no scores."""
        none = np.zeros(self.sizes[-1])
        most = self.sizes[-1]
        return np.stack([estimate(values[each], scores[each])[:most] if each in scores else none for each in self.ids])


class Selector:
    """Something that picks answers, and what it gets: a model, chance, or the truth itself."""

    def __init__(
        self,
        graded: GradedQuestions,
        name: str,
        own: ScoresById,
        *,
        swap: ScoresById | None = None,  # `None`: it is shown no user
        missing: Mapping[str, str] = NOTHING,  # question id -> why it has no scores
        context: str | None = None,
    ) -> None:
        self.graded, self.name, self.context = graded, name, context
        self.own, self.swap, self.missing = own, swap, missing
        self.ids = tuple(each for each in graded.ids if each in own)
        self.inside = np.array([each in own for each in graded.ids])  # (questions,)
        self.best = graded.curves(best_of_each, graded.values, own)  # (questions, N): the expected best of n


@dataclass(slots=True)
class _Columns:
    """Ratios over the same questions."""

    users: Sequence[str]  # of each question
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

    def ratios(self) -> ClusteredRatios:
        """Return all ratios."""
        return clustered_ratios(np.stack(self.tops, axis=1), np.stack(self.bottoms, axis=1), self.users)

    def estimates(self, ratios: ClusteredRatios) -> dict[tuple[str, int], dict[str, Json] | None]:
        """Return every ratio with its interval; `None` where fewer than two users are behind it."""
        found: dict[tuple[str, int], dict[str, Json] | None] = {}
        for column, (name, span) in enumerate(zip(self.names, self.spans, strict=True)):
            enough = ratios.users[column] >= FEWEST_USERS and self.bottoms[column].sum() > 0
            found[name] = asdict(replace(ratios, span=span).estimate(column)) if enough else None
        return found


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
    graded = GradedQuestions.of(questions, pool, grades)
    selectors = [
        Selector(
            graded,
            name,
            scores.values[Probe.OWN],
            swap=scores.values.get(Probe.SWAP),
            missing=scores.missing[Probe.OWN],
            context=context,
        )
        for name, (context, scores) in scored.items()
    ]
    # Scores that know nothing: their curve shows what chance does to the others.
    uniforms = {each: rng("coin", seed, each) for each in graded.ids}
    selectors += [
        Selector(
            graded, RANDOM, {each: [dice.random() for _ in graded.values[each]] for each, dice in uniforms.items()}
        ),
        Selector(graded, ORACLE, {each: tuple(graded.values[each]) for each in graded.ids}),
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
        "models": {each.name: _figures(each) for each in selectors},
        "differences": _differences([each for each in selectors if each.name != ORACLE]),
        "groups": {field: _by_group([group_of(each, field) for each in inside], selectors) for field in group_by},
    }


def _figures(selector: Selector) -> dict[str, Json]:
    """Return the figures of one selector; `null` where too few of its questions have scores."""
    graded, ids, last = selector.graded, selector.ids, selector.graded.sizes[-1]
    reasons = Counter(selector.missing[each] for each in graded.ids if each in selector.missing)
    columns = _columns(selector)
    found = columns.estimates(columns.ratios())
    at_each: dict[str, dict[str, Json]] = {
        name: {str(n): found.get((name, n)) for n in graded.sizes}
        for name in ("value", "headroom", "regret", "win", "quality")
    }
    swapped = {name: found.get((f"swap_{name}", last)) for name in ("own", "value", "drop", "captured_headroom")}
    # What the mean curve says by itself, without intervals.
    shapes: dict[str, Json] = dict.fromkeys(("curve", "best_n", "area", "ties", "overoptimization"))
    if ids:
        curve = selector.best[selector.inside].mean(axis=0)
        fitted = fit_overoptimization(curve, graded.sizes)
        shapes = {
            "curve": curve.tolist(),
            "best_n": best_n(curve),
            "area": area_over_log_n(curve),
            "ties": asdict(
                count_ties([graded.values[each] for each in ids], [np.asarray(selector.own[each]) for each in ids])
            ),
            "overoptimization": fitted and asdict(fitted),
        }
    return {
        "context": selector.context,
        "questions": len(ids),
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


def _columns(selector: Selector) -> _Columns:
    """Return what is estimated of one selector: at each n, and at the last one the gap and the swap."""
    graded, own, swap, inside = selector.graded, selector.own, selector.swap, selector.inside
    columns, last, start = _Columns(graded.users), graded.sizes[-1], graded.ceiling[:, 0]
    wins = graded.curves(win_rate_each, graded.values, own)
    good = None if graded.quality is None else graded.curves(best_of_each, graded.quality, own)
    for n in graded.sizes:
        here, ceiling = selector.best[:, n - 1], graded.ceiling[:, n - 1]
        columns.add("value", n, here, inside, span=graded.span)
        columns.add("headroom", n, here - start, inside, bottom=graded.headroom[:, n - 1])
        columns.add("regret", n, ceiling - here, inside)
        columns.add("win", n, wins[:, n - 1], inside, span=SHARE)
        if good is not None:
            columns.add("quality", n, good[:, n - 1], inside, span=SHARE)
    # How much more the model believes to have gained than the user did, both in deviations within a pool.
    believed_spread = pooled_spread([np.asarray(own[each]) for each in selector.ids])
    true_spread = pooled_spread([graded.values[each] for each in selector.ids])
    if believed_spread > 0 and true_spread > 0:
        believed = graded.curves(best_of_each, own, own)
        believed_gain = (believed[:, -1] - believed[:, 0]) / believed_spread
        true_gain = (selector.best[:, -1] - selector.best[:, 0]) / true_spread
        columns.add("gap", last, believed_gain - true_gain, inside)
    if swap is not None:
        # What the user gets when the model is shown another user, on the questions that have both.
        both = inside & np.array([each in swap for each in graded.ids])
        value, swapped = selector.best[:, -1], graded.curves(best_of_each, graded.values, swap)[:, -1]
        columns.add("swap_own", last, value, both, span=graded.span)
        columns.add("swap_value", last, swapped, both, span=graded.span)
        columns.add("swap_drop", last, value - swapped, both)
        columns.add("swap_captured_headroom", last, swapped - start, both, bottom=graded.headroom[:, -1])
    return columns


def _differences(selectors: Sequence[Selector]) -> list[dict[str, Json]]:
    """Return the difference in value at the largest n of every two models, on the questions that both have.

    Each interval stands for itself; the p-values are those of t tests against 0, adjusted by Holm over all pairs.
    """
    pairs = list(combinations(selectors, 2))
    columns = _Columns(selectors[0].graded.users)
    for place, (first, second) in enumerate(pairs):
        columns.add("difference", place, first.best[:, -1] - second.best[:, -1], first.inside & second.inside)
    ratios = replace(columns.ratios(), span=UNBOUNDED)
    found = columns.estimates(ratios)
    p_values: dict[int, float] = {}
    for place in range(len(pairs)):
        p = ratios.p_value(place) if found["difference", place] is not None else None
        if p is not None:
            p_values[place] = p
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [
        {
            "first": first.name,
            "second": second.name,
            "difference": found["difference", place],
            "holm_p": adjusted.get(place),
        }
        for place, (first, second) in enumerate(pairs)
    ]


def _by_group(groups: Sequence[str | None], selectors: Sequence[Selector]) -> list[dict[str, Json]]:
    """Return the captured headroom at the largest n, group by group; questions without the field are in none."""
    names = sorted({group for group in groups if group is not None}, key=_numbers_first)
    columns = _Columns(selectors[0].graded.users)
    for place, name in enumerate(names):
        here = np.array([group == name for group in groups])
        for each in selectors:
            gain = each.best[:, -1] - each.graded.ceiling[:, 0]
            columns.add(each.name, place, gain, each.inside & here, bottom=each.graded.headroom[:, -1])
    found = columns.estimates(columns.ratios())
    return [
        {
            "group": name,
            "questions": groups.count(name),
            "captured_headroom": {each.name: found[each.name, place] for each in selectors},
        }
        for place, name in enumerate(names)
    ]


def _numbers_first(group: str) -> tuple[float, str]:
    """Sort 8 before 16, and words by the alphabet."""
    try:
        return float(group), ""
    except ValueError:
        return math.inf, group
