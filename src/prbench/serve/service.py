"""What the gate, the routes and the worker of one server share."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version

from starlette.requests import ClientDisconnect, Request

from prbench.reward_models.base import Loaded
from prbench.schema import Json, RewardInput
from prbench.serve.metrics import Counts, resident_bytes
from prbench.serve.protocol import RefusedError
from prbench.serve.queue import Answer, FullError, ModelFailedError, Outcome, RequestQueue, Task, Ticket
from prbench.serve.settings import ServeSettings
from prbench.serve.worker import Worker

LOADING_SECONDS = 2  # what a client is told to wait while the model loads
DRAINING_SECONDS = 5  # or while the server ends, and another may take its place


def model_id(loaded: Loaded) -> str:
    """Return the model's spec and the hash of all that changes its scores: `classifier:org/name#0f3a…`."""
    facts = {"kind": loaded.kind, "identity": dict(loaded.identity), "template_hash": loaded.template_hash}
    return f"{loaded.spec}#{sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]}"


class Service:
    """One model with its queue. All but the worker's thread runs in one event loop."""

    def __init__(self, load: Callable[[], Loaded], settings: ServeSettings) -> None:
        self.settings = settings
        self.counts = Counts()
        self.queue = RequestQueue(settings.max_queue)
        self.worker = Worker(load, self.queue, self.counts, settings)
        self._sender: dict[str, str] = {}
        self.held_bytes = 0  # of bodies: being read, or waiting for their answer
        self.drained = asyncio.Event()
        self.is_draining = False
        self._accepted = 0

    @property
    def loaded(self) -> Loaded | None:
        """Return the model once it is there."""
        future = self.worker.loaded
        return future.result() if future.done() and future.exception() is None else None

    @property
    def sender(self) -> dict[str, str]:
        """Return what every reply says of its origin, once the model is loaded."""
        if not self._sender and (loaded := self.loaded):
            self._sender = {"model": model_id(loaded), "template_hash": loaded.template_hash}
        return self._sender

    def check_ready(self) -> Loaded:
        """Return the model; before it is loaded, and once the server ends, requests are sent away."""
        if self.is_draining:
            raise RefusedError(503, "The server is shutting down.", retry_after=DRAINING_SECONDS)
        loaded = self.loaded
        if loaded is None:
            raise RefusedError(503, "The model is being loaded.", retry_after=LOADING_SECONDS)
        if not self.worker.is_alive:
            raise RefusedError(503, "The thread that runs the model has ended. Restart the server.")
        return loaded

    def check_capacity(self, more: int) -> None:
        """Send a request away at once when its inputs find no room; it is told when there may be some."""
        if len(self.queue) + more > self.settings.max_queue or self.held_bytes > self.settings.max_held_bytes:
            raise self._full()

    def enter(self) -> None:
        """Count a request that will be answered, whatever happens."""
        self._accepted += 1

    def leave(self) -> None:
        """Count it as answered."""
        self._accepted -= 1
        self._note_drained()

    def drain(self) -> None:
        """Accept nothing more; `drained` is set when all that was accepted has its answer."""
        self.is_draining = True
        self._note_drained()

    async def ask(self, task: Task, inputs: Sequence[RewardInput], request: Request) -> list[Answer]:
        """Queue the inputs of a request and return their answers; when its client leaves, they leave the queue."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()

        def deliver(result: Outcome) -> None:  # in the worker's thread
            loop.call_soon_threadsafe(_set, outcome, result)

        ticket = Ticket(task, inputs, deliver)
        try:
            self.queue.put(ticket)
        except FullError:
            raise self._full() from None
        leaving = asyncio.create_task(_client_leaves(request))
        try:
            await asyncio.wait((outcome, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not outcome.done():
                self.counts.add("prbench_dropped_inputs_total", self.queue.drop(ticket))
                raise ClientDisconnect
        finally:
            leaving.cancel()
        result = outcome.result()
        if isinstance(result, ModelFailedError):
            raise RefusedError(500, f"The model failed on the batch with this request: {result}")
        return result

    def metrics(self) -> str:
        """Return the page for Prometheus."""
        loaded = self.loaded
        gauges: dict[str, float] = {
            "prbench_ready": int(loaded is not None and not self.is_draining and self.worker.is_alive),
            "prbench_queue_inputs": len(self.queue),
            "prbench_queue_limit": self.settings.max_queue,
            "prbench_accepted_requests": self._accepted,
        }
        memory = resident_bytes()
        if memory is not None:
            gauges["process_resident_memory_bytes"] = memory
        tokens: Mapping[str, Json] | None = loaded.tokens() if loaded and loaded.tokens else None
        return self.counts.text(gauges, {**self.sender, "version": version("prbench")}, tokens)

    def _full(self) -> RefusedError:
        seconds = math.ceil(len(self.queue) * self.worker.seconds_per_input)
        return RefusedError(
            429, f"The queue of {self.settings.max_queue} inputs is full.", retry_after=min(max(seconds, 1), 60)
        )

    def _note_drained(self) -> None:
        if self.is_draining and self._accepted == 0:
            self.drained.set()


def _set(outcome: "asyncio.Future[Outcome]", result: Outcome) -> None:
    if not outcome.done():
        outcome.set_result(result)


async def _client_leaves(request: Request) -> None:
    """Return when the client has closed its connection; its body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
