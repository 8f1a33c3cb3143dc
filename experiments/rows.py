"""The rows behind the figures in `results/`: too many for the repository, so it keeps their names and hashes only.

    python experiments/rows.py fetch                     # from the commit that last held them, beside the figures
    python experiments/rows.py fetch train meta          # of some folders only
    python experiments/rows.py fetch --archive rows.tar  # from an archive, e.g. one attached to a release
    python experiments/rows.py pack rows.tar             # all rows that lie here, as such an archive
    python experiments/rows.py record                    # rows that were made anew: write their hashes

`results/rows.json` has the bytes and the SHA-256 of every file; what differs is refused. Which script makes a folder's
rows, and with which command, stands in the docs that quote its figures. Needs nothing but Python and git.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, MANIFEST = "results", "rows.json"
Read = Callable[[str], bytes | None]


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Do what the command line says; the exit code is 1 where something is missing or differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", help="put rows where the scripts look for them")
    fetch.add_argument("folders", nargs="*", help="folders below results/; default: all")
    fetch.add_argument(
        "--archive", type=Path, help="a file that `pack` wrote; default: the history of this repository"
    )
    commands.add_parser("pack", help="write an archive of all rows").add_argument("archive", type=Path)
    commands.add_parser("record", help="write the hashes of the rows that lie here")
    asked = parser.parse_args(arguments)
    home = root / RESULTS
    known = json.loads((home / MANIFEST).read_text(encoding="utf-8"))
    if asked.command == "record":
        known["files"] |= {
            path.relative_to(home).as_posix(): facts_of(path.read_bytes()) for path in home.rglob("*.gz")
        }
        known["files"] = dict(sorted(known["files"].items()))
        (home / MANIFEST).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        return 0
    if asked.command == "pack":
        missing = [name for name, facts in known["files"].items() if not is_there(home / name, facts)]
        if missing:
            return say(
                f"{missing[0]}: is not here as recorded, nor are {len(missing) - 1} more. Fetch or record first."
            )
        with tarfile.open(asked.archive, "w") as archive:
            for name in known["files"]:
                archive.add(home / name, arcname=name)
        return 0
    wanted = dict(chosen(known["files"], asked.folders))
    if not wanted:
        return say(f"{', '.join(asked.folders)}: no rows of such a folder are recorded in {RESULTS}/{MANIFEST}.")
    if asked.archive is None:
        return restore(home, wanted, lambda name: from_history(root, known["commit"], name))
    with tarfile.open(asked.archive) as archive:
        return restore(home, wanted, lambda name: from_archive(archive, name))


def chosen(files: dict[str, Any], folders: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the files of some folders."""
    for name, facts in files.items():
        if not folders or any(name.startswith(f"{folder.strip('/')}/") for folder in folders):
            yield name, facts


def restore(home: Path, wanted: dict[str, Any], read: Read) -> int:
    """Write what is missing or differs, and say what could not be had."""
    lost = []
    for name, facts in wanted.items():
        path = home / name
        if is_there(path, facts):
            continue
        content = read(name)
        if content is None or facts_of(content) != facts:
            lost.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if lost:
        return say(f"{len(lost)} of {len(wanted)} files could not be had as recorded, e.g. {lost[0]}.")
    return 0


def from_history(root: Path, commit: str, name: str) -> bytes | None:
    """Return a file as a commit holds it; nothing where the history is not here."""
    ended = subprocess.run(["git", "show", f"{commit}:{RESULTS}/{name}"], cwd=root, capture_output=True, check=False)
    return ended.stdout if ended.returncode == 0 else None


def from_archive(archive: tarfile.TarFile, name: str) -> bytes | None:
    """Return a file of an archive, by its exact name."""
    try:
        file = archive.extractfile(name)
    except KeyError:
        return None
    return None if file is None else file.read()


def is_there(path: Path, facts: dict[str, Any]) -> bool:
    """Tell whether a file lies here as it was recorded."""
    return path.is_file() and facts_of(path.read_bytes()) == facts


def facts_of(content: bytes) -> dict[str, Any]:
    """Return what the manifest says of a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def say(line: str) -> int:
    """Print why it failed."""
    print(line, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
