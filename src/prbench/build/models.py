"""The three models of a build, each behind cache and meter: nothing is paid twice, and no limit is passed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prbench.build.folder import REPLIES
from prbench.build.settings import BuildSettings, Stage
from prbench.llm import LLM, CachedLLM, load_llm
from prbench.llm.spending import Ledger, Limits, MeteredLLM, Price

GENERATOR, JUDGE, QUALITY_JUDGE = ROLES = ("generator", "judge", "quality_judge")
ROLE_OF_STAGE: Mapping[Stage, str] = {
    Stage.DRAW: GENERATOR,
    Stage.RUBRIC: GENERATOR,
    Stage.GENERATE: GENERATOR,
    Stage.VERIFY: JUDGE,
    Stage.PARITY: QUALITY_JUDGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """How fast and how dear a build may be; nothing of this changes what it makes."""

    concurrency: int = 8
    timeout_seconds: float = 120.0
    retries: int = 4  # of one request, by the client
    limits: Limits = field(default_factory=Limits)
    price: Price | None = None


class Models:
    """The models by role. One spec in several roles is one client, with its one limit of requests at a time."""

    def __init__(self, settings: BuildSettings, folder: Path, means: Means, given: Mapping[str, LLM]) -> None:
        """`given` are clients from Python, by role; the others are made from their specs."""
        prices = dict.fromkeys(ROLES, means.price) if means.price else {}
        self.ledger = Ledger(means.limits, {role: price for role, price in prices.items() if price})
        self.price = means.price
        clients: dict[str, LLM] = {}
        self._cached: dict[str, CachedLLM] = {}
        for role in ROLES:
            spec = str(getattr(settings, role))
            if role in given:
                client = given[role]
            else:
                client = clients.get(spec) or load_llm(
                    spec,
                    concurrency=means.concurrency,
                    timeout_seconds=means.timeout_seconds,
                    retries=means.retries,
                )
                clients[spec] = client
            self._cached[role] = CachedLLM(MeteredLLM(client, self.ledger, role), folder / REPLIES)

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
