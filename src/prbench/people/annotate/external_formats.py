"""What Argilla and Label Studio have in common: two responses in a blind order, and facts they have no place for.

Which response comes first is a coin per item, and nothing in the file says which one is the chosen: on the way back
the texts tell.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from prbench.errors import DataError
from prbench.people.agreement.answers import QUALITIES
from prbench.people.annotate.assignment import side_of_chosen
from prbench.people.annotate.people import now
from prbench.people.annotate.records import Item, Mode, Side
from prbench.people.annotate.rows import AnswerRow, ReasonRow, Seconds, StoredTime, check
from prbench.people.annotate.store import Store
from prbench.schema import Json, Verdict

FIRST, SECOND, TIE = "first", "second", "tie"
PLACES = (FIRST, SECOND)
TITLES = {FIRST: "Response 1", SECOND: "Response 2", TIE: "Cannot tell"}
ASKED = {
    Mode.VALIDATE: "Which response fits what this person looks for?",
    Mode.COLLECT: "Which response would you rather have?",
}
BETWEEN = " :: "  # between an aspect and its reason


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One item as it is shown elsewhere."""

    item: Item
    texts: Mapping[str, str]  # question, rubric, response_1, response_2
    order: tuple[str, str]  # what stands first and second: ("chosen", "rejected") or the other way round


class Facts(BaseModel):
    """Who answered when, and what else the other tools have no question for."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)
    annotator: str
    side_chosen: Literal["left", "right"] | None = None
    seconds: Seconds = 0.0
    saved_at: StoredTime | None = None
    flagged: bool = False
    why: list[ReasonRow] = []
    posts: list[str] = []


def as_asked(store: Store, item: Item) -> Asked:
    """Return an item in its blind order."""
    is_first = side_of_chosen(item.id, "elsewhere", seed=store.project.seed) is Side.LEFT
    order = ("chosen", "rejected") if is_first else ("rejected", "chosen")
    rubric = "\n".join(f"- {each.aspect}: {each.reason} “{each.evidence}”" for each in item.rubric)
    responses = {"chosen": item.chosen, "rejected": item.rejected}
    texts = {"question": item.question, "response_1": responses[order[0]], "response_2": responses[order[1]]}
    if store.project.mode is Mode.VALIDATE:
        texts["rubric"] = rubric
    return Asked(item=item, texts=texts, order=order)


def values_of(row: AnswerRow, asked: Asked) -> dict[str, Json]:
    """Return an answer as values by question name."""
    place = dict(zip(asked.order, PLACES, strict=True))
    values: dict[str, Json] = {"choice": TIE if row["choice"] == Verdict.TIE else place[row["choice"]]}
    for response, ratings in row["ratings"].items():
        for quality in QUALITIES:
            if ratings[quality] is not None:
                values[f"{place[response]}_{quality}"] = ratings[quality]
    if row.get("why"):
        values["why"] = why_text(row["why"])
    if row["note"]:
        values["note"] = row["note"]
    return values


def facts_of(row: AnswerRow) -> dict[str, Json]:
    """Return what the other tools have no question for."""
    kept = ("annotator", "side_chosen", "seconds", "saved_at", "flagged", "why", "posts")
    return {name: row[name] for name in kept if row.get(name)}


def to_row(
    store: Store,
    item: Item,
    texts: Mapping[str, Json],
    values: Mapping[str, Json],
    facts: Facts,
    where: str,
) -> AnswerRow:
    """Return one answer from elsewhere as our row; what was answered there first has no facts yet."""
    order = _order(item, texts, where)
    choices = dict(zip(PLACES, order, strict=True)) | {TIE: Verdict.TIE.value}
    choice = values.get("choice")
    if not isinstance(choice, str) or choice not in choices:
        raise DataError(f"{where}: choice: is {choice!r}, not one of {', '.join(choices)}. Correct it.")
    ratings = {
        response: {quality: values.get(f"{place}_{quality}") for quality in QUALITIES}
        for place, response in zip(PLACES, order, strict=True)
    }
    row: AnswerRow = {
        "item": item.id,
        "annotator": facts.annotator,
        "question": item.question,
        "choice": choices[choice],
        "side_chosen": facts.side_chosen or (Side.LEFT.value if order[0] == "chosen" else Side.RIGHT.value),
        "ratings": {response: ratings[response] for response in ("chosen", "rejected")},
        "note": values.get("note", ""),
        "seconds": facts.seconds,
        "saved_at": facts.saved_at or now(),
        "mode": store.project.mode.value,
    }
    if facts.flagged:
        row["flagged"] = True
    if store.project.mode is Mode.COLLECT:
        row["why"] = _why(values.get("why", ""), [why.model_dump() for why in facts.why], where)
        row["posts"] = facts.posts
    return row


def find_item(items: Mapping[str, Item], item_id: Json, where: str) -> Item:
    """Return the item that a record is about."""
    if not isinstance(item_id, str) or item_id not in items:
        raise DataError(f"{where}: item {item_id!r} is not in the project. Use a project of the same data.")
    return items[item_id]


def read_facts(text: Json, where: str) -> Facts | None:
    """Return facts that were written as JSON text; `None` where somebody else wrote the text."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return check(Facts, found, where) if isinstance(found, dict) and "annotator" in found else None


def why_text(reasons: Sequence[Mapping[str, str]]) -> str:
    """Return reasons as lines that a person can read."""
    return "\n".join(why["aspect"] + (BETWEEN + why["reason"] if why["reason"] else "") for why in reasons)


def _why(text: Json, known: list[dict[str, str]], where: str) -> list[dict[str, str]]:
    if not isinstance(text, str):
        raise DataError(f"{where}: why: is {text!r}, not a text. Correct it.")
    if why_text(known) == text:
        return known
    split = [line.partition(BETWEEN) for line in text.splitlines() if line.strip()]
    return [{"aspect": aspect.strip(), "reason": reason.strip()} for aspect, _, reason in split]


def _order(item: Item, texts: Mapping[str, Json], where: str) -> tuple[str, str]:
    both = (texts.get("response_1"), texts.get("response_2"))
    if both == (item.chosen, item.rejected):
        return ("chosen", "rejected")
    if both == (item.rejected, item.chosen):
        return ("rejected", "chosen")
    raise DataError(f"{where}: the responses are not those of item {item.id!r}. Use a project of the same data.")
