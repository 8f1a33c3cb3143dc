"""Files of trained models: damaged, foreign, or used with an encoder that they were not trained on."""

import resource
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.contexts import profile

from prbench.backends.npz_weights import ENCODER, keep_encoder, keep_own_encoder, read_arrays, write_arrays
from prbench.context.aspect_planner import BankAspect, PlannerFolder, PlannerWeights, load_aspect_planner
from prbench.errors import PrbenchError, RunError, UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.fewshot import FewshotWeights
from prbench.reward_models.head import TopicWeights
from prbench.reward_models.match import USER_FEATURES, MatchWeights
from prbench.reward_models.planner import CriteriaWeights
from prbench.reward_models.summaries import SummaryWeights
from prbench.schema import RewardInput

SIZE = 3


class Colours:
    """An encoder of a given name, digest and size."""

    def __init__(self, name: str, weights: str = "0", size: int = SIZE) -> None:
        self.name, self.size = name, size
        self.identity = {"name": name, "weights": weights, "pooling": "mean"}

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.ones((len(texts), self.size), np.float32)


KNOWN = {"minilm": Colours("minilm"), "other": Colours("other", "1"), "wide": Colours("wide", "2", size=5)}


@pytest.fixture(autouse=True)
def _encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Colours:
        # A copy in a folder gives the vectors of the original.
        return KNOWN[name] if name in KNOWN else Colours(name, KNOWN["other"].identity["weights"])

    monkeypatch.setattr("prbench.backends.encoders._load_once", load)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def _topics(folder: Path) -> None:
    shapes = ((SIZE, 3), (3,), (SIZE, 2), (2,), (2, 2), (2,), ())
    TopicWeights(**_record(TopicWeights, shapes)).save(folder)


def _match(folder: Path) -> None:
    shapes = ((SIZE + 1,), (SIZE + 1,), (len(USER_FEATURES),), ())
    MatchWeights(**_record(MatchWeights, shapes)).save(folder)


def _fewshot(folder: Path) -> None:
    shapes = ((SIZE, 2), (2,), (2,), (2, 2), (SIZE, 3), (3,), (2, 2), (), ())
    FewshotWeights(**_record(FewshotWeights, shapes)).save(folder)


def _summary(folder: Path) -> None:
    shapes = ((SIZE, 3), (3,), (SIZE, 3), (3,), (SIZE, 2), (2,), (2, 2), (2,), (), (), ())
    SummaryWeights(**_record(SummaryWeights, shapes)).save_with(folder, ["a red thing", "a blue thing"], "bank")


def _planner(folder: Path) -> None:
    shapes = ((1, SIZE, 3), (1, 1, 3), (1, SIZE, 2), (1, 1, 2), (1, 2, 2), (1, 1, 2), (1,), (1,), (1,), (1, SIZE),
              (1, 1), (), (3,))  # fmt: skip
    weights = PlannerWeights(**_record(PlannerWeights, shapes))
    PlannerFolder(weights=weights, bank=(BankAspect("red"),), encoder="minilm").save(folder)
    _criteria(folder)


def _criteria(folder: Path) -> None:
    shapes = ((SIZE, 2), (SIZE, 2), (), (), (), ())
    CriteriaWeights(**_record(CriteriaWeights, shapes)).save(folder)


def _record(kind: Any, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    names = [field.name for field in fields(kind)][: len(shapes)]
    return dict(zip(names, (ones(*shape) for shape in shapes), strict=True))


MODELS: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "topics": ("head", _topics, "head.npz"),
    "match": ("match", _match, "match.npz"),
    "fewshot": ("fewshot", _fewshot, "fewshot.npz"),
    "summary": ("summary", _summary, "summary.npz"),
    "planner": ("planner", _planner, "planner.npz"),
    "criteria": ("planner", _planner, "criteria.npz"),
    "rubric-chain": ("rubric-chain", _planner, "planner.npz"),
}
every_kind = pytest.mark.parametrize("kind, write, file", MODELS.values(), ids=MODELS)
with_encoder = pytest.mark.parametrize(
    "kind, write, file", [one for one in MODELS.values() if one[0] != "rubric-chain"]
)


def score(spec: str) -> float | None:
    asked = RewardInput(question="What now?", user=profile("I like red."), response="Take the red one.")
    model = load_reward_model(spec, ModelSettings()).model
    return model.score([asked])[0].value  # type: ignore[union-attr]


