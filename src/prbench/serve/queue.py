"""What waits for the model: a bounded queue of inputs, kept together by the prefix that they share."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from prbench.schema import RewardInput, Score, UserContext


class Task(StrEnum):
    """What is asked about an input."""

    SCORE = "score"
    FITS = "fits"  # does it fit the model's window?


class FullError(Exception):
    """There is no room for the inputs of this request now."""


class ModelFailedError(Exception):
    """The model raised an error on the batch that held this request."""


Answer = Score | bool
Outcome = list[Answer] | ModelFailedError


class Ticket:
    """The inputs of one request, until the last of them is answered or the model fails on one."""

    def __init__(self, task: Task, inputs: Sequence[RewardInput], deliver: Callable[[Outcome], None]) -> None:
        self.task = task
        self.inputs = tuple(inputs)
        self.arrived = time.monotonic()
        self._answers: dict[int, Answer] = {}
        self._deliver = deliver

    def answer(self, index: int, answer: Answer) -> None:
        """Note one answer; the last one sends all of them, in the order of the inputs."""
        self._answers[index] = answer
        if len(self._answers) == len(self.inputs):
            self._deliver([self._answers[i] for i in range(len(self.inputs))])

    def fail(self, error: ModelFailedError) -> None:
        """Send the error in place of answers."""
        self._deliver(error)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """One input in the queue."""

    ticket: Ticket
    index: int  # among the inputs of its request
    number: int  # counts up, so the lowest has waited longest

    @property
    def input(self) -> RewardInput:
        """Return the input itself."""
        return self.ticket.inputs[self.index]


Group = tuple[Task, UserContext, str]  # inputs with one user and one question start with the same tokens
FITS: Group = (Task.FITS, UserContext(), "")


class RequestQueue:
    """The queue between the requests and the one thread that runs the model."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._groups: dict[Group, deque[Place]] = {}
        self._count = 0
        self._next_number = 0
        self._is_closed = False

    def __len__(self) -> int:
        return self._count

    def put(self, ticket: Ticket) -> None:
        """Queue all inputs of a request, or none of them when there is no room for all."""
        with self._changed:
            if self._is_closed or self._count + len(ticket.inputs) > self._limit:
                raise FullError
            for index, each in enumerate(ticket.inputs):
                group = FITS if ticket.task is Task.FITS else (Task.SCORE, each.user, each.question)
                place = Place(ticket, index, self._next_number)
                self._groups.setdefault(group, deque()).append(place)
                self._next_number += 1
            self._count += len(ticket.inputs)
            self._changed.notify()

    def drop(self, ticket: Ticket) -> int:
        """Forget what still waits of a request that nobody wants answered; return how many inputs that were."""
        with self._changed:
            before = self._count
            for group in [group for group, places in self._groups.items() if any(p.ticket is ticket for p in places)]:
                kept = deque(place for place in self._groups[group] if place.ticket is not ticket)
                self._count -= len(self._groups[group]) - len(kept)
                self._keep(group, kept)
            return before - self._count

    def close(self) -> None:
        """Take nothing more; `take` gives what is left, and then nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def take(self, most: int, *, enough: int = 1, settled_at: float = 0.0) -> list[Place]:
        """Wait for work and return the next batch; an empty one means that the queue is closed and empty.

        Before the moment `settled_at`, fewer than `enough` inputs are left to gather; after it any will do.
        """
        with self._changed:
            while not self._is_closed:
                left = settled_at - time.monotonic()
                if self._count >= min(enough, most) or (self._count and left <= 0):
                    break
                self._changed.wait(left if left > 0 else None)
            return self._choose(most) if self._count else []

    def _choose(self, most: int) -> list[Place]:
        """Return whole groups: that of the oldest input, so that nobody starves, and then the fullest that fit."""
        if FITS in self._groups:
            return self._cut(FITS, most)  # quick, and a batch of its own
        oldest = min(self._groups, key=lambda group: self._groups[group][0].number)
        batch = self._cut(oldest, most)
        for group in sorted(self._groups, key=lambda group: len(self._groups[group]), reverse=True):
            if group != oldest and len(self._groups[group]) <= most - len(batch):
                batch += self._cut(group, most)
        return batch

    def _cut(self, group: Group, most: int) -> list[Place]:
        places = self._groups[group]
        cut = [places.popleft() for _ in range(min(most, len(places)))]
        self._count -= len(cut)
        self._keep(group, places)
        return cut

    def _keep(self, group: Group, places: deque[Place]) -> None:
        if places:
            self._groups[group] = places
        else:
            del self._groups[group]
