"""What reward models and a judge make of a pool: scores and grades of every answer, kept beside the pool."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from prbench.backends.own_code import plain_identity
from prbench.context import ContextMaker
from prbench.downstream.best_of_n.pool import Pool, PoolQuestion, place_in
from prbench.evaluation.score import PendingItem, prepare, score_rows
from prbench.judging import Judge, grades_of, name_of
from prbench.reward_models.base import LoadedModel, require_scores
from prbench.runs import Layout, RowKey, RunConfig, RunStore, is_retried, run_id
from prbench.runs.files import GRADES as GRADES_KIND
from prbench.runs.files import SCORES as SCORES_KIND
from prbench.schema import Json, Probe, Progress, gravest

SCORES, GRADES = "scores.jsonl", "grades.jsonl"
SCORES_LAYOUT = Layout(kind=SCORES_KIND, made=(SCORES,))
GRADES_LAYOUT = Layout(kind=GRADES_KIND, made=(GRADES,))
WHO = "Best-of-N"  # needs a score for each answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelEntry:
    """A reward model, and what it may know of the user."""

    name: str  # as on the command line
    loaded: LoadedModel
    maker: ContextMaker

    @property
    def probes(self) -> tuple[Probe, ...]:
        """Who knows nothing of users has no other user to be shown, and a rubric belongs to its question."""
        return (Probe.OWN, Probe.SWAP) if self.maker.kind in ("profile", "plan") else (Probe.OWN,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The scores of one model, by probe and question; questions without all of them are counted, not guessed."""

    id: str
    values: Mapping[Probe, Mapping[str, tuple[float, ...]]]
    missing: Mapping[Probe, Mapping[str, str]]  # question id -> why


def score_pool(
    pool: Pool,
    questions: Sequence[PoolQuestion],
    entry: RewardModelEntry,
    *,
    seed: int,
    progress: Progress | None = None,
) -> Scores:
    """Score what has no score yet, all answers to a question in one call, and return all scores.

    A score of `RETRIED` is tried again by the next command; one that cannot be had is not.
    """
    require_scores(entry.loaded, WHO)
    config: dict[str, Json] = {
        "pool": pool.id,
        "model": entry.loaded.spec,
        "model_identity": dict(entry.loaded.identity),
        "template_hash": entry.loaded.template_hash,
        "context": dict(entry.maker.identity),
        "seed": seed,
    }
    answered = [question for question in questions if question.id in pool.answers]
    name = run_id(config)
    with RunStore.open(pool.folder / "scores" / name, SCORES_LAYOUT, RunConfig(config=config)) as run:
        log = run.rows(SCORES, key=("id", "probe"))
        for done, rows in _score_batches(pool, answered, entry, log.completed(retry=is_retried)):
            log.append(rows)
            if progress:
                progress(done, len(answered))
        log.compact(place_in(questions))
        found = log.read()
    values: dict[Probe, dict[str, tuple[float, ...]]] = {probe: {} for probe in entry.probes}
    missing: dict[Probe, dict[str, str]] = {probe: {} for probe in entry.probes}
    for question in answered:
        for probe in entry.probes:
            row = found.get((question.id, probe.value))
            if row is None:
                missing[probe][question.id] = "no other user"
            elif row["reason"]:
                missing[probe][question.id] = row["reason"]
            else:
                values[probe][question.id] = tuple(row["scores"])
    return Scores(id=name, values=values, missing=missing)


def _score_batches(
    pool: Pool, questions: Sequence[PoolQuestion], entry: RewardModelEntry, final: AbstractSet[RowKey]
) -> Iterator[tuple[int, list[dict[str, Json]]]]:
    """Yield the rows of one batch after the other. Batches are cut by position, so a resumed run cuts them alike."""
    step = max(1, 2 * entry.loaded.items_per_step // pool.n)
    for start in range(0, len(questions), step):
        batch = questions[start : start + step]
        pending = [
            PendingItem(example=question.example, probe=probe, user=user, responses=pool.answers[question.id])
            for question in batch
            for probe in entry.probes
            if (question.id, probe.value) not in final
            and (user := question.example.user if probe is Probe.OWN else question.donor) is not None
        ]
        rows: list[dict[str, Json]] = []
        for scored in score_rows(prepare(pending, entry.maker, entry.loaded), entry.loaded) if pending else []:
            item, worst = scored.item, gravest(score for score in scored.scores if score.value is None)
            rows.append(
                {
                    "id": item.example.id,
                    "user_id": item.example.user.id,
                    "probe": item.probe.value,
                    "scores": [score.value for score in scored.scores],
                    "reason": worst.problem.value if worst else "",
                    "detail": worst.detail if worst else "",
                    "posts_used": item.user.used,
                    "posts_dropped": item.user.dropped + item.user.truncated_posts,
                }
            )
        if rows:
            yield start + len(batch), rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Grades:
    """The grades of a pool, by question; questions without all of them are counted, not guessed."""

    id: str
    span: tuple[float, float]
    values: Mapping[str, tuple[float, ...]]
    quality: Mapping[str, tuple[float, ...]] | None
    missing: Mapping[str, str]  # question id -> why


def grade_pool(
    pool: Pool, questions: Sequence[PoolQuestion], judge: Judge, *, progress: Progress | None = None
) -> Grades:
    """Grade what has no grade yet, question by question; failed grades are tried again by the next command."""
    config: dict[str, Json] = {"pool": pool.id, "judge": plain_identity(name_of(judge), judge.identity)}
    name = run_id(config)
    answered = [question for question in questions if question.id in pool.answers]
    with RunStore.open(pool.folder / "grades" / name, GRADES_LAYOUT, RunConfig(config=config)) as run:
        log = run.rows(GRADES)
        graded = log.completed(retry=lambda row: bool(row["problem"]))
        for done, question in enumerate(answered, 1):
            if (question.id,) not in graded:
                answers = pool.answers[question.id]
                given = grades_of(name_of(judge), judge.grade(question.example, answers), count=len(answers))
                problem = next((grade.problem or "no grade" for grade in given if grade.value is None), "")
                log.append(
                    [
                        {
                            "id": question.id,
                            "user_id": question.example.user.id,
                            "values": [grade.value for grade in given],
                            "quality": [grade.quality for grade in given],
                            "problem": problem,
                        }
                    ]
                )
            if progress:
                progress(done, len(answered))
        log.compact(place_in(questions))
        found = log.read()
    rows = [found[question.id,] for question in answered]
    good = [row for row in rows if not row["problem"]]
    has_quality = all(None not in row["quality"] for row in good)
    return Grades(
        id=name,
        span=judge.span,
        values={row["id"]: tuple(row["values"]) for row in good},
        quality={row["id"]: tuple(row["quality"]) for row in good} if has_quality else None,
        missing={row["id"]: row["problem"] for row in rows if row["problem"]},
    )
