"""The folder of a model: one training each, locked, and movable."""

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from prbench.errors import RunError, UsageError
from prbench.reward_models.view import take_apart
from prbench.runs import Checkpoint, Keys
from prbench.runs.files import read_json, write_json
from prbench.schema import Json
from prbench.training.data import TrainingData
from prbench.training.folder import Trained, checkpoint_in, open_training, read_trained, summary_of
from prbench.training.methods import Method, load_method, make_config, run_method


@dataclass(frozen=True, kw_only=True)
class Config:
    size: int = 4
    seed: int = 0
    KEYS: ClassVar[Keys] = Keys(size=4, seed=0)

    def to_config(self) -> dict[str, Json]:
        return self.KEYS.write(self)


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
    first = run_method(method, rows(), Config(), tmp_path / "m")
    assert first.spec == f"head:{tmp_path / 'm'}"
    assert (first.facts["epoch"], first.facts["train_pairs"]) == (3, 0)
    assert {"seconds", "peak_memory_mib"} <= first.facts.keys()
    assert not list((tmp_path / "m").glob("*.pt"))
    assert run_method(method, rows(), Config(), tmp_path / "m") == first
    assert count.calls == 1
    run_method(method, rows(), Config(size=5), tmp_path / "m", fresh=True)
    assert count.calls == 2


@pytest.mark.parametrize(
    "name, config, digest, told",
    [
        ("head", Config(size=5), "d", r"another settings.size \(its default\). Use another --out, or --fresh"),
        ("head", Config(seed=1), "d", "holds a model with another settings.seed"),
        ("head", Config(), "e", r"another data \(d\). Use another"),
        ("bt", Config(), "d", r"another method \(head\). Use another"),
    ],
)
def test_another_training_is_refused(tmp_path: Path, name: str, config: Config, digest: str, told: str) -> None:
    with open_training(tmp_path, "head", Config(), rows()):
        checkpoint_in(tmp_path, Config(), rows()).save({})
    with pytest.raises(RunError, match=told), open_training(tmp_path, name, config, rows(digest)):
        pass


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("Call me Ishmael.")
    for fresh in (False, True):
        with (
            pytest.raises(RunError, match=r"holds novel.txt, but no model of ours made it"),
            open_training(tmp_path, "head", Config(), rows(), fresh=fresh),
        ):
            pass


def test_two_processes_cannot_train_into_one_folder(tmp_path: Path) -> None:
    with (
        open_training(tmp_path, "head", Config(), rows()),
        pytest.raises(RunError, match="another process is writing this model"),
        open_training(tmp_path, "head", Config(), rows()),
    ):
        pass


def test_a_moved_folder_still_names_itself(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "encoder").mkdir(parents=True)
    spec = f"head:{old}?encoder={old / 'encoder'}"
    write_json(old / "summary.json", summary_of(old, Trained(spec=spec, context="profile", facts={"a": 1})))
    old.rename(new)
    moved = f"head:{new}?encoder={new / 'encoder'}"
    assert read_trained(new) == Trained(spec=moved, context="profile", facts={"a": 1})


@pytest.mark.parametrize("name", ["m", "match", "e", "encoder", "a", ":", "x=y", "{folder}"])
def test_a_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    write_json(Path(name) / "summary.json", summary_of(Path(name), Trained(spec=f"match:{name}?encoder=all-mini")))
    assert read_trained(Path(name)).spec == f"match:{name}?encoder=all-mini"
    assert read_trained(tmp_path / name).spec == f"match:{tmp_path / name}?encoder=all-mini"
    Path(name).rename("moved")
    assert read_trained(Path("moved")).spec == "match:moved?encoder=all-mini"


def test_the_working_directory_is_a_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("encoder").mkdir()
    parts = take_apart("head:.?encoder=encoder&noise=0.5", Path())
    assert parts.at(Path("m")) == "head:m?noise=0.5&encoder=m/encoder"


class LmTrainer:
    """A method that writes some files, or fails after a while."""

    def __init__(self, *names: str, checkpoint: bool = False, fails: bool = False) -> None:
        self.names, self.checkpoint, self.fails = names, checkpoint, fails

    def __call__(self, data: TrainingData, config: Config, folder: Path, say: object) -> Trained:
        if self.checkpoint:
            checkpoint_in(folder, config, data).save({})
        for name in self.names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"weights of size {config.size}")
        if self.fails:
            raise RunError("no luck")
        return Trained(spec=f"head:{folder}", facts={"encoder": {"name": "words", "weights": "0"}})


def run(folder: Path, method: LmTrainer, *, size: int = 4, fresh: bool = False) -> Trained:
    return run_method(Method(name="head", config=Config, train=method), rows(), Config(size=size), folder, fresh=fresh)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"lock"}


OURS = {"manifest.json", "summary.json", "encoder.json"}


def test_a_fresh_training_removes_what_the_former_wrote_and_nothing_else(tmp_path: Path) -> None:
    run(tmp_path, LmTrainer("planner.npz", "model.safetensors", "encoder/a", "head.npz"))
    (tmp_path / "card.json").write_text("{}")
    for name in ("notes.txt", "encoder/mine"):
        (tmp_path / name).write_text("mine")
    trained = run(tmp_path, LmTrainer("head.npz", "new/b"), size=5, fresh=True)
    assert trained.spec == f"head:{tmp_path}"
    assert files(tmp_path) == OURS | {"head.npz", "new/b", "notes.txt", "encoder/mine"}
    assert (tmp_path / "head.npz").read_text() == "weights of size 5"
    assert run(tmp_path, LmTrainer(fails=True), size=5) == trained
    run(tmp_path, LmTrainer("head.npz"), size=6, fresh=True)
    assert files(tmp_path) == OURS | {"head.npz", "notes.txt", "encoder/mine"}
    assert not (tmp_path / "new").exists()


