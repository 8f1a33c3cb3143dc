"""Hash the default lab as JSONL: the same bytes on every Python, and tests/lab/test_lab.py knows the hash.

    python experiments/lab_bytes.py

Needs only what the lab itself needs: pydantic, PyYAML and numpy. Prints the version of Python and one SHA-256 per
split.
"""

import json
import platform
from hashlib import sha256

from prbench.data.rows import as_row
from prbench.lab import DEFAULT_SIZES, default_dataset


def main() -> None:
    """Print the hashes."""
    print(f"Python {platform.python_version()}")
    for split in DEFAULT_SIZES:
        print(f"{split:<16} {digest(split)}")


def digest(split: str) -> str:
    """Return the SHA-256 of one split as JSON lines."""
    total = sha256()
    for example in default_dataset(split):
        total.update(json.dumps(as_row(example), ensure_ascii=False, sort_keys=True).encode() + b"\n")
    return total.hexdigest()


if __name__ == "__main__":
    main()
