"""Stage `parity`: nothing but the rubric may tell the two responses apart.

First what can be measured: length, readability, style, and how much the texts have in common. Then a judge who knows
neither the user, the rubric nor which response is which rates the quality of both, in both orders.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from prbench.backends.llm.asking import UNREADABLE, Answer, Asker, Task, Unusable, filled, read_object, whole_number_in
from prbench.backends.llm.client import Reply
from prbench.construction.build.records import (
    CHOSEN,
    REJECTED,
    SIDES,
    CheckedDraft,
    DroppedItem,
    Fault,
    PairDraft,
    Row,
    stage_row,
)
from prbench.construction.build.settings import BuildStage
from prbench.construction.check.duplicates import ALIKE, Shingles, jaccard, shingles
from prbench.construction.check.style import FEATURES, features
from prbench.data.texts import words as words_of
from prbench.prompts import load_template
from prbench.schema import BROKEN, Json

TEMPLATE = "build_quality"
DIMENSIONS = ("correctness", "relevance", "helpfulness")
LOWEST, HIGHEST = 1, 10
QUALITY_MARGIN = 1.0  # points by which the ratings, averaged over both orders, may differ in each dimension
LEAST_QUALITY = 5.0  # points that both responses need in each dimension
LENGTH_RATIO = 1.1  # the longer response has at most this many times the characters of the shorter
# Most that two responses may differ in: an absolute amount or a share of the smaller value, whichever is more. Each
# of them, taken alone, holds for 99 % of the lab's own pairs, which are made to match.
STYLE_MARGINS: Mapping[str, tuple[float, float]] = {
    "words": (0, 0.15),
    "sentences": (2, 0.25),
    "readability": (3, 0),  # grades of the automated readability index (Smith and Senter 1967)
    "list and Markdown marks": (2, 0.25),
    "question marks": (2, 0),
    "exclamation marks": (2, 0),
    "digits": (8, 0.5),
    "first person": (3, 0),
    "type-token ratio": (0.15, 0),
}
LENGTH, STYLE, TOO_ALIKE, REPEATS = "length", "style", "responses_alike", "near_duplicate"
DIFFERS, TOO_LOW, NO_RATING = "quality_differs", "quality_low", "unreadable_rating"
_OF_REJECTED = np.uint64(0x5851F42D4C957F2D)  # keeps what is rejected apart from what is chosen
_RATINGS: dict[str, Json] = {
    "type": "object",
    "properties": {name: {"type": "integer", "minimum": LOWEST, "maximum": HIGHEST} for name in DIMENSIONS},
    "required": list(DIMENSIONS),
    "additionalProperties": False,
}
_SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"a": _RATINGS, "b": _RATINGS},
    "required": ["a", "b"],
    "additionalProperties": False,
}

Ratings = Mapping[str, int]  # by dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRatings:
    """What the judge said of both responses in one order."""

    first: Ratings
    second: Ratings


def compare(drafts: Sequence[PairDraft], asker: Asker, words: int) -> tuple[list[CheckedDraft], list[Row]]:
    """Measure every draft, and have those rated that no measure is against."""
    measured = {draft.item.id: measure(draft, words) for draft in drafts}
    rated = [draft for draft in drafts if not measured[draft.item.id]]
    tasks = [rating_task(draft, chosen_first=first) for draft in rated for first in (True, False)]
    label = f"parity, round {drafts[0].round}" if drafts else ""
    answers = asker.ask(tasks, label)
    orders = {draft.item.id: answers[2 * place : 2 * place + 2] for place, draft in enumerate(rated)}
    checked: list[CheckedDraft] = []
    rows: list[Row] = []
    for draft in drafts:
        both = orders.get(draft.item.id, [])
        ratings = average(both) if both and all(answer.value for answer in both) else {}
        faults = measured[draft.item.id] or _not_rated(both) or quality_faults(ratings)
        checked.append(CheckedDraft(draft=draft, faults=tuple(faults)))
        rows.append(
            stage_row(
                draft.item,
                draft.round,
                ok=not faults,
                faults=checked[-1].fault_rows(),
                characters={name: len(draft.side(name).text) for name in SIDES},
                style={name: style_of(draft.side(name).text) for name in SIDES},
                ratings=ratings,
                orders=[{"a": dict(each.value.first), "b": dict(each.value.second)} for each in both if each.value],
            )
        )
    return checked, rows


def measure(draft: PairDraft, words: int) -> list[Fault]:
    """Return what length, style and overlap say against a draft. The response to blame is the one to write again."""
    chosen, rejected = draft.chosen.text, draft.rejected.text
    if max(len(chosen), len(rejected)) > LENGTH_RATIO * min(len(chosen), len(rejected)):
        # To blame is the response whose length is further from what was asked for.
        distances = {name: abs(len(words_of(draft.side(name).text)) - words) for name in SIDES}
        side = max(SIDES, key=lambda name: (distances[name], name == REJECTED))
        lengths = (len(chosen), len(rejected)) if side == CHOSEN else (len(rejected), len(chosen))
        detail = f"It has {lengths[0]} characters; it must have about {lengths[1]}."
        return [Fault(reason=LENGTH, side=side, detail=detail)]
    values = {name: style_of(draft.side(name).text) for name in SIDES}
    faults = []
    for name, (amount, share) in STYLE_MARGINS.items():
        one, other = values[CHOSEN][name], values[REJECTED][name]
        if abs(one - other) > max(amount, share * min(one, other)):
            detail = f"Its {name} must be nearer to {one:g} than {other:g}."
            faults.append(Fault(reason=STYLE, side=REJECTED, detail=detail))
    if jaccard(shingles(chosen), shingles(rejected)) >= ALIKE:
        detail = "It repeats almost word for word an answer that was given before. Write another one."
        faults.append(Fault(reason=TOO_ALIKE, side=REJECTED, detail=detail))
    return faults


def style_of(text: str) -> dict[str, float]:
    found = dict(zip(FEATURES, features(text), strict=True))
    found["readability"] = 4.71 * found["characters per word"] + 0.5 * found["words per sentence"] - 21.43
    return {name: round(found[name], 3) for name in STYLE_MARGINS}


def rating_task(draft: PairDraft, *, chosen_first: bool) -> Task[PairRatings]:
    """Ask for the ratings of both responses in one order. The prompt has no slot for a user or a rubric."""
    template = load_template(TEMPLATE).require("question", "first", "second", "problem", answer="json")
    texts = (draft.chosen.text, draft.rejected.text)
    first, second = texts if chosen_first else texts[::-1]
    question = draft.item.question
    return Task(
        id=draft.item.id,
        owner=draft.item.user.id,
        round=draft.round,
        about=CHOSEN if chosen_first else REJECTED,
        prompt=lambda problem: filled(template, question=question, first=first, second=second, problem=problem),
        read=read_ratings,
        schema=_SCHEMA,
    )


def read_ratings(reply: Reply) -> PairRatings | Unusable:
    """Read six ratings; a missing one spoils them all."""
    found = read_object(reply, "a", "b")
    if isinstance(found, Unusable):
        return found
    both: list[Ratings] = []
    for given in (found["a"], found["b"]):
        ratings = given if isinstance(given, Mapping) else {}
        read = {name: whole_number_in(ratings, name, LOWEST, HIGHEST) for name in DIMENSIONS}
        both.append({name: rating for name, rating in read.items() if rating is not None})
    if any(len(ratings) < len(DIMENSIONS) for ratings in both):
        named = ", ".join(DIMENSIONS)
        return Unusable(UNREADABLE, f"a and b must each have {named} as whole numbers from {LOWEST} to {HIGHEST}.")
    return PairRatings(first=both[0], second=both[1])


def average(both: Sequence[Answer[PairRatings]]) -> dict[str, dict[str, float]]:
    """Return the ratings of each side, averaged over the order with the chosen first and the other one."""
    one, other = (answer.value for answer in both)
    assert one is not None, "only ratings that could be read are averaged"
    assert other is not None, "only ratings that could be read are averaged"
    return {
        CHOSEN: {name: fmean((one.first[name], other.second[name])) for name in DIMENSIONS},
        REJECTED: {name: fmean((one.second[name], other.first[name])) for name in DIMENSIONS},
    }


def quality_faults(ratings: Mapping[str, Mapping[str, float]]) -> list[Fault]:
    """Return where one response is rated better than the other, or either too low."""
    faults = []
    for dimension in DIMENSIONS:
        values = {name: ratings[name][dimension] for name in SIDES}
        worse = min(SIDES, key=values.__getitem__)
        gap = abs(values[CHOSEN] - values[REJECTED])
        if gap > QUALITY_MARGIN:
            detail = f"Its {dimension} was rated {gap:g} points lower than that of another answer: do better."
            faults.append(Fault(reason=DIFFERS, side=worse, detail=detail))
        for name in SIDES:
            if values[name] < LEAST_QUALITY:
                detail = f"Its {dimension} was rated {values[name]:g} of {HIGHEST}: do better."
                faults.append(Fault(reason=TOO_LOW, side=name, detail=detail))
    return faults


def drop_repeats(drafts: Sequence[PairDraft]) -> tuple[list[PairDraft], list[DroppedItem]]:
    """Keep, in the order of the items, those that do not nearly repeat the question and both responses of another.

    A pair that is mirrored for another user is no repeat: it is what personalization means.
    """
    kept: list[PairDraft] = []
    sizes: list[int] = []
    holders: dict[int, list[int]] = {}  # shingle -> those of the kept that have it
    dropped = []
    for draft in drafts:
        texts = pair_shingles(draft).tolist()
        common = Counter(place for shingle in texts for place in holders.get(shingle, ()))
        alike = [at for at, shared in common.items() if shared >= ALIKE * (sizes[at] + len(texts) - shared)]
        if alike:
            detail = f"question and responses nearly repeat those of {kept[min(alike)].item.id}"
            fault = Fault(reason=REPEATS, detail=detail)
            dropped.append(CheckedDraft(draft=draft, faults=(fault,)).as_dropped(BuildStage.PARITY))
            continue
        for shingle in texts:
            holders.setdefault(shingle, []).append(len(kept))
        kept.append(draft)
        sizes.append(len(texts))
    return kept, dropped


def pair_shingles(draft: PairDraft) -> Shingles:
    """Return what two pairs are compared by: a mirrored pair has other shingles."""
    rejected = shingles(draft.rejected.text) ^ _OF_REJECTED
    return np.unique(np.concatenate([shingles(draft.item.question), shingles(draft.chosen.text), rejected]))


def _not_rated(both: Sequence[Answer[PairRatings]]) -> list[Fault]:
    """Where the judge gave no ratings, the rejected response is written again: another text may fare better."""
    missing = [answer for answer in both if answer.value is None]
    broken = [answer for answer in missing if answer.reason in BROKEN]
    if broken:
        return [Fault(reason=broken[0].reason, detail=broken[0].detail)]
    if missing:
        detail = f"The judge's ratings could not be used: {missing[0].detail}"
        feedback = "It could not be rated. Write it anew, in clear and concrete sentences."
        return [Fault(reason=NO_RATING, side=REJECTED, detail=detail, feedback=feedback)]
    return []
