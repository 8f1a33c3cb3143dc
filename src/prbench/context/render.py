"""From chosen pieces to the text that a model may see, within its window."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from textwrap import indent

from prbench.prompts import HASH_LENGTH, Template, load_template
from prbench.schema import Problem

_BLANK_LINES = re.compile(r"\n\s*\n")
_SAMPLE = ("first line\n\nsecond line", "another piece")
# The first line of a labelled pair. Any other piece that begins so gets a backslash, and one more if it has some.
LABEL = "[compared two answers]"
_LIKE_A_LABEL = re.compile(r"\\*" + re.escape(LABEL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What there is to say about a user, best first, before any model's window is known."""

    kind: str  # none, profile, plan or oracle: decides the heading
    pieces: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # pairs that the user compared, as `Label.text` words them; they stand first
    problem: Problem = Problem.NONE  # why there is no material where there should be some
    detail: str = ""
    unread: int = 0  # posts that did not fit the planner's own window


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The text about a user that goes into a prompt; "" where there is nothing to say."""

    text: str
    used: int  # pieces in the text
    dropped: int  # pieces that did not fit
    fits: bool  # False: question and response alone exceed the window


def fit(material: Material, fits: Callable[[str], bool] | None) -> Context:
    """Render as many pieces as `fits` allows, dropping from the end of the ranking; `None` allows all."""
    if material.problem is not Problem.NONE:
        raise ValueError(
            f"A {material.kind} context that is {material.problem.value!r} must be recorded, not rendered."
        )
    labels = len(material.labels)
    count = labels + len(material.pieces)

    def text_of(used: int) -> str:
        return render(material.kind, material.pieces[: max(0, used - labels)], material.labels[:used])

    used = longest(count, lambda used: fits is None or fits(text_of(used)))
    if used is None:
        return Context(text="", used=0, dropped=count, fits=False)
    return Context(text=text_of(used), used=used, dropped=count - used, fits=True)


def longest(count: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number from 0 to `count` that fits, where all below one that fits do; `None` if not even 0."""
    if fits(count):  # by far the most frequent case
        return count
    if count == 0 or not fits(0):
        return None
    low, high = 0, count  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def render(kind: str, pieces: Sequence[str], labels: Sequence[str] = ()) -> str:
    """The labelled pairs and the pieces as a list under the heading of their kind; "" where there are none."""
    if not pieces and not labels:
        return ""
    heading = _heading(f"{kind}_labels" if labels else kind)
    ((_, text),) = heading.fill(pieces=as_list([*labels, *map(_escaped, pieces)]))
    return text


def _escaped(piece: str) -> str:
    """A piece that cannot be taken for a labelled pair, whatever its writer intended."""
    return "\\" + piece.lstrip() if _LIKE_A_LABEL.match(piece.lstrip()) else piece


def unescaped(piece: str) -> str:
    """The piece as it was written."""
    return piece[1:] if piece.startswith("\\") and _LIKE_A_LABEL.match(piece) else piece


def as_list(pieces: Sequence[str]) -> str:
    """One point per piece; further lines are indented, so that no piece can pose as the next one."""
    return "\n".join("-" + indent(piece.strip(), "  ")[1:] for piece in pieces)


def pieces_of(text: str) -> tuple[str, ...]:
    """The pieces that `render` listed, without the heading; paragraphs, for a text that holds no such list."""
    listed = listed_in(text)
    if not listed:
        return tuple(part.strip() for part in _BLANK_LINES.split(text) if part.strip())
    return listed


def listed_in(text: str) -> tuple[str, ...]:
    """The pieces of a list, and none for a text that holds no list."""
    pieces: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("- "):
            pieces.append([line[2:]])
        elif pieces:
            pieces[-1].append(line.removeprefix("  "))
    return tuple("\n".join(lines).strip() for lines in pieces)


def rendering_hash(kind: str, labels: Sequence[str] = ()) -> str:
    """Changes whenever the heading or the way of listing does."""
    return sha256(render(kind, () if labels else _SAMPLE, labels).encode()).hexdigest()[:HASH_LENGTH]


@cache
def _heading(kind: str) -> Template:
    return load_template(f"context_{kind}").require("pieces", answer="text")
