"""When to ask a server again, and how long to wait before that."""

import random
import threading
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

AGAIN = frozenset({408, 409, 425, 429})  # and every 5xx but 501
NOT_IMPLEMENTED = 501
FIRST_SECONDS = 0.5  # doubles with every further try, up to
MOST_SECONDS = 8.0
LONGEST_SECONDS = 120.0  # a server that asks for more is not waited for


def is_worth_another_try(status: int, headers: Mapping[str, str]) -> bool:
    """Tell whether the same request may succeed later; a server that says so itself is believed."""
    if (asked := asked_seconds(headers)) is not None and asked > LONGEST_SECONDS:
        return False
    if (said := headers.get("x-should-retry")) in ("true", "false"):
        return said == "true"
    return status in AGAIN or (status >= 500 and status != NOT_IMPLEMENTED)


def wait_seconds(retry: int, headers: Mapping[str, str]) -> float:
    """Return the wait before a retry, counted from 1: what the server asks for, else a doubling time with jitter."""
    if (asked := asked_seconds(headers)) is not None:
        return asked
    # Up to a quarter less, so that requests which failed together do not come back together.
    return float(min(FIRST_SECONDS * 2 ** min(retry - 1, 10), MOST_SECONDS) * (1 - 0.25 * random.random()))


def asked_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks for, as a number or a date; `None` where it says nothing usable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


class Pace:
    """When a server may be asked next. One refusal with a waiting time holds back every thread, not only its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._not_before = 0.0

    def hold(self, seconds: float) -> None:
        """Let nobody ask for so long."""
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + seconds)

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Wait so long, and until the server may be asked; tell whether that came before the stop."""
        moment = time.monotonic() + seconds
        while True:
            with self._lock:
                left = max(moment, self._not_before) - time.monotonic()
            if left <= 0:
                return True
            if stop.wait(left):
                return False
