"""A disk that takes nothing more: one line, nothing lost, and the same command goes on to the same bytes.

A limit on the size of files stands in for the disk: the system refuses the same writes with another number.
"""

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="needs a system that limits the size of files")

LIMITED = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); del sys.argv[1]; "
COMMANDS = {
    "eval": ("eval", "--model", "control:longest", "--data", "lab", "--limit", "150", "--out", "out"),
    "eval with replies": ("eval", "--model", "judge:fake:Result: A", "--data", "lab", "--limit", "60", "--out", "out"),
    "bon": ("bon", "--policy", "lab", "--model", "control:longest", "--n", "4", "--users", "30", "--out", "out"),
    "convert": ("data", "convert", "jsonl:out/pairs.jsonl", "--data", "lab", "--limit", "200"),
    "folder": ("data", "convert", "folder:out/set", "--data", "lab", "--limit", "200"),
}


def prbench(place: Path, *args: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    code = (LIMITED if limit else "") + "from prbench.cli import main; main()"
    bound = [str(limit)] if limit else []
    place.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", code, *bound, *args], cwd=place, capture_output=True, text=True, timeout=120
    )


def content(place: Path) -> dict[str, bytes]:
    """All files by name, but for those that hold times, and for databases."""
    left_out = ("timing.json", "manifest.json", "lock")
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted((place / "out").rglob("*"))
        if path.is_file() and path.name not in left_out and ".sqlite" not in path.name
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(command: str, tmp_path: Path) -> None:
    full = prbench(tmp_path / "full", *COMMANDS[command], limit=40_000)
    assert (full.returncode, full.stderr.count("\n"), "Traceback" in full.stderr) == (2, 1, False), full.stderr
    assert "cannot be written (" in full.stderr or "not usable as a reply cache (" in full.stderr
    assert prbench(tmp_path / "full", *COMMANDS[command]).returncode == 0
    assert prbench(tmp_path / "free", *COMMANDS[command]).returncode == 0
    assert content(tmp_path / "full") == content(tmp_path / "free")
    assert content(tmp_path / "free")


def test_a_project_that_cannot_be_made_leaves_no_file(tmp_path: Path) -> None:
    args = ("annotate", "create", "study.db", "--data", "lab", "--limit", "50", "--annotators", "ann")
    full = prbench(tmp_path, *args, limit=20_000)
    assert (full.returncode, full.stderr.count("\n"), "Traceback" in full.stderr) == (2, 1, False), full.stderr
    assert not (tmp_path / "study.db").exists()
    assert prbench(tmp_path, *args).returncode == 0


def test_what_holds_peoples_words_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert prbench(tmp_path, *COMMANDS["eval with replies"]).returncode == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    private = {name for name in modes if name.endswith((".jsonl", ".sqlite"))}
    assert len(private) == 2
    assert {name: modes[name] for name in private} == dict.fromkeys(private, 0o600)


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE replies SET reply = 'no JSON'",
        'UPDATE replies SET reply = \'{"finish": "stop", "text": 5}\'',
        'UPDATE replies SET reply = \'{"finish": "never", "text": "A"}\'',
        "DROP TABLE replies; CREATE TABLE replies (other TEXT)",
        "bytes",
    ],
)
def test_a_damaged_reply_cache_is_named_in_one_line(harm: str, tmp_path: Path) -> None:
    assert prbench(tmp_path, *COMMANDS["eval with replies"]).returncode == 0
    (cache,) = (tmp_path / "out").rglob("*.sqlite")
    if harm == "bytes":
        content = bytearray(cache.read_bytes())
        content[4096:12288] = b"\xff" * 8192
        cache.write_bytes(content)
    else:
        with closing(sqlite3.connect(cache)) as database:
            database.executescript(harm)
    again = prbench(tmp_path, *COMMANDS["eval with replies"], "--fresh")
    assert (again.returncode, again.stderr.count("\n"), "Traceback" in again.stderr) == (2, 1, False), again.stderr
    assert str(cache.relative_to(tmp_path)) in again.stderr
