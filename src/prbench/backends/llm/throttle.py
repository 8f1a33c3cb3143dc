"""How many requests a server gets at once: few at first, more while its replies stay quick, half after a time-out.

A server that answers one request after the other makes everything behind the first one wait. Sent all at once, the
last ones time out while it works, are sent again, and the work on them is lost. So the number grows only where the
time that replies take, extrapolated to one more request at a time, stays within the time-out.
"""

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from itertools import count

log = logging.getLogger(__name__)

FIRST_AT_ONCE = 2
LONGEST_SHARE = 0.9  # of the time-out: so long may a reply be expected to take where one more is sent at once
MARGIN = 2.0  # times the expected wait for other requests: replies differ in length
FORGETTING = 0.8  # what is left of a measured wait after each quicker reply
PROBE_AFTER = 32  # replies, before a number is tried again at which a request timed out
STOP_SECONDS = 0.2  # how often a waiting request looks whether it is still wanted


class Outcome(Enum):
    """What came of one try of a request."""

    ANSWERED = auto()
    TIMED_OUT = auto()
    BUSY = auto()  # the server refused it for now
    OTHER = auto()  # says nothing of how fast the server is


class Throttle:
    """Counts requests to one server, for all threads that ask it.

    `take` is for who goes through a list of requests, and takes one only where it can be sent soon; `enter` and
    `leave` stand around every single try. Requests are let in by their numbers, so that they are sent in the order in
    which they were taken, tries of an earlier one first.
    """

    def __init__(
        self, name: str, most: int, timeout_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._most = most
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._numbers = count()
        self._taken = 0
        self._waiting: set[int] = set()
        self._sent: dict[int, tuple[float, int]] = {}  # of those under way: when, and how many were at once
        self.limit = min(FIRST_AT_ONCE, most)
        self._alone = float("inf")  # the quickest reply so far, in seconds
        self._slope: float | None = None  # seconds that each further request at once adds
        self._ceiling = most + 1  # at so many at once, a request timed out
        self._answered = 0  # since the limit was last changed
        self._is_new = True  # no request was refused or timed out yet: then the limit may double
        self._shrunk_at = float("-inf")
        self._has_warned = False

    def take(self, *, blocking: bool) -> int | None:
        """Return the number of a request that may be prepared now; `None` where there is no room, and nobody waits."""
        with self._changed:
            while self._taken >= self.limit:
                if not blocking:
                    return None
                self._changed.wait()
            self._taken += 1
            return next(self._numbers)

    def settle(self) -> None:
        """Say that a taken request has its reply, or was given up."""
        with self._changed:
            self._taken -= 1
            self._changed.notify_all()

    def number(self) -> int:
        """Return a number for a request that is not taken from a list."""
        return next(self._numbers)

    def enter(self, number: int, stop: threading.Event | None = None) -> bool:
        """Wait until this request may be sent; tell whether that came before the stop. Its time begins now."""
        with self._changed:
            self._waiting.add(number)
            try:
                while len(self._sent) >= self.limit or number != min(self._waiting):
                    if stop is not None and stop.is_set():
                        return False
                    self._changed.wait(STOP_SECONDS if stop is not None else None)
            finally:
                self._waiting.discard(number)
                self._changed.notify_all()
            self._sent[number] = self._clock(), len(self._sent) + 1
            return True

    def leave(self, number: int, outcome: Outcome) -> None:
        """Say what came of a request that was let in, and adapt."""
        with self._changed:
            since, at_once = self._sent.pop(number)
            if outcome is Outcome.ANSWERED:
                self._grow(self._clock() - since, at_once)
            elif outcome in (Outcome.TIMED_OUT, Outcome.BUSY):
                self._shrink(since, outcome)
            self._changed.notify_all()

    def _grow(self, seconds: float, at_once: int) -> None:
        self._alone = min(self._alone, seconds)
        self._answered += 1
        if at_once > 1:
            # How much longer a reply takes for each other one that is asked for. It rises at once and falls slowly.
            slope = (seconds - self._alone) / (at_once - 1)
            self._slope = max(slope, FORGETTING * (slope if self._slope is None else self._slope))
        if self.limit >= self._most or 2 * at_once <= self.limit:
            return  # there is no more to grow to, or what there is was not made use of
        # Of a server that was asked one at a time, the worst is thought: one slot, so that a whole reply comes before.
        slope = self._alone if self._slope is None else self._slope
        waiting = max(0.0, seconds - self._alone) + slope * (self.limit + 1 - at_once)
        if self._alone + MARGIN * waiting > LONGEST_SHARE * self._timeout_seconds:
            return
        if not self._is_new and self._answered < self.limit:
            return
        if self.limit + 1 >= self._ceiling and self._answered < PROBE_AFTER:
            return
        self.limit += 1
        self._answered = 0

    def _shrink(self, since: float, outcome: Outcome) -> None:
        self._is_new = False
        if since >= self._shrunk_at:  # those that were sent before are of the storm that is known already
            self._ceiling = self.limit
            self.limit = max(1, self.limit // 2)
            self._answered = 0
            self._shrunk_at = self._clock()
        if outcome is Outcome.TIMED_OUT and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: no answer within %g s of sending a request. From here on %d at a time; it is sent again. "
                "If the server is slow, give it longer: ?timeout=SECONDS.",
                self._name,
                self._timeout_seconds,
                self.limit,
            )
