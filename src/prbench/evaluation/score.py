"""One item's way through an evaluation: who is shown, what the model is asked, what it says, and the row of that.

`score_rows` is the one place where a model is asked, for n responses to each question.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar, cast

from prbench.context import Ask, ContextMaker, fit_for, leak_keys, oracle_context
from prbench.data import ExampleStore
from prbench.data.rows import hash64
from prbench.errors import UsageError
from prbench.evaluation.settings import EvalSettings
from prbench.reward_models.base import LoadedModel, PairJudge, RewardModel
from prbench.reward_models.view import DisturbedReward
from prbench.schema import (
    Comparison,
    ContextKind,
    Example,
    Json,
    PairInput,
    Pick,
    Probe,
    Problem,
    RatedExample,
    RatedRow,
    RewardInput,
    Row,
    Score,
    User,
    UserContext,
    Verdict,
    decide,
    gravest,
)

log = logging.getLogger("prbench")
WORDS_OF = 50  # items whose words the model's tokenizer should know
UNKNOWN_TOLD, UNKNOWN_REFUSED = 0.1, 0.9  # shares of their tokens


@dataclass(frozen=True, kw_only=True)
class PendingItem:
    """One item under one probe that has no row yet, and the user whom the model may know; it travels to workers."""

    example: Example | RatedExample
    probe: Probe
    user: User | None
    responses: tuple[str, ...]  # 1: a rated row; 2: a pair; n: a pool


@dataclass(frozen=True, kw_only=True)
class PreparedItem:
    """One item under one probe, with what the model gets to see of the user."""

    example: Example | RatedExample
    probe: Probe
    user: UserContext
    responses: tuple[str, ...]


def can_swap(user: User, donor: User | None, context: str, *, labeled: bool = False) -> bool:
    """Tell whether a model is shown something else when the donor stands in for the user.

    Another user's rubric belongs to another question, so an oracle has nothing to swap. Posts that are the same would
    make the swap a second asking of the same thing, unless the users' labeled pairs are shown, too.
    """
    if donor is None or context == "oracle":
        return False
    return labeled or context == "none" or donor.texts != user.texts


def pending_items(
    store: ExampleStore,
    positions: Sequence[int],
    settings: EvalSettings,
    done: AbstractSet[tuple[str, str]],
    *,
    labeled: bool = False,
) -> tuple[PendingItem, ...]:
    """Return what is still to be asked about these positions."""
    pending: list[PendingItem] = []
    for position in positions:
        example = store[position]
        for probe in settings.probes:
            if (example.id, probe) in done:
                continue
            user = example.user if probe is Probe.OWN else None
            if probe is Probe.SWAP:
                user = store.donor(position, settings.seed)
                if not can_swap(example.user, user, settings.context, labeled=labeled):
                    continue
            responses = (
                (example.response,) if isinstance(example, RatedExample) else (example.chosen, example.rejected)
            )
            pending.append(PendingItem(example=example, probe=probe, user=user, responses=responses))
    return tuple(pending)


def check_words_known(loaded: LoadedModel, items: Iterable[Example | RatedExample]) -> None:
    """Refuse a model whose tokenizer knows nearly nothing of the first items, and warn of one that misses much.

    Every text that it does not know reads the same to it, so its scores would be of the lengths at best.
    """
    if loaded.unknown_tokens is None:
        return
    texts = []
    for item in islice(items, WORDS_OF):
        texts += [item.question, item.response] if isinstance(item, RatedExample) else [item.question, item.chosen]
    found = loaded.unknown_tokens(texts)
    if found.share >= UNKNOWN_REFUSED:
        raise found.refusal("the first items")
    if found.share >= UNKNOWN_TOLD:
        log.warning("%s: %s", loaded.spec, found.sentence("the first items"))


def prepare(pending: Sequence[PendingItem], maker: ContextMaker, loaded: LoadedModel) -> list[PreparedItem]:
    """Give each item its context, cut to the model's window; all responses to an item get the same one."""
    asks = {
        place: Ask(
            user=item.user,
            question=item.example.question,
            excluded_keys=leak_keys(item.example),
            owner=item.example.user.id,
        )
        for place, item in enumerate(pending)
        if item.user
    }
    if maker.kind == ContextKind.ORACLE:
        # Rated rows have no rubric: `evaluate_store` refuses an oracle on them.
        known = {place: oracle_context(cast(Example, pending[place].example)) for place in asks}
    else:
        known = dict(zip(asks, maker.contexts(list(asks.values())), strict=True))
    return [
        PreparedItem(
            example=item.example,
            probe=item.probe,
            user=fit_for(
                loaded,
                known.get(place, UserContext()),
                question=item.example.question,
                responses=item.responses,
            ),
            responses=item.responses,
        )
        for place, item in enumerate(pending)
    ]


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
    shorter = {}
    for place in too_long:
        item = prepared[place]
        user = fit_for(loaded, item.user, question=item.example.question, responses=item.responses)
        if item.user.used and user != item.user and not user.problem:
            shorter[place] = replace(item, user=user)
    for place, row in zip(shorter, _score(list(shorter.values()), loaded.model), strict=True):
        rows[place] = row
    return rows


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
    asked: list[tuple[int, bool, PairInput]] = []  # which item, whether its first response comes first, and the pair
    for place, item in enumerate(prepared):
        if item.user.problem:
            continue
        name, question, answers = item.example.id, item.example.question, item.responses
        if len(answers) != 2:
            raise UsageError(f"The model only compares pairs, and {name} has {len(answers)} responses.")
        coin = chosen_comes_first(name, seed=settings.seed)
        for in_order in (coin, not coin) if settings.orders == "both" else (coin,):
            first, second = answers if in_order else answers[::-1]
            asked.append((place, in_order, PairInput(question=question, user=item.user, first=first, second=second)))
    picks: list[list[tuple[bool, Comparison]]] = [[] for _ in prepared]
    found = _each_once(judge.prefer, [pair for _, _, pair in asked])
    for (place, in_order, _), said in zip(asked, found, strict=True):
        picks[place].append((in_order, said))
    return [ScoredRow(item=item, comparisons=tuple(some)) for item, some in zip(prepared, picks, strict=True)]


