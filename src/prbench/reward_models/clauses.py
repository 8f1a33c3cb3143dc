"""What people say for something and against something: clauses of a text, each with the stance that its words give it.

"I usually prefer trains over planes, as flying scares me" speaks for trains and against planes in one sentence, so
sentences are cut at punctuation and connectives. Stances come from a short list of English cue words; what has none is
neither.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from prbench.data.sentences import sentences_of


class Stance(StrEnum):
    """Whether a clause speaks for what it names, against it, or neither."""

    FOR = "for"
    AGAINST = "against"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a sentence."""

    text: str
    stance: Stance


# What follows is what somebody does not choose; "more than twenty" and "more than anything" choose nothing.
_AMOUNT = (
    r"\d|any|(?:ever|just|half|once|twice|one|two|three|four|five|six|ten|twelve)\b|usual|twenty|thirty|forty|fifty"
    r"|hundred|thousand|an? (?:hour|day|week|month|year|decade|dozen|hundred|thousand|few)"
)
_CONTRAST = rf"rather than|instead of|except|over(?! (?:{_AMOUNT}))|than(?! (?:{_AMOUNT}))"
_CUT = re.compile(
    rf"[,;:()—–]|\s-\s|\b(?P<contrast>{_CONTRAST})\b"
    r"|\b(?:but|because|since|as|so|although|though|while|whereas|which|and|or|if|unless)\b",
    re.IGNORECASE,
)
_CHOOSES = re.compile(
    r"\b(?:prefer\w*|rather|instead|except|choos\w+|chose|pick\w*|opt(?:s|ed|ing)?|favou?r\w*|better|more)\b", re.I
)
_STRONGLY_FOR = re.compile(
    r"\bcan(?:no|'?)t (?:(?:live|do) without|get enough|wait)\b|\bnever (?:miss|tire)\w*\b"
    r"|\bcouldn'?t be (?:happier|more pleased)\b",
    re.IGNORECASE,
)
# A no that says nothing; taken out before cues are looked for.
_NOT_AGAINST = re.compile(r"\b(?:don'?t|wouldn'?t) mind\b|\bno (?:problem|doubt)\b|\bnot only\b", re.IGNORECASE)
_AGAINST = re.compile(
    r"n't\b|\b(?:not|no|never|without|neither|nor|cannot|cant|dont|against|avoid\w*|refus\w+|skip\w*|oppos\w+"
    r"|away from|steer clear|dislik\w+|hat(?:e|es|ed|ing)|avers\w+|distaste\w*|despis\w+|allerg\w+|fear\w*|afraid"
    r"|scar(?:es?|ed|y)|wary|worr(?:y|ies|ied)|uncomfortable|stress(?:ful|ed|es)?|struggl\w+|annoy\w+|frustrat\w+"
    r"|disappoint\w+|bor(?:es|ed|ing)|tired of|sick of|quit|gave up|stopped|too \w+|less \w+)\b",
    re.IGNORECASE,
)
_FOR = re.compile(
    r"\b(?:prefer\w*|lov(?:e|es|ed|ing)|enjoy\w*|lik(?:e|es|ed|ing)|favou?rit\w*|fan of|fond of|keen|interest\w*"
    r"|passion\w*|excit\w+|appreciat\w+|delight\w*|satisf\w+|reward\w+|amazing|wonderful|fantastic|great|only"
    r"|always|stick to|strict\w*|committed|need\w*|priorit\w+|important|valu(?:e|es|ed|ing))\b",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[^\W\d_]")


@lru_cache(maxsize=4096)  # a user's posts are read once per response
def clauses_of(text: str) -> tuple[Clause, ...]:
    """Return the clauses of a text in their order; what stands behind "rather than" is spoken against."""
    return tuple(clause for sentence in sentences_of(text) for clause in _clauses(sentence))


def _clauses(sentence: str) -> list[Clause]:
    chooses = _CHOOSES.search(sentence) is not None
    found, start, turned = [], 0, False
    for cut in (*_CUT.finditer(sentence), None):
        contrast = cut is not None and cut["contrast"] is not None
        if contrast and not chooses:
            continue  # "over the years"
        part = sentence[start : cut.start() if cut else len(sentence)].strip(" .!?\"'")
        if _LETTER.search(part):
            found.append(Clause(part, Stance.AGAINST if turned else _stance(part)))
        if cut is not None:
            start, turned = cut.end(), contrast
    return found


def _stance(clause: str) -> Stance:
    plain = _NOT_AGAINST.sub("", clause.replace("’", "'"))
    if _STRONGLY_FOR.search(plain):
        return Stance.FOR
    if _AGAINST.search(plain):
        return Stance.AGAINST
    return Stance.FOR if _FOR.search(plain) else Stance.NEITHER
