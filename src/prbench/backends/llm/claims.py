"""Who is asking what right now, so that threads with equal requests ask once and share the outcome."""

import threading
from collections.abc import Collection, Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

from prbench.backends.llm.client import Reply


@dataclass(frozen=True, slots=True)
class Claim:
    """One request that a thread is asking; the outcome is cancelled where that thread gave up."""

    thread: int
    outcome: Future[Reply] = field(default_factory=Future)


class Claims:
    """The requests in flight, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[str, Claim] = {}

    def take(self, keys: Collection[str]) -> tuple[list[str], dict[str, Future[Reply]]]:
        """Claim what nobody else is asking; return that, and the outcomes to wait for of the rest.

        What this very thread is asking already counts as unclaimed: waiting for oneself would never end.
        """
        me = threading.get_ident()
        mine: list[str] = []
        others: dict[str, Future[Reply]] = {}
        with self._lock:
            for key in keys:
                claim = self._claims.setdefault(key, Claim(me))
                if claim.thread == me:
                    mine.append(key)
                else:
                    others[key] = claim.outcome
        return mine, others

    def settle(self, key: str, reply: Reply) -> None:
        """Hand the outcome to those who wait for it."""
        with self._lock:
            claim = self._claims.pop(key, None)
        if claim:
            claim.outcome.set_result(reply)

    def release(self, keys: Iterable[str]) -> None:
        """Give up what was claimed and not settled: whoever waits may ask for themselves."""
        with self._lock:
            claims = [self._claims.pop(key, None) for key in keys]
        for claim in claims:
            if claim:
                claim.outcome.cancel()


def outcome_of(waited_for: Future[Reply]) -> Reply | None:
    """Return another thread's reply when it is there, or `None` where that thread gave up."""
    try:
        return waited_for.result()
    except CancelledError:
        return None
