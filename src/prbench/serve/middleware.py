"""Who may come in, and with how much: token, readiness, room and size are checked before a body is read."""

import asyncio
import hmac
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prbench.serve.protocol import RefusedError
from prbench.serve.service import Service

OPEN_PATHS = frozenset({"/health"})  # a probe need not know the token
ASKING_PATHS = frozenset({"/score", "/fits", "/v1/score", "/v1/rerank"})  # POST, with a body, answered by the model
OTHER_PATHS = frozenset({"/health", "/ready", "/metrics", "/v1/models"})


class _ClientLeftError(Exception):
    """The client closed its connection before its body was complete."""


class Gate:
    """Wraps the routes. What it refuses costs neither memory nor the model's time."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"] if scope["path"] in ASKING_PATHS | OTHER_PATHS else "other"
        self._service.counts.add("prbench_requests_total", endpoint=path)
        send = self._labelled(path, send)
        try:
            self._check_token(scope)
            if scope["path"] in ASKING_PATHS and scope["method"] == "POST":
                await self._ask(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except RefusedError as refusal:
            await JSONResponse(refusal.body, refusal.status, refusal.headers)(scope, receive, send)
        except _ClientLeftError:
            self._service.counts.add("prbench_responses_total", endpoint=path, code="499")

    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        service.check_ready()
        service.check_capacity(1)
        service.enter()
        held = _Held(service)
        try:
            body = await self._read(scope, receive, held)
            await self._app(scope, _replay(body, receive), send)
        finally:
            held.release()
            service.leave()

    async def _read(self, scope: Scope, receive: Receive, held: "_Held") -> bytes:
        """Return the whole body, or refuse it as soon as it is known to be too large."""
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        self._check_size(int(declared) if declared.isdigit() else 0)
        body = bytearray()
        try:
            async with asyncio.timeout(self._service.settings.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _ClientLeftError
                    body += message.get("body", b"")
                    held.grow(len(message.get("body", b"")))
                    self._check_size(len(body))
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise RefusedError(408, "The body did not arrive in time.") from None

    def _check_size(self, size: int) -> None:
        most = self._service.settings.max_body_bytes
        if size > most:
            raise RefusedError(413, f"The body has more than {most} bytes, which is all this server takes. Split it.")

    def _check_token(self, scope: Scope) -> None:
        token = self._service.settings.token
        if not token or scope["path"] in OPEN_PATHS:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, value = given.partition(b" ")
        # Compared in constant time: how long a wrong one takes must say nothing about the right one.
        if scheme.lower() != b"bearer" or not hmac.compare_digest(value.strip(), token.encode()):
            raise RefusedError(401, "Send the server's token: Authorization: Bearer TOKEN.")

    def _labelled(self, path: str, send: Send) -> Send:
        """Return a `send` that counts the reply and says which model and template it comes from."""

        async def labelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._service.counts.add("prbench_responses_total", endpoint=path, code=str(message["status"]))
                if message["status"] != 401 and path not in OPEN_PATHS:
                    headers = MutableHeaders(scope=message)
                    for name, value in self._service.sender.items():
                        headers[f"x-prbench-{name.replace('_', '-')}"] = quote(value, safe=":/?=&#,@")
            await send(message)

        return labelled


class _Held:
    """The bytes that one request keeps in memory."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._bytes = 0

    def grow(self, size: int) -> None:
        self._bytes += size
        self._service.held_bytes += size
        self._service.check_capacity(0)

    def release(self) -> None:
        self._service.held_bytes -= self._bytes


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body that was read already, and then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