def test_files_outside_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    run(tmp_path / "m", LmTrainer())
    kept = read_json(tmp_path / "m" / "summary.json")
    write_json(tmp_path / "m" / "summary.json", {**kept, "files": ["../mine", str(tmp_path / "mine")]})
    run(tmp_path / "m", LmTrainer(), fresh=True)
    assert (tmp_path / "mine").exists()


def test_a_fresh_training_that_fails_leaves_the_former_model(tmp_path: Path) -> None:
    former = run(tmp_path, LmTrainer("head.npz"))
    before = files(tmp_path)
    with pytest.raises(RunError, match="no luck"):
        run(tmp_path, LmTrainer("head.npz", "planner.npz", fails=True), size=5, fresh=True)
    assert files(tmp_path) == before
    assert (tmp_path / "head.npz").read_text() == "weights of size 4"
    assert run(tmp_path, LmTrainer(fails=True)) == former


def test_a_fresh_training_that_was_cut_goes_on_without_the_option(tmp_path: Path) -> None:
    run(tmp_path, LmTrainer("head.npz"))
    with pytest.raises(RunError, match="no luck"):
        run(tmp_path, LmTrainer(checkpoint=True, fails=True), size=5, fresh=True)
    assert read_trained(tmp_path).spec == f"head:{tmp_path}"
    run(tmp_path, LmTrainer("match.npz"), size=5)
    assert files(tmp_path) == OURS | {"match.npz"}


def test_a_fresh_training_that_was_killed_while_moving_is_completed(tmp_path: Path) -> None:
    run(tmp_path / "m", LmTrainer("planner.npz"))
    run(tmp_path / "new", LmTrainer("a.npz", "head.npz"), size=5)
    (tmp_path / "new" / "lock").unlink()
    (tmp_path / "new").rename(tmp_path / "m" / ".fresh")
    (tmp_path / "m" / ".fresh" / "a.npz").rename(tmp_path / "m" / "a.npz")
    assert run(tmp_path / "m", LmTrainer(fails=True), size=5).spec == f"head:{tmp_path / 'm'}"
    assert files(tmp_path / "m") == OURS | {"a.npz", "head.npz"}


def test_a_fresh_training_that_could_not_be_moved_is_kept(tmp_path: Path) -> None:
    run(tmp_path, LmTrainer("head.npz"))
    (tmp_path / "new.npz").mkdir()
    with pytest.raises(OSError, match=r"new\.npz"):
        run(tmp_path, LmTrainer("new.npz"), size=5, fresh=True)
    (tmp_path / "new.npz").rmdir()
    run(tmp_path, LmTrainer(fails=True), size=5)
    assert files(tmp_path) == OURS | {"new.npz"}


def test_the_encoder_that_weights_need_is_recorded(tmp_path: Path) -> None:
    run(tmp_path / "one", LmTrainer())
    assert read_json(tmp_path / "one" / "encoder.json")["name"] == "words"

    def tune(data: TrainingData, config: Config, folder: Path, say: object) -> Trained:
        (folder / "encoder").mkdir()
        return Trained(spec=f"head:{folder}?encoder={folder / 'encoder'}", facts={"encoder": "words"})

    run_method(Method(name="encoder", config=Config, train=tune), rows(), Config(), tmp_path / "two")
    assert read_json(tmp_path / "two" / "encoder.json") == {"inside": "encoder"}
    run_method(Method(name="bt", config=Config, train=Counter()), rows(), Config(), tmp_path / "three")
    assert not (tmp_path / "three" / "encoder.json").exists()


def test_a_damaged_folder_can_be_started_over(tmp_path: Path) -> None:
    run(tmp_path, LmTrainer("head.npz"))
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(RunError, match=r"summary\.json: not valid JSON. Run the command again with --fresh"):
        run(tmp_path, LmTrainer("head.npz"))
    assert run(tmp_path, LmTrainer("head.npz"), fresh=True).spec == f"head:{tmp_path}"


def test_an_unfinished_training_is_started_over_in_place(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no luck"):
        run(tmp_path, LmTrainer("planner.npz", checkpoint=True, fails=True))
    run(tmp_path, LmTrainer("head.npz"), size=5, fresh=True)
    assert files(tmp_path) == OURS | {"head.npz"}


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpoint = Checkpoint(path=tmp_path / "checkpoint.pt", key="k")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(RunError, match=r"checkpoint.pt: cannot be written\. Is the disk full\?"):
            checkpoint.save({"weights": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("setting", ["penalty=nan", "penalty=inf", "penalty=-Infinity", "penalty=1e999"])
def test_numbers_must_be_finite(setting: str) -> None:
    with pytest.raises(UsageError, match=f"--set: {setting} cannot be used. Give a number"):
        make_config(load_method("match"), [setting])


def test_seeds_are_numbers_that_every_library_takes() -> None:
    method = load_method("match")
    for seed in (0, 2**63 - 1):
        assert make_config(method, [f"seed={seed}"]).seed == seed
    for seed in (-5, 2**63):
        with pytest.raises(UsageError, match=f"seed={seed}: not a seed. Give a whole number from 0 to"):
            make_config(method, [f"seed={seed}"])
        with pytest.raises(UsageError, match=f"seed={seed}: not a seed"):
            make_config(method, [], seed=seed)
