"""What the reward server and the annotation server share: refusals, bodies with a limit, sockets and signals."""

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope

from prbench.errors import UsageError
from prbench.serve.connections import ConnectionLimit, FaultLog, GuardedProtocol, connections_that_fit
from prbench.serve.settings import HttpSettings

BACKLOG = 2048
ACCEPTED_AT_ONCE = 16  # between two looks at how many are connected
LINGER_SECONDS, PAUSE_SECONDS = 1.0, 0.1  # at the end, for connections that have been made but not seen yet
MOST_ADDRESSES = 10_000  # whose wrong tokens are remembered at once


class RefusedRequestError(Exception):
    """A request that gets an error reply: a status, one line, and when to come again."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


class ClientLeftError(Exception):
    """The client closed its connection before its body was complete; what came of it must not be used."""


async def receive_body(
    scope: Scope, receive: Receive, settings: HttpSettings, on_chunk: Callable[[int], None] = lambda size: None
) -> Receive:
    """Read the whole body, and return a `receive` that gives it once and then what really comes.

    It is refused as soon as it is known to be too large; `on_chunk` hears the size of each part, and may refuse, too.
    """
    too_large = RefusedRequestError(
        413, f"The body has more than {settings.max_body_bytes} bytes, which is all this server takes. Split it."
    )
    declared = Headers(scope=scope).get("content-length", "0")
    if not declared.isascii() or not declared.isdigit() or int(declared) > settings.max_body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            is_complete = False
            while not is_complete:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeftError
                chunk = message.get("body", b"")
                body += chunk
                on_chunk(len(chunk))
                if len(body) > settings.max_body_bytes:
                    raise too_large
                is_complete = not message.get("more_body", False)
    except TimeoutError:
        raise RefusedRequestError(408, "The body did not arrive in time.") from None
    unread: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def replay() -> Message:
        return unread.pop() if unread else await receive()

    return replay


class QuietUvicorn(uvicorn.Server):
    """Leaves the signals to us: uvicorn would stop listening at once and then end by the signal, not with 0."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, **options: object) -> None:
        # The log of accesses would hold the tokens of personal links.
        quiet = {"lifespan": "off", "ws": "none", "log_level": "error", "access_log": False, "server_header": False}
        limit = ConnectionLimit(settings.max_connections or connections_that_fit())
        protocol = partial(GuardedProtocol, limit=limit, header_seconds=settings.header_seconds)
        config = uvicorn.Config(app, http=protocol, backlog=ACCEPTED_AT_ONCE, **quiet, **options)  # type: ignore[arg-type]
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. Few connections are accepted at a time, so that there is room for each; others wait in a line."""
        await super().startup(sockets)
        asyncio.get_running_loop().set_exception_handler(FaultLog())
        for listening in sockets or ():
            listening.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, once everybody who stands in the line has had an answer: closing a socket resets all who wait there."""
        deadline = time.monotonic() + LINGER_SECONDS
        answered = -1
        while not self.force_exit and answered < self.server_state.total_requests and time.monotonic() < deadline:
            answered = self.server_state.total_requests
            await asyncio.sleep(PAUSE_SECONDS)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class WrongTokens:
    """Counts wrong tokens per address in a sliding window. A right one is never refused because of others' guesses."""

    def __init__(self, most: int, window_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._window = window_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[str, deque[float]] = {}

    def refusal(self, address: str, error: RefusedRequestError) -> RefusedRequestError:
        """Return what a wrong token gets: the error, or, where there were too many, when to come again."""
        with self._lock:
            failures = self._failures.pop(address, deque(maxlen=self._most))
            while failures and failures[0] <= self._clock() - self._window:
                failures.popleft()
            is_many = len(failures) == self._most
            # As many as are needed to refuse: the oldest of them says when the window is free again.
            wait = max(1, round(failures[0] + self._window - self._clock())) if is_many else 0
            if not is_many:
                failures.append(self._clock())
            self._failures[address] = failures  # last in the order: the one that was not heard of for longest goes
            if len(self._failures) > MOST_ADDRESSES:
                self._failures.pop(next(iter(self._failures)))
        if wait:
            return RefusedRequestError(
                429, "Too many wrong tokens from your address. Wait a minute.", retry_after=wait
            )
        return error


def catch_signals(handle: Callable[[], None]) -> None:
    """Call `handle` in the running event loop at SIGTERM and SIGINT; only the main thread can be asked to."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, handle)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that a taken port is known before a model is loaded or a page is served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"Cannot listen on {host}:{port}: {reason}. Choose another --host or --port.") from error
    # Connections inherit it. Without it a reply, written as head and body, waits 40 ms for the client's delayed ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
