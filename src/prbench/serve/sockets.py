"""What our two servers share: a socket that listens before anything else, and a uvicorn that leaves signals alone."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from prbench.errors import UsageError

BACKLOG = 2048


class QuietUvicorn(uvicorn.Server):
    """Leaves the signals to us: uvicorn would stop listening at once and then end by the signal, not with 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


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
