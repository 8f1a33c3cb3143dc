"""The loop: early stopping by hand, and the same weights after any interruption."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from prbench.errors import RunError
from prbench.runs import Checkpoint
from prbench.training.folder import no_progress
from prbench.training.loop import Schedule, fit, one_thread, preference_loss


@dataclass(frozen=True)
class Settings:
    """What the loop reads of a method's settings."""

    epochs: int = 6
    learning_rate: float = 0.1
    weight_decay: float = 0.0
    patience: int = 6
    batch_size: int = 4
    seed: int = 3


CONFIG = Settings()
ROWS = 10


class InterruptedHereError(Exception):
    """Stands for a kill."""


def regression(dropout: float = 0.3) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """A small problem whose loss draws random numbers."""
    inputs = torch.linspace(-1, 1, ROWS)[:, None]
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(1, 8), nn.Dropout(dropout), nn.Tanh(), nn.Linear(8, 1))
    return module, lambda rows: (module(inputs[rows]) - inputs[rows] ** 2).square().mean()


def margins_of(accuracy: float) -> Tensor:
    """Ten margins, of which that share is above 0."""
    return torch.tensor([1.0 if place < round(10 * accuracy) else -1.0 for place in range(10)])


def scripted(values: list[float], *, stop_at: int | None = None, start: int = 0) -> Callable[[], Tensor]:
    """Held-out margins with given accuracies; asking for them may be interrupted."""
    calls = iter(range(start, len(values)))

    def margins() -> Tensor:
        call = next(calls)
        if call == stop_at:
            raise InterruptedHereError
        return margins_of(values[call])

    return margins


def weights(module: nn.Module) -> list[Tensor]:
    return [value.clone() for value in module.state_dict().values()]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


VALUES = [0.5, 0.6, 0.9, 0.7, 0.9, 0.8]


def test_the_best_epoch_is_the_first_of_the_highest_and_its_weights_return() -> None:
    module, loss = regression()
    seen: list[list[Tensor]] = []

    def margins() -> Tensor:
        seen.append(weights(module))
        return margins_of(VALUES[len(seen) - 1])

    best = fit(module, ROWS, loss, margins, CONFIG, None, no_progress)
    assert (best.epoch, best.accuracy, best.history) == (2, 0.9, tuple(VALUES))
    assert best.facts["epochs_run"] == 6
    assert same(weights(module), seen[2])
    assert not same(weights(module), seen[5])


@pytest.mark.parametrize("patience, epochs", [(1, 4), (2, 5), (3, 6)])
def test_it_stops_after_so_many_epochs_without_a_better_one(patience: int, epochs: int) -> None:
    module, loss = regression()
    config = replace(CONFIG, patience=patience)
    assert fit(module, ROWS, loss, scripted(VALUES), config, None, no_progress).facts["epochs_run"] == epochs


@pytest.mark.parametrize("stop_at", [0, 1, 3, 5])
def test_interrupted_and_called_again_it_comes_to_the_same_weights(tmp_path: Path, stop_at: int) -> None:
    whole, loss = regression()
    expected = fit(whole, ROWS, loss, scripted(VALUES), CONFIG, None, no_progress)
    checkpoint = Checkpoint(path=tmp_path / "checkpoint.pt", key="k")
    first, loss = regression()
    with pytest.raises(InterruptedHereError):
        fit(first, ROWS, loss, scripted(VALUES, stop_at=stop_at), CONFIG, checkpoint, no_progress)
    torch.manual_seed(99)  # another process would not be here either
    second, loss = regression()
    best = fit(second, ROWS, loss, scripted(VALUES, start=stop_at), CONFIG, checkpoint, no_progress)
    assert (best.epoch, best.history) == (expected.epoch, expected.history)
    assert same(weights(second), weights(whole))
    # Once more: everything is there already, and nothing is computed.
    third, loss = regression()
    assert fit(third, ROWS, loss, scripted([]), CONFIG, checkpoint, no_progress) == best
    assert same(weights(third), weights(whole))


