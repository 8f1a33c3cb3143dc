"""Reading a reply takes time in proportion to its length, whatever the reply holds.

A judge may repeat itself for ever, and a response may be written to stop whoever reads it. So every pattern of the
modules that read what models write, and every reader, is held to it with texts that repeat themselves.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from time import process_time

import pytest
from tests.support.reply_forms import JSON_SHAPE

from prbench.construction.build.responses import whole_sentences
from prbench.construction.check.style import features
from prbench.construction.privacy.contacts import find_contacts
from prbench.construction.privacy.names import find_names
from prbench.data.texts import is_quote
from prbench.prompts.formats import open_format
from prbench.prompts.llm_json import AmbiguousJsonError, scan
from prbench.prompts.replies import read_aspects, read_json, read_pick, read_score, strip_thinking
from prbench.registry import REPLIES
from prbench.reward_models.match import clauses_of
from prbench.schema import Pick

FORMATS = tuple(kind for kind in REPLIES.rows if not kind.takes_target and kind.name != "result")
MODULES = (
    "prbench.prompts.replies",
    "prbench.prompts.formats.sentences",
    *(kind.load.partition(":")[0] for kind in FORMATS),
    "prbench.prompts.llm_json",
    "prbench.data.texts",
    "prbench.reward_models.match",
    "prbench.construction.build.responses",
    "prbench.construction.check.style",
    "prbench.context.posts",
    "prbench.construction.privacy",
    "prbench.construction.privacy.contacts",
    "prbench.construction.privacy.names",
    "prbench.construction.privacy.pseudonyms",
    "prbench.schema",
    "prbench.specs",
)
SEARCHES = {"search", "finditer", "findall", "split", "sub"}  # all go from match to match

# fmt: off
PIECES = (
    *">*[]{}()<\"#'`“”„_\\$:,.!?？。–-\n\t \u3000\x000A",
    ". ", "? ", "- ", "1. ", " - ", "** ", "//", "#\n", "\r\n", "Result: ", "Result:\n", "?Result:", "Score: 8", "is ",
    "final ", "so, the ", "<think>", "</think>", "<think", "[THINK]", "\\boxed{", "\\text{", '{"a":', "{a:", "[1,",
    "[#", '["[', '{"a":1}', '{"a":"</think>"}', '\\"', "\\x", "\\u0041", '["\\x', "“,", "“[", '"[1,1],",', "a.",
    "anna@", "at ", "An", "Anna ", "Hi ", "link:", "Best,",
)
IN_FORMATS = (
    *">*[(.:\"\n -#", ". ", ":\n", "> ", "- ", "1. ", "``` ", "...", ".)", '."', "e.g. ", "Therefore, ", "Given a, ",
    "Response A is better ", "Output (a) ", "Output (a) is better because ", "[[A]] ", "[[A]]\n", "[[", "[RESULT] ",
    "[RESULT]\n", "[RESULT] A ", "<answer>", "<answer> ", "<answer>1</answer>", "</answer>\n", "<quote_A>",
    "\\boxed{A} ", "The final decision is ", "It is much ", "tie ", "It says:\n", "My verdict is ", "the better ",
    "{\"winner\":\"A\"}",
)
# fmt: on
# What stands before and behind may decide how often all between is tried.
FRAMES = (("[", "\n1,1,x"), ("Result: ", " x\nResult: A"), ('- a{"a":["', '\nx"]}'), ("Best,\nAnna", "y"))
SHORT, LONG, LONGEST = (600, 6_000), 60_000, 1_000_000  # characters
GROWTH = 25  # times the time for ten times the text; the square would take 100 times
NOISE = 0.003  # seconds: what is faster counts as this, so that a busy machine is no failure


def mixtures(count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices(PIECES, k=chance.randint(2, 6))) for _ in range(count)]


UNITS = (*PIECES, *mixtures(20))


def patterns() -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Yield every pattern of the modules, and how it is used: searched for, or matched at one place or as a whole."""
    for name in MODULES:
        module = import_module(name)
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        for variable, pattern in vars(module).items():
            if isinstance(pattern, re.Pattern):
                used = set(re.findall(rf"\b{variable}\.(\w+)[(,]", source))
                for way in sorted({"finditer" if each in SEARCHES else each for each in used or SEARCHES}):
                    yield f"{name}.{variable}.{way}", pattern, way


PATTERNS = list(patterns())
IN_REPLIES = {name: found for name, *found in PATTERNS if name.startswith("prbench.prompts.replies.")}


def reading_with(pattern: re.Pattern[str], way: str) -> Callable[[str], object]:
    if way == "finditer":
        return lambda text: sum(1 for _ in pattern.finditer(text))
    return getattr(pattern, way)  # type: ignore[no-any-return]


def aspects_of_one_point(text: str) -> object:
    return read_aspects(f"- {text}x")


def scanned(text: str) -> object:
    try:
        return scan(text)
    except AmbiguousJsonError:
        return None


