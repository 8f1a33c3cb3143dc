"""From rows to questions: which user a model gets to see under each probe, and how much of them fits."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from prbench.context import Ask, ContextMaker, fit_for, names_of, oracle_context
from prbench.data import ExampleStore
from prbench.reward_models.base import Loaded
from prbench.schema import ContextKind, Example, Probe, RatedExample, User, UserContext
from prbench.walk.settings import EvalSettings


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One item under one probe that has no row yet, and the user whom the model may know; it travels to workers."""

    example: Example | RatedExample
    probe: Probe
    user: User | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """One item under one probe, with what the model gets to see of the user."""

    example: Example | RatedExample
    probe: Probe
    user: UserContext


def still_wanted(
    store: ExampleStore, positions: Sequence[int], settings: EvalSettings, done: AbstractSet[tuple[str, str]]
) -> tuple[Wanted, ...]:
    """Return what is still to be asked about these positions."""
    wanted: list[Wanted] = []
    for position in positions:
        example = store[position]
        for probe in settings.probes:
            if (example.id, probe) in done:
                continue
            user = _user_to_show(store, position, example, probe, settings)
            if probe is not Probe.SWAP or user is not None:
                wanted.append(Wanted(example=example, probe=probe, user=user))
    return tuple(wanted)


def ask(
    store: ExampleStore,
    positions: Sequence[int],
    loaded: Loaded,
    maker: ContextMaker,
    settings: EvalSettings,
    done: AbstractSet[tuple[str, str]],
) -> list[Asked]:
    """Return what is still to be asked about these positions, each with its context."""
    return with_contexts(still_wanted(store, positions, settings, done), loaded, maker)


def with_contexts(wanted: Sequence[Wanted], loaded: Loaded, maker: ContextMaker) -> list[Asked]:
    """Give each of the wanted its context, cut to the model's window."""
    return [
        Asked(
            example=one.example,
            probe=one.probe,
            user=fit_for(loaded, user, question=one.example.question, responses=responses_of(one.example)),
        )
        for one, user in zip(wanted, _contexts(wanted, maker), strict=True)
    ]


def responses_of(example: Example | RatedExample) -> tuple[str, ...]:
    """Return the responses of an item, in the order of its columns."""
    return (example.response,) if isinstance(example, RatedExample) else (example.chosen, example.rejected)


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


def _contexts(wanted: Sequence[Wanted], maker: ContextMaker) -> list[UserContext]:
    asks = {
        i: Ask(
            user=one.user,
            question=one.example.question,
            under_test=names_of(one.example),
            owner=one.example.user.id,
        )
        for i, one in enumerate(wanted)
        if one.user
    }
    if maker.kind == ContextKind.ORACLE:
        found = {i: oracle_context(_pair(wanted[i].example)) for i in asks}
    else:
        found = dict(zip(asks, maker.contexts(list(asks.values())), strict=True))
    return [found.get(i, UserContext()) for i in range(len(wanted))]


def _pair(example: Example | RatedExample) -> Example:
    assert isinstance(example, Example), "rated rows have no rubric; `evaluate_store` refuses an oracle on them"
    return example
