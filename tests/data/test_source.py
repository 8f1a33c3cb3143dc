"""Reading files: every format gives the same rows, and damage is named by file and line."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prbench.data.source import DatasetSource, read_file
from prbench.errors import DataError, UsageError

ROWS = [{"id": 1, "text": "one"}, {"id": 2, "text": "zwei ü"}, {"id": 3, "text": "three\nlines"}]


def values(path: Path) -> list[Any]:
    return [raw.value for raw in read_file(path)]


def test_lines_arrays_gzip_and_parquet_give_the_same_rows(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    files = {
        "a.jsonl": lines.encode(),
        "a.json": lines.encode(),
        "marked.jsonl": b"\xef\xbb\xbf" + lines.encode(),
        "gaps.jsonl": lines.replace("\n", "\r\n\r\n").encode(),
        "array.json": json.dumps(ROWS, indent=2).encode(),
        "a.jsonl.gz": gzip.compress(lines.encode()),
        "array.json.gz": gzip.compress(json.dumps(ROWS).encode()),
        "no_suffix": lines.encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert values(tmp_path / name) == ROWS, name
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=2)
    assert values(tmp_path / "a.parquet") == ROWS


def test_places_are_lines_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n\n{"id": 2}\n')
    assert [raw.where for raw in read_file(path)] == [f"{path}:1", f"{path}:3"]
    path.write_text('[\n  {"id": 1},\n\n  {"id":\n 2},\n  {"id": 3}\n]\n')
    assert [raw.where for raw in read_file(path)] == [f"{path}:2", f"{path}:4", f"{path}:6"]


@pytest.mark.parametrize("size", [3, 70_000, 400_000])
def test_array_is_read_across_chunks(tmp_path: Path, size: int) -> None:
    rows = [{"id": number, "text": "ü" * size} for number in range(4)] + [12345]
    (tmp_path / "a.json").write_text(json.dumps(rows, ensure_ascii=False))
    assert values(tmp_path / "a.json") == rows


@pytest.mark.parametrize(
    "line,problem",
    [
        (b'{"id": "caf\xe9"}', "is not UTF-8 (byte 12). Save the file as UTF-8"),
        (b'{"id": 1', "is not JSON (Expecting ',' delimiter at character 9). Repair the line, or drop it"),
        (b'{"id": NaN}', "is not JSON (NaN is not a JSON number). Repair the line, or drop it"),
    ],
)
def test_broken_line_is_a_bad_row_and_reading_goes_on(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id": 1}\n' + line + b'\n{"id": 3}\n')
    rows = list(read_file(path))
    assert [raw.problem for raw in rows] == ["", problem, ""]
    assert rows[1].where == f"{path}:2"
    assert rows[2].value == {"id": 3}


def test_absurdly_nested_line_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": ' + "[" * 200_000 + "\n")
    (raw,) = read_file(path)
    assert raw.problem.startswith("is not JSON (")


@pytest.mark.parametrize("text", ['[{"id": 1}, {"id": ', '[{"id": 1} {"id": 2}]', '[{"id": 1}] x', '[{"id": 1},'])
def test_broken_array_is_an_error_since_no_next_row_can_be_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a\.json:1: row: the array is broken here \(.*\)\. Repair the file\.$"):
        values(tmp_path / "a.json")


def test_truncated_gzip_is_an_error(tmp_path: Path) -> None:
    content = gzip.compress(
        "".join(json.dumps({"id": n, "noise": os.urandom(20).hex()}) + "\n" for n in range(99)).encode()
    )
    (tmp_path / "a.jsonl.gz").write_bytes(content[:-400])
    with pytest.raises(DataError, match="the compressed file is damaged"):
        values(tmp_path / "a.jsonl.gz")


def test_broken_utf8_in_parquet_is_a_bad_row(tmp_path: Path) -> None:
    column = pa.array([b"good", b"caf\xe9", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"id": column}), tmp_path / "a.parquet")
    rows = list(read_file(tmp_path / "a.parquet"))
    assert [raw.problem for raw in rows] == [
        "",
        "holds text that is not UTF-8. Write the file again from clean text",
        "",
    ]
    assert rows[1].where == f"{tmp_path / 'a.parquet'}:2"


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("id,question\n1,Why?\n")
    with pytest.raises(DataError, match="begins with neither"):
        values(tmp_path / "a.txt")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and then nothing of the sort")
    with pytest.raises(DataError, match="Parquet cannot be read"):
        values(tmp_path / "b.parquet")


def test_missing_file_suggests_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("{}")
    with pytest.raises(UsageError) as error:
        DatasetSource(path=str(tmp_path / "pair.jsonl")).rows()
    assert str(error.value) == f"{tmp_path / 'pair.jsonl'}: there is no such file. Did you mean pairs.jsonl?"


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        DatasetSource(path=f"{tmp_path}/no/pairs.jsonl").rows()
    assert str(error.value).endswith(f"there is no such file, and no folder {tmp_path}/no either. Check the path.")


def test_local_file_has_no_revision(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}")
    with pytest.raises(UsageError, match="has no revision"):
        DatasetSource(path=str(tmp_path / "a.jsonl"), revision="main").rows()


def folder_ids(folder: Path, split: str | None = None) -> list[Any]:
    return [raw.value["id"] for raw in DatasetSource(path=str(folder), split=split).rows()]


def test_folder_of_loose_files_is_read_in_order(tmp_path: Path, write_rows: Any) -> None:
    write_rows([{"id": 2}], "b.jsonl")
    write_rows([{"id": 1}], "a/x.jsonl")
    write_rows([{"id": 0}], ".hidden/x.jsonl")
    pq.write_table(pa.Table.from_pylist([{"id": 3}]), tmp_path / "c.parquet")
    assert folder_ids(tmp_path) == [1, 2, 3]


def test_splits_of_loose_files_are_not_mixed(tmp_path: Path, write_rows: Any) -> None:
    write_rows([{"id": 1}], "train-00000-of-00001.jsonl")
    write_rows([{"id": 2}], "art_test.jsonl")
    write_rows([{"id": 3}], "dev.jsonl")
    assert folder_ids(tmp_path) == [2]
    assert folder_ids(tmp_path, "train") == [1]
    assert folder_ids(tmp_path, "validation") == [3]
    with pytest.raises(UsageError, match=r"has no split 'x'\. It has: test, train, validation\."):
        folder_ids(tmp_path, "x")


def test_several_splits_without_test_must_be_chosen(tmp_path: Path, write_rows: Any) -> None:
    write_rows([{"id": 1}], "train.jsonl")
    write_rows([{"id": 2}], "dev.jsonl")
    with pytest.raises(UsageError, match=r"has the splits train, validation\. Choose one with --split\."):
        folder_ids(tmp_path)


def test_folder_without_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="holds no data file"):
        folder_ids(tmp_path)


def test_hub_id_without_network_is_one_line(tmp_path: Path) -> None:
    code = (
        "from prbench.data import open_examples\nfrom prbench.errors import DataError\n"
        "try: open_examples('owner/name')\nexcept DataError as error: print(error)"
    )
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=offline, capture_output=True, text=True, timeout=120)
    assert done.stdout == (
        "owner/name: there is no such file, and the hub cannot be reached. Check the name and the network, "
        "or download the dataset elsewhere and pass its folder.\n"
    )
    assert done.stderr == ""
