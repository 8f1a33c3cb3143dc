"""What a reward model makes of a pool: one score per answer, with the user's own profile and with another's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prbench.bon.pool import Pool
from prbench.bon.questions import Question, places_of
from prbench.bon.rows import RowFile
from prbench.context import KINDS, Ask, ContextMaker, fit_for, names_of, oracle_context
from prbench.errors import UsageError
from prbench.reward_models.base import Loaded, PairJudge, RewardModel
from prbench.reward_models.spec import Spec
from prbench.runs import run_id
from prbench.schema import ContextKind, Json, Probe, Problem, RewardInput, Score, User, UserContext
from prbench.walk import Progress

SCORES = "scores.jsonl"
PROBES = (Probe.OWN, Probe.SWAP)
FOLDER_KINDS = ("blend", "planner", "summary")  # of models that are a folder, however its path looks
CONTEXT = "context"  # the option of a spec that says what this model may know


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One question under one probe, with what the model gets to see of the user."""

    question: Question
    probe: Probe
    user: UserContext


def split_context(spec: str, default: str) -> tuple[str, str]:
    """Take `context=…` off a spec's options: `head:DIR?context=none` is `head:DIR` with the context none."""
    head, mark, tail = spec.rpartition("?")
    parts = tail.split("&") if mark else []
    named = [part.partition("=")[2] for part in parts if part.partition("=")[0] == CONTEXT]
    if not named:
        return spec, default
    if len(named) > 1 or named[0] not in KINDS:
        raise UsageError(f"{spec}: context={named[-1]}: name one of {', '.join(KINDS)}, once.")
    rest = [part for part in parts if part.partition("=")[0] != CONTEXT]
    return (f"{head}?{'&'.join(rest)}" if rest else head), named[0]


def refuse_missing_folder(spec: Spec) -> None:
    """Refuse a path where nothing is; what may be a hub id or an address is for the loader to find out."""
    for target in spec.target.split(",") if spec.kind == "implicit" else [spec.target]:
        place = target.removeprefix("hf:").removeprefix("local:")
        is_path = spec.kind in FOLDER_KINDS or place.startswith(("/", "./", "../"))
        if is_path and not Path(place).exists():
            raise UsageError(f"{spec.text}: there is no {place}. Check the path.")


def refuse_judges(loaded: Loaded) -> RewardModel:
    """Return the model if it can score a single answer."""
    if isinstance(loaded.model, PairJudge) and not isinstance(loaded.model, RewardModel):
        raise UsageError(f"{loaded.spec} only compares, and Best-of-N needs a score per answer. Use rating:… instead.")
    assert isinstance(loaded.model, RewardModel)
    return loaded.model


def score_pool(
    pool: Pool, questions: Sequence[Question], contender: Contender, *, seed: int, progress: Progress | None = None
) -> Scores:
    """Score what has no score yet, all answers to a question in one call, and return all scores.

    A score that failed is tried again by the next command; one that cannot be had is not.
    """
    model = refuse_judges(contender.loaded)
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
    with RowFile(pool.folder / "scores" / name, SCORES, config, keys=("id", "probe")) as file:
        for done, rows in _score(pool, answered, contender, model, file):
            file.append(rows)
            if progress:
                progress(done, len(answered))
        file.settle(places_of(questions))
        return _read(name, answered, contender, file)


def _score(
    pool: Pool, questions: Sequence[Question], contender: Contender, model: RewardModel, file: RowFile
) -> Iterator[tuple[int, list[dict[str, Json]]]]:
    """Yield the rows of one step after the other. Steps are cut by position, so a resumed run cuts them alike."""
    step = max(1, 2 * contender.loaded.items_per_step // pool.n)
    for start in range(0, len(questions), step):
        some = questions[start : start + step]
        wanted = [
            (question, probe)
            for question in some
            for probe in contender.probes
            if not _is_final(file.rows.get((question.id, probe.value)))
            and (probe is Probe.OWN or question.donor is not None)
        ]
        if wanted:
            asked = _with_contexts(wanted, pool, contender)
            yield start + len(some), _rows(asked, pool, model)


def _with_contexts(wanted: Sequence[tuple[Question, Probe]], pool: Pool, contender: Contender) -> list[_Asked]:
    """Give each question its context, cut to the model's window; all answers to a question get the same one."""
    return [
        _Asked(
            question=question,
            probe=probe,
            user=fit_for(
                contender.loaded, user, question=question.example.question, responses=pool.answers[question.id]
            ),
        )
        for (question, probe), user in zip(wanted, _contexts(wanted, contender.maker), strict=True)
    ]


def _contexts(wanted: Sequence[tuple[Question, Probe]], maker: ContextMaker) -> list[UserContext]:
    if maker.kind == ContextKind.ORACLE:
        return [oracle_context(question.example) for question, _ in wanted]
    return maker.contexts(
        [
            Ask(
                user=_shown(question, probe),
                question=question.example.question,
                under_test=names_of(question.example),
                owner=question.example.user.id,
            )
            for question, probe in wanted
        ]
    )


def _shown(question: Question, probe: Probe) -> User:
    shown = question.example.user if probe is Probe.OWN else question.donor
    assert shown is not None, "questions without a donor are not asked under the swap probe"
    return shown


def _rows(asked: Sequence[_Asked], pool: Pool, model: RewardModel) -> list[dict[str, Json]]:
    """Score each distinct input once: equal answers, and profiles that leave the same context, cost nothing."""
    ready = [one for one in asked if not one.user.problem]
    inputs = [_input(one.question, one.user, text) for one in ready for text in pool.answers[one.question.id]]
    unique = list(dict.fromkeys(inputs))
    given = model.score(unique) if unique else []
    if len(given) != len(unique):
        raise UsageError(f"The model gave {len(given)} scores to {len(unique)} inputs. It must give one each.")
    found = dict(zip(unique, given, strict=True))
    rows = []
    for one in asked:
        problem = Score(value=None, problem=one.user.problem, detail=one.user.detail)
        texts = pool.answers[one.question.id]
        scores = [problem if one.user.problem else found[_input(one.question, one.user, text)] for text in texts]
        rows.append(_row(one, scores))
    return rows


def _row(one: _Asked, scores: Sequence[Score]) -> dict[str, Json]:
    bad = next((score for score in scores if score.value is None), None)
    return {
        "id": one.question.id,
        "user_id": one.question.example.user.id,
        "probe": one.probe.value,
        "scores": [score.value for score in scores],
        "reason": bad.problem.value if bad else "",
        "detail": bad.detail if bad else "",
        "posts_used": one.user.used,
        "posts_dropped": one.user.dropped + one.user.truncated_posts,
    }


def _is_final(row: Mapping[str, Json] | None) -> bool:
    """True for a row that another try would not change."""
    return row is not None and row["reason"] != Problem.FAILED.value


def _read(name: str, questions: Sequence[Question], contender: Contender, file: RowFile) -> Scores:
    values: dict[Probe, dict[str, tuple[float, ...]]] = {probe: {} for probe in contender.probes}
    missing: dict[Probe, dict[str, str]] = {probe: {} for probe in contender.probes}
    for question in questions:
        for probe in contender.probes:
            row = file.rows.get((question.id, probe.value))
            if row is None:
                missing[probe][question.id] = "no other user"
            elif row["reason"]:
                missing[probe][question.id] = row["reason"]
            else:
                values[probe][question.id] = tuple(row["scores"])
    return Scores(id=name, values=values, missing=missing)


def _input(question: Question, user: UserContext, answer: str) -> RewardInput:
    return RewardInput(question=question.example.question, user=user, response=answer)
