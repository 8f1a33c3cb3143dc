"""The three models of a build, each behind cache and meter: nothing is paid twice, and no limit is passed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prbench.backends.llm import LLM, CachedLLM, load_llm
from prbench.backends.llm.spending import Ledger, Limits, MeteredLLM, Price
from prbench.construction.build.folder import REPLIES
from prbench.construction.build.settings import BuildSettings, Stage
from prbench.errors import UsageError

GENERATOR, JUDGE, QUALITY_JUDGE = ROLES = ("generator", "judge", "quality_judge")
ROLE_OF_STAGE: Mapping[Stage, str] = {
    Stage.DRAW: GENERATOR,
    Stage.RUBRIC: GENERATOR,
    Stage.GENERATE: GENERATOR,
    Stage.VERIFY: JUDGE,
    Stage.PARITY: QUALITY_JUDGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How fast and how dear a build may be; nothing of this changes what it makes."""

    concurrency: int = 8
    timeout_seconds: float = 120.0
    retries: int = 4  # of one request, by the client
    limits: Limits = field(default_factory=Limits)
    price: Price | None = None

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds < math.inf:
            raise UsageError(f"--timeout {self.timeout_seconds}: give a number of seconds above 0.")


def make_clients(settings: BuildSettings, means: ClientOptions, given: Mapping[str, LLM]) -> dict[str, LLM]:
    """Return the client of each role. `given` are clients from Python; the others are made from their specs."""
    by_spec: dict[str, LLM] = {}
    clients: dict[str, LLM] = {}
    for role in ROLES:
        spec = str(getattr(settings, role))
        if role not in given and spec not in by_spec:
            by_spec[spec] = load_llm(
                spec,
                concurrency=means.concurrency,
                timeout_seconds=means.timeout_seconds,
                retries=means.retries,
            )
        clients[role] = given.get(role) or by_spec[spec]
    return clients


class Models:
    """The models by role. One spec in several roles is one client, with its one limit of requests at a time."""

    def __init__(self, clients: Mapping[str, LLM], folder: Path, means: ClientOptions) -> None:
        prices = dict.fromkeys(ROLES, means.price) if means.price else {}
        self.ledger = Ledger(means.limits, {role: price for role, price in prices.items() if price})
        self.price = means.price
        self._cached = {
            role: CachedLLM(MeteredLLM(client, self.ledger, role), folder / REPLIES)
            for role, client in clients.items()
        }

    def names(self) -> dict[str, str]:
        """Return the name of each role's model."""
        return {role: llm.name for role, llm in self._cached.items()}

    def of(self, stage: Stage) -> CachedLLM:
        """Return the model that a stage asks."""
        return self._cached[ROLE_OF_STAGE[stage]]

    def close(self) -> None:
        """Close the cache."""
        for llm in self._cached.values():
            llm.close()
