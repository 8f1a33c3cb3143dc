"""Rows as a run leaves them, with everything in them said by the test."""

from collections.abc import Callable
from typing import Any

import pytest

from prbench.schema import Probe, Row, Verdict

MARGINS = {Verdict.CHOSEN: 1.0, Verdict.REJECTED: -1.0, Verdict.TIE: 0.0}


def row_of(name: str, user: str, verdict: Verdict, *, margin: float | None = None, **more: Any) -> Row:
    """One row; its scores follow from the margin, or there are none."""
    scores = {} if margin is None else {"score_chosen": margin, "score_rejected": 0.0}
    return Row(
        **{"id": name, "probe": Probe.OWN, "user_id": user, "category": "c", "verdict": verdict} | scores | more
    )


@pytest.fixture
def make_row() -> Callable[..., Row]:
    return row_of
