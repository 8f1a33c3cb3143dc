"""What small methods share: epochs over a module with exact resume and early stopping, and the loss of a pair."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from prbench.errors import RunError
from prbench.runs import Checkpoint
from prbench.schema import Json
from prbench.training.folder import ProgressCallback


class LoopSettings(Protocol):
    """What `fit` reads of a method's settings."""

    @property
    def epochs(self) -> int: ...
    @property
    def patience(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How the learning rate changes over the steps."""

    warm_up: int = 0  # steps until the full learning rate
    cosine: bool = False  # it falls to 0 over the epochs
    clip: float = 0.0  # the longest gradient that is followed in full; 0: any


CONSTANT = Schedule()


@dataclass(frozen=True, kw_only=True)
class BestEpoch:
    """Which epoch's weights the module has now."""

    epoch: int  # counted from 0
    accuracy: float  # on held-out users
    seconds: float  # in all, over every start of the command
    history: tuple[float, ...]  # accuracy after each epoch

    @property
    def facts(self) -> dict[str, Json]:
        """What a card says of it."""
        return {
            "epoch": self.epoch,
            "epochs_run": len(self.history),
            "validation_accuracy": round(self.accuracy, 4),
            "training_seconds": round(self.seconds, 2),
        }


def fit(
    module: nn.Module,
    rows: int,
    loss: Callable[[Tensor], Tensor],
    evaluate: Callable[[], float],
    config: LoopSettings,
    checkpoint: Checkpoint | None,
    progress: ProgressCallback,
    *,
    schedule: Schedule = CONSTANT,
    speed: Callable[[str], float] = lambda name: 1.0,
) -> BestEpoch:
    """Train `module` by AdamW and leave it with the weights of its best epoch.

    `loss` gets a batch of row numbers, in training mode; `evaluate` returns the accuracy on held-out users, in
    evaluation mode and without gradients. Killed at any point and called again, it comes to the same weights; without
    a checkpoint it starts over. `speed` says how much of the learning rate a parameter gets, by its name.
    """
    with _deterministic(next(module.parameters()).device):
        state = _TrainerState(module, config, schedule, speed)
        kept = checkpoint.load() if checkpoint else None
        if kept is not None:
            state.restore(kept)
        while state.epoch < config.epochs and state.epoch - 1 - state.best_epoch < config.patience:
            started = time.monotonic()
            state.run_epoch(rows, loss)
            module.eval()
            with torch.no_grad():
                accuracy = evaluate()
            state.add(accuracy, time.monotonic() - started)
            if checkpoint:
                checkpoint.save(state.snapshot())
            progress(state.epoch, config.epochs, f"validation {100 * accuracy:.1f} %")
        module.load_state_dict(state.best)
        module.eval()
        return BestEpoch(
            epoch=state.best_epoch,
            accuracy=state.history[state.best_epoch] if state.history else 0.0,
            seconds=state.seconds,
            history=tuple(state.history),
        )


class _TrainerState:
    """All that the next epoch depends on."""

    def __init__(
        self, module: nn.Module, config: LoopSettings, schedule: Schedule, speed: Callable[[str], float]
    ) -> None:
        self.module, self.config, self.schedule = module, config, schedule
        groups: dict[float, list[nn.Parameter]] = {}
        for name, weight in module.named_parameters():
            if weight.requires_grad:
                groups.setdefault(speed(name), []).append(weight)
        self.optimizer = torch.optim.AdamW(
            [{"params": weights, "lr": share * config.learning_rate} for share, weights in groups.items()],
            weight_decay=config.weight_decay,
        )
        self.rates = [share * config.learning_rate for share in groups]
        self.generator = torch.Generator().manual_seed(config.seed)  # of the order of the rows
        torch.manual_seed(config.seed)  # of dropout
        self.history: list[float] = []
        self.best_epoch = -1
        self.best = copy_state(module)
        self.seconds = 0.0

    @property
    def epoch(self) -> int:
        return len(self.history)

    def run_epoch(self, rows: int, loss: Callable[[Tensor], Tensor]) -> None:
        self.module.train()
        batches = torch.split(torch.randperm(rows, generator=self.generator), self.config.batch_size)
        total = torch.zeros((), device=next(self.module.parameters()).device)
        for step, batch in enumerate(batches):
            self._set_rates(self.epoch * len(batches) + step, self.config.epochs * len(batches))
            self.optimizer.zero_grad()
            value = loss(batch)
            value.backward()  # type: ignore[no-untyped-call]
            total += value.detach()
            if self.schedule.clip:
                nn.utils.clip_grad_norm_(self.module.parameters(), self.schedule.clip)
            self.optimizer.step()
        if not torch.isfinite(total):
            rate = self.config.learning_rate
            raise RunError(f"The loss of epoch {self.epoch + 1} is no number. Lower learning_rate, now {rate}.")

    def _set_rates(self, done: int, steps: int) -> None:
        share = min(1.0, (done + 1) / self.schedule.warm_up) if self.schedule.warm_up else 1.0
        if self.schedule.cosine:
            share *= 0.5 * (1 + math.cos(math.pi * done / steps))
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = share * rate

    def add(self, accuracy: float, seconds: float) -> None:
        if self.best_epoch < 0 or accuracy > self.history[self.best_epoch]:
            self.best_epoch, self.best = self.epoch, copy_state(self.module)
        self.history.append(accuracy)
        self.seconds += seconds

    def snapshot(self) -> dict[str, Any]:
        return {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "dropout": torch.get_rng_state(),
            "gpu_dropout": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "history": list(self.history),
            "best_epoch": self.best_epoch,
            "best": self.best,
            "seconds": self.seconds,
        }

    def restore(self, kept: dict[str, Any]) -> None:
        self.module.load_state_dict(kept["module"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.generator.set_state(kept["generator"])
        torch.set_rng_state(kept["dropout"])
        if kept["gpu_dropout"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(kept["gpu_dropout"])
        self.history, self.best_epoch = list(kept["history"]), kept["best_epoch"]
        self.best, self.seconds = dict(kept["best"]), kept["seconds"]


def copy_state(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's weights as they are now."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


@contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Sum gradients of gathered rows in a fixed order: by default, threads add them as they come.

    A GPU has no such order for some products, so there it is asked for where it can be had.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=device.type != "cpu")
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: small products gain nothing by more, and so the number of cores changes no bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def preference_loss(margin: Tensor) -> Tensor:
    """Return the Bradley-Terry loss, -log sigmoid(margin), averaged (Bradley and Terry 1952)."""
    return F.softplus(-margin).mean()


def to_array(value: Tensor) -> NDArray[np.float32]:
    """Return a learned tensor as it is written to a file."""
    return value.detach().numpy().astype(np.float32).copy()
