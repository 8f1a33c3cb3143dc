"""What a build passes on: a question on its way to a pair, the pair as it is drafted, and why some get no further."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from prbench.backends.llm.asking import Answer, Value
from prbench.construction.build.settings import BuildStage
from prbench.judging import AspectVerdict
from prbench.schema import BROKEN, NOTHING, Aspect, Example, Json, Post, User

CHOSEN, REJECTED = "chosen", "rejected"
SIDES = (CHOSEN, REJECTED)

Row = dict[str, Json]  # one line of a stage's file


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildItem:
    """What a build knows of one question before there are responses to it."""

    id: str
    user: User
    question: str = ""  # "": still to be drawn from `held_out`
    narrative: str = ""
    category: str = ""
    rubric: tuple[Aspect, ...] = ()
    held_out: Post | None = None  # the post that the question is drawn from; it is not in the profile
    posts: tuple[Post, ...] = ()  # the top ones of the profile, once they are ranked
    meta: Mapping[str, Json] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedItem:
    """Why an item is not in the set."""

    item: BuildItem
    stage: BuildStage
    reason: str  # one of a few names, to be counted; those of `BROKEN` are worth another run
    detail: str  # the case at hand, for people
    round: int = 0
    chosen: str = ""
    rejected: str = ""
    tries: tuple[Mapping[str, Json], ...] = ()  # replies that could not be used

    def as_row(self) -> Row:
        """Return a line of `rejects.jsonl`."""
        item = self.item
        return {
            "id": item.id,
            "user_id": item.user.id,
            "stage": self.stage.value,
            "reason": self.reason,
            "detail": self.detail,
            "round": self.round,
            "question": item.question,
            "narrative": item.narrative,
            "held_out": item.held_out.text if item.held_out else "",
            "rubric": [asdict(aspect) for aspect in item.rubric],
            "chosen": self.chosen,
            "rejected": self.rejected,
            "tries": [dict(each) for each in self.tries],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftResponse:
    """One response as it stands."""

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

    item: BuildItem
    round: int = 0
    chosen: DraftResponse = DraftResponse()
    rejected: DraftResponse = DraftResponse()

    def side(self, name: str) -> DraftResponse:
        return self.chosen if name == CHOSEN else self.rejected

    def with_side(self, name: str, side: DraftResponse) -> "PairDraft":
        return replace(self, chosen=side) if name == CHOSEN else replace(self, rejected=side)

    def to_example(self) -> Example:
        """Return the pair. `meta` says which posts were ranked top, and in which round the pair passed."""
        item = self.item
        made: dict[str, Json] = {"round": self.round, "top_posts": [post.id for post in item.posts]}
        if item.held_out:
            made["drawn_from"] = item.held_out.id
        return Example(
            id=item.id,
            user=item.user,
            question=item.question,
            chosen=self.chosen.text,
            rejected=self.rejected.text,
            rubric=item.rubric,
            narrative=item.narrative,
            category=item.category,
            meta={**item.meta, "build": made},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a draft did not come through a stage."""

    reason: str  # one of a few names, to be counted
    detail: str
    side: str = ""  # which response is to blame, and is written again
    feedback: str = ""  # what its writer is told; "": the detail


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDraft:
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
            feedback = " ".join(fault.feedback or fault.detail for fault in self.faults if fault.side == name)
            if feedback:
                draft = draft.with_side(name, replace(draft.side(name), feedback=feedback))
        return draft

    def as_dropped(self, stage: BuildStage) -> DroppedItem:
        """Return the item as dropped, for the first fault."""
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

    def fault_rows(self) -> list[Row]:
        """Return the faults as they stand in a stage's file; what the writer was told is in the next round."""
        return [{"reason": fault.reason, "detail": fault.detail, "side": fault.side} for fault in self.faults]


def object_schema(**properties: Json) -> dict[str, Json]:
    """Return the JSON schema of an object with all of these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def stage_row(item: BuildItem, round_: int, **content: Json) -> Row:
    return {"id": item.id, "user_id": item.user.id, "round": round_, **content}


def rows_of_tries(item: BuildItem, answer: Answer[Value], asked: Row, found: Row) -> list[Row]:
    """Return one line per try: those that could not be used, and with what was `found` the one that could, if any."""
    rows = [stage_row(item, number, ok=False, **asked, **each) for number, each in enumerate(answer.tries)]
    return [*rows, stage_row(item, len(rows), ok=True, **asked, **found)] if answer.value else rows


def dropped_for(item: BuildItem, stage: BuildStage, answer: Answer[Value], round_: int | None = None) -> DroppedItem:
    """Return an item as dropped because no try at it could be used."""
    return DroppedItem(
        item=item,
        stage=stage,
        reason=answer.reason,
        detail=answer.detail,
        round=max(0, len(answer.tries) - 1) if round_ is None else round_,
        tries=answer.tries,
    )


def in_order(rows: Sequence[Row], items: Sequence[BuildItem]) -> list[Row]:
    place = {item.id: number for number, item in enumerate(items)}
    return sorted(rows, key=lambda row: (place[row["id"]], row["round"]))
