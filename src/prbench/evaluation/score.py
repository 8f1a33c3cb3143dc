"""One item's way through an evaluation: who is shown, what the model is asked, what it says, and the row of that.

`score_rows` is the one place where a model is asked, for n responses to each question.
"""

import logging
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar, cast

from prbench.context import Ask, ContextMaker, HasWindow, fit_for, leak_keys, oracle_context
from prbench.data import ExampleStore
from prbench.data.rows import hash64
from prbench.errors import UsageError
from prbench.evaluation.settings import EvalSettings
from prbench.reward_models.base import LoadedModel, PairJudge, RewardModel
from prbench.reward_models.recorded import RecordedReplies, RecordedScores
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
    knows_nobody: bool = False  # whatever the probe: no user is shown under any


def asked_probes(probes: Sequence[Probe], loaded: LoadedModel, context: str) -> tuple[Probe, ...]:
    """Return the probes that a model can be asked about: all of them, or those that were recorded."""
    if loaded.recorded is None:
        return tuple(probes)
    recorded = set(loaded.recorded.probes)
    if context == ContextKind.NONE and Probe.NONE in recorded:
        recorded.add(Probe.OWN)  # who is shown nobody said the same of everybody
    if Probe.OWN not in recorded:
        found = ", ".join(loaded.recorded.probes)
        fact = f"has records of {found} alone, and every figure is compared with the user's own profile"
        raise UsageError(f"{loaded.spec}: {fact}. Record these, or use --context none for records without a profile.")
    return tuple(probe for probe in probes if probe in recorded)


def recorded_notes(loaded: LoadedModel, is_known: Callable[[str], bool], asked: Container[Probe]) -> list[str]:
    """Return what a user should know of a model that was recorded: what of it is not used, and what it cannot tell."""
    if loaded.recorded is None:
        return []
    unknown = sorted(item for item in loaded.recorded.ids if not is_known(item))
    notes = []
    if unknown:
        count = f"{len(unknown)} of its {len(loaded.recorded.ids)} recorded items are"
        notes.append(f"{loaded.spec}: {count} not among the rows that were read, e.g. {unknown[0]}")
    if missing := what_is_not_recorded(asked):
        notes.append(f"{loaded.spec}: {missing}")
    return notes


def what_is_not_recorded(asked: Container[str]) -> str:
    """Return which figures there are none of, as what they need was not recorded; "" where all of it was."""
    needed = {Probe.NONE: ("without a profile", "gain"), Probe.SWAP: ("with another user's profile", "swap gap")}
    missing = [words for probe, words in needed.items() if probe not in asked]
    told, figures = " or ".join(how for how, _ in missing), " and no ".join(figure for _, figure in missing)
    return f"what it says {told} was not recorded, so it has no {figures}" if missing else ""


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


def prepare(pending: Sequence[PendingItem], maker: ContextMaker, model: HasWindow) -> list[PreparedItem]:
    """Give each item its context, cut to the model's window; all responses to an item get the same one."""
    is_recorded = isinstance(model, LoadedModel) and model.recorded is not None
    asks = {
        place: Ask(
            user=item.user,
            question=item.example.question,
            excluded_keys=leak_keys(item.example),
            owner=item.example.user.id,
        )
        for place, item in enumerate(pending)
        if item.user and not is_recorded
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
                model,
                known.get(place, UserContext()),
                question=item.example.question,
                responses=item.responses,
            ),
            responses=item.responses,
            knows_nobody=maker.kind == ContextKind.NONE,
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
    if isinstance(loaded.model, RecordedReplies):
        return [_looked_up(item, loaded.model, settings or EvalSettings()) for item in prepared]
    if isinstance(loaded.model, RecordedScores):
        look_up = loaded.model.look_up
        return [
            ScoredRow(
                item=item,
                scores=tuple(look_up(item.example.id, item.probe, item.responses, knows_nobody=item.knows_nobody)),
            )
            for item in prepared
        ]
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


def _looked_up(item: PreparedItem, judge: RecordedReplies, settings: EvalSettings) -> ScoredRow:
    """Return what was recorded of a pair, in both orders, or in the one that there is."""
    found = judge.look_up(item.example.id, item.probe, item.responses, knows_nobody=item.knows_nobody)
    coin = chosen_comes_first(item.example.id, seed=settings.seed)
    wanted = (coin, not coin) if settings.orders == "both" else (coin if coin in found else not coin,)
    missing = Comparison(
        pick=Pick.UNREADABLE,
        problem=Problem.NOT_RECORDED,
        detail="no reply about this pair in this order was recorded",
    )
    return ScoredRow(item=item, comparisons=tuple((order, found.get(order, missing)) for order in wanted))


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


def facts_of(example: Example | RatedExample) -> dict[str, Any]:
    """Return what all rows of an item say of it, whatever was asked and answered."""
    # Plain facts stay with the row, so that any of them can be grouped by later, whatever was asked for now.
    groups: dict[str, Json] = {"split": example.split} if example.split else {}
    for name, value in example.meta.items():
        if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST_GROUP):
            groups[name] = value
    return {
        "user_id": example.user.id,
        "category": example.category,
        "question_hash": f"{hash64(example.question):016x}",
        "groups": groups,
    }


def as_row(scored: ScoredRow) -> Row | RatedRow:
    """Return the row of one item: a pair gets a verdict, a rated response keeps its score."""
    example, user = scored.item.example, scored.item.user
    common: dict[str, Any] = {
        "id": example.id,
        "probe": scored.item.probe,
        **facts_of(example),
        "posts_used": user.used,
        "posts_dropped": user.dropped + user.truncated_posts,
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
        return Row(**common, **of_comparisons(scored.comparisons))
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


def of_comparisons(answers: Sequence[tuple[bool, Comparison]]) -> dict[str, Any]:
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
