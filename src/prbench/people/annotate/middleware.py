"""What stands before every route: the size of a body, where a write comes from, and the headers of every reply."""

import asyncio
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prbench.people.annotate.settings import AnnotateSettings

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: browsers would then hide the origin of our own forms, which is checked below.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex, nofollow",
}
READING = frozenset({"GET", "HEAD"})


class _ClientLeftError(Exception):
    """The client closed its connection before its body was complete; what came of it must not be saved."""


class Gate:
    """Wraps the routes."""

    def __init__(self, app: ASGIApp, settings: AnnotateSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        send = _with_headers(send)
        if scope["method"] in READING:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._comes_from_us(headers):
            await _refuse(403, "This request came from another site.")(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                body = await self._read(headers, receive)
        except _ClientLeftError:
            return
        except TimeoutError:
            await _refuse(408, "The request did not arrive in time.")(scope, receive, send)
            return
        if body is None:
            await _refuse(413, "The request is too large.")(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _comes_from_us(self, headers: Headers) -> bool:
        """Tell whether a write may come from our own page; the CSRF token is checked apart from this."""
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        ours = {headers.get("host", ""), urlsplit(self._settings.public_url).netloc}
        return origin is None or urlsplit(origin).netloc in ours - {""}

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        """Return the whole body, or `None` as soon as it is known to be too large."""
        most = self._settings.max_body_bytes
        declared = headers.get("content-length", "0")
        if not declared.isascii() or not declared.isdigit() or int(declared) > most:
            return None
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeftError
            body += message.get("body", b"")
            if len(body) > most:
                return None
            if not message.get("more_body", False):
                return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once, and then what really comes."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return guarded


def _refuse(status: int, text: str) -> PlainTextResponse:
    return PlainTextResponse(text, status)
