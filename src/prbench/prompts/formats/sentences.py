"""A reply as sentences, the last one first: in every format, an explicit verdict fills a sentence of its own.

So a verdict that prose runs on from, or that a judge quotes from a response, is none. What stands in quotation marks
or behind `>` is a quotation, unless the marks surround the verdict alone, and so is what a line like `It ends with:`
announces; a list of the labels is no verdict.

Everything here takes time in proportion to the length of the reply (`tests/test_reading_time.py`).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from prbench.prompts.replies import strip_thinking
from prbench.schema import Pick

LONGEST = 2_000  # characters of a sentence that may be a verdict

_PLAIN = str.maketrans(
    {"：": ": ", "。": ". ", "！": "! ", "？": "? ", "［": "[", "］": "]", "（": "(", "）": ")"}
    | dict.fromkeys("“”„«»", '"')
    | dict.fromkeys("‘’", "'")
    | dict.fromkeys("*`$", None)
)
_ITEM = re.compile(r"[ \t#]*+(?:[-•–+*](?=\s)|[*_]*+\(?[0-9]{1,2}[.)](?=[\s*_]))\s*+")
_GOES_ON = re.compile(r"[\s*_\"'(]*+[a-z]")  # with the sentence of the line before
# Words that announce what somebody else wrote.
_QUOTES = re.compile(
    r"\b(?:says?|said|writes?|wrote|written|ends?|contains?|states?|claims?|asks?|demands?|tells?|told|instruct\w*+"
    r"|suggests?|reads?|includes?|inserts?|insists?|prompt|examples?|e\.g|formats?|labels?|options?|quot\w*+|lines?"
    r"|sentences?|words?|texts?|its|their)\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\s*+(?:`{3}|~{3})\w*+\s*+")
# The end of a sentence, with what may close behind it; an abbreviation ends none.
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\beg)(?<!\bie)(?<!\bvs)(?<!\bcf)(?<![.!?…])[.!?…]++[)'\"_]*+(?=\s|$)")
_EDGES = " \t'\"_"

# Blanks inside the tags, line ends among them.
_BLANKS = re.compile(r"(?<=<answer>)\s++|(?<!\s)\s++(?=</answer>)", re.IGNORECASE)
# `If price mattered:` announces no verdict either.
_CONDITION = re.compile(
    r"(?:\A|[.!?]\s)[\s'\"(]*+(?:if|unless|suppose|supposing|assuming|were)\b[^.!?]*+\Z", re.IGNORECASE
)

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence on one line, without emphasis, without marks around it and without its full stop."""

    text: str
    is_item: bool  # of a list
    is_closed: bool  # by a full stop, or by the end of its paragraph
    is_last: bool  # of the reply


def without_blanks_in_tags(reply: str) -> str:
    """Return the reply with what stands in `<answer>` right behind the tag, and right before its end."""
    return _BLANKS.sub("", reply)


def last_verdict(reply: str, read: Callable[[Sentence], Value | None]) -> Value | None:
    """Return what the last sentence says that `read` takes for a verdict."""
    return next((value for each in sentences_backwards(reply) if (value := read(each)) is not None), None)


def sentences_backwards(reply: str) -> Iterator[Sentence]:
    """Yield the sentences of a reply that may be a verdict, last one first."""
    found = [each for line in _lines(strip_thinking(reply)) for each in _sentences(line)]
    for place, each in enumerate(reversed(found)):
        if each.text:
            yield replace(each, is_last=place == 0)


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    is_item: bool
    is_closed: bool


def _lines(text: str) -> Iterator[_Line]:
    """Yield the lines that are not blank; one behind a line that ends in a colon comes together with it, too.

    Where that line speaks of what is written elsewhere, the next one is no more than what it quotes.
    """
    lines = text.split("\n")
    announced: _Line | None = None
    for number, line in enumerate(lines):
        if not line.strip() or _FENCE.fullmatch(line):
            continue
        if line.lstrip().startswith(">"):
            announced = None
            yield _Line("…", is_item=False, is_closed=True)  # a quotation: something is said, and it is no verdict
            continue
        item = _ITEM.match(line)
        plain = line[item.end() if item else 0 :].translate(_PLAIN)
        goes_on = number + 1 < len(lines) and _GOES_ON.match(lines[number + 1]) is not None
        found = _Line(plain, is_item=item is not None, is_closed=not goes_on)
        is_colon = plain.rstrip(_EDGES).endswith(":")
        if announced is not None and not is_colon:
            head = announced.text[-LONGEST:]
            yield _Line(f"{head} {plain}", announced.is_item, found.is_closed)
            if _QUOTES.search(head) or _CONDITION.search(head):
                announced = None
                continue
        announced = found if is_colon else None
        yield found


