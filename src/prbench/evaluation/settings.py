"""How to ask. What to ask about (data) and whom (model) are given apart."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from prbench.errors import UsageError
from prbench.runs.manifest import Keys
from prbench.schema import Json, Probe

PROBES = (Probe.OWN, Probe.NONE, Probe.SWAP)
ORDERS = ("both", "one")


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
