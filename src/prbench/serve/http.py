"""What the reward server and the annotation server share: refusals, bodies with a limit, sockets and signals."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope

from prbench.errors import UsageError
from prbench.serve.settings import HttpSettings

BACKLOG = 2048


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

    def __init__(self, app: ASGIApp, **options: object) -> None:
        # The log of accesses would hold the tokens of personal links.
        quiet = {"lifespan": "off", "ws": "none", "log_level": "error", "access_log": False, "server_header": False}
        super().__init__(uvicorn.Config(app, **quiet, **options))  # type: ignore[arg-type]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