def _sentences(line: _Line) -> Iterator[Sentence]:
    """Yield the sentences of a line; one within a quotation has no text, as it cannot be a verdict."""
    ends = [found.end() for found in _END.finditer(line.text)]
    if not ends or line.text[ends[-1] :].strip():
        ends.append(len(line.text))
    start, is_quoted = 0, False
    for end in ends:
        piece = line.text[start:end]
        opens = piece.count('"') % 2 == 1
        text = "" if is_quoted or opens or len(piece) > LONGEST else _bare(piece)
        is_closed = line.is_closed or end < len(line.text) or piece.rstrip(_EDGES + ")").endswith((".", "!"))
        yield Sentence(text, line.is_item, is_closed, is_last=False)
        start, is_quoted = end, is_quoted ^ opens


def _bare(piece: str) -> str:
    """Return a sentence without what surrounds it; "" for a question, or one that trails off."""
    text = " ".join(piece.split()).lstrip("#").strip(_EDGES)
    for _ in range(4):  # ("…."). and the like
        if text.endswith(("?", "…", "..", "!!")):
            return ""
        text = text.removesuffix(".").removesuffix("!").strip(_EDGES)
        if text.startswith("(") and text.endswith(")"):
            text = text[1:-1].strip(_EDGES)
    return text


# What the sentences of several formats are made of. All of it is matched against one whole sentence, in any case.

NOUN = r"(?:assistant|response|answer|output|option|model|chatbot|candidate|completion)"
SIDE = r"(?:[ab12]|first|second|one|two)"
TIE = r"(?:a tie|tie|tied|a draw|draw|equal|equally good|both are equal|they are equal|no preference)"
_CONCLUDING = (
    r"(?:therefore|thus|hence|so|consequently|accordingly|overall|ultimately|finally|in conclusion|in summary"
    r"|in the end|to conclude|to sum up|all in all|all things considered|on balance|for (?:these|this) reasons?+"
    r"|as a result)"
)
_REASON = (
    r"(?:given|based on|considering|after|taking|weighing|in light of|due to|since|because|having|although|despite)"
)
# `Therefore, `; `Given how they differ in depth, `; both
INTRO = rf"(?:(?P<concluding>{_CONCLUDING})[,:]? )?(?:{_REASON}\b[^:\[\]<>]*?, )?(?:(?P<then>{_CONCLUDING})[,:]? )?"
_WHAT = r"(?:verdict|decision|judge?ment|result|choice|answer|conclusion|winner|preference|assessment|evaluation|pick)"
# `My final verdict is: `; `I choose `
LEAD = (
    r"(?P<lead>(?:(?:here is|here's|i conclude that|i find that|i believe that) )?(?:(?:my|the|our) )?"
    rf"(?:(?:final|overall) )*+(?:{_WHAT}|(?:better|best|preferred|superior|winning) (?:{NOUN}|one))(?: label)?"
    r"(?: is| would be)?(?: that)?(?: ?[:=–—-])?"
    r"|i(?:'d| would| will|'ll)? (?:choose|prefer|pick|select|go with|vote for|say(?: that)?"
    r"|(?:call|consider|rate) (?:it|this)(?: as)?)) ?"
)
_MUCH = r"(?:(?:clearly|slightly|somewhat|marginally|significantly|much|far|definitely|considerably|overall|a bit) )*+"
# `8`, `8/10`, `8 out of 10`, as `prbench.prompts.replies.number_on` reads them
NUMBER = r"[+-]?[0-9]++(?:\.[0-9]++)?(?: ?(?:/|out of) ?[0-9]++(?:\.[0-9]++)?| ?%)?"
# `Assistant A is slightly better`; `tie`
_BETTER = rf"(?:{_MUCH}(?:better|best|superior|stronger|preferred|preferable|winner)(?: {NOUN}| one| choice)?)"
_STATED = (
    rf"(?:(?:the )?(?:{NOUN} \(?(?P<named>{SIDE})\)?|\(?(?P<letter>[ab12])\)?"
    rf"|(?P<ordinal>first|second)(?: {NOUN}| one))(?:'s {NOUN})?"
    rf" (?:is {_MUCH}(?:the )?{_BETTER}|wins|performs {_MUCH}better|(?:gives|has|offers|provides) (?:a|the) {_BETTER})"
    rf"(?: overall)?(?: than (?:the other|(?:{NOUN} )?\(?{SIDE}\)?)(?: {NOUN}| one)?)?"
    rf"|(?:(?:it is|it's|this is|there is) )?(?P<tied>{TIE})(?:, relatively the same)?)"
)
_GROUP = re.compile(r"\(\?P<(\w+)>")
BECAUSE = r"(?:,? (?:because|since|as) (?P<because>.+))?"  # a reason may follow that does not take the verdict back
OPEN, CLOSE = r"['\"(]*+", r"['\")]*+"

