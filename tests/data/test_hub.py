"""A local folder laid out like the hub dataset, through `datasets.load_dataset`."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prbench.data import open_examples
from prbench.errors import DataError, UsageError

pytest.importorskip("datasets")

CONFIGS = ("Art_and_Entertainment", "Lifestyle_and_Personal_Development", "Society_and_Culture")
TEXT = pa.string()
OFFICIAL = pa.schema(
    [
        ("id", TEXT),
        ("question", TEXT),
        ("profile", pa.list_(pa.struct([("id", TEXT), ("category", TEXT), ("text", TEXT)]))),
        ("rubric_aspects", pa.list_(pa.struct([("aspect", TEXT), ("evidence", TEXT), ("reason", TEXT)]))),
        ("narrative", TEXT),
        ("category", TEXT),
        ("chosen", TEXT),
        ("rejected", TEXT),
    ]
)


def write_card(folder: Path, suffix: str) -> None:
    lines = ["---", "configs:"]
    for config in CONFIGS:
        lines += [f"- config_name: {config}", "  data_files:", "  - split: test", f"    path: {config}/test.{suffix}"]
    (folder / "README.md").write_text("\n".join([*lines, "---", "# A benchmark", ""]))


@pytest.fixture
def hub_folder(tmp_path: Path, make_row: Any) -> Path:
    """Two rows in each of the three official configs, with the official column types."""
    write_card(tmp_path, "parquet")
    for number, config in enumerate(CONFIGS):
        rows = [make_row(10 * number + n, category=config) for n in (1, 2)]
        (tmp_path / config).mkdir()
        pq.write_table(pa.Table.from_pylist(rows, schema=OFFICIAL), tmp_path / config / "test.parquet")
    return tmp_path


def test_all_configs_are_read_one_after_the_other(hub_folder: Path) -> None:
    with open_examples(hub_folder) as store:
        assert [example.id for example in store] == ["q1", "q2", "q11", "q12", "q21", "q22"]
        assert store.categories == CONFIGS
        assert store.kind == "pairs"
        assert store.users == 6


def test_hub_rows_equal_the_rows_of_a_file(hub_folder: Path, write_rows: Any, make_row: Any) -> None:
    rows = [make_row(10 * number + n, category=config) for number, config in enumerate(CONFIGS) for n in (1, 2)]
    with open_examples(hub_folder) as folder, open_examples(write_rows(rows, "same/rows.jsonl")) as file:
        assert list(folder) == list(file)
        assert folder.content_hash == file.content_hash


def test_subset_is_a_config(hub_folder: Path) -> None:
    with open_examples(hub_folder, subset=CONFIGS[1], split="test") as store:
        assert [example.id for example in store] == ["q11", "q12"]


def test_unknown_subset_and_split_are_refused_with_the_known_ones(hub_folder: Path) -> None:
    with pytest.raises(UsageError, match=rf"has no subset 'Sport'\. It has: {', '.join(CONFIGS)}\.$"):
        open_examples(hub_folder, subset="Sport")
    with pytest.raises(UsageError, match=r"has no split 'train'\. It has: test\.$"):
        open_examples(hub_folder, split="train")


def test_category_is_the_config_where_the_column_is_missing(tmp_path: Path, make_row: Any) -> None:
    write_card(tmp_path, "jsonl")
    for number, config in enumerate(CONFIGS):
        row = make_row(number)
        del row["category"]
        (tmp_path / config).mkdir()
        (tmp_path / config / "test.jsonl").write_text(json.dumps(row) + "\n")
    with open_examples(tmp_path) as store:
        assert [example.category for example in store] == list(CONFIGS)


def test_edited_folder_is_read_anew_not_from_a_cache(hub_folder: Path, make_row: Any) -> None:
    with open_examples(hub_folder, subset=CONFIGS[0]) as store:
        assert len(store) == 2
    rows = [make_row(99, category=CONFIGS[0])]
    pq.write_table(pa.Table.from_pylist(rows, schema=OFFICIAL), hub_folder / CONFIGS[0] / "test.parquet")
    with open_examples(hub_folder, subset=CONFIGS[0]) as store:
        assert [example.id for example in store] == ["q99"]


def test_bad_row_of_a_hub_folder_is_named_by_config_and_row(hub_folder: Path, make_row: Any) -> None:
    rows = [make_row(1), make_row(2, chosen="")]
    pq.write_table(pa.Table.from_pylist(rows, schema=OFFICIAL), hub_folder / CONFIGS[0] / "test.parquet")
    with pytest.raises(DataError) as error:
        open_examples(hub_folder)
    place = f"{hub_folder} (Art_and_Entertainment, test):2"
    assert str(error.value) == f"{place}: chosen: is empty. Fill it in, or drop the row."


def test_broken_utf8_of_a_hub_folder_is_an_error_with_its_place(tmp_path: Path, make_row: Any) -> None:
    write_card(tmp_path, "jsonl")
    for config in CONFIGS:
        (tmp_path / config).mkdir()
        content = json.dumps(make_row(1, question="caf@")).encode().replace(b"@", b"\xe9")
        (tmp_path / config / "test.jsonl").write_bytes(content + b"\n")
    with pytest.raises(DataError, match=r"\(Art_and_Entertainment, test\):1: row: holds text that is not UTF-8\. "):
        open_examples(tmp_path)


@pytest.mark.parametrize("content", [b"", b'{"id": "a\n'])
def test_damaged_hub_folder_is_one_line(tmp_path: Path, content: bytes) -> None:
    write_card(tmp_path, "jsonl")
    for config in CONFIGS:
        (tmp_path / config).mkdir()
        (tmp_path / config / "test.jsonl").write_bytes(content)
    with pytest.raises(DataError) as error:
        open_examples(tmp_path)
    assert "\n" not in str(error.value)


def test_card_that_names_missing_files_is_one_line(tmp_path: Path) -> None:
    write_card(tmp_path, "jsonl")
    with pytest.raises(DataError) as error:
        open_examples(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}")
    assert "\n" not in str(error.value)
