"""The open connections of our servers: bounded, in time for their headers, and shared among addresses.

A client may open a connection and never say what it wants. Such connections end after a while; and before the process
runs out of file descriptors, each new one takes the place of the one that has kept everybody waiting longest.
"""

import asyncio
import sys
import time
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

RESERVED_FILES = 96  # descriptors for everything else: the model's files, a database, its log
FEWEST, MOST = 16, 2048
SHARE = 0.75  # of all connections, which one address may hold; the rest is for others
QUIET_SECONDS = 60.0  # the same fault is reported once in this time


def connections_that_fit() -> int:
    """Return how many connections leave enough file descriptors for all else."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(FEWEST, soft - RESERVED_FILES))


class ConnectionLimit:
    """Who is connected, in the order in which they came; makes room when there are too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[GuardedProtocol, str] = {}  # with the address

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: "GuardedProtocol") -> None:
        """Take a new connection in; where there is no room, the one that has waited longest goes, or the new one.

        Only connections that ask nothing at the moment have to go, those of the address with the most of them first.
        """
        address = connection.client[0] if connection.client else ""
        held = Counter(self._open.values())
        self._open[connection] = address
        is_full = len(self._open) > self._most
        if not is_full and held[address] < SHARE * self._most:
            return
        idle = [each for each in self._open if each.is_idle and each is not connection]
        if not is_full:  # room is left, but not for this address
            idle = [each for each in idle if self._open[each] == address]
        leaving = max(idle, key=lambda each: held[self._open[each]], default=connection)
        self.remove(leaving)
        leaving.transport.abort()

    def remove(self, connection: "GuardedProtocol") -> None:
        self._open.pop(connection, None)


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol, with a time limit for the head of a request and a limit on connections."""

    def __init__(self, *args: Any, limit: ConnectionLimit, header_seconds: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit = limit
        self._header_seconds = header_seconds
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """True while no request is being read or answered: its head is not complete, or the last one is done."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection in; the time for the first request starts."""
        super().connection_made(transport)
        self._limit.add(self)
        self._start_or_stop_timer()

    def data_received(self, data: bytes) -> None:
        """Read on. A byte a second buys no time: the limit counts from the first one."""
        super().data_received(data)
        self._start_or_stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._limit.remove(self)
        self._stop_timer()

    def _start_or_stop_timer(self) -> None:
        if not self.is_idle:
            self._stop_timer()
        elif self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._header_seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class FaultLog:
    """Reports what goes wrong in an event loop: each sort once a minute, with how often it came, and no flood."""

    def __init__(self) -> None:
        self._reported: dict[str, float] = {}
        self._silent: Counter[str] = Counter()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        sort = f"{context['message']} ({type(error).__name__})" if error else str(context["message"])
        self._silent[sort] += 1
        now = time.monotonic()
        if now - self._reported.get(sort, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self._reported[sort] = now
        count = self._silent.pop(sort)
        if isinstance(error, OSError):  # a matter of the system: one line says it all
            times = f", {count} times" if count > 1 else ""
            sys.stderr.write(f"prbench: {context['message']}{times}: {error}\n")
        else:
            loop.default_exception_handler(context)
