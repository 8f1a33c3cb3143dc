"""What a reward model promises: batch in, batch out, in order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from prbench.errors import UsageError
from prbench.schema import NOTHING, Comparison, Json, PairInput, RewardInput, Score, UserContext


@runtime_checkable
class RewardModel(Protocol):
    """Scores responses; a higher score means that this user would like the response more."""

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        ...


@runtime_checkable
class PairJudge(Protocol):
    """Compares two responses; it answers FIRST or SECOND and never learns which one is the chosen."""

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        """Return one comparison per pair, in the same order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model under test, with what the walk must know about it."""

    spec: str  # as on the command line; the name on the board
    kind: str  # control, classifier, judge, rating, implicit, pmi, head, server, custom
    model: RewardModel | PairJudge
    identity: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # what changes its scores: in the run id
    template_hash: str = ""
    # Does the prompt for this input fit the model's window? `None`: it has no window.
    fits: Callable[[RewardInput | PairInput], bool] | None = None
    items_per_step: int = 32  # items scored, then written, together; small for slow models
    # Tokens read so far: {"total": as a naive forward pass would, "computed": after sharing}. `None`: not counted.
    tokens: Callable[[], Mapping[str, int]] | None = None
    note: str = ""  # what a user should know before it runs, e.g. why it is slower than it could be

    def holds(self, user: UserContext, *, question: str, responses: Sequence[str], reserve_tokens: int = 0) -> bool:
        """Tell whether the model's window holds every response with that much of the user."""
        fits = self.fits
        if fits is None:
            return True
        if isinstance(self.model, PairJudge):
            first, second = responses
            return fits(PairInput(question=question, user=user, first=first, second=second))
        return all(fits(RewardInput(question=question, user=user, response=response)) for response in responses)


def require_scores(loaded: Loaded, who: str) -> RewardModel:
    """Return the model if it scores single responses, as `who` needs; one that only compares is refused."""
    if not isinstance(loaded.model, RewardModel):
        raise only_compares(loaded.spec, who)
    return loaded.model


def only_compares(spec: str, who: str) -> UsageError:
    """Return the one line that refuses a model which only compares."""
    return UsageError(f"{spec} only compares, and {who} needs a score for each response. Use rating:… instead.")
