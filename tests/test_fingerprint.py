"""Weights that changed are another model; leftovers of training are not looked at."""

from pathlib import Path

import pytest

from prbench.backends.hf import fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(5 * 2**20))
    return tmp_path


def test_retrained_weights_at_the_same_path_are_another_model(folder: Path) -> None:
    before = fingerprint(folder)
    assert fingerprint(folder) == before
    (folder / "model.safetensors").write_bytes(b"\1" * (5 * 2**20))
    assert fingerprint(folder) != before


@pytest.mark.parametrize("place", [0, 5 * 2**20 - 1])
def test_first_and_last_byte_of_large_weights_count(folder: Path, place: int) -> None:
    before = fingerprint(folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(place)
        file.write(b"\1")
    assert fingerprint(folder) != before


def test_every_byte_of_small_files_counts_and_so_does_the_file_name(folder: Path) -> None:
    seen = {fingerprint(folder)}
    (folder / "config.json").write_text('{"a": 1}')
    seen.add(fingerprint(folder))
    (folder / "config.json").rename(folder / "other.json")
    seen.add(fingerprint(folder))
    assert len(seen) == 3


def test_training_leftovers_do_not_count(folder: Path) -> None:
    before = fingerprint(folder)
    for name in ("checkpoint-10", "runs", ".cache"):
        (folder / name).mkdir()
        (folder / name / "state.json").write_text("{}")
    assert fingerprint(folder) == before
