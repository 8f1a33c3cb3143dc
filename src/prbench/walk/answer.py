"""From answers to rows: scores or picks become a verdict, and what could not be read stays visible."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import sha256
from typing import TypeVar

from prbench.errors import UsageError
from prbench.reward_models.base import Loaded, PairJudge, RewardModel
from prbench.schema import (
    NOTHING,
    Comparison,
    Example,
    Json,
    PairInput,
    Pick,
    Problem,
    RatedExample,
    RatedRow,
    RewardInput,
    Row,
    Score,
    Verdict,
    decide,
)
from prbench.walk.ask import Asked
from prbench.walk.settings import EvalSettings

LONGEST_GROUP = 80  # characters; a longer text is no name of a group

Input = TypeVar("Input", bound=Hashable)
Answer = TypeVar("Answer")


def answer(asked: Sequence[Asked], loaded: Loaded, settings: EvalSettings) -> list[Row | RatedRow]:
    """Ask the model, and return one row per item and probe, in order."""
    if isinstance(loaded.model, PairJudge):
        return _judged_rows(asked, loaded.model, settings)
    rows = _rated_rows if isinstance(asked[0].example, RatedExample) else _scored_rows
    return rows(asked, loaded.model)


def _scored_rows(asked: Sequence[Asked], model: RewardModel) -> list[Row | RatedRow]:
    """Score both responses of every pair; equal inputs (a probe that changes nothing) are scored once."""
    ready = [one for one in asked if not one.user.problem]
    inputs = [
        RewardInput(question=one.example.question, user=one.user, response=response)
        for one in ready
        for response in _pair(one)
    ]
    scores = iter(_once(model.score, inputs))
    rows: list[Row | RatedRow] = []
    for one in asked:
        if one.user.problem:
            rows.append(_unasked(one))
            continue
        chosen, rejected = next(scores), next(scores)
        bad = chosen if chosen.value is None else rejected
        rows.append(
            _row(
                one,
                decide(chosen, rejected),
                score_chosen=chosen.value,
                score_rejected=rejected.value,
                problem=bad.problem,
                detail=bad.detail,
                replies=_replies(chosen, rejected),
            )
        )
    return rows


def _replies(chosen: Score, rejected: Score) -> dict[str, str]:
    """Return a rating model's own words, so that every number can be traced to what was said."""
    return {"chosen": chosen.raw, "rejected": rejected.raw} if chosen.raw or rejected.raw else {}


def _judged_rows(asked: Sequence[Asked], judge: PairJudge, settings: EvalSettings) -> list[Row | RatedRow]:
    """Let a judge compare every pair, in both orders unless one was asked for."""
    ready = [one for one in asked if not one.user.problem]
    plan = [(one, first) for one in ready for first in _orders(one.example.id, settings)]
    pairs = [_as_pair(one, chosen_first) for one, chosen_first in plan]
    answers: dict[Asked, list[tuple[bool, Comparison]]] = {}
    for (one, chosen_first), said in zip(plan, _once(judge.prefer, pairs), strict=True):
        answers.setdefault(one, []).append((chosen_first, said))
    return [_judged_row(one, answers.get(one, [])) for one in asked]


def _judged_row(one: Asked, answers: Sequence[tuple[bool, Comparison]]) -> Row:
    if one.user.problem:
        return _unasked(one)
    bad = next((answer for _, answer in answers if answer.pick is Pick.UNREADABLE), None)
    margin = _margin(answers)
    return _row(
        one,
        Verdict.UNREADABLE if bad else _joint_verdict(answers, margin),
        score_chosen=None if margin is None else margin / 2,
        score_rejected=None if margin is None else -margin / 2,
        problem=bad.problem if bad else Problem.NONE,
        detail=bad.detail if bad else "",
        orders=tuple(
            {
                "order": "chosen_first" if chosen_first else "rejected_first",
                "pick": answer.pick.value,
                "reason": answer.problem.value,
                "margin": answer.margin,
                "raw": answer.raw,
            }
            for chosen_first, answer in answers
        ),
    )


def _margin(answers: Sequence[tuple[bool, Comparison]]) -> float | None:
    """Return the mean log-odds for the chosen response over the orders, where the judge gives them."""
    margins = [
        None if answer.margin is None else (answer.margin if chosen_first else -answer.margin)
        for chosen_first, answer in answers
    ]
    known = [margin for margin in margins if margin is not None]
    return sum(known) / len(known) if known and len(known) == len(margins) else None


