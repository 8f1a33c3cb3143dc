"""Stage `verify`: the judge looks for every aspect of the rubric in both responses, and proves what it finds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from prbench.build.ask import (
    UNREADABLE,
    Answer,
    Asker,
    Prompt,
    Task,
    Unusable,
    cut,
    filled,
    read_object,
    text_in,
    whole_number_in,
)
from prbench.build.draft import CHOSEN, REJECTED, SIDES, AspectVerdict, Checked, Draft, Fault
from prbench.build.generate import describe
from prbench.build.quotes import is_quote
from prbench.build.rows import Row, stage_row
from prbench.llm.client import Reply
from prbench.prompts import load_template
from prbench.schema import BROKEN, Aspect, Json

ONE, ALL = "build_verify", "build_verify_all"
TOP_SCORE = 2
VERDICT_TOKENS = 200  # that each aspect may add, where one reply has the verdicts on all
CHOSEN_LEAST = 1  # every aspect has at least this in the chosen response,
CHOSEN_MEAN = 1.5  # and on average this;
REJECTED_MOST = 0  # no aspect has more in the rejected one
MISSES, WEAK, SERVES, NO_VERDICT = "chosen_misses", "chosen_weak", "rejected_serves", "unreadable_verdict"
NOT_QUOTED = "evidence_not_quoted"
NOT_JUDGED = "It could not be judged. Write it anew, in clear and concrete sentences."
_VERDICT: dict[str, Json] = {
    "evidence": {"type": "string"},
    "reason": {"type": "string"},
    "score": {"type": "integer", "minimum": 0, "maximum": TOP_SCORE},
}
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": _VERDICT,
    "required": list(_VERDICT),
    "additionalProperties": False,
}

Verdicts = tuple[AspectVerdict, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Which response of which draft a task is about."""

    draft: int
    side: str


def verify(drafts: Sequence[Draft], asker: Asker, *, batched: bool) -> tuple[list[Checked], list[Row]]:
    """Judge the responses that were not judged before, and hold both to the thresholds."""
    places, tasks = [], []
    for number, draft in enumerate(drafts):
        for name in SIDES:
            if not draft.side(name).verdicts:
                for each in tasks_for(draft, name, batched=batched):
                    places.append(_Place(number, name))
                    tasks.append(each)
    label = f"verify, round {drafts[0].round}" if drafts else ""
    answers: dict[_Place, list[Answer[Verdicts]]] = {}
    for place, answer in zip(places, asker.ask(tasks, label), strict=True):
        answers.setdefault(place, []).append(answer)
    checked = [
        _settle(draft, {name: answers.get(_Place(n, name), []) for name in SIDES}) for n, draft in enumerate(drafts)
    ]
    return checked, [_row(each) for each in checked]


def tasks_for(draft: Draft, name: str, *, batched: bool) -> Iterator[Task[Verdicts]]:
    """Yield what to ask about one response: one task per aspect, or one for all."""
    response, rubric = draft.side(name), draft.item.rubric
    if batched:
        yield Task(
            item=draft.item,
            round=response.round,
            about=name,
            prompt=lambda problem: _prompt_all(draft, response.text, problem),
            read=lambda reply: read_all(reply, rubric, response.text),
            schema=schema_for_all(len(rubric)),
            extra_tokens=VERDICT_TOKENS * len(rubric),
        )
        return
    for number, aspect in enumerate(rubric):
        yield Task(
            item=draft.item,
            round=response.round,
            about=f"{name}/{number}",
            prompt=lambda problem, aspect=aspect: _prompt_one(draft, aspect, response.text, problem),  # type: ignore[misc]
            read=lambda reply, aspect=aspect: read_one(reply, aspect, response.text),  # type: ignore[misc]
            schema=SCHEMA,
        )


def read_one(reply: Reply, aspect: Aspect, response: str) -> Verdicts | Unusable:
    """Read the verdict on one aspect."""
    found = read_object(reply, *_VERDICT)
    if isinstance(found, Unusable):
        return found
    verdict = _verdict(found, aspect, response)
    return verdict if isinstance(verdict, Unusable) else (verdict,)


