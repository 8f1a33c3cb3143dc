"""Stages `generate`, `verify` and `parity`: two responses to a question, and nothing but the rubric tells them apart.

`chosen` serves the rubric; `rejected`, as good an answer, serves other concerns. The writer sees the aspects and the
reasons, but neither the posts nor the evidence: an answer that echoes the user's own words could be told by the words
alone. The judge then looks for every aspect in both responses, and proves what it finds by a quote.

Parity first measures what can be measured: length, readability, style, and how much the texts have in common. Then a
judge who knows neither the user, the rubric nor which response is which rates the quality of both, in both orders.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

import numpy as np

from prbench.backends.llm.asking import (
    CUT_OFF,
    UNREADABLE,
    Answer,
    Asker,
    Task,
    Unusable,
    cut,
    filled,
    read_object,
    whole_number_in,
)
from prbench.backends.llm.client import Finish, Reply, always
from prbench.construction.build.records import (
    CHOSEN,
    REJECTED,
    SIDES,
    CheckedDraft,
    DraftResponse,
    DroppedItem,
    Fault,
    PairDraft,
    Row,
    object_schema,
    stage_row,
)
from prbench.construction.build.settings import BuildStage
from prbench.construction.check.duplicates import ALIKE, Shingles, jaccard, shingles
from prbench.construction.check.style import FEATURES, features
from prbench.data.texts import words as words_of
from prbench.judging import TOP_SCORE, Rubric, Verdicts, rubric_tasks
from prbench.prompts import load_template
from prbench.prompts.replies import strip_thinking
from prbench.schema import BROKEN, as_list

TEMPLATES = {CHOSEN: "build_chosen", REJECTED: "build_rejected"}
LEAST_WORDS = 15  # of a response
KEPT_SHARE = 0.5  # of the words asked for: so many must stand in whole sentences of a truncated response
EMPTY, TOO_SHORT = "empty", "too_short"
_SENTENCE_END = re.compile(r"""(?<![0-9])[.!?]["'”’)\]]*(?=\s+[^\sa-z]|\s*\Z)|[。！？]""")
_LENGTHS = 0.05  # the length that is asked for, give or take

CHOSEN_LEAST = 1  # every aspect has at least this in the chosen response,
CHOSEN_MEAN = 1.5  # and on average this;
REJECTED_MOST = 0  # no aspect has more in the rejected one
MISSES, WEAK, SERVES, NO_VERDICT = "chosen_misses", "chosen_weak", "rejected_serves", "unreadable_verdict"
NOT_JUDGED = "It could not be judged. Write it anew, in clear and concrete sentences."

QUALITY_TEMPLATE = "build_quality"
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
    "readability": (3, 0),  # school grades
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
_RATINGS = object_schema(**{key: {"type": "integer", "minimum": LOWEST, "maximum": HIGHEST} for key in DIMENSIONS})
_SCHEMA = object_schema(a=_RATINGS, b=_RATINGS)

Ratings = Mapping[str, int]  # by dimension


def write_responses(drafts: Sequence[PairDraft], asker: Asker, words: int) -> tuple[list[CheckedDraft], list[Row]]:
    """Write every response that is due: the chosen ones first, so that the rejected ones can take their form."""
    checked = [CheckedDraft(draft=draft) for draft in drafts]
    for name in SIDES:
        due = [place for place, each in enumerate(checked) if each.draft.side(name).is_due and not each.faults]
        tasks = [response_task(checked[place].draft, name, words) for place in due]
        label = f"generate {name}, round {drafts[0].round}" if drafts else ""
        for place, answer in zip(due, asker.ask(tasks, label), strict=True):
            draft = checked[place].draft
            if answer.value:
                response = DraftResponse(text=answer.value, round=draft.round)
                checked[place] = CheckedDraft(draft=draft.with_side(name, response))
            else:
                fault = Fault(reason=answer.reason, detail=answer.detail, side=name)
                checked[place] = CheckedDraft(draft=draft, faults=(fault,))
    rows = []
    for before, after in zip(drafts, checked, strict=True):
        written = [name for name in SIDES if before.side(name).is_due]
        rows.append(
            stage_row(
                before.item,
                before.round,
                ok=not after.faults,
                written=written,
                feedback={name: before.side(name).feedback for name in written if before.side(name).feedback},
                faults=after.fault_rows(),
                chosen=after.draft.chosen.text,
                rejected=after.draft.rejected.text,
            )
        )
    return checked, rows


