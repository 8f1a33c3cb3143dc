"""Stages `generate` and `verify`: `chosen` serves the rubric; `rejected`, as good an answer, serves other concerns.

The writer sees the aspects and the reasons, but neither the posts nor the evidence: an answer that echoes the user's
own words could be told by the words alone. The judge then looks for every aspect in both responses, and proves what it
finds by a quote.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from statistics import fmean

from prbench.backends.llm.asking import CUT_OFF, Answer, Asker, Task, Unusable, cut, filled
from prbench.backends.llm.client import Finish, Reply, always
from prbench.construction.build.records import (
    CHOSEN,
    REJECTED,
    SIDES,
    CheckedDraft,
    DraftResponse,
    Fault,
    PairDraft,
    Row,
    stage_row,
)
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