def chosen_comes_first(example_id: str, *, seed: int) -> bool:
    """One fixed coin per example: adding or dropping rows never reshuffles the others."""
    return sha256(f"{seed}:{example_id}".encode()).digest()[0] % 2 == 0


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


LONGEST_GROUP = 80  # characters; a longer text is no name of a group


def as_row(scored: ScoredRow) -> Row | RatedRow:
    """Return the row of one item: a pair gets a verdict, a rated response keeps its score."""
    example, user = scored.item.example, scored.item.user
    # Plain facts stay with the row, so that any of them can be grouped by later, whatever was asked for now.
    groups: dict[str, Json] = {"split": example.split} if example.split else {}
    for name, value in example.meta.items():
        if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST_GROUP):
            groups[name] = value
    common: dict[str, Any] = {
        "id": example.id,
        "probe": scored.item.probe,
        "user_id": example.user.id,
        "category": example.category,
        "question_hash": f"{hash64(example.question):016x}",
        "posts_used": user.used,
        "posts_dropped": user.dropped + user.truncated_posts,
        "groups": groups,
    }
    if isinstance(example, RatedExample):
        (score,) = scored.scores
        said: dict[str, Any] = {
            "score": score.value,
            "problem": score.problem,
            "detail": score.detail,
            "raw": score.raw,
        }
        return RatedRow(**common, rating=example.rating, **said)
    if user.problem:
        return Row(**common, verdict=Verdict.UNREADABLE, problem=user.problem, detail=user.detail)
    if scored.comparisons:
        return Row(**common, **_of_comparisons(scored.comparisons))
    chosen, rejected = scored.scores
    bad = gravest(score for score in scored.scores if score.value is None)
    return Row(
        **common,
        verdict=decide(chosen, rejected),
        score_chosen=chosen.value,
        score_rejected=rejected.value,
        problem=bad.problem if bad else Problem.NONE,
        detail=bad.detail if bad else "",
        # A rating model's own words, so that every number can be traced.
        replies={"chosen": chosen.raw, "rejected": rejected.raw} if chosen.raw or rejected.raw else {},
    )


def _of_comparisons(answers: Sequence[tuple[bool, Comparison]]) -> dict[str, Any]:
    """Return what the orders say together: the mean margin decides; without margins, disagreement is a tie."""
    bad = gravest(answer for _, answer in answers if answer.pick is Pick.UNREADABLE)
    # For the chosen response, wherever it stood: its mean log-odds, where the judge gives them, and its votes.
    signed = [(1 if chosen_first else -1, answer) for chosen_first, answer in answers]
    margins = [sign * answer.margin for sign, answer in signed if answer.margin is not None]
    margin = sum(margins) / len(margins) if len(margins) == len(answers) else None
    votes = sum(sign * ((answer.pick is Pick.FIRST) - (answer.pick is Pick.SECOND)) for sign, answer in signed)
    balance = votes if margin is None else margin
    verdict = Verdict.TIE if balance == 0 else (Verdict.CHOSEN if balance > 0 else Verdict.REJECTED)
    return {
        "verdict": Verdict.UNREADABLE if bad else verdict,
        "score_chosen": None if margin is None else margin / 2,
        "score_rejected": None if margin is None else -margin / 2,
        "problem": bad.problem if bad else Problem.NONE,
        "detail": bad.detail if bad else "",
        "orders": tuple(
            {
                "order": "chosen_first" if chosen_first else "rejected_first",
                "pick": answer.pick.value,
                "reason": answer.problem.value,
                "margin": answer.margin,
                "raw": answer.raw,
            }
            for chosen_first, answer in answers
        ),
    }
