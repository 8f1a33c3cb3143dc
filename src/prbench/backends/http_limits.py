"""What a server may send, and how long it may take in all: limits for every HTTP client of ours.

A time limit of an HTTP library holds for each read, so a server that sends a byte a second keeps a request forever;
and a reply is read whole, however large it is, packed or not. Here a request has one deadline, and a reply a size.
"""

import math
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MOST_BYTES = 8 << 20  # of a reply, unpacked
MOST_ERROR_BYTES = 64 << 10  # of the body of an error; the rest is not read
ENCODINGS = "gzip, deflate"  # those that can be unpacked bit by bit
_SHORTEST = 0.001  # seconds: what is left of a time that is over; 0 would mean no limit


class ReplyTooLargeError(Exception):
    """A reply has more bytes than any that is meant."""


class _Deadline(threading.local):
    """When the request of this thread must be over."""

    at = math.inf


_deadline = _Deadline()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let all network reads and writes of this thread end after so many seconds together."""
    before = _deadline.at
    _deadline.at = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.at = before


def bounded(client_type: type) -> Any:
    """Return the type of an HTTP client (`httpx.Client`, or the one of the openai library) with these limits.

    It takes `total_seconds` and `most_bytes`, and everything that the type itself takes.
    """

    class Bounded(client_type):  # type: ignore[misc]
        def __init__(self, *, total_seconds: float, most_bytes: int = MOST_BYTES, **options: Any) -> None:
            super().__init__(**options)
            self.headers["Accept-Encoding"] = ENCODINGS
            self._total_seconds = total_seconds
            self._most_bytes = most_bytes
            # The libraries offer no other place for a limit on the head of a reply; a test shows that it holds.
            for transport in (self._transport, *self._mounts.values()):
                pool = getattr(transport, "_pool", None)
                if pool is not None:
                    pool._network_backend = _TimedBackend(pool._network_backend)

        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            """Send a request and return its whole reply; `stream` is not for replies with limits."""
            with within(self._total_seconds):
                response = super().send(request, stream=True, **options)
                try:
                    content = _read(response, self._most_bytes)
                finally:
                    response.close()
            headers = [
                (name, value)
                for name, value in response.headers.raw
                if name.lower() not in (b"content-encoding", b"content-length", b"transfer-encoding")
            ]
            return type(response)(
                response.status_code,
                headers=headers,
                content=content,
                request=request,
                extensions=response.extensions,
                history=response.history,
            )

    return Bounded


def _read(response: Any, most: int) -> bytes:
    """Return the body, unpacked; of an error no more than its beginning."""
    is_error = response.status_code >= 400
    most = MOST_ERROR_BYTES if is_error else most
    content = bytearray()
    for chunk in _unpacked(response, most):
        content += chunk
        if len(content) > most:
            if is_error:
                return bytes(content[:most])
            raise ReplyTooLargeError(f"the reply has more than {most:,} bytes")
    return bytes(content)


def _unpacked(response: Any, most: int) -> Iterator[bytes]:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        yield from response.iter_raw()
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ReplyTooLargeError(f"the reply is packed as {encoding[:20]!r}, which was not asked for")
    import httpx

    unpack, is_whole = _unpacker(), True
    for chunk in response.iter_raw():
        rest = chunk
        while rest:
            if unpack.eof:  # packed in several members, one after the other
                unpack = _unpacker()
            try:
                yield unpack.decompress(rest, most + 1)
            except zlib.error as error:
                raise ReplyTooLargeError(f"the reply cannot be unpacked ({error})") from None
            is_whole = unpack.eof
            rest = unpack.unused_data if is_whole else unpack.unconsumed_tail
    if not is_whole:  # lost on the way, as where fewer bytes come than were announced
        raise httpx.RemoteProtocolError("the packed reply is cut off")


def _unpacker() -> Any:
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, by its head


def _left(timeout: float | None) -> float | None:
    left = _deadline.at - time.monotonic()
    if left == math.inf:
        return timeout
    return max(_SHORTEST, left if timeout is None else min(timeout, left))


class _TimedStream:
    """A connection whose reads and writes end with the request."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        found: bytes = self._inner.read(max_bytes, _left(timeout))
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> Any:
        return _TimedStream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _TimedBackend:
    """Opens such connections."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> _TimedStream:
        return _TimedStream(self._inner.connect_tcp(host, port, timeout=_left(timeout), **options))

    def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> _TimedStream:
        return _TimedStream(self._inner.connect_unix_socket(path, timeout=_left(timeout), **options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)