REPLY_READERS: dict[str, Callable[[str], object]] = {
    "read_pick": read_pick,
    "read_score": lambda text: read_score(text, 1, 10),
    "read_json": lambda text: read_json(text, JSON_SHAPE),
    "read_aspects": read_aspects,
    "strip_thinking": strip_thinking,
}
FORMAT_READERS = {kind.name: pick for kind in FORMATS if (pick := open_format(kind.name).pick)}
OTHER_READERS: dict[str, Callable[[str], object]] = {
    "scan": scanned,
    "clauses_of": clauses_of,
    "features": features,
    "whole_sentences": whole_sentences,
    "is_quote": lambda text: is_quote(text[: len(text) // 2], [text]),
    "find_contacts": lambda text: list(find_contacts(text)),
    "find_names": lambda text: list(find_names(text)),
}


def filled(frame: tuple[str, str], unit: str, length: int) -> str:
    return frame[0] + unit * (length // len(unit)) + frame[1]


def seconds(read: Callable[[str], object], text: str) -> float:
    start = process_time()
    read(text)
    return process_time() - start


def growing_too_fast(read: Callable[[str], object], frame: tuple[str, str], unit: str, lengths: Sequence[int]) -> str:
    """Return what does, or nothing. The shortest text comes first: the square of a long one takes hours."""
    last = NOISE
    for length in lengths:
        text = filled(frame, unit, length)
        took = seconds(read, text)
        if took > GROWTH * last:
            took = min(took, seconds(read, text))
        if took > GROWTH * last:
            return (
                f"{frame[0]!r} {unit!r} {frame[1]!r}: {took:.3f} s for {length} characters, {last:.3f} s for a tenth"
            )
        last = max(took, NOISE)
    return ""


@pytest.mark.parametrize("pattern,way", [each[1:] for each in PATTERNS], ids=[each[0] for each in PATTERNS])
@pytest.mark.timeout(60)  # a pattern that backtracks would take years
def test_pattern_takes_linear_time(pattern: re.Pattern[str], way: str) -> None:
    read = reading_with(pattern, way)
    lengths = {unit: (*SHORT, LONG) if len(unit) == 1 else SHORT for unit in UNITS}
    found = [growing_too_fast(read, frame, unit, lengths[unit]) for unit in UNITS for frame in FRAMES[::3]]
    assert not [slow for slow in found if slow]


@pytest.mark.slow
@pytest.mark.parametrize("pattern,way", IN_REPLIES.values(), ids=IN_REPLIES)
@pytest.mark.timeout(300)
def test_pattern_of_replies_takes_linear_time_up_to_a_million(pattern: re.Pattern[str], way: str) -> None:
    read = reading_with(pattern, way)
    found = [growing_too_fast(read, FRAMES[1], unit, (1_000, 10_000, 100_000, LONGEST)) for unit in UNITS[::3]]
    assert not [slow for slow in found if slow]


@pytest.mark.parametrize("name", OTHER_READERS)
@pytest.mark.timeout(60)
def test_other_reader_takes_linear_time(name: str) -> None:
    read = OTHER_READERS[name]
    assert not [slow for unit in UNITS for frame in FRAMES if (slow := growing_too_fast(read, frame, unit, SHORT))]


@pytest.mark.parametrize("name", REPLY_READERS)
@pytest.mark.timeout(60)
def test_reader_of_replies_takes_linear_time(name: str) -> None:
    read = REPLY_READERS[name]
    found = [growing_too_fast(read, frame, unit, (*SHORT, LONG)) for unit in UNITS for frame in FRAMES[:3]]
    assert not [slow for slow in found if slow]


@pytest.mark.slow
@pytest.mark.parametrize("name,most", [(name, 8.0 if name == "read_json" else 2.0) for name in REPLY_READERS])
def test_a_million_characters_are_read_in_seconds(name: str, most: float) -> None:
    """JSON is read step by step in Python, and up to `PATIENCE` times over."""
    read = REPLY_READERS[name]
    times = {unit: seconds(read, filled(FRAMES[1], unit, LONGEST)) for unit in UNITS[::4]}
    assert {unit: took for unit, took in times.items() if took > most} == {}


@pytest.mark.parametrize("name", FORMAT_READERS)
@pytest.mark.timeout(60)
def test_format_takes_linear_time(name: str) -> None:
    read = FORMAT_READERS[name]
    frames = (FRAMES[1], ("Given a", " x\nMy final verdict is: [[A]]"))
    found = [growing_too_fast(read, frame, unit, SHORT) for unit in IN_FORMATS for frame in frames]
    found += [growing_too_fast(read, frames[1], unit, (6_000, 60_000)) for unit in IN_FORMATS[::6]]
    assert not [slow for slow in found if slow]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMAT_READERS)
@pytest.mark.timeout(300)
def test_format_takes_linear_time_up_to_a_million(name: str) -> None:
    read = FORMAT_READERS[name]
    units = (":\n", "[[A]]\n", "Therefore, ")  # many lines that announce one another; many verdicts; one long line
    found = [growing_too_fast(read, FRAMES[1], unit, (1_000, 10_000, 100_000, LONGEST)) for unit in units]
    assert not [slow for slow in found if slow]


@pytest.mark.timeout(20)
def test_row_of_quotation_marks_does_not_stop_a_run() -> None:
    assert read_pick(">" * 27 + " he said\nResult: A") is Pick.FIRST
    text = ">" * LONGEST + " x\nResult: A"
    assert seconds(read_pick, text) < 1
    assert read_pick(text) is Pick.FIRST