def response_task(draft: PairDraft, name: str, words: int) -> Task[str]:
    """Ask for one response, again with the reason why an earlier one was refused."""
    slots = ("question", "aspects", "form", "previous", "feedback")
    template = load_template(TEMPLATES[name]).require(*slots, answer="text")
    side, other = draft.side(name), draft.side(REJECTED if name == CHOSEN else CHOSEN)
    form = f"plain prose of about {words} words, without lists" if other.is_due else form_of(other.text)
    aspects = as_list([aspect.text for aspect in draft.item.rubric])
    return Task(
        id=draft.item.id,
        owner=draft.item.user.id,
        round=draft.round,
        about=name,
        prompt=lambda problem: filled(
            template,
            question=draft.item.question,
            aspects=aspects,
            form=form,
            previous=side.text,
            feedback=problem or side.feedback,
        ),
        read=lambda reply: read_response(reply, words),
        cut_is_enough=always,
    )


def read_response(reply: Reply, asked: int) -> str | Unusable:
    """Return the response without thinking. Of a truncated one, the whole sentences are kept, if they are enough.

    `asked` is the number of words that were asked for. A response is data: unlike a verdict, it says nothing less
    for having no end.
    """
    text = strip_thinking(reply.text)
    if reply.finish is Finish.LENGTH:
        text = whole_sentences(text)
        if len(words_of(text)) < KEPT_SHARE * asked:
            return Unusable(CUT_OFF, "It was cut off before its end. Be brief.")
    if not text:
        return Unusable(EMPTY, "It was empty.")
    if len(words_of(text)) < LEAST_WORDS:
        return Unusable(TOO_SHORT, f"It had fewer than {LEAST_WORDS} words.")
    return text


def whole_sentences(text: str) -> str:
    """Return a text up to the end of its last whole sentence; an abbreviation or a list's number is none."""
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return text[: ends[-1]] if ends else ""


def form_of(text: str) -> str:
    """Describe length and shape of a response, such that another one can be given the same."""
    found = dict(zip(FEATURES, map(int, features(text)), strict=True))
    low, high = round(len(text) * (1 - _LENGTHS)), round(len(text) * (1 + _LENGTHS))
    shape = "as a list or with headings" if found["list and Markdown marks"] else "in plain prose without lists"
    sentences = f"{found['sentences']} sentence{'' if found['sentences'] == 1 else 's'}"
    return f"about {found['words']} words in {sentences} ({low} to {high} characters), {shape}"


def verify_responses(
    drafts: Sequence[PairDraft], asker: Asker, *, batched: bool
) -> tuple[list[CheckedDraft], list[Row]]:
    """Judge the responses that were not judged before, and hold both to the thresholds."""
    places, tasks = [], []
    for number, draft in enumerate(drafts):
        for name in SIDES:
            if not draft.side(name).verdicts:
                for task in verdict_tasks(draft, name, batched=batched):
                    places.append((number, name))
                    tasks.append(task)
    label = f"verify, round {drafts[0].round}" if drafts else ""
    answers: dict[tuple[int, str], list[Answer[Verdicts]]] = {}
    for place, answer in zip(places, asker.ask(tasks, label), strict=True):
        answers.setdefault(place, []).append(answer)
    checked, rows = [], []
    for number, draft in enumerate(drafts):
        judged, faults = draft, []
        for name in SIDES:
            judged, missing = _with_verdicts(judged, name, answers.get((number, name), []))
            faults += missing
        faults = sorted(faults or faults_of(judged), key=lambda fault: fault.reason not in BROKEN)
        checked.append(CheckedDraft(draft=judged, faults=tuple(faults)))
        verdicts = {name: [asdict(verdict) for verdict in judged.side(name).verdicts] for name in SIDES}
        fault_rows = checked[-1].fault_rows()
        rows.append(stage_row(draft.item, draft.round, ok=not faults, faults=fault_rows, **verdicts))
    return checked, rows