def _joint_verdict(answers: Sequence[tuple[bool, Comparison]], margin: float | None) -> Verdict:
    """Return what the orders say together: the mean margin decides; without margins, disagreement is a tie."""
    if margin is not None:
        return Verdict.TIE if margin == 0 else (Verdict.CHOSEN if margin > 0 else Verdict.REJECTED)
    votes = 0
    for chosen_first, answer in answers:
        if answer.pick is not Pick.TIE:
            votes += 1 if (answer.pick is Pick.FIRST) == chosen_first else -1
    if votes == 0:
        return Verdict.TIE
    return Verdict.CHOSEN if votes > 0 else Verdict.REJECTED


def _orders(example_id: str, settings: EvalSettings) -> tuple[bool, ...]:
    first = chosen_comes_first(example_id, seed=settings.seed)
    return (first, not first) if settings.orders == "both" else (first,)


def chosen_comes_first(example_id: str, *, seed: int) -> bool:
    """One fixed coin per example: adding or dropping rows never reshuffles the others."""
    return sha256(f"{seed}:{example_id}".encode()).digest()[0] % 2 == 0


def _as_pair(one: Asked, chosen_first: bool) -> PairInput:
    chosen, rejected = _pair(one)
    first, second = (chosen, rejected) if chosen_first else (rejected, chosen)
    return PairInput(question=one.example.question, user=one.user, first=first, second=second)


def _rated_rows(asked: Sequence[Asked], model: RewardModel) -> list[Row | RatedRow]:
    ready = [one for one in asked if not one.user.problem]
    inputs = [
        RewardInput(question=one.example.question, user=one.user, response=_rated(one).response) for one in ready
    ]
    scores = iter(_once(model.score, inputs))
    rows: list[Row | RatedRow] = []
    for one in asked:
        score = (
            next(scores)
            if not one.user.problem
            else Score(value=None, problem=one.user.problem, detail=one.user.detail)
        )
        rows.append(
            RatedRow(
                id=one.example.id,
                probe=one.probe,
                user_id=one.example.user.id,
                category=one.example.category,
                rating=_rated(one).rating,
                score=score.value,
                problem=score.problem,
                detail=score.detail,
                raw=score.raw,
                posts_used=one.user.used,
                posts_dropped=one.user.dropped + one.user.truncated_posts,
                groups=_groups(one.example),
            )
        )
    return rows


def _rated(one: Asked) -> RatedExample:
    assert isinstance(one.example, RatedExample), "a store holds either pairs or rated rows"
    return one.example


def _pair(one: Asked) -> tuple[str, str]:
    assert isinstance(one.example, Example), "a store holds either pairs or rated rows"
    return one.example.chosen, one.example.rejected


def _unasked(one: Asked) -> Row:
    return _row(one, Verdict.UNREADABLE, problem=one.user.problem, detail=one.user.detail)


def _row(
    one: Asked,
    verdict: Verdict,
    *,
    score_chosen: float | None = None,
    score_rejected: float | None = None,
    problem: Problem = Problem.NONE,
    detail: str = "",
    orders: tuple[Mapping[str, Json], ...] = (),
    replies: Mapping[str, str] = NOTHING,
) -> Row:
    return Row(
        id=one.example.id,
        probe=one.probe,
        user_id=one.example.user.id,
        category=one.example.category,
        verdict=verdict,
        score_chosen=score_chosen,
        score_rejected=score_rejected,
        problem=problem,
        detail=detail,
        orders=orders,
        replies=replies,
        posts_used=one.user.used,
        posts_dropped=one.user.dropped + one.user.truncated_posts,
        groups=_groups(one.example),
    )


def _groups(example: Example | RatedExample) -> dict[str, Json]:
    """Return the plain facts of a row, so that any of them can be grouped by later, whatever was asked for now."""
    facts: dict[str, Json] = {"split": example.split} if example.split else {}
    return facts | {name: value for name, value in example.meta.items() if _is_plain(value)}


def _is_plain(value: Json) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST_GROUP)


def _once(ask: Callable[[Sequence[Input]], list[Answer]], inputs: Sequence[Input]) -> list[Answer]:
    """Ask about every different input once, and hand the answers out in the order of the inputs."""
    unique = list(dict.fromkeys(inputs))
    if not unique:
        return []
    answers = ask(unique)
    if len(answers) != len(unique):
        raise UsageError(f"The model gave {len(answers)} answers to {len(unique)} inputs. It must give one each.")
    found = dict(zip(unique, answers, strict=True))
    return [found[one] for one in inputs]
