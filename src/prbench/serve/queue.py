"""What waits for the model, and the one thread that runs it.

The queue is bounded, and keeps together the inputs that share a prefix; the worker takes them out batch by batch.
"""

import gc
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum

from prbench.reward_models.base import LoadedModel, as_score, require_scores
from prbench.schema import RewardInput, Score, UserContext
from prbench.serve.metrics import Metrics
from prbench.serve.settings import ServeSettings

log = logging.getLogger(__name__)
SETTLING_SHARE = 0.1  # of the last batch's seconds: what may be spent on waiting for the next one to gather
LONGEST_ERROR = 200  # characters


class Operation(StrEnum):
    """What is asked about an input."""

    SCORE = "score"
    FITS = "fits"  # does it fit the model's window?


class FullError(Exception):
    """There is no room for the inputs of this request now."""


class ModelFailedError(Exception):
    """The model raised an error on the batch that held this request."""


Answer = Score | bool
Outcome = list[Answer] | ModelFailedError


class PendingRequest:
    """The inputs of one request, until the last of them is answered or the model fails on one."""

    def __init__(
        self, operation: Operation, inputs: Sequence[RewardInput], deliver: Callable[[Outcome], object]
    ) -> None:
        self.operation = operation
        self.inputs = tuple(inputs)
        self.arrived = time.monotonic()
        self._answers: dict[int, Answer] = {}
        self.deliver = deliver

    def answer(self, index: int, answer: Answer) -> None:
        """Note one answer; the last one sends all of them, in the order of the inputs."""
        self._answers[index] = answer
        if len(self._answers) == len(self.inputs):
            self.deliver([self._answers[i] for i in range(len(self.inputs))])


@dataclass(frozen=True, slots=True, eq=False)
class QueuedInput:
    """One input in the queue."""

    request: PendingRequest
    index: int  # among the inputs of its request
    input: RewardInput
    number: int  # counts up, so the lowest has waited longest


Group = tuple[Operation, UserContext, str]  # inputs with one user and one question start with the same tokens
FITS: Group = (Operation.FITS, UserContext(), "")


class RequestQueue:
    """The queue between the requests and the one thread that runs the model."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._groups: dict[Group, deque[QueuedInput]] = {}
        self._count = 0
        self._next_number = 0
        self._is_closed = False

    def __len__(self) -> int:
        return self._count

    def put(self, request: PendingRequest) -> None:
        """Queue all inputs of a request, or none of them when there is no room for all."""
        if not request.inputs:  # no answer will ever be the last
            request.deliver([])
            return
        with self._changed:
            if self._is_closed or self._count + len(request.inputs) > self._limit:
                raise FullError
            for index, each in enumerate(request.inputs):
                group = FITS if request.operation is Operation.FITS else (Operation.SCORE, each.user, each.question)
                queued = QueuedInput(request, index, each, self._next_number)
                self._groups.setdefault(group, deque()).append(queued)
                self._next_number += 1
            self._count += len(request.inputs)
            self._changed.notify()

    def drop(self, request: PendingRequest) -> int:
        """Forget what still waits of a request that nobody wants answered; return how many inputs that were."""
        with self._changed:
            before = self._count
            for group, queued in list(self._groups.items()):
                self._groups[group] = deque(each for each in queued if each.request is not request)
                self._count -= len(queued) - len(self._groups[group])
                if not self._groups[group]:
                    del self._groups[group]
            return before - self._count

    def close(self) -> None:
        """Take nothing more; `take` gives what is left, and then nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def take(self, most: int, *, enough: int = 1, settled_at: float = 0.0) -> list[QueuedInput]:
        """Wait for work and return the next batch; an empty one means that the queue is closed and empty.

        Before the moment `settled_at`, fewer than `enough` inputs are left to gather; after it any will do.
        """
        with self._changed:
            while not self._is_closed:
                left = settled_at - time.monotonic()
                if self._count >= min(enough, most) or (self._count and left <= 0):
                    break
                self._changed.wait(left if left > 0 else None)
            if not self._count:
                return []
            if FITS in self._groups:
                return self._cut(FITS, most)  # quick, and a batch of its own
            # Whole groups: that of the oldest input, so that nobody starves, and then the fullest that fit.
            oldest = min(self._groups, key=lambda group: self._groups[group][0].number)
            batch = self._cut(oldest, most)
            for group in sorted(self._groups, key=lambda group: len(self._groups[group]), reverse=True):
                if group != oldest and len(self._groups[group]) <= most - len(batch):
                    batch += self._cut(group, most)
            return batch

    def _cut(self, group: Group, most: int) -> list[QueuedInput]:
        queued = self._groups[group]
        cut = [queued.popleft() for _ in range(min(most, len(queued)))]
        self._count -= len(cut)
        if not queued:
            del self._groups[group]
        return cut


