"""Archives are read like the folders that they hold, within bounds."""

import json
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.data.test_original_formats import PKU, SHIPPED, Command, only, put
from tests.support.command_line import prbench

from prbench.data import archives, load_dataset
from prbench.errors import DataError

__all__ = ["prbench"]  # a fixture


def zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            archive.write(file, file.relative_to(folder))
        archive.writestr("__MACOSX/._dataset.json", "junk")
        archive.writestr("README.md", "What this is.")
    return path


def tarred(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "set")
    return path


@pytest.mark.parametrize("name", ["llmbar", "personamem", "rm_bench"])
def test_archive_is_read_like_the_folder_that_it_holds(prbench: Command, tmp_path: Path, name: str) -> None:
    files, data, _ = SHIPPED[name]
    folder = put(tmp_path / "theirs", files) / data
    expected = list(load_dataset(folder))
    for path in (zipped(folder, tmp_path / "a.zip"), tarred(folder, tmp_path / "a.tar.gz"), tmp_path / "noname"):
        if not path.exists():
            path.write_bytes((tmp_path / "a.zip").read_bytes())
        assert list(load_dataset(path)) == expected
    assert prbench("data", "convert", "jsonl:out.jsonl", "--data", "a.zip").code == 0
    assert list(load_dataset(tmp_path / "out.jsonl")) == expected


def test_place_of_a_row_in_an_archive_is_named(tmp_path: Path) -> None:
    folder = put(tmp_path / "theirs", {"in/a.jsonl": [PKU, {**PKU, "better_response_id": 7}]})
    with pytest.raises(DataError, match=rf"^{tmp_path}/a\.zip/in/a\.jsonl:2: better_response_id: is 7"):
        load_dataset(zipped(folder, tmp_path / "a.zip"))


def test_splits_in_an_archive_are_told_by_names(tmp_path: Path) -> None:
    rows = {f"{split}.jsonl": [{**PKU, "id": split}] for split in ("train", "test")}
    path = zipped(put(tmp_path / "theirs", rows), tmp_path / "a.zip")
    assert only(path).id == "test"
    assert only(path, split="train").id == "train"


def test_archive_is_bounded_damaged_or_hostile_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(put(tmp_path / "theirs", {"a.jsonl": [PKU]}), tmp_path / "a.zip")
    whole = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(archives, "MOST_BYTES", 100)
        with pytest.raises(
            DataError, match=r"a\.zip: unpacks to more than .* GiB\. Unpack it, and pass the folder\.$"
        ):
            load_dataset(path)
    with monkeypatch.context() as patch:
        patch.setattr(archives, "MOST_FILES", 2)
        with pytest.raises(DataError, match=r"a\.zip: holds more than 2 files\."):
            load_dataset(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.zip: the archive cannot be read \(.*\)\. Copy or download it again\.$"):
        load_dataset(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../out.jsonl", json.dumps(PKU))
    with pytest.raises(DataError, match=r"a\.zip: holds \.\./\.\./out\.jsonl, which leads out of it\."):
        load_dataset(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "nothing")
    with pytest.raises(DataError, match=r"a\.zip: holds no data file\."):
        load_dataset(path)


def test_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text(json.dumps(PKU))
    link = tarfile.TarInfo("a.jsonl")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret.jsonl")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(link)
    with pytest.raises(DataError, match="holds no data file"):
        load_dataset(tmp_path / "a.tar")