def test_another_seed_gives_other_weights() -> None:
    (first, loss), (second, other) = regression(), regression()
    fit(first, ROWS, loss, scripted(VALUES), CONFIG, None, no_progress)
    fit(second, ROWS, other, scripted(VALUES), replace(CONFIG, seed=4), None, no_progress)
    assert not same(weights(first), weights(second))


def test_weights_that_need_no_gradient_stay() -> None:
    module, loss = regression()
    frozen = next(module.parameters()).requires_grad_(False)
    before = frozen.clone()
    fit(module, ROWS, loss, scripted(VALUES), CONFIG, None, no_progress)
    assert torch.equal(frozen, before)


def test_one_step_of_the_loop_is_one_step_of_adamw() -> None:
    """AdamW's first step moves a weight by the learning rate against its gradient, after decay: w (1 - lr wd) - lr."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 2.0)
    config = Settings(epochs=1, learning_rate=0.1, weight_decay=0.5, patience=1, batch_size=9, seed=0)
    fit(module, 3, lambda rows: module(torch.ones(len(rows), 1)).sum(), scripted([1.0]), config, None, no_progress)
    assert float(module.weight.detach()) == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.1)


def test_the_preference_loss_is_minus_log_sigmoid() -> None:
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))) / 2
    assert float(preference_loss(torch.tensor([2.0, -1.0]))) == pytest.approx(expected)


def test_the_rate_warms_up_and_falls_along_a_cosine() -> None:
    """AdamW's step is as long as its rate while the gradient stays the same; the rate is whole from the second on."""
    module = nn.Linear(1, 1, bias=False)
    rates: list[float] = []

    def loss(rows: Tensor) -> Tensor:
        rates.append(float(module.weight.detach()))
        value: Tensor = module(torch.ones(len(rows), 1)).sum()
        return value

    config = replace(CONFIG, epochs=2, patience=2, batch_size=1)
    schedule = Schedule(warm_up=2, cosine=True)
    fit(module, 2, loss, scripted([0.5, 0.6]), config, None, no_progress, schedule=schedule)
    steps = [before - after for before, after in pairwise(rates)]
    cosines = [0.5 * (1 + math.cos(math.pi * done / 4)) for done in range(3)]
    assert steps == pytest.approx([0.1 * 0.5, 0.1 * cosines[1], 0.1 * cosines[2]], rel=1e-4)


def test_every_row_is_seen_once_per_epoch_and_progress_is_told() -> None:
    module, loss = regression()
    seen: list[int] = []
    told: list[tuple[int, int, str]] = []

    def counted(rows: Tensor) -> Tensor:
        seen.extend(rows.tolist())
        return loss(rows)

    fit(module, ROWS, counted, scripted(VALUES), CONFIG, None, lambda *said: told.append(said))
    assert [sorted(seen[start : start + ROWS]) for start in range(0, len(seen), ROWS)] == [list(range(ROWS))] * 6
    assert seen[:ROWS] != seen[ROWS : 2 * ROWS]
    assert told[0] == (1, 6, "validation 50.0 %")
    assert told[-1] == (6, 6, "validation 80.0 %")


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    module, loss = regression()
    fit(module, ROWS, loss, scripted(VALUES), CONFIG, Checkpoint(path=tmp_path / "c.pt", key="one"), no_progress)
    with pytest.raises(RunError, match=r"is of other settings or rows. Use another --out, or --fresh."):
        fit(module, ROWS, loss, scripted(VALUES), CONFIG, Checkpoint(path=tmp_path / "c.pt", key="two"), no_progress)


def test_a_damaged_checkpoint_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(RunError, match=r"is damaged, or no checkpoint of ours. Remove it to start over."):
        Checkpoint(path=path, key="k").load()


def test_one_thread_is_for_the_block_only() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_a_loss_that_is_no_number_ends_training_with_one_line() -> None:
    module, loss = regression()
    with pytest.raises(RunError, match="The loss of epoch 1 is no number"):
        fit(module, ROWS, lambda rows: loss(rows) * float("nan"), scripted(VALUES), CONFIG, None, no_progress)
