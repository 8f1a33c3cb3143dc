"""Does a comparing model answer the same when the two responses change places?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prbench.metrics.estimate import ratio_estimates
from prbench.schema import Estimate, Json, Pick, Row

# What each pick says of the first place: always answering "A" must give a bias of exactly 1.
_LEAN = {Pick.FIRST: 1.0, Pick.SECOND: -1.0, Pick.TIE: 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderEffects:
    """How a judge reacts to the order; the parts are `None` where no pair has what they need."""

    consistent: Estimate | None
    consistent_correct: Estimate | None
    flip_rate: Estimate | None
    position_bias: Estimate


def order_effects(rows: Sequence[Row], *, seed: int = 0) -> OrderEffects | None:
    """Consistency over the two orders and the bias towards a place; `None` when no pick could be read.

    - `consistent`: share of pairs, among those with both orders readable, in which both name the same response or both
      call a tie.
    - `consistent_correct`: share of the same pairs in which both name the chosen response.
    - `flip_rate`: share of the same pairs in which the two orders name opposite responses. A tie in one order only is
      neither consistent nor a flip.
    - `position_bias`: 2 P(first) - 1 over all readable picks, a tie counting half: 1 for "always the first", -1 for
      "always the second".

    The two orders of a pair are not independent; they stay together because users are resampled.
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
            named = {_named(order) for order in readable}
            users.append(row.user_id)
            tops.append([float(len(named) == 1), float(named == {"chosen"}), float(named == {"chosen", "rejected"})])
    if not leans:
        return None
    bias = ratio_estimates(leans, [1.0] * len(leans), leaning_users, seed=seed, span=(-1.0, 1.0))[0]
    if not users:
        return OrderEffects(consistent=None, consistent_correct=None, flip_rate=None, position_bias=bias)
    consistent, correct, flips = ratio_estimates(tops, np.ones((len(users), 3)), users, seed=seed)
    return OrderEffects(consistent=consistent, consistent_correct=correct, flip_rate=flips, position_bias=bias)


def _named(order: Mapping[str, Json]) -> str:
    """Return which response this order's pick names: chosen, rejected, or tie."""
    if order["pick"] == Pick.TIE:
        return "tie"
    return "chosen" if (order["pick"] == Pick.FIRST) == (order["order"] == "chosen_first") else "rejected"