def read_all(reply: Reply, rubric: Sequence[Aspect], response: str) -> Verdicts | Unusable:
    """Read one verdict per aspect, in any order; a missing or doubled one spoils them all."""
    found = read_object(reply, "verdicts")
    if isinstance(found, Unusable):
        return found
    each = found["verdicts"] if isinstance(found["verdicts"], list) else []
    by_number = {whole_number_in(one, "number", 1, len(rubric)): one for one in each if isinstance(one, Mapping)}
    if len(each) != len(rubric) or by_number.keys() != set(range(1, len(rubric) + 1)):
        return Unusable(UNREADABLE, f"it must hold one verdict for each number from 1 to {len(rubric)}.")
    verdicts = [_verdict(by_number[number], aspect, response) for number, aspect in enumerate(rubric, 1)]
    unusable = [verdict for verdict in verdicts if isinstance(verdict, Unusable)]
    return unusable[0] if unusable else tuple(v for v in verdicts if isinstance(v, AspectVerdict))


def schema_for_all(count: int) -> dict[str, Json]:
    """Return the JSON schema of verdicts on that many aspects."""
    number = {"number": {"type": "integer", "minimum": 1, "maximum": count}}
    one = {**SCHEMA, "properties": {**number, **_VERDICT}, "required": ["number", *_VERDICT]}
    return {
        "type": "object",
        "properties": {"verdicts": {"type": "array", "items": one, "minItems": count, "maxItems": count}},
        "required": ["verdicts"],
        "additionalProperties": False,
    }


def faults_of(draft: Draft) -> list[Fault]:
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


def _verdict(found: Mapping[str, Json], aspect: Aspect, response: str) -> AspectVerdict | Unusable:
    score = whole_number_in(found, "score", 0, TOP_SCORE)
    if score is None:
        return Unusable(UNREADABLE, "the score must be 0, 1 or 2.")
    evidence, reason = text_in(found, "evidence"), text_in(found, "reason")
    if score and not is_quote(evidence, [response]):
        detail = f"the evidence “{cut(evidence)}” does not stand in the response. Copy some words of it exactly."
        return Unusable(NOT_QUOTED, detail)
    return AspectVerdict(aspect=aspect.aspect, score=score, evidence=evidence if score else "", reason=reason)


def _settle(draft: Draft, answers: Mapping[str, Sequence[Answer[Verdicts]]]) -> Checked:
    """Put the new verdicts beside the responses; one that could not be had is a fault of its own."""
    faults = []
    for name in SIDES:
        missing = [answer for answer in answers[name] if answer.value is None]
        for answer in missing:
            broke = answer.reason in BROKEN
            detail = answer.detail if broke else f"The judge's verdict could not be used: {answer.detail}"
            reason, told = (answer.reason, "") if broke else (NO_VERDICT, NOT_JUDGED)
            faults.append(Fault(reason=reason, side=name, detail=detail, told=told))
        if answers[name] and not missing:
            verdicts = tuple(verdict for answer in answers[name] for verdict in answer.value or ())
            draft = draft.with_side(name, replace(draft.side(name), verdicts=verdicts))
    if not faults:
        faults = faults_of(draft)
    return Checked(draft=draft, faults=tuple(sorted(faults, key=lambda fault: fault.reason not in BROKEN)))


def _prompt_one(draft: Draft, aspect: Aspect, response: str, problem: str) -> Prompt:
    template = load_template(ONE).require("question", "aspect", "reason", "response", "problem", answer="json")
    return filled(
        template,
        question=draft.item.question,
        aspect=aspect.aspect,
        reason=aspect.reason,
        response=response,
        problem=problem,
    )


def _prompt_all(draft: Draft, response: str, problem: str) -> Prompt:
    template = load_template(ALL).require("question", "aspects", "response", "problem", answer="json")
    aspects = "\n".join(f"{number}. {describe(aspect)}" for number, aspect in enumerate(draft.item.rubric, 1))
    return filled(template, question=draft.item.question, aspects=aspects, response=response, problem=problem)


def _row(checked: Checked) -> Row:
    draft = checked.draft
    return stage_row(
        draft.item,
        draft.round,
        ok=not checked.faults,
        faults=[{"reason": fault.reason, "detail": fault.detail, "side": fault.side} for fault in checked.faults],
        **{name: [_verdict_row(verdict) for verdict in draft.side(name).verdicts] for name in SIDES},
    )


def _verdict_row(verdict: AspectVerdict) -> dict[str, Json]:
    return {
        "aspect": verdict.aspect,
        "score": verdict.score,
        "evidence": verdict.evidence,
        "reason": verdict.reason,
    }
