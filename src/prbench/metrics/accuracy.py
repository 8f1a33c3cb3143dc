"""How often the chosen response wins, and whether the order in which two responses stand has a say in it.

Headline policy: a tie is half a point, an unreadable verdict is wrong.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prbench.errors import UsageError
from prbench.metrics.estimate import USERS, FloatArray, Over, questions_of, ratio_estimates, weighted_estimate
from prbench.schema import POINTS, Estimate, Json, Pick, Problem, Row, Verdict

NULL_SIMULATIONS = 1_000
# What each pick says of the first place: always answering "A" must give a bias of exactly 1.
_LEAN = {Pick.FIRST: 1.0, Pick.SECOND: -1.0, Pick.TIE: 0.0}


def accuracy(rows: Sequence[Row], *, over: Over = USERS) -> Estimate:
    """Share of all pairs won by the chosen response; a tie gives half a point, an unreadable verdict none."""
    return _share(_points(rows), np.ones(len(rows)), rows, over)


def accuracy_readable(rows: Sequence[Row], *, over: Over = USERS) -> Estimate | None:
    """Share of the readable pairs won by the chosen response; a tie gives half a point.

    `None` when no verdict could be read: there is then no accuracy, while the headline `accuracy` is 0.
    """
    readable = _readable(rows)
    if rows and not readable.any():
        return None
    return _share(_points(rows), readable, rows, over)


def coverage(rows: Sequence[Row], *, over: Over = USERS) -> Estimate:
    """Share of all pairs whose verdict could be read."""
    return _share(_readable(rows), np.ones(len(rows)), rows, over)


def tie_rate(rows: Sequence[Row], *, over: Over = USERS) -> Estimate:
    """Share of all pairs that ended in a tie; unreadable pairs are in the denominator."""
    ties = np.array([float(row.verdict is Verdict.TIE) for row in rows])
    return _share(ties, np.ones(len(rows)), rows, over)


def unreadable_counts(rows: Sequence[Row]) -> dict[str, int]:
    """Count the unreadable pairs by their reason, in a fixed order; reasons that did not occur are absent."""
    counts = Counter(row.problem for row in rows if row.verdict is Verdict.UNREADABLE)
    return {problem.value or "unstated": counts[problem] for problem in Problem if counts[problem]}


def macro_user_accuracy(rows: Sequence[Row]) -> Estimate:
    """Mean over users of each user's headline accuracy: a user with many pairs weighs no more than the others."""
    users, sums, counts = _per_user(rows)
    if len(users) == 1:
        return accuracy(rows)
    macro = ratio_estimates(sums / counts, np.ones(len(users)), users)[0]
    return Estimate(value=macro.value, low=macro.low, high=macro.high, n=len(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstDecile:
    """Accuracy of the users served worst, beside what chance alone would give them."""

    accuracy: Estimate
    users: int  # how many make up the decile
    null: Estimate  # the same figure if all users had the overall accuracy; low and high span 95 % of simulations


def worst_decile_accuracy(rows: Sequence[Row], *, seed: int = 0) -> WorstDecile:
    """Mean headline accuracy of the lowest 10 % of users (at least one user).

    Someone with two pairs gets both wrong by bad luck often enough, so the figure is low for any model when users have
    few pairs. `null` is what it would be if every user had the overall accuracy (binomial, simulated): only a figure
    below `null.low` says that some users are served worse.
    """
    users, sums, counts = _per_user(rows)
    ranked, sizes = np.unique(sums / counts, return_counts=True)
    size = -(-len(users) // 10)

    def lowest(weights: FloatArray) -> FloatArray:
        """Mean of the lowest `size` users; `weights` (draws, kinds) are in the order of `ranked`."""
        before = np.cumsum(weights, axis=1) - weights
        taken = np.clip(size - before, 0.0, weights)
        mean: FloatArray = taken @ ranked / size
        return mean

    observed = accuracy(rows) if len(users) == 1 else weighted_estimate(lowest, sizes, n=len(rows), seed=seed)
    generator, overall = np.random.Generator(np.random.PCG64(seed)), float(sums.sum() / counts.sum())
    means = np.empty(NULL_SIMULATIONS)
    for index in range(NULL_SIMULATIONS):
        shares = generator.binomial(counts.astype(np.int64), overall) / counts
        means[index] = np.partition(shares, size - 1)[:size].mean()
    low, high = np.percentile(means, [2.5, 97.5])
    null = Estimate(value=float(means.mean()), low=float(low), high=float(high), n=int(counts.sum()))
    return WorstDecile(accuracy=observed, users=size, null=null)


def _share(top: FloatArray, bottom: FloatArray, rows: Sequence[Row], over: Over) -> Estimate:
    return ratio_estimates(top, bottom, _users(rows), questions=questions_of(rows, over))[0]


def _points(rows: Sequence[Row]) -> FloatArray:
    return np.array([POINTS[row.verdict] for row in rows], dtype=np.float64)


def _readable(rows: Sequence[Row]) -> FloatArray:
    return np.array([row.verdict is not Verdict.UNREADABLE for row in rows], dtype=np.float64)


def _users(rows: Sequence[Row]) -> list[str]:
    return [row.user_id for row in rows]


def _per_user(rows: Sequence[Row]) -> tuple[list[str], FloatArray, FloatArray]:
    """Return the users in alphabetical order with their points and their numbers of pairs."""
    if not rows:
        raise UsageError("There are no rows to make an estimate from. Check the filters and the limit of this run.")
    users, owners = np.unique(np.array(_users(rows), dtype=object), return_inverse=True)
    sums = np.bincount(owners, weights=_points(rows)).astype(np.float64)
    counts = np.bincount(owners).astype(np.float64)
    return [str(user) for user in users], sums, counts


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderEffects:
    """How a judge reacts to the order; the parts are `None` where no pair has what they need."""

    consistent: Estimate | None
    consistent_correct: Estimate | None
    flip_rate: Estimate | None
    position_bias: Estimate
    chosen_stood: str | None = None  # `first` or `second`: in every pair, asked in one order alone


def order_effects(rows: Sequence[Row]) -> OrderEffects | None:
    """Consistency over the two orders and the bias towards a place; `None` when no pick could be read.

    - `consistent`: share of pairs, among those with both orders readable, in which both name the same response or both
      call a tie.
    - `consistent_correct`: share of the same pairs in which both name the chosen response.
    - `flip_rate`: share of the same pairs in which the two orders name opposite responses. A tie in one order only is
      neither consistent nor a flip.
    - `position_bias`: 2 P(first) - 1 over all readable picks, a tie counting half: 1 for "always the first", -1 for
      "always the second".

    The two orders of a pair are not independent; they stay together because users are the clusters.
    """
    users: list[str] = []
    tops: list[list[float]] = []
    leans: list[float] = []
    leaning_users: list[str] = []
    for row in rows:
        readable = [order for order in row.orders if order["pick"] != Pick.UNREADABLE]
        leans.extend(_LEAN[Pick(order["pick"])] for order in readable)
        leaning_users.extend(row.user_id for _ in readable)
        if {order["order"] for order in readable} >= {"chosen_first", "rejected_first"}:
            named = {named_response(order) for order in readable}
            users.append(row.user_id)
            tops.append([float(len(named) == 1), float(named == {"chosen"}), float(named == {"chosen", "rejected"})])
    if not leans:
        return None
    bias = ratio_estimates(leans, [1.0] * len(leans), leaning_users, span=(-1.0, 1.0))[0]
    if not users:
        return OrderEffects(
            consistent=None,
            consistent_correct=None,
            flip_rate=None,
            position_bias=bias,
            chosen_stood=_place_of_chosen(rows),
        )
    consistent, correct, flips = ratio_estimates(tops, np.ones((len(users), 3)), users)
    return OrderEffects(consistent=consistent, consistent_correct=correct, flip_rate=flips, position_bias=bias)


def _place_of_chosen(rows: Sequence[Row]) -> str | None:
    """Return where the chosen response stood in all pairs that were read; `None` where it stood in both places.

    A judge that always names that place is right each time, so the accuracy cannot be told from a position bias.
    """
    read = [row.orders for row in rows if row.orders and row.verdict is not Verdict.UNREADABLE]
    found = {order["order"] for orders in read for order in orders}
    return {"chosen_first": "first", "rejected_first": "second"}[found.pop()] if len(found) == 1 else None


def named_response(order: Mapping[str, Json]) -> str:
    """Return which response this order's pick names: chosen, rejected, or tie."""
    if order["pick"] == Pick.TIE:
        return "tie"
    return "chosen" if (order["pick"] == Pick.FIRST) == (order["order"] == "chosen_first") else "rejected"
