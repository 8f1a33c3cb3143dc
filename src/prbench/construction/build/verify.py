"""Stage `verify`: the judge looks for every aspect of the rubric in both responses, and proves what it finds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from prbench.backends.llm.asking import Answer, Asker, Task, cut
from prbench.construction.build.draft import CHOSEN, REJECTED, SIDES, Checked, Fault, PairDraft
from prbench.construction.build.rows import Row, stage_row
from prbench.judging import TOP_SCORE, AspectVerdict, Rubric, Verdicts, rubric_tasks
from prbench.schema import BROKEN, Json

CHOSEN_LEAST = 1  # every aspect has at least this in the chosen response,
CHOSEN_MEAN = 1.5  # and on average this;
REJECTED_MOST = 0  # no aspect has more in the rejected one
MISSES, WEAK, SERVES, NO_VERDICT = "chosen_misses", "chosen_weak", "rejected_serves", "unreadable_verdict"
NOT_JUDGED = "It could not be judged. Write it anew, in clear and concrete sentences."


@dataclass(frozen=True, slots=True)
class _Place:
    """Which response of which draft a task is about."""

    draft: int
    side: str


def verify(drafts: Sequence[PairDraft], asker: Asker, *, batched: bool) -> tuple[list[Checked], list[Row]]:
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


def tasks_for(draft: PairDraft, name: str, *, batched: bool) -> Iterator[Task[Verdicts]]:
    """Yield what to ask about one response of a draft."""
    item, side = draft.item, draft.side(name)
    rubric = Rubric(id=item.id, owner=item.user.id, question=item.question, aspects=item.rubric)
    return rubric_tasks(rubric, side.text, about=name, number=side.round, batched=batched)


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


def _settle(draft: PairDraft, answers: Mapping[str, Sequence[Answer[Verdicts]]]) -> Checked:
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
