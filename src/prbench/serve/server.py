"""A reward server: the model with its queue, who may come in, the routes, and a gentle end."""

import asyncio
import hmac
import json
import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.metadata import version
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prbench.reward_models.base import LoadedModel
from prbench.schema import Json, RewardInput
from prbench.serve.http import (
    ClientLeftError,
    QuietUvicorn,
    RefusedRequestError,
    WrongTokens,
    catch_signals,
    listen,
    receive_body,
)
from prbench.serve.metrics import CONTENT_TYPE, Metrics, resident_bytes
from prbench.serve.partners import PROTOCOLS, Protocol
from prbench.serve.protocol import error_body, read_body
from prbench.serve.queue import (
    Answer,
    FullError,
    ModelFailedError,
    Operation,
    Outcome,
    PendingRequest,
    RequestQueue,
    Worker,
)
from prbench.serve.settings import ServeSettings

LOADING_SECONDS = 2  # what a client is told to wait while the model loads
DRAINING_SECONDS = 5  # or while the server ends, and another may take its place
KEEP_ALIVE_SECONDS = 30
HELD_BODIES = 32  # so many of the largest size may be in memory at once; beyond it the server is as good as full
CLIENT_LEFT = 499  # nobody reads this reply; the number is for the metrics
OPEN_PATHS = frozenset({"/health"})  # a probe need not know the token
ASKING_PATHS = frozenset(path for each in PROTOCOLS for path in each.paths)  # POST, answered by the model
OTHER_PATHS = frozenset({"/health", "/ready", "/metrics", "/v1/models"})


