"""One question of one user on its way to a pair, and the reason where it does not get there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from prbench.construction.build.settings import Stage
from prbench.schema import NOTHING, Aspect, Json, Post, User


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
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

    item: Item
    stage: Stage
    reason: str  # one of a few names, to be counted; those of `BROKEN` are worth another run
    detail: str  # the case at hand, for people
    round: int = 0
    chosen: str = ""
    rejected: str = ""
    tries: tuple[Mapping[str, Json], ...] = ()  # replies that could not be used


def rubric_rows(rubric: tuple[Aspect, ...]) -> list[dict[str, Json]]:
    """Return a rubric as it stands in files."""
    return [{"aspect": each.aspect, "evidence": each.evidence, "reason": each.reason} for each in rubric]


def loss_row(loss: DroppedItem) -> dict[str, Json]:
    """Return a line of `rejects.jsonl`."""
    item = loss.item
    return {
        "id": item.id,
        "user_id": item.user.id,
        "stage": loss.stage.value,
        "reason": loss.reason,
        "detail": loss.detail,
        "round": loss.round,
        "question": item.question,
        "narrative": item.narrative,
        "held_out": item.held_out.text if item.held_out else "",
        "rubric": rubric_rows(item.rubric),
        "chosen": loss.chosen,
        "rejected": loss.rejected,
        "tries": [dict(each) for each in loss.tries],
    }