def verdict_tasks(draft: PairDraft, name: str, *, batched: bool) -> Iterator[Task[Verdicts]]:
    """Yield what to ask about one response of a draft."""
    item, side = draft.item, draft.side(name)
    rubric = Rubric(id=item.id, owner=item.user.id, question=item.question, aspects=item.rubric)
    return rubric_tasks(rubric, side.text, about=name, number=side.round, batched=batched)


def _with_verdicts(draft: PairDraft, name: str, answers: Sequence[Answer[Verdicts]]) -> tuple[PairDraft, list[Fault]]:
    """Put new verdicts beside a response; one that could not be had is a fault of its own."""
    faults = []
    for answer in answers:
        if answer.value is None and answer.reason in BROKEN:
            faults.append(Fault(reason=answer.reason, side=name, detail=answer.detail))
        elif answer.value is None:
            detail = f"The judge's verdict could not be used: {answer.detail}"
            faults.append(Fault(reason=NO_VERDICT, side=name, detail=detail, feedback=NOT_JUDGED))
    if answers and not faults:
        verdicts = tuple(verdict for answer in answers for verdict in answer.value or ())
        draft = draft.with_side(name, replace(draft.side(name), verdicts=verdicts))
    return draft, faults


def faults_of(draft: PairDraft) -> list[Fault]:
    """Return what is wrong with the verdicts on a draft's responses; nothing where it passes."""
    faults = [
        Fault(
            reason=MISSES,
            side=CHOSEN,
            detail=f"It does not serve the expectation “{cut(verdict.aspect)}”: {cut(verdict.reason)}",
        )
        for verdict in draft.chosen.verdicts
        if verdict.score < CHOSEN_LEAST
    ]
    mean = fmean(verdict.score for verdict in draft.chosen.verdicts)
    if not faults and mean < CHOSEN_MEAN:
        weak = ", ".join(f"“{cut(verdict.aspect)}”" for verdict in draft.chosen.verdicts if verdict.score < TOP_SCORE)
        detail = f"It serves these expectations only in passing: {weak}."
        faults.append(Fault(reason=WEAK, side=CHOSEN, detail=detail))
    return faults + [
        Fault(
            reason=SERVES,
            side=REJECTED,
            detail=f"It serves the concern “{cut(verdict.aspect)}” with the words “{cut(verdict.evidence)}”.",
        )
        for verdict in draft.rejected.verdicts
        if verdict.score > REJECTED_MOST
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRatings:
    """What the judge said of both responses in one order."""

    first: Ratings
    second: Ratings


def compare_responses(drafts: Sequence[PairDraft], asker: Asker, words: int) -> tuple[list[CheckedDraft], list[Row]]:
    """Measure every draft, and have those rated that no measure is against."""
    measured = {draft.item.id: measure_differences(draft, words) for draft in drafts}
    rated = [draft for draft in drafts if not measured[draft.item.id]]
    tasks = [rating_task(draft, chosen_first=first) for draft in rated for first in (True, False)]
    label = f"parity, round {drafts[0].round}" if drafts else ""
    answers = asker.ask(tasks, label)
    orders = {draft.item.id: answers[2 * place : 2 * place + 2] for place, draft in enumerate(rated)}
    checked: list[CheckedDraft] = []
    rows: list[Row] = []
    for draft in drafts:
        both = orders.get(draft.item.id, [])
        ratings = average_orders(both) if both and all(answer.value for answer in both) else {}
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


def measure_differences(draft: PairDraft, words: int) -> list[Fault]:
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
    # The automated readability index: a US school grade (Smith and Senter 1967).
    found["readability"] = 4.71 * found["characters per word"] + 0.5 * found["words per sentence"] - 21.43
    return {name: round(found[name], 3) for name in STYLE_MARGINS}


def rating_task(draft: PairDraft, *, chosen_first: bool) -> Task[PairRatings]:
    """Ask for the ratings of both responses in one order. The prompt has no slot for a user or a rubric."""
    template = load_template(QUALITY_TEMPLATE).require("question", "first", "second", "problem", answer="json")
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


def average_orders(both: Sequence[Answer[PairRatings]]) -> dict[str, dict[str, float]]:
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
        # Jaccard's index of at least ALIKE, by counts: shared / (one + other - shared).
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
