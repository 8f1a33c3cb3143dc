"""The folder of a model: one training each, locked, and movable."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from prbench.errors import RunError
from prbench.train.data import TrainingData
from prbench.train.folder import Trained, checkpoint_in, claimed, read_trained, write_trained
from prbench.train.methods import Method, train


@dataclass(frozen=True, kw_only=True)
class Config:
    size: int = 4
    seed: int = 0


def rows(digest: str = "d") -> TrainingData:
    return TrainingData(train=(), validation=(), name="rows.jsonl", digest=digest)


class Counter:
    """A method that counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, data: TrainingData, config: Config, folder: Path, say: object) -> Trained:
        self.calls += 1
        checkpoint_in(folder, config, data).save({})
        return Trained(spec=f"head:{folder}", context="none", facts={"epoch": 3})


def test_the_same_command_reads_back_what_is_finished(tmp_path: Path) -> None:
    count = Counter()
    method = Method(name="head", config=Config, train=count)
    first = train(method, rows(), Config(), tmp_path / "m")
    assert first.spec == f"head:{tmp_path / 'm'}"
    assert (first.facts["epoch"], first.facts["train_pairs"]) == (3, 0)
    assert {"seconds", "peak_memory_mib"} <= first.facts.keys()
    assert not list((tmp_path / "m").glob("*.pt"))
    assert train(method, rows(), Config(), tmp_path / "m") == first
    assert count.calls == 1
    train(method, rows(), Config(size=5), tmp_path / "m", fresh=True)
    assert count.calls == 2


@pytest.mark.parametrize(
    "name, config, digest, told",
    [
        ("head", Config(size=5), "d", "is for size=4. Use another --out, or --fresh"),
        ("head", Config(seed=1), "d", "is for seed=0. Use another"),
        ("head", Config(), "e", r"is for other rows \(rows.jsonl\). Use another"),
        ("bt", Config(), "d", "is for method head. Use another"),
    ],
)
def test_another_training_is_refused(tmp_path: Path, name: str, config: Config, digest: str, told: str) -> None:
    with claimed(tmp_path, "head", Config(), rows()):
        pass
    with pytest.raises(RunError, match=told), claimed(tmp_path, name, config, rows(digest)):
        pass


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("Call me Ishmael.")
    for fresh in (False, True):
        with (
            pytest.raises(RunError, match=r"holds 'novel.txt' and no training of ours"),
            claimed(tmp_path, "head", Config(), rows(), fresh=fresh),
        ):
            pass


def test_two_processes_cannot_train_into_one_folder(tmp_path: Path) -> None:
    with (
        claimed(tmp_path, "head", Config(), rows()),
        pytest.raises(RunError, match="another process is writing this model"),
        claimed(tmp_path, "head", Config(), rows()),
    ):
        pass


def test_a_moved_folder_still_names_itself(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    write_trained(old, Trained(spec=f"head:{old}?encoder=x", context="profile", facts={"a": 1}))
    old.rename(new)
    assert read_trained(new) == Trained(spec=f"head:{new}?encoder=x", context="profile", facts={"a": 1})
