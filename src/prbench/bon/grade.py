"""What the answers of a pool are truly worth to their users: by the lab's instrument, or by a judge of rubrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from prbench.bon.pool import Pool
from prbench.bon.questions import Question, places_of
from prbench.bon.rows import RowFile
from prbench.errors import UsageError
from prbench.lab.gold import GoldInstrument
from prbench.lab.pairs import POINTS
from prbench.runs import run_id
from prbench.schema import Json
from prbench.sentences import sentences_of
from prbench.walk import Progress

GRADES = "grades.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What one answer is worth; `None` with a problem where nobody could tell."""

    value: float | None
    quality: float | None = None  # whoever asks, from 0 to 1; `None` where it is not measured
    problem: str = ""


class Grader(Protocol):
    """Our instrument. It knows what the user wants, and reward models never see what it says."""

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes grades."""
        ...

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest value."""
        ...

    def grade(self, question: Question, answers: Sequence[str]) -> list[Grade]:
        """Return one grade per answer, in the same order."""
        ...


@runtime_checkable
class Choosy(Protocol):
    """A grader that cannot grade every question, and says so before anything is sampled."""

    def check(self, questions: Sequence[Question]) -> None:
        """Refuse questions that it could not grade."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grades:
    """The grades of a pool, by question; questions without all of them are counted, not guessed."""

    id: str
    span: tuple[float, float]
    values: Mapping[str, tuple[float, ...]]
    quality: Mapping[str, tuple[float, ...]] | None
    missing: Mapping[str, str]  # question id -> why


class LabGrader:
    """The lab's own instrument.

    `value` is what `GoldInstrument` says, from -1 to 1: wanted points minus unwanted ones. `quality` is the share of
    an answer that tells a point of the subject at all, each point once: talk beside the subject, rambling and
    repetition lower it, whatever the user wants.
    """

    span = (-1.0, 1.0)

    def __init__(self, instrument: GoldInstrument | None = None) -> None:
        self._instrument = instrument or GoldInstrument()

    @property
    def identity(self) -> Mapping[str, Json]:
        """The instrument's."""
        return {"grader": "lab", **self._instrument.identity, "encoder": "minilm", "quality": 1}

    def grade(self, question: Question, answers: Sequence[str]) -> list[Grade]:
        """Return one grade per answer."""
        subject, wanted = lab_truth(question)
        return [
            Grade(value=self._instrument.value(answer, subject, wanted), quality=self._quality(answer, subject))
            for answer in answers
        ]

    def _quality(self, answer: str, subject: str) -> float:
        sentences = sentences_of(answer)
        told = {point for points in self._instrument.read(sentences, subject) for point in points}
        return len(told) / max(POINTS, len(sentences), len(told))


def lab_truth(question: Question) -> tuple[str, frozenset[str]]:
    """Return the subject of a question of the lab, and the traits that its user wants."""
    meta = question.example.meta
    return str(meta["subject"]), frozenset(meta["wanted"])


def is_of_the_lab(questions: Sequence[Question]) -> bool:
    """True if the truth about every question is known."""
    return all({"subject", "wanted"} <= question.example.meta.keys() for question in questions)


def refuse_without_rubric(questions: Sequence[Question]) -> None:
    """Stop before the work if a judge would have nothing to judge by."""
    bare = next((question for question in questions if not question.example.rubric), None)
    if bare is not None:
        raise UsageError(f"{bare.id}: has no rubric aspects, so a judge has nothing to grade by. Choose other rows.")


def grade_pool(
    pool: Pool, questions: Sequence[Question], grader: Grader, *, progress: Progress | None = None
) -> Grades:
    """Grade what has no grade yet, question by question; failed grades are tried again by the next command."""
    config: dict[str, Json] = {"pool": pool.id, "grader": dict(grader.identity)}
    name = run_id(config)
    answered = [question for question in questions if question.id in pool.answers]
    with RowFile(pool.folder / "grades" / name, GRADES, config) as file:
        for done, question in enumerate(answered, 1):
            row = file.rows.get((question.id,))
            if row is None or row["problem"]:
                file.append([_row(question, grader.grade(question, pool.answers[question.id]))])
            if progress:
                progress(done, len(answered))
        file.settle(places_of(questions))
        return _read(name, answered, grader, file)


def _row(question: Question, grades: Sequence[Grade]) -> dict[str, Json]:
    return {
        "id": question.id,
        "user_id": question.example.user.id,
        "values": [grade.value for grade in grades],
        "quality": [grade.quality for grade in grades],
        "problem": next((grade.problem or "no grade" for grade in grades if grade.value is None), ""),
    }


def _read(name: str, questions: Sequence[Question], grader: Grader, file: RowFile) -> Grades:
    rows = [file.rows[question.id,] for question in questions]
    good = [row for row in rows if not row["problem"]]
    measured = all(None not in row["quality"] for row in good)
    return Grades(
        id=name,
        span=grader.span,
        values={row["id"]: tuple(row["values"]) for row in good},
        quality={row["id"]: tuple(row["quality"]) for row in good} if measured else None,
        missing={row["id"]: row["problem"] for row in rows if row["problem"]},
    )
