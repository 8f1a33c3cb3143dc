"""Names of people, found by how they are introduced: no list holds all names, but few ways lead to one.

A name alone is not looked for, and neither are people everybody knows: "by Jane Austen" is about a book. What is found
once in a text is masked wherever it stands in it. The words that introduce names are in `names.yaml`. Where Microsoft
Presidio is installed, its model finds names that nothing introduces besides.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import yaml

from prbench.construction.privacy.contacts import BLANK
from prbench.errors import UsageError

NameFinder = Callable[[str], Iterable[tuple[int, int]]]

PRESIDIO_MODELS = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm")  # the first one that is installed is used
LEAST_SCORE = 0.5
INSTALL = "pip install 'prbench[redact]' and python -m spacy download en_core_web_lg"

_LETTERS = [chr(code) for code in (*range(0x41, 0x250), *range(0x370, 0x530), *range(0x1E00, 0x1F00))]
_UP = "".join(letter for letter in _LETTERS if letter.isupper())
_LOW = "".join(letter for letter in _LETTERS if letter.islower())
# A word is bounded, and blanks begin to be read at their last line break only: else a long row of either would take
# time that grows with its square.
_CAP = rf"[{_UP}](?:[{_LOW}]|['’-](?=[{_UP}{_LOW}])|(?<=[{_LOW}'’-])[{_UP}](?=[{_LOW}])){{1,63}}"
_PARTICLE = "(?:van|von|de|da|del|della|di|dos|du|la|le|bin|ibn|al|el|der|den|ter|ten|zu)"
_LAST = rf"(?:{_PARTICLE} ){{0,2}}(?:[{_UP}]['’])?{_CAP}"
_NAME = rf"{_CAP}(?:(?: [{_UP}]\.?)? {_LAST}){{0,2}}"
_WORD = rf"[{_UP}{_LOW}][{_UP}{_LOW}'’-]+"

_LISTS: dict[str, list[str]] = {
    name: [word.strip() for word in text.split(",")]
    for name, text in yaml.safe_load(files(__package__).joinpath("names.yaml").read_text(encoding="utf-8")).items()
}
_NO_NAMES = frozenset(_LISTS["no_names"])
_NO_SMALL_NAMES = frozenset(_LISTS["no_small_names"])
_KNOWN_AFTER_TITLE = frozenset(_LISTS["known_after_title"])


def _any(name: str) -> str:
    """A pattern of all phrases of a list."""
    return f"(?:{'|'.join(_LISTS[name])})"


_RELATION = _any("relations")
# The group says how a find is checked: a `name` may be any, a `first` or `full` must begin with a given
# name that we know, and no word of a `whole` or `small` may be one that is none.
_INTRODUCTIONS = (
    rf"\b(?i:my (?:full |real |first |last |maiden |given |sur)?name(?:['’]s| is|:)) (?P<name>{_NAME})",
    rf"\b(?i:my name(?:['’]s| is)) (?P<name>[{_UP}]{{3,}}(?: [{_UP}]{{2,}})?)\b",
    rf"\b(?i:call me|i['’]?a?m called|i['’]?a?m known as|i go by|people call me) (?P<name>{_NAME})",
    rf"\b(?i:i['’]m|i am|this is|it['’]s) (?P<name>{_NAME})"
    r"(?= from\b| here\b|, (?:a|an|the|your|and|\d)\b|,? \d\d\b| and (?:I|I['’]m|my)\b| (?:writing|speaking|again)\b)",
    rf"\b(?i:i['’]m|i am) (?P<whole>{_CAP}(?: [{_UP}]\.)? {_LAST})(?=\s*[.!?,;)\n]|$)",
    rf"(?:^|[.!?\n][^\S\n]*+)(?i:{_any('greetings')}) (?P<name>{_NAME})(?=\s*[,!:\n])",
    rf"\b(?i:{_any('thanks')}),? (?P<name>{_NAME})(?=\s*[,!.\n]|$)",
    rf"(?i:\b{_any('closings')}) ?[,.!\n—–-]++\s*+(?P<name>{_NAME})\s*+(?:[x.!)\]:]++\s*+)?+$",
    rf"(?:\n[^\S\n]*+|[.!?)]\s++)(?:-{{1,2}}|—|–|~) ?(?P<name>{_NAME})[.!]?\s*$",
    rf"\b{_any('titles')}\.? (?P<title>(?:[{_UP}]\. )?(?:{_NAME}|{_LAST}))",
    rf"\b(?i:my|our|his|her|their)(?: \w+)?(?i: (?:{_any('kinds_of_relation')} ?)*{_RELATION})"
    rf"(?i:,|:| ?{_any('links')})? (?P<relative>{_NAME})",
    rf"\b(?i:(?:a|an|one|this|the) (?:\w+ )?(?:{_any('persons')}|{_RELATION})),? (?:named|called) (?P<name>{_NAME})",
    rf"\b(?i:attn:?|attention:|c/o|contact(?: person)?:|signed by|yours,) (?P<person>{_NAME})",
    rf"\b(?i:ask for|contact) (?P<first>{_NAME})",
    rf"(?i:\bname:) (?P<name>{_NAME})",
    # Given names among friends: "Tom and I", "I asked Tom".
    rf"(?P<first>{_NAME})(?: and (?:I|me)\b)",
    rf"\b(?:[Mm]e and|I and|[Uu]s and) (?P<first>{_NAME})",
    rf"(?P<first>{_NAME}) {_any('did_to_me')} (?:me|us|my|our)\b",
    rf"\b(?:I|we|We|to) (?:\w+ )?{_any('i_did')} (?P<first>{_NAME})",
    rf"\b(?:with|for|from|by|to) my \w+ (?P<first>{_NAME})",
    rf"\b(?P<first>{_NAME})['’]s {_any('belongings')}\b",
    rf"\b{_any('together')} (?P<first>{_NAME})",
    # Written small, as many do.
    rf"\b(?i:my (?:full |real )?name(?:['’]s| is)) (?P<small>{_WORD} {_WORD})"
    r"(?i:(?=\s*[.,;!?)\n]|$| (?:and|but|from)\b))",
    rf"\b(?i:my name(?:['’]s| is)|i go by|call me) (?P<first>{_WORD})",
    rf"\b(?i:i['’]?m|i am) (?P<first>{_WORD})(?i:(?= from\b|,? \d\d\b| and i['’]?m\b| here\b))",
)
_FULL = rf"\b(?P<full>{_CAP}(?: [{_UP}]\.)? {_LAST})"
_PRIVATE = re.compile(rf"\b(?:{_any('private')}|(?:our|my) (?:\w+ )?{_RELATION})\b", re.IGNORECASE)
_PUBLIC = re.compile(rf"\b{_any('public')}\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?:[^.!?\n]|(?<=\b[A-Z])\.|(?<=\b[MD][rs])\.|[.!?](?=\w))+")


@cache  # compiled when first needed: it takes a quarter of a second
def _patterns() -> tuple[tuple[re.Pattern[str], ...], re.Pattern[str]]:
    """Return what introduces a name, and a full name."""
    return tuple(map(re.compile, _INTRODUCTIONS)), re.compile(_FULL)


@cache
def first_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return given names, and others that are common words too, all in lower case."""
    lines = files(__package__).joinpath("first_names.txt").read_text(encoding="utf-8").splitlines()
    plain = {word.lower() for line in lines if line[0] not in "#?" for word in line.split()}
    common = {word.lower() for line in lines if line[0] == "?" for word in line[1:].split()}
    return frozenset(plain - common), frozenset(common)


