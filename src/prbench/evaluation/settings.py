"""How to ask. What to ask about (data) and whom (model) are given apart."""

from dataclasses import dataclass

from prbench.schema import Probe

PROBES = (Probe.OWN, Probe.NONE, Probe.SWAP)


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
