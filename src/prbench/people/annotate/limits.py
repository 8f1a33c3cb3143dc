"""How many wrong tokens an address may try."""

import threading
import time
from collections import deque
from collections.abc import Callable

MOST_ADDRESSES = 10_000  # remembered at once


class WrongTokens:
    """Counts failures per address in a sliding window; successes cost nothing."""

    def __init__(self, most: int, window_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._window = window_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[str, deque[float]] = {}

    def wait_seconds(self, address: str) -> int:
        """Return how long this address must wait before a token of it is looked at again; 0: it need not."""
        with self._lock:
            failures = self._recent(address)
            if len(failures) < self._most:
                return 0
            return max(1, round(failures[0] + self._window - self._clock()))

    def add(self, address: str) -> None:
        """Count one wrong token."""
        with self._lock:
            failures = self._recent(address)
            failures.append(self._clock())
            self._failures[address] = failures
            if len(self._failures) > MOST_ADDRESSES:
                self._failures.pop(next(iter(self._failures)))

    def _recent(self, address: str) -> deque[float]:
        failures = self._failures.get(address, deque(maxlen=self._most))
        while failures and failures[0] <= self._clock() - self._window:
            failures.popleft()
        if not failures:
            self._failures.pop(address, None)
        return failures
