"""Print what CHANGELOG.md says of a version: `python .github/release_notes.py v0.1.0`."""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(tag: str, changelog: str) -> str:
    """Return the section of a version; a version without one is refused."""
    version = tag.removeprefix("v")
    heads = list(re.finditer(r"^## +\[?(?P<version>[^\]\s]+)\]?.*$", changelog, re.MULTILINE))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        if head["version"] == version:
            return changelog[head.end() : after.start() if after else None].strip() + "\n"
    raise SystemExit(f"CHANGELOG.md has no section {version}. It has: {', '.join(head['version'] for head in heads)}.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python .github/release_notes.py TAG")
    print(notes(sys.argv[1], CHANGELOG.read_text(encoding="utf-8")), end="")
