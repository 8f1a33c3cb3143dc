"""Do people agree, with each other and with the label, and are both responses equally good?"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from prbench.people.agreement.annotators import AnnotatorSummary, measure_annotators
from prbench.people.agreement.answers import load_answers
from prbench.people.agreement.figures import (
    LabelAgreement,
    Position,
    Quality,
    Reliability,
    Why,
    as_json,
    measure_label,
    measure_position,
    measure_qualities,
    measure_reliability,
)
from prbench.people.agreement.verdict import (
    PanelQuestion,
    QuestionReply,
    Settings,
    ask_preference,
    ask_quality,
    find_caveats,
)
from prbench.schema import Json

__all__ = ["PanelReport", "QuestionReply", "Settings", "agreement", "load_answers"]

NOT_CHOICES = Why("The labels are not chosen, rejected and tie, so they say nothing about the label of a pair.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelReport:
    """All that the answers of a panel say."""

    settings: Settings
    items: int
    answers: int
    people: int
    judges: int
    are_choices: bool
    notes: tuple[str, ...]
    questions: tuple[PanelQuestion, PanelQuestion]
    caveats: tuple[str, ...]
    label: LabelAgreement | Why
    position: Position
    qualities: tuple[Quality, ...]
    reliability: Reliability
    annotators: tuple[AnnotatorSummary, ...]

    def as_json(self) -> dict[str, Json]:
        """Return everything for machines; a figure that does not exist is null, with the reason beside it."""
        return {spec.name: as_json(getattr(self, spec.name)) for spec in fields(self)}


def agreement(
    files: Sequence[Path | str], *, judge_runs: Sequence[Path | str] = (), settings: Settings | None = None
) -> PanelReport:
    """Measure the answers in some files, with the verdicts of runs beside them.

        report = agreement(["answers.jsonl"], judge_runs=["runs/ID"])

    The two questions are asked of people, not of judges.
    """
    settings = settings or Settings()
    answers = load_answers([Path(file) for file in files], judge_runs=[Path(run) for run in judge_runs])
    people = answers.people
    label: LabelAgreement | Why = NOT_CHOICES
    if answers.are_choices:
        label = measure_label(people, level=settings.level, seed=settings.seed)
    qualities = measure_qualities(people, margin=settings.margin, alpha=settings.alpha)
    position = measure_position(people, seed=settings.seed)
    reliability = measure_reliability(answers, seed=settings.seed)
    annotators = measure_annotators(answers, seed=settings.seed)
    caveats: tuple[str, ...] = ()
    if answers.are_choices:
        caveats = find_caveats(people, settings, position=position, reliability=reliability, annotators=annotators)
    return PanelReport(
        settings=settings,
        items=len({row.item for row in people}),
        answers=len(people),
        people=len({row.annotator for row in people}),
        judges=len({row.annotator for row in answers.judges}),
        are_choices=answers.are_choices,
        notes=answers.notes,
        questions=(ask_preference(label, settings), ask_quality(qualities, settings)),
        caveats=caveats,
        label=label,
        position=position,
        qualities=qualities,
        reliability=reliability,
        annotators=annotators,
    )
