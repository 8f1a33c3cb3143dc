"""From numbers to scores: a number that is not finite is a failure, never a score."""

import math

from prbench.schema import Problem, Score


def as_score(value: float | MemoryError | None) -> Score:
    """Return the number as a score; NaN and infinities have no place in a ranking."""
    if value is None:
        return Score(value=None, problem=Problem.NO_VERDICT)
    if isinstance(value, MemoryError):
        return failed(str(value))
    if not math.isfinite(value):
        return failed("not a finite number")
    return Score(value=value)


def failed(detail: str) -> Score:
    """Return the score of an input that could not be scored this time."""
    return Score(value=None, problem=Problem.FAILED, detail=detail)


def too_long(tokens: int, limit: int) -> Score:
    """Return the score of an input that the model's window does not hold."""
    return Score(value=None, problem=Problem.TOO_LONG, detail=f"{tokens} tokens, and the window holds {limit}")