_SIDES = {
    **dict.fromkeys(("a", "1", "first", "one"), Pick.FIRST),
    **dict.fromkeys(("b", "2", "second", "two"), Pick.SECOND),
}
_TIE = re.compile(TIE, re.IGNORECASE)
_TAKEN_BACK = re.compile(
    r"\b(?:but|however|though|although|unless|if|yet|the (?:other|latter|former))\b", re.IGNORECASE
)
_NAMED = re.compile(rf"\b{NOUN} \(?(?P<side>{SIDE})\b|\b(?-i:(?P<letter>[AB]))\b", re.IGNORECASE)


def side_of(label: str) -> Pick | None:
    """Return the position that a label means: A, 1 and first, B, 2 and second, or a word for a tie."""
    return _SIDES.get(label.lower()) or (Pick.TIE if _TIE.fullmatch(label) else None)


def stated(turn: str = "") -> str:
    """Return the pattern of a statement; in one pattern with another, it needs a `turn` of its own."""
    return _GROUP.sub(rf"(?P<\g<1>{turn}>", _STATED)


def stated_in(found: re.Match[str], turn: str = "") -> Pick | None:
    """Return what the statement of a matched sentence says, or `None` where it has none."""
    if found[f"tied{turn}"]:
        return Pick.TIE
    side = found[f"named{turn}"] or found[f"letter{turn}"] or found[f"ordinal{turn}"]
    return side_of(side) if side else None


def takes_back(reason: str | None, pick: Pick) -> bool:
    """Tell whether the reason behind a verdict takes it back: it objects, or speaks of the other response."""
    others = (each for each in _NAMED.finditer(reason or "") if side_of(each["side"] or each["letter"]) is not pick)
    return bool(_TAKEN_BACK.search(reason or "")) or any(True for _ in others)


def labeled(label: str) -> re.Pattern[str]:
    """Return the pattern of a sentence with a label, before which a lead and on either side a statement may stand."""
    before, behind = rf"{OPEN}{stated()}{CLOSE} ?[:,–—-]? ?", rf" ?[:,–—-]? ?{OPEN}{stated('_2')}{CLOSE}"
    return re.compile(rf"{INTRO}(?:{LEAD})?(?:{before})?{OPEN}{label}{CLOSE}(?:{behind})?", re.IGNORECASE)


def last_labeled(
    reply: str, match: Callable[[str], re.Match[str] | None], meaning: Callable[[str], Value | None]
) -> Value | None:
    """Return what the last label says: one in a sentence that matches a `labeled` pattern.

    Where the sentence also states a verdict, the two must agree. A label alone has to close its paragraph or its
    sentence; in a list, only one that a lead announces counts.
    """

    def read(sentence: Sentence) -> Value | None:
        if not (found := match(sentence.text)):
            return None
        value, is_announced = meaning(found["label"]), found["lead"] is not None
        statements = [said for turn in ("", "_2") if (said := stated_in(found, turn)) is not None]
        if any(said is not value for said in statements) or (sentence.is_item and not is_announced):
            return None
        return value if is_announced or statements or sentence.is_closed else None

    return last_verdict(reply, read)
