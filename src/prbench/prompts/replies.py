"""Strict readers of what language models reply. A text without an explicit verdict, score or list never gives one.

What is read as what stands in `docs/reference/context.md` and `llm.md`, in tables that the tests hold the readers to.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from prbench.prompts.llm_json import AmbiguousJsonError, Found, fits_shape, objects_with, scan
from prbench.schema import Json, Pick

TIES = frozenset(
    {"tie", "a tie", "tied", "draw", "a draw", "no preference", "equal", "equally good", "both", "both equal"}
    | {"both are equal", "they are equal", "neither", "neither preferred"}
)

# Replies may be hostile, or repeat themselves for ever, so reading takes time in proportion to their length: no two
# alternatives of a pattern begin alike, what repeats is possessive, and text behind a match is never copied once for
# every match. `tests/test_reading_time.py` holds every pattern and every reader to that.

# What may stand around a verdict on its line: blanks, markdown, quotes, brackets, LaTeX.
_MARKS = "*_`\"'“”‘’«»()[]{}<>$\\"
_IN_MARKS = re.escape(_MARKS.removesuffix("\\"))
_LATEX = r"\\(?:(?:boxed|text|textbf|mathrm|mathbf)\b)?+"
_WRAP = rf"(?:[{_IN_MARKS}]|[^\S\n]|{_LATEX})"
_TRAILING = f"{_MARKS} \t\n\u00a0\u3000"
# A keyword counts where a line or a sentence begins: "as a result: B" is neither.
_BEGIN = rf"(?:^(?:[{_IN_MARKS}#•-]|[^\S\n]|{_LATEX})*+|[.!?]{_WRAP}++|[。！？]{_WRAP}*+)"
_LEAD = r"(?:(?:so|thus|hence|therefore|overall),? ++)?(?:(?:my|the) ++)?"
_VERDICT_KEY = r"(?:(?:final|overall) ++)?(?:result|verdict|winner)|final ++answer"
_SCORE_KEY = r"(?:(?:final|overall) ++)?(?:score|rating)"
_FLAGS = re.IGNORECASE | re.MULTILINE
_VERDICT = re.compile(rf"{_BEGIN}{_LEAD}(?:{_VERDICT_KEY})(?: ++is)?{_WRAP}*+[:：]", _FLAGS)
_SCORE = re.compile(rf"{_BEGIN}{_LEAD}(?:{_SCORE_KEY})(?: ++is)?{_WRAP}*+[:：]", _FLAGS)
_SENTENCE_END = re.compile(rf"[.!](?=[{re.escape(_MARKS)}]*+(?:\s|$))|[。！]")
_OPENING = re.compile(rf"{_WRAP}++")
_ALONE = re.compile(r"\[\[(.+)\]\]|\\boxed\{(.+)\}|<answer>(.+)</answer>", re.IGNORECASE)
_NAMED = re.compile(rf"(?:(?:response|answer|option|assistant){_WRAP}++)?([AB])", re.IGNORECASE)
_NUMBER = re.compile(
    r"([+-]?[0-9]++(?:\.[0-9]++)?)"
    rf"(?:{_WRAP}*+(?:(?:/|out of){_WRAP}*+(?P<top>[0-9]++(?:\.[0-9]++)?)|(?P<percent>%)))?"
)
_THINKING = re.compile(r"<(?P<end>/?)(?P<name>think|thinking|reasoning)\b[^<>]*>|\[(?P<end2>/?)THINK\]", re.IGNORECASE)

_END_MARKS = ("</s>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end|>", "<end_of_turn>")  # of chat templates
_BULLET = re.compile(r"(?P<indent>[^\S\n]*+)(?:[-*•–]|\(?[0-9]{1,2}[.):])[^\S\n]++(?P<text>\S.*)")
# Blanks before a dash are tried from their first one only: from each of them would take the square of their number.
_WHY = re.compile(r":[*_`]*+(?:\s+|$)|(?<!\s)\s++[–—-]\s+|：")
_PLACEHOLDER = re.compile(r"\x00(0|[1-9][0-9]{0,8})\x00")


def read_pick(text: str) -> Pick:
    """What a judge decided, or `Pick.UNREADABLE` where the reply holds no explicit verdict."""
    reply = strip_thinking(text)
    whole = _bare(reply)
    if whole in ("A", "B"):  # upper case only: a lone "a" may be a word
        return _PICKS[whole]
    return _last(reply, _VERDICT, _read_side) or Pick.UNREADABLE


def read_score(text: str, low: float, high: float) -> float | None:
    """The score that a reply gives on the scale from `low` to `high`, or `None` where it gives none."""

    def number(value: str) -> float | None:
        return number_on(value, low, high)

    reply = strip_thinking(text)
    score = number(_bare(reply))
    if score is None:
        score = _last(reply, _SCORE, number)
    return within(score, low, high)


def number_on(value: str, low: float, high: float) -> float | None:
    """The number that a text is, as in `8`, `8/10` and `8 out of 10`; infinity where it names another scale."""
    found = _NUMBER.fullmatch(value)
    if not found:
        return None
    is_foreign = found["top"] is not None and float(found["top"]) != high
    is_foreign |= found["percent"] is not None and (low, high) != (0, 100)
    return math.inf if is_foreign else float(found[1])  # another scale: explicit, but out of range


def within(score: float | None, low: float, high: float) -> float | None:
    """The score itself, or `None` where it is out of range."""
    return score if score is not None and low <= score <= high else None


def read_json(text: str, shape: Mapping[str, Json]) -> dict[str, Json] | None:
    """The last complete JSON object in a reply that has the keys which `shape` requires, or `None`.

    `shape` is the JSON schema that the request carried (`fits_shape` has the words that it may use). Thinking, fences
    and prose around the object are left out; commas too many, comments to the end of a line and typographic quotes as
    delimiters are forgiven. Nothing is filled in: an object whose values do not fit the shape is `None`, and an
    earlier one does not stand in for it.
    """
    required = frozenset(shape.get("required", ()))
    last: list[dict[str, Json]] = []
    for found in values_in(text)[1]:
        last = objects_with(required, found.value) or last
    # Several objects inside one value, as in a list of them: nobody can say which one is meant.
    return last[0] if len(last) == 1 and fits_shape(last[0], shape) else None


def values_in(text: str) -> tuple[str, tuple[Found, ...]]:
    """The reply without its thinking, and the JSON values in it as `read_json` looks at them."""
    try:
        kept = _strip_thinking_around_json(text)
        return kept, scan(kept).values
    except AmbiguousJsonError:
        return "", ()


def read_aspects(text: str) -> tuple[tuple[str, str], ...]:
    """The (aspect, why) pairs of a numbered or dashed list; points of inner lists and repeated ones are left out."""
    bullets = [found for line in strip_thinking(text).splitlines() if (found := _BULLET.fullmatch(line.rstrip()))]
    outermost = min((len(found["indent"]) for found in bullets), default=0)
    aspects: dict[str, tuple[str, str]] = {}
    for found in bullets:
        if len(found["indent"]) > outermost:
            continue
        parts = [part.strip(" \t*_`") for part in _WHY.split(found["text"], maxsplit=1)]
        aspect, why = parts[0].strip(" \t*_`\"'"), parts[1] if len(parts) > 1 else ""
        if aspect.casefold() not in ("", "none", "aspect"):  # "aspect" is our own form, copied
            aspects.setdefault(aspect.casefold(), (aspect, why))
    return tuple(aspects.values())


def strip_thinking(text: str) -> str:
    """The reply without its thinking blocks, and without a chat template's end marks at its end.

    A block that never closes runs to the end of the text. A closing tag without an opening one ends a block that the
    prompt opened: all before it was thinking.
    """
    kept = strip_blocks(text, _THINKING)
    end = len(kept)
    while mark := next((each for each in _END_MARKS if kept.endswith(each, 0, end)), ""):
        end -= len(mark)
        while end and kept[end - 1].isspace():
            end -= 1
    return kept[:end]


def strip_blocks(text: str, tags: re.Pattern[str]) -> str:
    """The text without the blocks between such tags, as `strip_thinking` takes them out.

    The pattern has the groups `name`, `end` and `end2`; the latter two are not empty in a closing tag.
    """
    kept: list[str] = []
    position, inside = 0, ""
    for tag in tags.finditer(text):
        name = (tag["name"] or "[think]").lower()
        is_end = bool(tag["end"] or tag["end2"])
        if inside:
            if is_end and name == inside:
                inside, position = "", tag.end()
        elif is_end:
            kept, position = [], tag.end()
        else:
            kept.append(text[position : tag.start()])
            inside = name
    if not inside:
        kept.append(text[position:])
    return "\n".join(kept).replace("\r\n", "\n").strip()


def _strip_thinking_around_json(text: str) -> str:
    """The reply without its thinking; a tag inside a JSON value is a quotation, and no tag.

    It is "" where nobody can tell: a tag follows an object that broke off, or a brace follows a tag that never closes.
    """
    tags = list(_THINKING.finditer(text))
    if not tags:
        return text
    found = scan(text)
    if any(start < tags[-1].start() and not _is_thought(start, tags) for start in found.broken):
        return ""
    quoting = [value for value in found.values if _THINKING.search(text, value.start, value.end)]
    pieces, position = list[str](), 0  # the text, with a numbered placeholder for each of these values
    for number, value in enumerate(quoting):
        pieces += (text[position : value.start], f"\x00{number}\x00")
        position = value.end
    kept = "".join((*pieces, text[position:]))
    tail = kept.rfind("}")
    if tail >= 0 and _is_thought(tail, list(_THINKING.finditer(kept))):
        return ""

    def quotation(placeholder: re.Match[str]) -> str:
        number = int(placeholder[1])
        return text[quoting[number].start : quoting[number].end] if number < len(quoting) else placeholder[0]

    return _PLACEHOLDER.sub(quotation, strip_thinking(kept))


def _is_thought(position: int, tags: Sequence[re.Match[str]]) -> bool:
    """Tell whether the last tag before a position opens a block of thinking."""
    before = bisect_left(tags, position, key=lambda tag: tag.start())
    return before > 0 and not (tags[before - 1]["end"] or tags[before - 1]["end2"])


Value = TypeVar("Value")
_PICKS = {"A": Pick.FIRST, "B": Pick.SECOND}


def _last(reply: str, keyword: re.Pattern[str], read: Callable[[str], Value | None]) -> Value | None:
    """The last value that stands explicitly in the reply: boxed in the last line, or after a keyword."""
    alone = _ALONE.fullmatch(reply.rsplit("\n", 1)[-1].strip("*_`$ \t.!"))
    if alone and (value := read(_bare(alone[1] or alone[2] or alone[3]))) is not None:
        return value
    values = (read(head) for head in _heads_backwards(reply, keyword))
    return next((value for value in values if value is not None), None)


def _heads_backwards(reply: str, keyword: re.Pattern[str]) -> Iterator[str]:
    """What follows each keyword: to the end of the sentence or, where the line ends there, the next line.

    None is longer than to the colon of the next keyword: no value holds a colon, so what lies behind cannot matter.
    """
    end = len(reply)
    for found in reversed(list(keyword.finditer(reply))):
        line, _, rest = reply[found.end() : end].partition("\n")
        end = found.end()
        if _unwrap(line):
            yield _unwrap(_SENTENCE_END.split(line, maxsplit=1)[0])
        else:
            yield _bare(rest.lstrip().partition("\n")[0])


def _unwrap(text: str) -> str:
    # Two steps, each linear: one pattern for both ends is quadratic on a reply that repeats `****...` for ever.
    opening = _OPENING.match(text)
    return text[opening.end() if opening else 0 :].rstrip(_TRAILING)


def _bare(text: str) -> str:
    """A text without wrappers and a full stop at its end."""
    return _unwrap(_unwrap(text).rstrip(".!。！"))


def _read_side(value: str) -> Pick | None:
    if value.casefold() in TIES:
        return Pick.TIE
    found = _NAMED.fullmatch(value)
    return _PICKS[found[1].upper()] if found else None