def find_names(text: str) -> Iterator[tuple[int, int]]:
    """Yield where names stand that something in the text introduces."""
    introductions, full = _patterns()
    for pattern in introductions:
        for match in pattern.finditer(text):
            yield from _checked(text, match)
    for sentence in _SENTENCE.finditer(text):
        # Given name and family name: only in sentences about people one knows.
        if _PRIVATE.search(sentence[0]) and not _PUBLIC.search(sentence[0]):
            for match in full.finditer(text, *sentence.span()):
                yield from _checked(text, match)


def _checked(text: str, match: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Yield the name without words that are none; nothing, where no name is left."""
    group = str(match.lastgroup)
    start, end = match.span(group)
    words = text[start:end].split(" ")
    while group == "first" and len(words) > 1 and words[0].lower() in _NO_NAMES:  # "Yesterday Anna told me"
        start += len(words.pop(0)) + 1
    if not _may_be_name(words, group):
        return
    kept = [words[0]]
    for word in words[1:]:
        if word.lower() in _NO_NAMES:
            break
        kept.append(word)
    while group != "small" and len(kept) > 1 and not kept[-1][0].isupper():  # a particle that no name follows
        kept.pop()
    yield start, start + len(_without_s(" ".join(kept)))


def _may_be_name(words: list[str], group: str) -> bool:
    first = _without_s(words[0]).lower()
    given, common = first_names()
    if group in ("first", "full"):
        return first in given
    if group in ("whole", "small") and any(word.lower() in _NO_NAMES for word in words):  # "I'm Roman Catholic."
        return False
    if group == "small":
        return first in given or not (first in _NO_SMALL_NAMES or first.endswith(("ed", "ly", "ing")))
    if group == "title" and first in _KNOWN_AFTER_TITLE:
        return False
    return first not in _NO_NAMES or (group == "name" and first in common and len(words) > 1)


def _without_s(word: str) -> str:
    return word.removesuffix("'s").removesuffix("’s")


def words_to_spread(name: str) -> Iterator[str]:
    """Yield the words of a name that mean the person wherever they stand in the same texts."""
    for word in name.replace(".", " ").split():
        is_common = word.lower() in first_names()[1] or word.lower() in _NO_NAMES
        if len(word) > 2 and word[0].isupper() and not is_common:
            yield word


def spread(text: str, words: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield where words of known names stand, whatever surrounds them."""
    if words:
        alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        for match in re.finditer(rf"(?<!\w)(?:{alternatives})(?:[ -](?:{alternatives}))*(?!\w)", text):
            yield match.span()


class PresidioNames:
    """Finds what the model takes for a person, and what our patterns find besides."""

    def __init__(self, engine: Any, name: str = "presidio") -> None:
        """`engine` is an `AnalyzerEngine` of Presidio."""
        self._engine = engine
        self.name = name

    def __call__(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where names stand; what is masked already is not read as a part of one."""
        yield from find_names(text)
        for result in self._engine.analyze(text, "en", entities=["PERSON"]):
            if result.score >= LEAST_SCORE and BLANK not in text[result.start : result.end]:
                yield result.start, result.end


def load_presidio() -> PresidioNames:
    """Return Presidio with an installed spaCy model. By itself it would fetch one from the net: we never let it."""
    if find_spec("presidio_analyzer") is None:
        raise UsageError(f"Names by Presidio need packages that are not installed. Run: {INSTALL}")
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider
    from spacy.util import is_package

    model = next(filter(is_package, PRESIDIO_MODELS), None)
    if model is None:
        raise UsageError(f"Presidio has no English spaCy model here ({', '.join(PRESIDIO_MODELS)}). Run: {INSTALL}")
    wanted = {"nlp_engine_name": "spacy", "models": [{"lang_code": "en", "model_name": model}]}
    nlp = NlpEngineProvider(nlp_configuration=wanted).create_engine()
    return PresidioNames(AnalyzerEngine(nlp_engine=nlp, supported_languages=["en"]), name=f"presidio with {model}")


def load_names() -> tuple[NameFinder, str]:
    """Return what finds names, and what to call it: Presidio where it is installed, patterns elsewhere."""
    if find_spec("presidio_analyzer") is not None and any(map(find_spec, PRESIDIO_MODELS)):
        presidio = load_presidio()
        return presidio, presidio.name
    return find_names, "patterns"
