"""From rows to questions: which user a model gets to see under each probe, and how much of them fits."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from prbench.context import Ask, Context, ContextMaker, Material, fit, names_of, oracle_material
from prbench.data import ExampleStore
from prbench.reward_models.base import Loaded, PairJudge
from prbench.schema import Example, PairInput, Probe, Problem, RatedExample, RewardInput, User
from prbench.walk.settings import EvalSettings

NO_MATERIAL = Material(kind="none")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One item under one probe that has no row yet, and the user whom the model may know; it travels to workers."""

    example: Example | RatedExample
    probe: Probe
    user: User | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """One item under one probe, with the context that the model gets to see."""

    example: Example | RatedExample
    probe: Probe
    context: Context
    material: Material

    @property
    def problem(self) -> Problem:
        """Why this item cannot be asked: its plan failed, or it does not fit even without context."""
        if self.material.problem:
            return self.material.problem
        return Problem.NONE if self.context.fits else Problem.TOO_LONG

    @property
    def detail(self) -> str:
        """What there is to say about the problem."""
        return self.material.detail if self.context.fits else "question and response alone exceed the model's window"


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
    """Give each of the wanted its context."""
    return [
        Asked(example=one.example, probe=one.probe, material=material, context=_fitted(one.example, material, loaded))
        for one, material in zip(wanted, _materials(wanted, maker), strict=True)
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


def _materials(wanted: Sequence[Wanted], maker: ContextMaker) -> list[Material]:
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
    if maker.kind == "oracle":
        found = {i: oracle_material(_pair(wanted[i].example)) for i in asks}
    else:
        found = dict(zip(asks, maker.materials(list(asks.values())), strict=True))
    return [found.get(i, NO_MATERIAL) for i in range(len(wanted))]


def _pair(example: Example | RatedExample) -> Example:
    assert isinstance(example, Example), "rated rows have no rubric; `evaluate_store` refuses an oracle on them"
    return example


def _fitted(example: Example | RatedExample, material: Material, loaded: Loaded) -> Context:
    """Return the context cut to the model's window; both responses of a pair get the same one."""
    if material.problem:
        return Context(text="", used=0, dropped=0, fits=True)  # never asked: the row keeps the problem
    if loaded.fits is None:
        return fit(material, None)
    window = loaded.fits
    inputs = _inputs_of(example, isinstance(loaded.model, PairJudge))
    return fit(material, lambda text: all(window(make(text)) for make in inputs))


def _inputs_of(example: Example | RatedExample, is_judge: bool) -> list[Callable[[str], RewardInput | PairInput]]:
    question = example.question
    if isinstance(example, RatedExample):
        response = example.response
        return [lambda text: RewardInput(question=question, context=text, response=response)]
    chosen, rejected = example.chosen, example.rejected
    if is_judge:
        return [lambda text: PairInput(question=question, context=text, first=chosen, second=rejected)]
    return [
        lambda text: RewardInput(question=question, context=text, response=chosen),
        lambda text: RewardInput(question=question, context=text, response=rejected),
    ]
