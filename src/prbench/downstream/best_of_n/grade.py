"""What the answers of a pool are truly worth to their users, as a judge says; kept beside the pool."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prbench.backends.own_code import plain_identity
from prbench.downstream.best_of_n.pool import Pool, Rows
from prbench.downstream.best_of_n.questions import Question, place_in
from prbench.judging import Grade, Judge, grades_of, name_of
from prbench.runs import Layout, RunConfig, RunStore, run_id
from prbench.runs.names import GRADES as KIND
from prbench.schema import Json, Progress

GRADES = "grades.jsonl"
LAYOUT = Layout(kind=KIND, made=(GRADES,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grades:
    """The grades of a pool, by question; questions without all of them are counted, not guessed."""

    id: str
    span: tuple[float, float]
    values: Mapping[str, tuple[float, ...]]
    quality: Mapping[str, tuple[float, ...]] | None
    missing: Mapping[str, str]  # question id -> why


def grade_pool(pool: Pool, questions: Sequence[Question], judge: Judge, *, progress: Progress | None = None) -> Grades:
    """Grade what has no grade yet, question by question; failed grades are tried again by the next command."""
    config: dict[str, Json] = {"pool": pool.id, "judge": plain_identity(name_of(judge), judge.identity)}
    name = run_id(config)
    answered = [question for question in questions if question.id in pool.answers]
    with RunStore.open(pool.folder / "grades" / name, LAYOUT, RunConfig(config=config)) as run:
        log = run.rows(GRADES)
        graded = log.completed(retry=lambda row: bool(row["problem"]))
        for done, question in enumerate(answered, 1):
            if (question.id,) not in graded:
                answers = pool.answers[question.id]
                given = judge.grade(question.example, answers)
                log.append([_row(question, grades_of(name_of(judge), given, count=len(answers)))])
            if progress:
                progress(done, len(answered))
        log.compact(place_in(questions))
        return _read(name, answered, judge, log.read())


def _row(question: Question, grades: Sequence[Grade]) -> dict[str, Json]:
    return {
        "id": question.id,
        "user_id": question.example.user.id,
        "values": [grade.value for grade in grades],
        "quality": [grade.quality for grade in grades],
        "problem": next((grade.problem or "no grade" for grade in grades if grade.value is None), ""),
    }


def _read(name: str, questions: Sequence[Question], judge: Judge, found: Rows) -> Grades:
    rows = [found[question.id,] for question in questions]
    good = [row for row in rows if not row["problem"]]
    measured = all(None not in row["quality"] for row in good)
    return Grades(
        id=name,
        span=judge.span,
        values={row["id"]: tuple(row["values"]) for row in good},
        quality={row["id"]: tuple(row["quality"]) for row in good} if measured else None,
        missing={row["id"]: row["problem"] for row in rows if row["problem"]},
    )
