"""Errors that a user can fix. `prbench.cli` prints them as one line; everything else keeps its traceback."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OURS = Path(__file__).parent
_LONGEST = 300  # characters of what somebody else's error says


class PrbenchError(Exception):
    """Something outside the code is wrong, and the message says what to do about it."""

    exit_code = 2


class DataError(PrbenchError):
    """A row, a file or a dataset cannot be used."""


class UsageError(PrbenchError):
    """A command, an option or a spec string is wrong, or a needed package is missing."""


class RunError(PrbenchError):
    """A run folder cannot be opened: it is locked, damaged, or belongs to another configuration."""


class BudgetError(PrbenchError):
    """A limit on requests, tokens or money does not allow the next request; what had arrived is kept."""

    exit_code = 1


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Say which extra brings what is missing, where an import inside finds nothing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{what} needs {error.name}. Install it with: pip install 'prbench[{extra}]'") from error


@contextmanager
def in_one_line(fact: str, *, remedy: str = "Mend it.") -> Iterator[None]:
    """Turn whatever somebody else's code raises into one line after `fact`; the error itself stays its cause.

    Their code is not ours to name the errors of, and a module may even leave by `sys.exit`. Errors of ours pass.
    """
    try:
        yield
    except PrbenchError:
        raise
    except (Exception, SystemExit) as error:
        message = shortened(" ".join(str(error).split()), _LONGEST).rstrip(".")
        said = f"{type(error).__name__}{': ' if message else ''}{message}{_place_of(error)}"
        raise UsageError(f"{fact} {said}. {remedy}") from error


def shortened(text: str, longest: int) -> str:
    """Return a text of at most so many characters; "…" stands for the rest."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _place_of(error: BaseException) -> str:
    """Return the last line of theirs that was reached, as ` (judges.py:12)`; a syntax error names its own."""
    if isinstance(error, SyntaxError):
        return ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not frame.filename.startswith("<") and _OURS not in path.parents:
            return f" ({path.name}:{frame.lineno})"
    return ""
