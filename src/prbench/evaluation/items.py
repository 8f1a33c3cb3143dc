"""From rows to what is asked: whose context a model gets to see under each probe, and how much of it fits."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from prbench.context import Ask, ContextMaker, fit_for, leak_keys, oracle_context
from prbench.data import ExampleStore
from prbench.evaluation.settings import EvalSettings
from prbench.reward_models.base import LoadedModel
from prbench.schema import ContextKind, Example, Probe, RatedExample, User, UserContext


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


def pending_items(
    store: ExampleStore, positions: Sequence[int], settings: EvalSettings, done: AbstractSet[tuple[str, str]]
) -> tuple[PendingItem, ...]:
    """Return what is still to be asked about these positions."""
    pending: list[PendingItem] = []
    for position in positions:
        example = store[position]
        for probe in settings.probes:
            if (example.id, probe) in done:
                continue
            user = _user_to_show(store, position, example, probe, settings)
            if probe is not Probe.SWAP or user is not None:
                pending.append(PendingItem(example=example, probe=probe, user=user, responses=responses_of(example)))
    return tuple(pending)


def responses_of(example: Example | RatedExample) -> tuple[str, ...]:
    """Return the responses of an item, in the order of its columns."""
    return (example.response,) if isinstance(example, RatedExample) else (example.chosen, example.rejected)


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
        known = {place: _oracle(pending[place].example) for place in asks}
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


def _user_to_show(
    store: ExampleStore, position: int, example: Example | RatedExample, probe: Probe, settings: EvalSettings
) -> User | None:
    match probe:
        case Probe.OWN:
            return example.user
        case Probe.NONE:
            return None
        case Probe.SWAP:
            # Another user's rubric belongs to another question, so an oracle has nothing to swap.
            return None if settings.context == "oracle" else store.donor(position, settings.seed)


def _oracle(example: Example | RatedExample) -> UserContext:
    assert isinstance(example, Example), "rated rows have no rubric; `evaluate_store` refuses an oracle on them"
    return oracle_context(example)
