"""Do people agree, with each other and with the label, and are both responses equally good?"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from prbench.people.agreement.annotators import Annotator, measure_annotators
from prbench.people.agreement.answers import Answer, Answers, load_answers
from prbench.people.agreement.caveats import find_caveats
from prbench.people.agreement.figures import Why, as_json
from prbench.people.agreement.label import LabelAgreement, Position, measure_label, measure_position
from prbench.people.agreement.quality import Quality, measure_qualities
from prbench.people.agreement.reliability import Reliability, measure_reliability
from prbench.people.agreement.verdict import Question, Reply, Settings, ask_preference, ask_quality
from prbench.schema import Json

__all__ = ["Answer", "Answers", "Panel", "Question", "Reply", "Settings", "agreement", "load_answers", "measure"]

NOT_CHOICES = Why("The labels are not chosen, rejected and tie, so they say nothing about the label of a pair.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """All that the answers of a panel say."""

    settings: Settings
    items: int
    answers: int
    people: int
    judges: int
    are_choices: bool
    notes: tuple[str, ...]
    questions: tuple[Question, Question]
    caveats: tuple[str, ...]
    label: LabelAgreement | Why
    position: Position
    qualities: tuple[Quality, ...]
    reliability: Reliability
    annotators: tuple[Annotator, ...]

    def as_json(self) -> dict[str, Json]:
        """Return everything for machines; a figure that does not exist is null, with the reason beside it."""
        return {spec.name: as_json(getattr(self, spec.name)) for spec in fields(self)}


def agreement(
    files: Sequence[Path | str], *, judge_runs: Sequence[Path | str] = (), settings: Settings | None = None
) -> Panel:
    """Measure the answers in some files, with the verdicts of runs beside them."""
    answers = load_answers([Path(file) for file in files], judge_runs=[Path(run) for run in judge_runs])
    return measure(answers, settings or Settings())


def measure(answers: Answers, settings: Settings) -> Panel:
    """Return every figure, and the answers to the two questions. Those are asked of people, not of judges."""
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
    return Panel(
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
