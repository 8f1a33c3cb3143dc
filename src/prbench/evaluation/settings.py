"""How to ask, and what a model is shown of the user. What to ask about (data) and whom (model) are given apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from prbench.context import ContextMaker, LabeledContext, Labels, load_planner, make_context
from prbench.context.labels import LABELS_OF, SHOTS, read_labels
from prbench.data import DataSettings, Rows, kind_of_dataset, open_examples, split_names
from prbench.errors import UsageError
from prbench.reward_models import LoadedModel, read_ref
from prbench.reward_models.custom import CustomJudge, CustomScorer
from prbench.runs.manifest import Keys
from prbench.schema import Json, Probe

Model = str | CustomScorer | CustomJudge | LoadedModel
PROBES = (Probe.OWN, Probe.NONE, Probe.SWAP)
ONE_ORDER = "one"
ORDERS = ("both", ONE_ORDER)


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """The part of a run's configuration that is neither data nor model."""

    context: str = "profile"  # none, profile, plan or oracle
    posts: int = 10
    rank: str = "recent"  # recent, bm25 or dense
    planner: str = ""  # an LLM spec, for `plan`
    encoder: str = "minilm"  # for `dense`
    probes: tuple[Probe, ...] = PROBES
    orders: str = "both"  # judges only: both, or one (a fixed coin per example)
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        context="profile",
        posts=10,
        rank="recent",
        planner="",
        encoder="minilm",
        probes=("own", "none", "swap"),
        orders="both",
        seed=0,
    )

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)

    def __post_init__(self) -> None:
        """Refuse what cannot be asked; the kind of context and the ranking are refused where they are looked up."""
        if self.orders not in ORDERS:
            raise UsageError(f"orders={self.orders!r}: unknown. Use one of: {', '.join(ORDERS)}.")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError(f"seed={self.seed!r}: no seed. Give a whole number of at least 0.")

    @classmethod
    def from_config(cls, config: Mapping[str, Json]) -> Self:
        """Return the settings of a run."""
        found = cls.KEYS.read(config)
        return cls(**{**found, "probes": tuple(map(Probe, found["probes"]))})


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What one model is shown of the user: what its spec says (`?context=none`), or what was asked for all models."""

    context: str
    labels: Rows | Labels | None
    shots: int | None

    @classmethod
    def of(cls, model: Model, context: str, labels: Rows | Labels | None = None, shots: int | None = None) -> "Shown":
        """Read it off a spec; an object in Python says nothing."""
        if not isinstance(model, str):
            return cls(context=context, labels=labels, shots=shots)
        ref = read_ref(model)
        # Labeled pairs are of the user: a model that is to know nobody, or that knows all, gets none unasked.
        is_set_apart = (ref.view.context or ref.is_gold) and ref.context(context) in ("none", "oracle")
        found = cls(
            context=ref.context(context),
            labels=ref.view.labels or (None if is_set_apart else labels),
            shots=ref.view.shots or shots,
        )
        if ref.view.shots and found.labels is None:
            raise UsageError(
                f"{model}: shots={ref.view.shots}, and there are no labeled pairs. Name some: labels=FILE."
            )
        return found

    def open_labels(self, which: DataSettings) -> Labels | None:
        """Read the labeled pairs, where there are any."""
        if self.labels is None:
            return None
        if isinstance(self.labels, Labels):
            return replace(self.labels, shots=self.shots or self.labels.shots)
        return open_labels(self.labels, which, shots=self.shots or SHOTS)


def read_probes(names: Sequence[str], where: str = "probes") -> tuple[Probe, ...]:
    """Return the probes of these names, in our order; `own` must be among them."""
    known = {probe.value: probe for probe in Probe}
    for name in names:
        if name not in known:
            raise UsageError(f"{where}: {name!r} is unknown. Use some of: {', '.join(known)}.")
    if Probe.OWN not in names:
        raise UsageError(f"{where}: 'own' is missing, and every figure is compared with it. Add it.")
    return tuple(known[name] for name in known if name in names)


def open_labels(source: Rows, which: DataSettings, *, shots: int = SHOTS) -> Labels:
    """Read labeled pairs for the users of `which`: a file, the lab's own, or rows given in Python."""
    split = f"{which.split or 'test'}{LABELS_OF}"
    kind = kind_of_dataset(source) if isinstance(source, str) else None
    if kind is not None and (known := kind.label_split_names()):
        if which.source != source:
            raise UsageError(
                f"--labels {source} are of the users of --data {source}, not of {which.source}. Name a file."
            )
        if split not in known:
            owners = ", ".join(name.removesuffix(LABELS_OF) for name in known)
            raise UsageError(
                f"--labels {source}: there are none for the users of {which.split}. Use --split with {owners}."
            )
        is_split = True
    else:
        is_split = isinstance(source, str | Path) and Path(source).is_dir() and split in split_names(source)
    with open_examples(source, split=split if is_split else None) as store:
        return read_labels(store, shots=shots)


def context_maker(settings: EvalSettings, out: Path | None, labels: Labels | None = None) -> ContextMaker:
    """Return what turns a user into text, with the planner behind a request cache when there is a place for one."""
    planner = None
    if settings.context == "plan":
        if not settings.planner:
            raise UsageError("--context plan needs a planner, e.g. --planner local:smollm2, openai:MODEL@URL or DIR.")
        cache = out / "cache" / "llm.sqlite" if out is not None else None
        planner = load_planner(settings.planner, seed=settings.seed, cache=cache)
    maker = make_context(
        settings.context, posts=settings.posts, rank=settings.rank, planner=planner, encoder=settings.encoder
    )
    return maker if labels is None else LabeledContext(maker, labels)
