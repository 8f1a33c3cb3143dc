"""What a reward model makes of a pool: one score per answer, with the user's own profile and with another's."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from prbench.context import ContextMaker
from prbench.downstream.best_of_n.pool import Pool, Rows
from prbench.downstream.best_of_n.questions import Question, place_in
from prbench.errors import UsageError
from prbench.evaluation.items import PendingItem, prepare
from prbench.evaluation.score import ScoredRow, score_rows
from prbench.registry import LLMS, MODELS
from prbench.reward_models.base import Loaded, require_scores
from prbench.runs import Layout, RowKey, RunConfig, RunStore, is_retried, run_id
from prbench.runs.names import SCORES as KIND
from prbench.schema import Json, Probe, Progress, gravest
from prbench.specs import Spec, kind_of, parse_spec

SCORES = "scores.jsonl"
LAYOUT = Layout(kind=KIND, made=(SCORES,))
PROBES = (Probe.OWN, Probe.SWAP)
WHO = "Best-of-N"  # needs a score for each answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelEntry:
    """A reward model, and what it may know of the user."""

    name: str  # as on the command line
    loaded: Loaded
    maker: ContextMaker

    @property
    def probes(self) -> tuple[Probe, ...]:
        """Who knows nothing of users has no other user to be shown, and a rubric belongs to its question."""
        return PROBES if self.maker.kind in ("profile", "plan") else (Probe.OWN,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The scores of one model, by probe and question; questions without all of them are counted, not guessed."""

    id: str
    values: Mapping[Probe, Mapping[str, tuple[float, ...]]]
    missing: Mapping[Probe, Mapping[str, str]]  # question id -> why


def check_folder_exists(spec: Spec) -> None:
    """Refuse a path where nothing is; what may be a hub id or an address is for the loader to find out."""
    for target in spec.target.split(",") if spec.kind == "implicit" else [spec.target]:
        place = parse_spec(target, LLMS).target if kind_of(target) in LLMS.names else target
        is_path = MODELS.find(spec.kind).is_folder or place.startswith(("/", "./", "../"))
        if is_path and not Path(place).exists():
            raise UsageError(f"{spec.text}: there is no {place}. Check the path.")


def score_pool(
    pool: Pool,
    questions: Sequence[Question],
    contender: RewardModelEntry,
    *,
    seed: int,
    progress: Progress | None = None,
) -> Scores:
    """Score what has no score yet, all answers to a question in one call, and return all scores.

    A score of `RETRIED` is tried again by the next command; one that cannot be had is not.
    """
    require_scores(contender.loaded, WHO)
    config: dict[str, Json] = {
        "pool": pool.id,
        "model": contender.loaded.spec,
        "model_identity": dict(contender.loaded.identity),
        "template_hash": contender.loaded.template_hash,
        "context": dict(contender.maker.identity),
        "seed": seed,
    }
    name = run_id(config)
    answered = [question for question in questions if question.id in pool.answers]
    with RunStore.open(pool.folder / "scores" / name, LAYOUT, RunConfig(config=config)) as run:
        log = run.rows(SCORES, key=("id", "probe"))
        for done, rows in _score(pool, answered, contender, log.completed(retry=is_retried)):
            log.append(rows)
            if progress:
                progress(done, len(answered))
        log.compact(place_in(questions))
        return _read(name, answered, contender, log.read())


def _score(
    pool: Pool, questions: Sequence[Question], contender: RewardModelEntry, final: AbstractSet[RowKey]
) -> Iterator[tuple[int, list[dict[str, Json]]]]:
    """Yield the rows of one step after the other. Steps are cut by position, so a resumed run cuts them alike."""
    step = max(1, 2 * contender.loaded.items_per_step // pool.n)
    for start in range(0, len(questions), step):
        some = questions[start : start + step]
        pending = [
            PendingItem(example=question.example, probe=probe, user=shown, responses=pool.answers[question.id])
            for question in some
            for probe in contender.probes
            if (question.id, probe.value) not in final
            and (shown := question.example.user if probe is Probe.OWN else question.donor) is not None
        ]
        if pending:
            scored = score_rows(prepare(pending, contender.maker, contender.loaded), contender.loaded)
            yield start + len(some), [_row(each) for each in scored]


def _row(scored: ScoredRow) -> dict[str, Json]:
    item, scores = scored.item, scored.scores
    bad = gravest(score for score in scores if score.value is None)
    return {
        "id": item.example.id,
        "user_id": item.example.user.id,
        "probe": item.probe.value,
        "scores": [score.value for score in scores],
        "reason": bad.problem.value if bad else "",
        "detail": bad.detail if bad else "",
        "posts_used": item.user.used,
        "posts_dropped": item.user.dropped + item.user.truncated_posts,
    }


def _read(name: str, questions: Sequence[Question], contender: RewardModelEntry, found: Rows) -> Scores:
    values: dict[Probe, dict[str, tuple[float, ...]]] = {probe: {} for probe in contender.probes}
    missing: dict[Probe, dict[str, str]] = {probe: {} for probe in contender.probes}
    for question in questions:
        for probe in contender.probes:
            row = found.get((question.id, probe.value))
            if row is None:
                missing[probe][question.id] = "no other user"
            elif row["reason"]:
                missing[probe][question.id] = row["reason"]
            else:
                values[probe][question.id] = tuple(row["scores"])
    return Scores(id=name, values=values, missing=missing)
