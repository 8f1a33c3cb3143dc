"""Do two backends give the same scores? The same inputs go to both, and the differences are summed up."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from prbench.data import ExampleStore
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, context_maker
from prbench.evaluation.score import pending_items, prepare, score_rows
from prbench.metrics.correlation import coefficient
from prbench.reward_models.base import LoadedModel, require_scores
from prbench.schema import Example, Json, PairInput, Probe, Progress, RewardInput, Score, decide


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTwice:
    """One response with the scores that both models gave it."""

    id: str
    side: str  # chosen, rejected, or response (rated rows)
    first: Score
    second: Score

    @property
    def difference(self) -> float | None:
        """Return the second score less the first; `None` where either is missing."""
        if self.first.value is None or self.second.value is None:
            return None
        return self.second.value - self.first.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How far two models are apart on the same inputs."""

    first: str
    second: str
    left_out: int  # rows that do not fit both windows
    n: int  # responses
    compared: int  # with a score by both
    only_one: int  # with a score by one model alone, which is a difference without a size
    max_abs: float | None
    mean_abs: float | None
    spearman: float | None
    verdicts_agree: float | None  # share of the pairs that both order alike; `None` for rated rows
    worst: tuple[Mapping[str, Json], ...]

    def exceeds(self, tolerance: float) -> bool:
        """Tell whether any score differs by more than the tolerance, or is there for one model only."""
        return self.only_one > 0 or self.max_abs is None or self.max_abs > tolerance

    def as_json(self) -> dict[str, Json]:
        """Return the figures for machines."""
        return asdict(self)


def compare(
    store: ExampleStore,
    first: LoadedModel,
    second: LoadedModel,
    settings: EvalSettings,
    *,
    worst: int = 5,
    progress: Progress | None = None,
) -> Parity:
    """Score every response of the rows with both models, each in its user's own context."""
    require_scores(first, "parity", of_items=True)
    require_scores(second, "parity", of_items=True)
    own = replace(settings, probes=(Probe.OWN,))
    maker = context_maker(own, None)
    # A model whose window is the smaller of the two: both must read the same text.
    windows = [fits for fits in (first.fits, second.fits) if fits]

    def fits_both(each: RewardInput | PairInput) -> bool:
        return all(fits(each) for fits in windows)

    # Scores that were recorded need no context, and those that are compared with them do.
    both = replace(first, fits=fits_both if windows else None, recorded=None)
    step = min(first.items_per_step, second.items_per_step)
    rows: list[ScoredTwice] = []
    left_out = 0
    for start in range(0, len(store), step):
        positions = range(start, min(start + step, len(store)))
        asked = prepare(pending_items(store, positions, own, frozenset()), maker, both)
        ready = [one for one in asked if not one.user.problem]
        left_out += len(asked) - len(ready)
        for one, other in zip(score_rows(ready, first), score_rows(ready, second), strict=True):
            example = one.item.example
            sides = ("chosen", "rejected") if isinstance(example, Example) else ("response",)
            rows += [
                ScoredTwice(id=example.id, side=side, first=score, second=again)
                for side, score, again in zip(sides, one.scores, other.scores, strict=True)
            ]
        if progress:
            progress(positions.stop, len(store))
    if not rows:
        raise UsageError("No row could be asked: none fits the windows of both models. Take shorter rows.")
    return summarize(rows, first.spec, second.spec, left_out=left_out, worst=worst)


def summarize(rows: Sequence[ScoredTwice], first: str, second: str, *, left_out: int = 0, worst: int = 5) -> Parity:
    """Return the figures of the compared responses; the worst rows are those that differ most."""
    sized = [(abs(row.difference), row) for row in rows if row.difference is not None]
    sized.sort(key=lambda each: -each[0])
    # A pair that a model cannot score has a verdict as well.
    chosen, rejected = ([row for row in rows if row.side == side] for side in ("chosen", "rejected"))
    same = [
        decide(good.first, bad.first) is decide(good.second, bad.second)
        for good, bad in zip(chosen, rejected, strict=True)
    ]
    return Parity(
        first=first,
        second=second,
        left_out=left_out,
        n=len(rows),
        compared=len(sized),
        only_one=sum((row.first.value is None) != (row.second.value is None) for row in rows),
        max_abs=sized[0][0] if sized else None,
        mean_abs=sum(size for size, _ in sized) / len(sized) if sized else None,
        spearman=coefficient([row.first.value for row in rows], [row.second.value for row in rows], "spearman"),
        verdicts_agree=sum(same) / len(same) if same else None,
        worst=tuple(
            {
                "id": row.id,
                "side": row.side,
                "first": row.first.value,
                "second": row.second.value,
                "abs_difference": size,
            }
            for size, row in sized[:worst]
        ),
    )
