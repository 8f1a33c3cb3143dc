"""The loop that small methods share: epochs over a module, exact resume, early stopping on held-out users."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prbench.errors import RunError
from prbench.runs import Checkpoint
from prbench.schema import Json
from prbench.training.folder import Progress


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long and how fast to learn."""

    epochs: int
    learning_rate: float
    weight_decay: float
    patience: int  # epochs without a better one after which it stops
    batch_size: int
    seed: int
    warm_up: int = 0  # steps until the full learning rate
    cools: bool = False  # the learning rate falls to 0 over the epochs, along a cosine
    clip: float = 0.0  # the longest gradient that is followed in full; 0: any


@dataclass(frozen=True, kw_only=True)
class BestEpoch:
    """Which epoch's weights the module has now."""

    epoch: int  # counted from 0
    accuracy: float  # on held-out users
    epochs: int  # that were run
    seconds: float  # in all, over every start of the command
    history: tuple[float, ...]  # accuracy after each epoch

    @property
    def facts(self) -> dict[str, Json]:
        """What a card says of it."""
        return {
            "epoch": self.epoch,
            "epochs_run": self.epochs,
            "validation_accuracy": round(self.accuracy, 4),
            "training_seconds": round(self.seconds, 2),
        }


def seeded(seed: int) -> None:
    """Seed what a module is initialised from. Call it before the module is made; `fit` seeds itself."""
    torch.manual_seed(seed)


def fit(
    module: nn.Module,
    rows: int,
    loss: Callable[[Tensor], Tensor],
    evaluate: Callable[[], float],
    config: LoopConfig,
    checkpoint: Checkpoint | None,
    say: Progress,
    *,
    speed: Callable[[str], float] = lambda name: 1.0,
) -> BestEpoch:
    """Train `module` by AdamW and leave it with the weights of its best epoch.

    `loss` gets a batch of row numbers, in training mode; `evaluate` returns the accuracy on held-out users, in
    evaluation mode and without gradients. Killed at any point and called again, it comes to the same weights; without
    a checkpoint it starts over. `speed` says how much of the learning rate a parameter gets, by its name.
    """
    with _deterministic(next(module.parameters()).device):
        state = _State(module, config, speed)
        kept = checkpoint.load() if checkpoint else None
        if kept is not None:
            state.restore(kept)
        while not state.ended:
            started = time.monotonic()
            _run_epoch(state, rows, loss)
            state.note(_evaluate(module, evaluate), time.monotonic() - started)
            if checkpoint:
                checkpoint.save(state.snapshot())
            say(state.epoch, config.epochs, f"validation {100 * state.history[-1]:.1f} %")
        return state.finish()


class _State:
    """All that the next epoch depends on."""

    def __init__(self, module: nn.Module, config: LoopConfig, speed: Callable[[str], float]) -> None:
        self.module, self.config = module, config
        groups: dict[float, list[nn.Parameter]] = {}
        for name, weight in module.named_parameters():
            if weight.requires_grad:
                groups.setdefault(speed(name), []).append(weight)
        self.optimiser = torch.optim.AdamW(
            [{"params": weights, "lr": share * config.learning_rate} for share, weights in groups.items()],
            weight_decay=config.weight_decay,
        )
        self.rates = [share * config.learning_rate for share in groups]
        self.generator = torch.Generator().manual_seed(config.seed)  # of the order of the rows
        torch.manual_seed(config.seed)  # of dropout
        self.history: list[float] = []
        self.best_epoch = -1
        self.best: dict[str, Tensor] = _copy(module)
        self.seconds = 0.0

    @property
    def epoch(self) -> int:
        return len(self.history)

    @property
    def ended(self) -> bool:
        return self.epoch >= self.config.epochs or self.epoch - 1 - self.best_epoch >= self.config.patience

    def set_rates(self, step: int, steps: int) -> None:
        """Set the learning rates of one step of the coming epoch."""
        if not (self.config.warm_up or self.config.cools):
            return
        done = self.epoch * steps + step
        share = min(1.0, (done + 1) / self.config.warm_up) if self.config.warm_up else 1.0
        if self.config.cools:
            share *= 0.5 * (1 + math.cos(math.pi * done / (self.config.epochs * steps)))
        for group, rate in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = share * rate

    def note(self, accuracy: float, seconds: float) -> None:
        if self.best_epoch < 0 or accuracy > self.history[self.best_epoch]:
            self.best_epoch, self.best = self.epoch, _copy(self.module)
        self.history.append(accuracy)
        self.seconds += seconds

    def snapshot(self) -> dict[str, Any]:
        return {
            "module": self.module.state_dict(),
            "optimiser": self.optimiser.state_dict(),
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
        self.optimiser.load_state_dict(kept["optimiser"])
        self.generator.set_state(kept["generator"])
        torch.set_rng_state(kept["dropout"])
        if kept["gpu_dropout"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(kept["gpu_dropout"])
        self.history, self.best_epoch = list(kept["history"]), kept["best_epoch"]
        self.best, self.seconds = dict(kept["best"]), kept["seconds"]

    def finish(self) -> BestEpoch:
        self.module.load_state_dict(self.best)
        self.module.eval()
        return BestEpoch(
            epoch=self.best_epoch,
            accuracy=self.history[self.best_epoch] if self.history else 0.0,
            epochs=self.epoch,
            seconds=self.seconds,
            history=tuple(self.history),
        )


def _run_epoch(state: _State, rows: int, loss: Callable[[Tensor], Tensor]) -> None:
    state.module.train()
    batches = torch.split(torch.randperm(rows, generator=state.generator), state.config.batch_size)
    total = torch.zeros((), device=next(state.module.parameters()).device)
    for step, batch in enumerate(batches):
        state.set_rates(step, len(batches))
        state.optimiser.zero_grad()
        value = loss(batch)
        value.backward()  # type: ignore[no-untyped-call]
        total += value.detach()
        if state.config.clip:
            nn.utils.clip_grad_norm_(state.module.parameters(), state.config.clip)
        state.optimiser.step()
    if not torch.isfinite(total):
        rate = state.config.learning_rate
        raise RunError(f"The loss of epoch {state.epoch + 1} is no number. Lower learning_rate, now {rate}.")


def _evaluate(module: nn.Module, evaluate: Callable[[], float]) -> float:
    module.eval()
    with torch.no_grad():
        return evaluate()


def _copy(module: nn.Module) -> dict[str, Tensor]:
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