@every_kind
def test_a_damaged_or_foreign_file_is_told_in_one_line(
    tmp_path: Path, kind: str, write: Callable[[Path], None], file: str
) -> None:
    write(tmp_path)
    path = tmp_path / file
    whole = path.read_bytes()
    assert score(f"{kind}:{tmp_path}") is not None
    flipped = whole.replace(b"\x00\x00\x80\x3f", b"\x00\x00\x80\x40")  # other numbers than the checksum is of
    for content in (b"", b"garbage", whole[: len(whole) // 2], whole[:-30], flipped, b"PK\x03\x04" + whole[90:]):
        path.write_bytes(content)
        with pytest.raises(
            UsageError, match=f"{file}: is damaged, or no file of ours. Train the model again."
        ) as told:
            load_reward_model(f"{kind}:{tmp_path}", ModelSettings())
        assert "\n" not in str(told.value)
    with path.open("wb") as one_array:
        np.save(one_array, np.zeros(3))
    with pytest.raises(UsageError, match="is damaged, or no file of ours"):
        load_reward_model(f"{kind}:{tmp_path}", ModelSettings())
    np.savez(path, average=np.array([{"not": "numbers"}], dtype=object))
    with pytest.raises(UsageError, match="is damaged, or no file of ours"):
        load_reward_model(f"{kind}:{tmp_path}", ModelSettings())
    path.unlink()
    with pytest.raises(PrbenchError, match=f"there is no {file} in that folder"):
        load_reward_model(f"{kind}:{tmp_path}", ModelSettings())


@with_encoder
def test_another_encoder_than_the_recorded_one_is_refused(
    tmp_path: Path, kind: str, write: Callable[[Path], None], file: str
) -> None:
    write(tmp_path)
    keep_encoder(tmp_path, KNOWN["other"].identity)
    told = r"was trained on the encoder other \([0-9a-f]{12}\), and minilm \([0-9a-f]{12}\) is another. Use the one"
    with pytest.raises(UsageError, match=told):
        load_reward_model(f"{kind}:{tmp_path}?encoder=minilm", ModelSettings())
    assert load_reward_model(f"{kind}:{tmp_path}", ModelSettings()).identity["encoder"]["name"] == "other"
    assert score(f"{kind}:{tmp_path}?encoder=copy/of/other") is not None


def test_an_encoder_that_changed_under_its_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _planner(tmp_path)
    keep_encoder(tmp_path, KNOWN["minilm"].identity)
    load_aspect_planner(tmp_path)
    monkeypatch.setitem(KNOWN, "minilm", Colours("minilm", "9"))
    for load in (lambda: load_aspect_planner(tmp_path), lambda: score(f"rubric-chain:{tmp_path}")):
        with pytest.raises(UsageError, match=r"was trained on the encoder minilm .* and minilm .* is another"):
            load()


@with_encoder
def test_without_a_record_only_the_size_of_vectors_is_checked(
    tmp_path: Path, kind: str, write: Callable[[Path], None], file: str
) -> None:
    write(tmp_path)
    assert score(f"{kind}:{tmp_path}") == score(f"{kind}:{tmp_path}?encoder=other")
    with pytest.raises(UsageError, match=r"was trained on embeddings of 3 numbers, and wide gives 5. Use the encoder"):
        score(f"{kind}:{tmp_path}?encoder=wide")


def test_an_encoder_in_the_folder_is_used_and_moves_with_it(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    _topics(old)
    (old / "encoder").mkdir()
    keep_own_encoder(old, "encoder")
    old.rename(new)
    own = str(new / "encoder")
    assert load_reward_model(f"head:{new}", ModelSettings()).identity["encoder"]["name"] == own
    assert load_reward_model(f"head:{new}?encoder={own}", ModelSettings()).identity["encoder"]["name"] == own
    with pytest.raises(UsageError, match=r"was trained with its own encoder, .*new/encoder, not with minilm. Leave"):
        load_reward_model(f"head:{new}?encoder=minilm", ModelSettings())


def test_an_encoder_in_another_folder_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tuned").mkdir()
    _topics(tmp_path / "model")
    keep_encoder(tmp_path / "model", Colours("tuned", "1").identity)
    loaded = load_reward_model(f"head:{tmp_path / 'model'}", ModelSettings())
    assert loaded.identity["encoder"]["name"] == str(tmp_path / "tuned")


@pytest.mark.parametrize("content", ["{}", "[]", '{"name": "minilm"}', "garbage"])
def test_a_damaged_record_is_told_in_one_line(tmp_path: Path, content: str) -> None:
    _topics(tmp_path)
    (tmp_path / ENCODER).write_text(content)
    with pytest.raises(PrbenchError, match=ENCODER):
        load_reward_model(f"head:{tmp_path}", ModelSettings())


def test_arrays_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    write_arrays(path, {"a": ones(2)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(RunError, match="cannot be written"):
            write_arrays(path, {"a": ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == [path]
    assert read_arrays(path)["a"].tolist() == [1, 1]