class Worker:
    """Takes batches from the queue and answers each input. The model need not be thread-safe: nobody else calls it."""

    def __init__(
        self, load: Callable[[], LoadedModel], queue: RequestQueue, metrics: Metrics, settings: ServeSettings
    ) -> None:
        self.loaded: Future[LoadedModel] = Future()
        self.seconds_per_input = 0.0  # of late; a guess at how long the queue will take
        self.thread = threading.Thread(target=self._run, name="reward model", daemon=True)
        self._load = load
        self._queue = queue
        self._metrics = metrics
        self._settings = settings

    def _run(self) -> None:
        self.loaded.set_running_or_notify_cancel()  # from here on nobody can cancel it
        try:
            loaded = self._load()
            require_scores(loaded, "a reward server")
        except BaseException as error:  # noqa: BLE001 - the thread that waits for the model raises it
            self.loaded.set_exception(error)
            return
        # No garbage collection walks over the libraries and the model again: it would hold up every reply meanwhile.
        gc.collect()
        gc.freeze()
        self.loaded.set_result(loaded)
        enough, settled_at = 1, 0.0
        while batch := self._queue.take(self._settings.max_batch, enough=enough, settled_at=settled_at):
            started = time.monotonic()
            self._answer(loaded, batch)
            ended = time.monotonic()
            # Those who got an answer now are about to ask again: a short wait makes one batch of them, not two.
            enough = len(batch)
            settled_at = ended + min(self._settings.max_wait_seconds, SETTLING_SHARE * (ended - started))

    def _answer(self, loaded: LoadedModel, batch: Sequence[QueuedInput]) -> None:
        """Score the inputs of a batch, or ask whether they fit, and count what it took before anybody hears of it."""
        started = time.monotonic()
        inputs = [each.input for each in batch]
        is_scored = batch[0].request.operation is Operation.SCORE  # a batch has inputs of one operation
        answers: Sequence[Answer] = []
        failure: ModelFailedError | None = None
        try:
            if is_scored:
                scores = require_scores(loaded, "a reward server").score(inputs)
                if len(scores) != len(inputs):
                    raise ValueError(f"the model gave {len(scores)} scores for {len(inputs)} inputs")
                # A number that no ranking and no JSON can hold is a failed score.
                answers = [
                    score if score.value is None or math.isfinite(score.value) else as_score(score.value)
                    for score in scores
                ]
            else:
                answers = [loaded.fits is None or loaded.fits(each) for each in inputs]
        except Exception as error:  # whatever a model raises, the server lives on
            log.exception("the model failed on a batch of %d inputs", len(batch))
            failure = ModelFailedError(f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_ERROR])
        if is_scored:
            seconds = time.monotonic() - started
            self._metrics.observe("prbench_batch_inputs", len(batch))
            self._metrics.observe("prbench_batch_groups", len({(each.user, each.question) for each in inputs}))
            for each in batch:
                self._metrics.observe("prbench_queue_seconds", started - each.request.arrived)
            self._metrics.observe("prbench_compute_seconds", seconds)
            pace = seconds / len(batch)  # an exponential moving average: a fifth is of this batch
            self.seconds_per_input = 0.8 * self.seconds_per_input + 0.2 * pace if self.seconds_per_input else pace
        if failure:
            self._metrics.add("prbench_model_errors_total")
            for request in {each.request for each in batch}:
                self._queue.drop(request)
                request.deliver(failure)
            return
        for each, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Score):
                self._metrics.add("prbench_scores_total", problem=answer.problem.value)
            each.request.answer(each.index, answer)