class Service:
    """One model with its queue. All but the worker's thread runs in one event loop."""

    def __init__(self, load: Callable[[], LoadedModel], settings: ServeSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.queue = RequestQueue(settings.max_queue)
        self.worker = Worker(load, self.queue, self.metrics, settings)
        self.held_bytes = 0  # of bodies: being read, or waiting for their answer
        self.accepted = 0  # requests that will be answered, whatever happens
        self.drained = asyncio.Event()
        self.is_draining = False
        self._sender: dict[str, str] = {}

    @property
    def loaded(self) -> LoadedModel | None:
        """The model, once it is there."""
        future = self.worker.loaded
        return future.result() if future.done() and future.exception() is None else None

    @property
    def sender(self) -> dict[str, str]:
        """What every reply says of its origin: the model's spec with the hash of all that changes its scores."""
        if not self._sender and (loaded := self.loaded):
            facts = {"kind": loaded.kind, "identity": dict(loaded.identity), "template_hash": loaded.template_hash}
            digest = sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
            self._sender = {"model": f"{loaded.spec}#{digest}", "template_hash": loaded.template_hash}
        return self._sender

    def check_ready(self) -> LoadedModel:
        """Return the model; before it is loaded, and once the server ends, requests are sent away."""
        if self.is_draining:
            raise RefusedRequestError(503, "The server is shutting down.", retry_after=DRAINING_SECONDS)
        loaded = self.loaded
        if loaded is None:
            raise RefusedRequestError(503, "The model is being loaded.", retry_after=LOADING_SECONDS)
        if not self.worker.thread.is_alive():
            raise RefusedRequestError(503, "The thread that runs the model has ended. Restart the server.")
        return loaded

    def check_capacity(self, more: int) -> None:
        """Send a request away at once when its inputs find no room; it is told when there may be some."""
        if (
            len(self.queue) + more > self.settings.max_queue
            or self.held_bytes > HELD_BODIES * self.settings.max_body_bytes
        ):
            raise self._full()

    def drain(self) -> None:
        """Accept nothing more; `drained` is set when all that was accepted has its answer."""
        self.is_draining = True
        self.note_drained()

    def note_drained(self) -> None:
        """Tell who waits for the end, if this is it."""
        if self.is_draining and self.accepted == 0:
            self.drained.set()

    async def ask(self, operation: Operation, inputs: Sequence[RewardInput], request: Request) -> list[Answer]:
        """Queue the inputs of a request and return their answers; when its client leaves, they leave the queue."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()

        def settle(result: Outcome) -> None:
            if not outcome.done():
                outcome.set_result(result)

        # The worker's thread delivers.
        pending = PendingRequest(operation, inputs, lambda result: loop.call_soon_threadsafe(settle, result))
        try:
            self.queue.put(pending)
        except FullError:
            raise self._full() from None
        leaving = asyncio.create_task(_client_leaves(request))
        try:
            await asyncio.wait((outcome, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not outcome.done():
                self.metrics.add("prbench_dropped_inputs_total", self.queue.drop(pending))
                raise ClientDisconnect
        finally:
            leaving.cancel()
        result = outcome.result()
        if isinstance(result, ModelFailedError):
            raise RefusedRequestError(500, f"The model failed on the batch with this request: {result}")
        return result

    def check_model(self, asked: str | None) -> None:
        """Refuse a request for another model than the one that is served, by its whole id, its spec or its folder."""
        served = self.sender["model"]
        spec = served.rpartition("#")[0]
        if asked not in (None, served, spec, spec.partition("?")[0].partition(":")[2] or None):
            raise RefusedRequestError(404, f"This server has no model {asked!r}; it has {served!r}.")

    def _full(self) -> RefusedRequestError:
        seconds = math.ceil(len(self.queue) * self.worker.seconds_per_input)
        return RefusedRequestError(
            429, f"The queue of {self.settings.max_queue} inputs is full.", retry_after=min(max(seconds, 1), 60)
        )


async def _client_leaves(request: Request) -> None:
    """Return when the client has closed its connection; its body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class AdmissionMiddleware:
    """Checks token, readiness, room and size before a body is read: what it refuses costs no memory and no model."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._wrong = WrongTokens(service.settings.wrong_tokens, service.settings.window_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"] if scope["path"] in ASKING_PATHS | OTHER_PATHS else "other"
        metrics = self._service.metrics
        metrics.add("prbench_requests_total", endpoint=path)

        async def send_labeled(message: Message) -> None:
            """Count the reply, and say which model and template it comes from."""
            if message["type"] == "http.response.start":
                metrics.add("prbench_responses_total", endpoint=path, code=str(message["status"]))
                if message["status"] != 401 and path not in OPEN_PATHS:
                    headers = MutableHeaders(scope=message)
                    for name, value in self._service.sender.items():
                        headers[f"x-prbench-{name.replace('_', '-')}"] = quote(value, safe=":/?=&#,@")
            await send(message)

        try:
            self._check_token(scope)
            if scope["path"] in ASKING_PATHS and scope["method"] == "POST":
                await self._ask(scope, receive, send_labeled)
            else:
                await self._app(scope, receive, send_labeled)
        except RefusedRequestError as refusal:
            await JSONResponse(error_body(refusal), refusal.status, refusal.headers)(scope, receive, send_labeled)
        except ClientLeftError:
            metrics.add("prbench_responses_total", endpoint=path, code=str(CLIENT_LEFT))

    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        service.check_ready()
        service.check_capacity(1)
        service.accepted += 1  # before the body is read: what a draining server has begun to read, it answers
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            held += size
            service.held_bytes += size
            service.check_capacity(0)

        try:
            await self._app(scope, await receive_body(scope, receive, service.settings, hold), send)
        finally:
            service.held_bytes -= held
            service.accepted -= 1
            service.note_drained()

    def _check_token(self, scope: Scope) -> None:
        token = self._service.settings.token
        if not token or scope["path"] in OPEN_PATHS:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, value = given.partition(b" ")
        wrong = RefusedRequestError(401, "Send the server's token: Authorization: Bearer TOKEN.")
        if scheme.lower() != b"bearer":
            raise wrong  # no guess
        # Compared in constant time: how long a wrong one takes must say nothing about the right one.
        if not hmac.compare_digest(value.strip(), token.encode()):
            raise self._wrong.refusal((scope.get("client") or ("", 0))[0], wrong)


def make_app(service: Service) -> ASGIApp:
    """Return the routes behind the middleware."""
    # The pages that FastAPI offers load scripts from elsewhere; docs/reference/server.md is the documentation.
    app = FastAPI(title="prbench", docs_url=None, redoc_url=None, openapi_url=None)
    _add_state(app, service)
    for protocol in PROTOCOLS:
        _add_protocol(app, service, protocol)

    @app.exception_handler(RefusedRequestError)
    @app.exception_handler(HTTPException)
    @app.exception_handler(ClientDisconnect)
    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        match error:
            case ClientDisconnect():
                return Response(status_code=CLIENT_LEFT)
            case RefusedRequestError():
                refusal = error
            case HTTPException():
                refusal = RefusedRequestError(error.status_code, error.detail)
                refusal.headers.update(error.headers or {})
            case _:
                refusal = RefusedRequestError(500, f"The server failed: {type(error).__name__}.")
        return JSONResponse(error_body(refusal), refusal.status, refusal.headers)

    return AdmissionMiddleware(app, service)


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/ready")
    async def ready() -> dict[str, Json]:
        loaded = service.check_ready()
        return {"status": "ready", **service.sender, "fits": loaded.fits is not None}

    @app.get("/metrics")
    async def metrics() -> Response:
        loaded, worker = service.loaded, service.worker.thread
        gauges: dict[str, float] = {
            "prbench_ready": int(loaded is not None and not service.is_draining and worker.is_alive()),
            "prbench_queue_inputs": len(service.queue),
            "prbench_queue_limit": service.settings.max_queue,
            "prbench_accepted_requests": service.accepted,
        }
        memory = resident_bytes()
        if memory is not None:
            gauges["process_resident_memory_bytes"] = memory
        tokens = loaded.tokens() if loaded and loaded.tokens else None
        page = service.metrics.text(gauges, {**service.sender, "version": version("prbench")}, tokens)
        return PlainTextResponse(page, media_type=CONTENT_TYPE)

    @app.get("/v1/models")
    async def models() -> dict[str, Json]:
        window = service.check_ready().window
        row = {"id": service.sender["model"], "object": "model", "owned_by": "prbench", "max_model_len": window}
        return {"object": "list", "data": [row]}


def _add_protocol(app: FastAPI, service: Service, protocol: Protocol) -> None:
    async def answer(request: Request) -> Response:
        body, inputs = read_body(protocol.body, await request.body(), service.settings)
        service.check_model(getattr(body, "model", None))
        answers = await service.ask(protocol.asks, inputs, request)
        return JSONResponse({**service.sender, **protocol.reply(body, answers)})

    for path in protocol.paths:
        app.post(path)(answer)


class RewardServer:
    """One model behind one address.

        server = RewardServer(lambda: prbench.load_model("head:lab-user"), ServeSettings(port=8000))
        server.run()  # until `stop()` is called from another thread

    It listens from the start and answers scores once the model is loaded.
    """

    def __init__(self, load: Callable[[], LoadedModel], settings: ServeSettings) -> None:
        self._socket = listen(settings.host, settings.port)
        self._service = Service(load, settings)
        self._uvicorn = QuietUvicorn(make_app(self._service), settings, timeout_keep_alive=KEEP_ALIVE_SECONDS)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The address, with the port that was really taken."""
        return f"{self._service.settings.url}:{self._socket.getsockname()[1]}"

    def run(self, announce: Callable[[dict[str, str]], None] = lambda sender: None) -> bool:
        """Serve until SIGTERM, SIGINT or `stop`; `announce` hears which model is ready.

        Return whether everything that was accepted has been answered; only a second signal prevents it.
        """
        return asyncio.run(self._run(announce))

    def stop(self) -> None:
        """Accept nothing more, answer the rest, and end; called from another thread."""
        if self._loop is None or self._loop.is_closed():
            self._service.drain()  # before it ran, perhaps
        else:
            self._loop.call_soon_threadsafe(self._service.drain)

    async def _run(self, announce: Callable[[dict[str, str]], None]) -> bool:
        self._loop = asyncio.get_running_loop()
        service, server = self._service, self._uvicorn
        catch_signals(self._on_signal)
        service.worker.thread.start()
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        loading = asyncio.wrap_future(service.worker.loaded)
        draining = asyncio.create_task(service.drained.wait())
        try:
            await asyncio.wait((loading, draining), return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()  # what went wrong with the model ends the server
                announce(service.sender)
            await draining
        finally:
            loading.cancel()
            draining.cancel()
            service.queue.close()
            server.should_exit = True
            await serving
        if service.loaded is not None and not server.force_exit:
            service.worker.thread.join()
        return not server.force_exit

    def _on_signal(self) -> None:
        """End gently at the first signal, and at once at the second."""
        if self._service.is_draining:
            self._uvicorn.force_exit = True
            self._service.drained.set()
        self._service.drain()
