"""What is written can be read back, by us and by the libraries it is meant for."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prbench.data import open_examples, write_dataset
from prbench.data.export import Card, to_trl_row, write_jsonl, write_parquet
from prbench.data.rows import to_example, visible
from prbench.errors import DataError, UsageError
from prbench.schema import Aspect, Example, Post, RatedExample, User

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(visible)
LOOSE = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUE = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | LOOSE | st.lists(LOOSE, max_size=2)
FREE = st.dictionaries(st.sampled_from(["id", "text", "extra", "date"]) | LOOSE, VALUE, max_size=3)
POST = st.builds(Post, id=TEXT, text=TEXT, category=LOOSE, extra=FREE)
PAIR = st.builds(
    Example,
    id=TEXT,
    user=st.builds(User, id=TEXT, profile=st.lists(POST, max_size=2).map(tuple)),
    question=TEXT,
    chosen=TEXT.map("+".__add__),
    rejected=TEXT.map("-".__add__),
    rubric=st.lists(st.builds(Aspect, aspect=TEXT, evidence=LOOSE, reason=LOOSE), max_size=2).map(tuple),
    narrative=LOOSE,
    category=LOOSE,
    split=LOOSE,
    meta=FREE,
)
PAIRS = st.lists(PAIR, min_size=1, max_size=4, unique_by=lambda pair: pair.id)


def read(path: Path) -> list[Any]:
    with open_examples(path) as store:
        return list(store)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pairs=PAIRS)
def test_import_of_an_export_gives_the_same_examples(name: str, pairs: list[Example]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write = write_parquet if name.endswith("parquet") else write_jsonl
        assert read(write(pairs, Path(folder) / name)) == pairs


def make_examples() -> list[Example]:
    user = User(id="u", profile=(Post(id="p", text="I paint.", category="c", extra={"date": "2024-01-02"}),))
    aspect = Aspect(aspect="colour", evidence="I paint.", reason="they paint")
    common: dict[str, Any] = {"question": "Why?", "chosen": "So.", "rejected": "No.", "rubric": (aspect,)}
    return [
        Example(id="a", user=user, category="Art_and_Entertainment", meta={"k": 1}, **common),
        Example(id="b", user=User(id="v"), category="Society & Culture: all", meta={"k": "x", "l": []}, **common),
        Example(id="c", user=User(id="w"), category="", **common),
        Example(id="d", user=user, category="Art_and_Entertainment", split="train", **common),
    ]


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_dataset_folder_is_read_back_through_its_card(tmp_path: Path, format: Any) -> None:  # noqa: A002
    pytest.importorskip("datasets")
    examples = make_examples()[:3]
    folder = write_dataset(examples, tmp_path / "set", format, Card(title="A set", license="mit"))
    assert read(folder) == examples
    assert {path.name for path in tmp_path.iterdir()} == {"set"}


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_dataset_folder_has_one_config_per_category_for_load_dataset(tmp_path: Path, format: Any) -> None:  # noqa: A002
    datasets = pytest.importorskip("datasets")
    folder = write_dataset(make_examples(), tmp_path / "set", format)
    header = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    names = [config["config_name"] for config in header["configs"]]
    assert names[0] == "Art_and_Entertainment"
    assert names[1].startswith("Society_Culture_all-")
    assert names[2] == "default"
    rows = datasets.load_dataset(str(folder), names[0], split="test", streaming=True)
    assert [row["id"] for row in rows] == ["a"]
    rows = datasets.load_dataset(str(folder), names[0], split="train", streaming=True)
    assert [row["id"] for row in rows] == ["d"]


def test_dataset_of_ratings_is_read_back(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    user = User(id="u", profile=(Post(id="p", text="I paint."),))
    rated = [RatedExample(id=f"r{n}", user=user, question="Why?", response="So.", rating=n / 2) for n in range(3)]
    assert read(write_dataset(rated, tmp_path / "set", "parquet")) == rated
    assert read(write_parquet(rated, tmp_path / "a.parquet")) == rated
    assert read(write_jsonl(rated, tmp_path / "a.jsonl")) == rated


def test_store_can_be_written_and_keeps_its_hash(tmp_path: Path) -> None:
    with open_examples(make_examples()) as store:
        for path in (write_jsonl(store, tmp_path / "a.jsonl"), write_parquet(store, tmp_path / "a.parquet")):
            with open_examples(path) as again:
                assert again.content_hash == store.content_hash


def test_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="exists already"):
        write_dataset(make_examples(), tmp_path / "set")
    assert (tmp_path / "set" / "mine.txt").read_text() == "x"


def failing_after_one() -> Any:
    yield make_examples()[0]
    raise RuntimeError("the source broke")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "set"])
def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, name: str) -> None:
    write = {"set": write_dataset, "a.parquet": write_parquet}.get(name, write_jsonl)
    if name != "set":
        (tmp_path / name).write_text("old")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    with pytest.raises(RuntimeError, match="the source broke"):
        write(failing_after_one(), tmp_path / name)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_nothing_and_mixtures_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no examples to write"):
        write_parquet([], tmp_path / "a.parquet")
    rated = RatedExample(id="r", user=User(id="u"), question="Why?", response="So.", rating=1)
    with pytest.raises(DataError, match="'r' is of another kind"):
        write_dataset([make_examples()[0], rated], tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_gzip_of_the_same_rows_has_the_same_bytes(tmp_path: Path) -> None:
    first = write_jsonl(make_examples(), tmp_path / "a.jsonl.gz").read_bytes()
    second = write_jsonl(make_examples(), tmp_path / "b.jsonl.gz").read_bytes()
    assert first == second
    assert len(gzip.decompress(first).splitlines()) == 4


def test_parquet_is_written_in_row_groups_of_bounded_size(tmp_path: Path) -> None:
    user = User(id="u", profile=(Post(id="p", text="x" * 1_000_000),))
    examples = (
        Example(id=f"e{n}", user=user, question="Why?", chosen="So.", rejected="No.", category="c") for n in range(20)
    )
    path = write_parquet(examples, tmp_path / "a.parquet")
    assert pq.ParquetFile(path).metadata.num_row_groups == 3


def test_trl_row_asks_with_the_question_alone() -> None:
    assert to_trl_row(make_examples()[0]) == {
        "id": "a",
        "prompt": [{"role": "user", "content": "Why?"}],
        "chosen": [{"role": "assistant", "content": "So."}],
        "rejected": [{"role": "assistant", "content": "No."}],
    }


def test_trl_row_asks_as_reward_models_are_asked() -> None:
    from prbench.prompts import load_template

    ((role, text),) = load_template("turn").fill(question="Why?", context="They paint.")
    assert to_trl_row(make_examples()[0], "They paint.")["prompt"] == [{"role": role, "content": text}]


@pytest.mark.slow
def test_trl_rows_are_what_trl_calls_conversational_preferences() -> None:
    data_utils = pytest.importorskip("trl.data_utils")
    row = to_trl_row(make_examples()[0])
    assert data_utils.is_conversational(row)
    assert data_utils.maybe_extract_prompt(dict(row)) == row


def test_imported_turns_come_back_in_a_trl_row() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    raw = {"prompt": turns, "chosen": [{"role": "assistant", "content": "So."}], "rejected": "No.", "profile": []}
    with open_examples([raw]) as store:
        (pair,) = store
    assert isinstance(pair, Example)
    assert to_trl_row(pair)["prompt"] == turns
    assert to_trl_row(pair, "")["prompt"] == [{"role": "user", "content": pair.question}]


def test_trl_row_has_no_rubric() -> None:
    marked = to_example(
        {
            "id": "m",
            "question": "Why?",
            "profile": [],
            "rubric_aspects": ["MARKER"],
            "narrative": "MARKER",
            "chosen": "a",
            "rejected": "b",
        },
        "x",
    )
    assert "MARKER" not in json.dumps(to_trl_row(marked, "ctx"))
