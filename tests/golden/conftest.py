"""The golden suite: what prbench computes, recorded once, so that moving code cannot change it unseen.

`PRBENCH_RECORD_GOLDEN=1 python -m pytest tests/golden` writes `values/<name>.json` anew. A value that changes on
purpose is listed in CHANGELOG.md with its reason. The suite pins values (scores, verdicts, figures, sampled texts,
losses, rendered contexts, prompts), never run ids, file names or the shapes of files.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

VALUES = Path(__file__).parent / "values"
RELATIVE, ABSOLUTE = 1e-6, 1e-9  # for floats: the last digits of a forward pass differ between processors
MOST_SHOWN = 8

Golden = Callable[..., None]


@pytest.fixture
def golden() -> Golden:
    """Compare a JSON value with the recorded one; `relative` widens the tolerance of floats for one case."""

    def compare(name: str, found: Any, *, relative: float = RELATIVE) -> None:
        path = VALUES / f"{name}.json"
        plain = json.loads(json.dumps(found, allow_nan=False))
        if os.environ.get("PRBENCH_RECORD_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
            return
        assert path.exists(), f"no golden value {name}: record it on a commit whose values are right"
        different = list(differences(json.loads(path.read_text(encoding="utf-8")), plain, name, relative))
        shown = "\n".join(different[:MOST_SHOWN])
        assert not different, f"{len(different)} values differ from the recorded ones:\n{shown}"

    return compare


def differences(expected: Any, found: Any, place: str, relative: float = RELATIVE) -> Iterator[str]:
    """Yield a line for every value that is not as recorded."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            if key not in found or key not in expected:
                yield f"{place}.{key}: {'gone' if key in expected else 'new'}"
            else:
                yield from differences(expected[key], found[key], f"{place}.{key}", relative)
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield f"{place}: {len(expected)} entries recorded, {len(found)} found"
        for index, (one, other) in enumerate(zip(expected, found, strict=False)):
            yield from differences(one, other, f"{place}[{index}]", relative)
    elif is_number(expected) and is_number(found):
        if abs(expected - found) > max(ABSOLUTE, relative * abs(expected)):
            yield f"{place}: recorded {expected!r}, found {found!r}"
    elif expected != found:
        yield f"{place}: recorded {expected!r}, found {found!r}"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
