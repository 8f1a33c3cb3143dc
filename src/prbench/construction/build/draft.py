"""A pair in the making: two responses, what is wrong with them, and in which round each was written."""

from dataclasses import dataclass, replace

from prbench.construction.build.item import DroppedItem, Item
from prbench.construction.build.settings import Stage
from prbench.judging import AspectVerdict
from prbench.schema import BROKEN

CHOSEN, REJECTED = "chosen", "rejected"
SIDES = (CHOSEN, REJECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One response."""

    text: str = ""
    round: int = 0  # in which it was written
    feedback: str = ""  # why it has to be written again; "" where it may stay
    verdicts: tuple[AspectVerdict, ...] = ()  # empty: not judged yet

    @property
    def is_due(self) -> bool:
        """True if it has to be written, or written again."""
        return not self.text or bool(self.feedback)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDraft:
    """An item with its two responses as they stand."""

    item: Item
    round: int = 0
    chosen: Side = Side()
    rejected: Side = Side()

    def side(self, name: str) -> Side:
        """Return the chosen or the rejected response."""
        return self.chosen if name == CHOSEN else self.rejected

    def with_side(self, name: str, side: Side) -> "PairDraft":
        """Return the draft with another chosen or rejected response."""
        return replace(self, chosen=side) if name == CHOSEN else replace(self, rejected=side)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a draft did not come through a stage."""

    reason: str  # one of a few names, to be counted
    detail: str
    side: str = ""  # which response is to blame, and is written again
    told: str = ""  # what its writer is told; "": the detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A draft with what a stage has to say against it; nothing means that it passed."""

    draft: PairDraft
    faults: tuple[Fault, ...] = ()

    @property
    def has_failed(self) -> bool:
        """True if a request broke, so that there is nothing to say about the texts."""
        return any(fault.reason in BROKEN for fault in self.faults)

    def for_next_round(self) -> PairDraft:
        """Return the draft with the feedback for every response that is to blame, one round on."""
        draft = replace(self.draft, round=self.draft.round + 1)
        for name in SIDES:
            feedback = " ".join(fault.told or fault.detail for fault in self.faults if fault.side == name)
            if feedback:
                draft = draft.with_side(name, replace(draft.side(name), feedback=feedback))
        return draft

    def as_loss(self, stage: Stage) -> DroppedItem:
        """Return the loss, named by the first fault."""
        draft = self.draft
        return DroppedItem(
            item=draft.item,
            stage=stage,
            reason=self.faults[0].reason,
            detail=" ".join(fault.detail for fault in self.faults),
            round=draft.round,
            chosen=draft.chosen.text,
            rejected=draft.rejected.text,
        )
