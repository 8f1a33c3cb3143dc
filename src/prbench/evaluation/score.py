"""The one place where a model is asked: `score_rows`, for n responses to each question."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeVar

from prbench.context import fit_for
from prbench.errors import UsageError
from prbench.evaluation.items import PreparedItem
from prbench.evaluation.settings import EvalSettings
from prbench.reward_models.base import LoadedModel, PairJudge, RewardModel
from prbench.reward_models.view import DisturbedReward
from prbench.schema import Comparison, PairInput, Probe, Problem, RewardInput, Score, UserContext

Input = TypeVar("Input", bound=Hashable)
Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class ScoredRow:
    """One item with what the model said: a score per response or, of a model that compares, its picks."""

    item: PreparedItem
    scores: tuple[Score, ...] = ()
    comparisons: tuple[tuple[bool, Comparison], ...] = ()  # whether the first response stood first, and the pick


def score_rows(
    prepared: Sequence[PreparedItem], loaded: LoadedModel, settings: EvalSettings | None = None
) -> list[ScoredRow]:
    """Ask the model about every item, and return one row each, in the same order.

    Equal inputs (a probe that changes nothing, answers that recur) are asked once. What has no context to be asked
    with is not asked, and its scores say why. An item whose context was not cut to the window beforehand is asked
    once more where that turns out: posts are dropped then, and a response never is.
    """
    if isinstance(loaded.model, PairJudge):
        return _compare(prepared, loaded.model, settings or EvalSettings())
    rows = _score(prepared, loaded.model)
    too_long = [place for place, row in enumerate(rows) if any(s.problem is Problem.TOO_LONG for s in row.scores)]
    shorter = {
        place: replace(item, user=user)
        for place in too_long
        if (item := prepared[place]).user.used and (user := _fitted(item, loaded)) != item.user and not user.problem
    }
    for place, row in zip(shorter, _score(list(shorter.values()), loaded.model), strict=True):
        rows[place] = row
    return rows


def _fitted(item: PreparedItem, loaded: LoadedModel) -> UserContext:
    return fit_for(loaded, item.user, question=item.example.question, responses=item.responses)


def _score(prepared: Sequence[PreparedItem], model: RewardModel) -> list[ScoredRow]:
    asked = [
        (RewardInput(question=item.example.question, user=item.user, response=response), item)
        for item in prepared
        if not item.user.problem
        for response in item.responses
    ]
    if isinstance(model, DisturbedReward):
        # A user gets the same noise in every command, however many posts the window holds.
        whose = [item.example.user.id if item.probe is Probe.OWN else item.user.text for _, item in asked]
        scores = iter(_each_once(model.score_for, [(one, who) for (one, _), who in zip(asked, whose, strict=True)]))
    else:
        scores = iter(_each_once(model.score, [one for one, _ in asked]))
    rows = []
    for item in prepared:
        unasked = Score(value=None, problem=item.user.problem, detail=item.user.detail)
        found = tuple(unasked if item.user.problem else next(scores) for _ in item.responses)
        rows.append(ScoredRow(item=item, scores=found))
    return rows


def _compare(prepared: Sequence[PreparedItem], judge: PairJudge, settings: EvalSettings) -> list[ScoredRow]:
    """Let a judge compare every pair, in both orders unless one was asked for."""
    plan = [
        (place, first)
        for place, item in enumerate(prepared)
        if not item.user.problem
        for first in _orders(item, settings)
    ]
    picks: list[list[tuple[bool, Comparison]]] = [[] for _ in prepared]
    pairs = [_as_pair(prepared[place], first_comes_first) for place, first_comes_first in plan]
    for (place, first_comes_first), said in zip(plan, _each_once(judge.prefer, pairs), strict=True):
        picks[place].append((first_comes_first, said))
    return [ScoredRow(item=item, comparisons=tuple(some)) for item, some in zip(prepared, picks, strict=True)]


def _orders(item: PreparedItem, settings: EvalSettings) -> tuple[bool, ...]:
    first = chosen_comes_first(item.example.id, seed=settings.seed)
    return (first, not first) if settings.orders == "both" else (first,)


def chosen_comes_first(example_id: str, *, seed: int) -> bool:
    """One fixed coin per example: adding or dropping rows never reshuffles the others."""
    return sha256(f"{seed}:{example_id}".encode()).digest()[0] % 2 == 0


def _as_pair(item: PreparedItem, first_comes_first: bool) -> PairInput:
    if len(item.responses) != 2:
        raise UsageError(f"The model only compares pairs, and {item.example.id} has {len(item.responses)} responses.")
    first, second = item.responses if first_comes_first else item.responses[::-1]
    return PairInput(question=item.example.question, user=item.user, first=first, second=second)


def _each_once(ask: Callable[[Sequence[Input]], list[Answer]], inputs: Sequence[Input]) -> list[Answer]:
    """Ask about every different input once, and hand the answers out in the order of the inputs."""
    unique = list(dict.fromkeys(inputs))
    if not unique:
        return []
    answers = ask(unique)
    if len(answers) != len(unique):
        raise UsageError(f"The model gave {len(answers)} answers to {len(unique)} inputs. It must give one each.")
    found = dict(zip(unique, answers, strict=True))
    return [found[one] for one in inputs]
