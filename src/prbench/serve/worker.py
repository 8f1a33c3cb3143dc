"""The one thread that loads and runs the model, batch after batch."""

import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from prbench.reward_models.base import Loaded, require_scores
from prbench.reward_models.scores import as_score
from prbench.schema import Score
from prbench.serve.metrics import Counts
from prbench.serve.queue import Answer, ModelFailedError, Place, RequestQueue, Task
from prbench.serve.settings import ServeSettings

log = logging.getLogger(__name__)
SETTLING_SHARE = 0.1  # of the last batch's seconds: what may be spent on waiting for the next one to gather
LONGEST_ERROR = 200  # characters


class Worker:
    """Takes batches from the queue and answers each input. The model need not be thread-safe: nobody else calls it."""

    def __init__(
        self, load: Callable[[], Loaded], queue: RequestQueue, counts: Counts, settings: ServeSettings
    ) -> None:
        self.loaded: Future[Loaded] = Future()
        self.seconds_per_input = 0.0  # of late; a guess at how long the queue will take
        self._load = load
        self._queue = queue
        self._counts = counts
        self._settings = settings
        self._thread = threading.Thread(target=self._run, name="reward model", daemon=True)

    def start(self) -> None:
        """Begin to load the model, and then to work."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the closed queue is worked off."""
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Tell whether there is still somebody to answer."""
        return self._thread.is_alive()

    def _run(self) -> None:
        self.loaded.set_running_or_notify_cancel()  # from here on nobody can cancel it
        try:
            loaded = self._load()
            require_scores(loaded, "a reward server")
        except BaseException as error:  # noqa: BLE001 - the thread that waits for the model raises it
            self.loaded.set_exception(error)
            return
        _spare_collector()
        self.loaded.set_result(loaded)
        self._work(loaded)

    def _work(self, loaded: Loaded) -> None:
        enough, settled_at = 1, 0.0
        while batch := self._queue.take(self._settings.max_batch, enough=enough, settled_at=settled_at):
            started = time.monotonic()
            self._answer(loaded, batch)
            ended = time.monotonic()
            # Those who got an answer now are about to ask again: a short wait makes one batch of them, not two.
            enough = len(batch)
            settled_at = ended + min(self._settings.max_wait_seconds, SETTLING_SHARE * (ended - started))

    def _answer(self, loaded: Loaded, batch: Sequence[Place]) -> None:
        try:
            answers = self._counted(loaded, batch)
        except Exception as error:  # whatever a model raises, the server lives on
            log.exception("the model failed on a batch of %d inputs", len(batch))
            self._counts.add("prbench_model_errors_total")
            for ticket in {place.ticket for place in batch}:
                self._queue.drop(ticket)
                ticket.fail(
                    ModelFailedError(f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_ERROR])
                )
            return
        for place, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Score):
                self._counts.add("prbench_scores_total", problem=answer.problem.value)
            place.ticket.answer(place.index, answer)

    def _counted(self, loaded: Loaded, batch: Sequence[Place]) -> Sequence[Answer]:
        """Return what the model says; the batch is among the figures before anybody has an answer."""
        started = time.monotonic()
        try:
            return _compute(loaded, batch)
        finally:
            if batch[0].ticket.task is Task.SCORE:
                self._count_batch(batch, started, time.monotonic())

    def _count_batch(self, batch: Sequence[Place], started: float, ended: float) -> None:
        self._counts.observe("prbench_batch_inputs", len(batch))
        groups = {(place.input.user, place.input.question) for place in batch}
        self._counts.observe("prbench_batch_groups", len(groups))
        for place in batch:
            self._counts.observe("prbench_queue_seconds", started - place.ticket.arrived)
        self._counts.observe("prbench_compute_seconds", ended - started)
        pace = (ended - started) / len(batch)
        self.seconds_per_input = 0.8 * self.seconds_per_input + 0.2 * pace if self.seconds_per_input else pace


def _spare_collector() -> None:
    """Let no collection of garbage walk over the libraries and the model again: it holds up every reply meanwhile."""
    gc.collect()
    gc.freeze()


def _compute(loaded: Loaded, batch: Sequence[Place]) -> Sequence[Answer]:
    """Return one answer per input; the inputs of a batch are all scored, or all asked whether they fit."""
    inputs = [place.input for place in batch]
    if batch[0].ticket.task is Task.FITS:
        return [loaded.fits is None or loaded.fits(each) for each in inputs]
    scores = require_scores(loaded, "a reward server").score(inputs)
    if len(scores) != len(inputs):
        raise ValueError(f"the model gave {len(scores)} scores for {len(inputs)} inputs")
    return [_finite(score) for score in scores]


def _finite(score: Score) -> Score:
    """Return the score; a number that no ranking and no JSON can hold is a failed score."""
    return score if score.value is None or math.isfinite(score.value) else as_score(score.value)
