"""The golden suite: what prbench computes, recorded once, so that moving code cannot change it unseen.

`PRBENCH_RECORD_GOLDEN=1 python -m pytest tests/golden` writes `values/<name>.json` anew; such a run is never green, as
it compares nothing, and under CI it writes nothing either. A value that changes on purpose is listed in CHANGELOG.md
with its reason. The suite pins values (scores, verdicts, figures, sampled texts, losses, rendered contexts, prompts),
never run ids, file names or the shapes of files. Where all extras are installed, or under CI, nothing may be skipped.
"""

import json
import os
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

VALUES = Path(__file__).parent / "values"
RELATIVE, ABSOLUTE = 1e-6, 1e-9  # for floats: the last digits of a forward pass differ between processors
MOST_SHOWN = 8
RECORD = "PRBENCH_RECORD_GOLDEN"
OF_EXTRAS = ("fastapi", "openai", "peft", "ray", "transformers", "trl", "xllamacpp")  # what `make test` installs

Golden = Callable[..., None]


@pytest.fixture
def golden() -> Iterator[Golden]:
    """Compare a JSON value with the recorded one; `relative` widens the tolerance of floats for one case."""
    recorded: list[str] = []

    def compare(name: str, found: Any, *, relative: float = RELATIVE) -> None:
        path = VALUES / f"{name}.json"
        plain = json.loads(json.dumps(found, allow_nan=False))
        if os.environ.get(RECORD):
            assert not is_ci(), f"{RECORD} is set, so {name} would be overwritten instead of compared: unset it"
            recorded.append(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
            return
        assert path.exists(), f"no golden value {name}: record it on a commit whose values are right"
        different = list(differences(json.loads(path.read_text(encoding="utf-8")), plain, name, relative))
        shown = "\n".join(different[:MOST_SHOWN])
        assert not different, f"{len(different)} values differ from the recorded ones:\n{shown}"

    yield compare
    if recorded:
        told = f"{', '.join(recorded)}: recorded, and not compared with anything. Run it again without {RECORD}."
        pytest.fail(told, pytrace=False)


def is_ci() -> bool:
    """Tell whether a machine runs the tests, and nobody watches."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def may_skip() -> bool:
    """Tell whether something may be missing here: not under CI, nor where all extras are installed."""
    return not is_ci() and not all(map(find_spec, OF_EXTRAS))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Make it an error that a whole file is skipped."""
    return without_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make it an error that a test is skipped."""
    return without_skip((yield))


def without_skip(report: Any) -> Any:
    """Return the report of something that was skipped as that of a failure, where nothing may be skipped."""
    if report.skipped and not hasattr(report, "wasxfail") and not may_skip():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: nothing of the golden suite may be skipped here. {reason}"
    return report


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
    elif expected != found or isinstance(expected, bool) is not isinstance(found, bool):  # True equals 1
        yield f"{place}: recorded {expected!r}, found {found!r}"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
