"""What tells one set of weights from another: retrained weights at the same path are another model."""

from hashlib import sha256
from pathlib import Path

_SMALL = 4 * 2**20  # files up to this size are read whole
_BLOCK = 64 * 2**10
_BLOCKS = 64


def fingerprint(folder: Path) -> str:
    """Return a hash of the folder's files, 16 hex digits.

    Small files count whole. Of large ones (weights) the size and 64 evenly spaced blocks count, the first and the last
    among them: training moves every block, and reading all of a large model would take minutes.
    """
    total = sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        # Checkpoints on the way, logs and caches: no loader reads them.
        if path.is_file() and not any(
            part == "runs" or part.startswith(("checkpoint-", ".")) for part in inside.parts
        ):
            total.update(f"{inside.as_posix()}:{_hash_file(path)}\n".encode())
    return total.hexdigest()[:16]


def _hash_file(path: Path) -> str:
    size = path.stat().st_size
    content = sha256(f"{size}:".encode())
    with path.open("rb") as file:
        if size <= _SMALL:
            content.update(file.read())
        else:
            for block in range(_BLOCKS):
                file.seek((size - _BLOCK) * block // (_BLOCKS - 1))
                content.update(file.read(_BLOCK))
    return content.hexdigest()
