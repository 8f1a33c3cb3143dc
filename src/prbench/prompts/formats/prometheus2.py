"""Prometheus 2: feedback, then `[RESULT] A` (of two) or `[RESULT] 4` (of one, a whole number). It knows no ties."""

import re
from collections.abc import Callable

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.sentences import CLOSE, NOUN, NUMBER, OPEN, Sentence, last_verdict, side_of
from prbench.prompts.replies import number_on, within
from prbench.schema import Pick
from prbench.specs import Spec

# Prose that takes the marker back, or only mentions it: negation, condition, choice, question, somebody else's words.
_NO_VERDICT = re.compile(
    r"\[(?:result|score)\]"
    r"|\b(?:not|cannot|never|neither|nor|no|nobody|hardly|without|if|unless|whether|would|could|might|may|should|were"
    r"|suppose|supposing|assuming|imagine|either|between|instead|others?|someone|somebody|anyone|anybody|everyone"
    r"|says?|said|saying|writ(?:es?|ing|ten)|wrote|end(?:s|ing)? (?:in|with|on)|contain(?:s|ing)?|stat(?:es?|ing)"
    r"|claim(?:s|ing)?|ask(?:s|ed|ing)?|demand(?:s|ed|ing)?|tell(?:s|ing)?|told|instruct\w*+|insert(?:s|ed|ing)?"
    r"|insists?|quot\w*+|prompts?|examples?|e\.g|formats?|labels?|want(?:s|ed)?|try|tries|trying)\b|n't\b"
    r"|\A(?:is|are|was|were|does|do|did|can|shall|will|which|what|why|who|how)\b"
    r"|\b(?:to|as|with|of|for|a|an|the|and|or|than|like|from|gets?|got|deserves?|earns?|pick(?:s|ed)?|prefer(?:s|red)?"
    r"|choos(?:es?|ing)|chose|giv(?:es?|ing)|gave|give it)\Z",
    re.IGNORECASE,
)
_KEY = r"(?:\[result\] ?:?|\[result ?:|\[score\] ?:?|(?:final )?result:)"


def _patterns(value: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return those of a sentence that is a result, and of a last sentence that ends in one."""
    result = rf"{OPEN}[\[(]?(?:{NOUN} )?\(?(?P<value>{value})[\])]?{CLOSE}\]?"
    own = re.compile(rf"(?:(?:so|therefore|thus|overall),? )?(?:feedback: ?)?{_KEY} ?{result}", re.IGNORECASE)
    # Feedback that lacks its full stop runs into the result. Behind a quotation mark it is a quotation.
    return own, re.compile(rf"(?P<before>.*[^\s'\"(:]) \[(?:result|score)\] ?:? ?{result}", re.IGNORECASE)


_SIDE, _SIDE_AT_END = _patterns("[ab]")
_NUMBER, _NUMBER_AT_END = _patterns(NUMBER)
_LINE_END = re.compile(r"(?<=\[RESULT\])[ \t:]*+\n\s*+", re.IGNORECASE)


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `prometheus2`."""
    return ReplyFormat(pick=read, score=read_score)


def read(reply: str) -> Pick:
    """Return what the last result decides."""

    def side(sentence: Sentence) -> Pick | None:
        found = _SIDE.fullmatch(sentence.text) or _at_end(_SIDE_AT_END.fullmatch, sentence)
        return side_of(found["value"]) if found else None

    return last_verdict(_LINE_END.sub(" ", reply), side) or Pick.UNREADABLE


def read_score(reply: str, low: float, high: float) -> float | None:
    """Return the last result, which is a whole number: anything between two of them was never trained."""

    def number(sentence: Sentence) -> float | None:
        found = _NUMBER.fullmatch(sentence.text) or _at_end(_NUMBER_AT_END.fullmatch, sentence)
        return number_on(found["value"], low, high) if found else None

    score = within(last_verdict(_LINE_END.sub(" ", reply), number), low, high)
    return score if score is not None and score == int(score) else None


def _at_end(match: Callable[[str], re.Match[str] | None], sentence: Sentence) -> re.Match[str] | None:
    """Return the result in which the last sentence ends, unless the words before it make it a mention."""
    found = match(sentence.text) if sentence.is_last else None
    return found if found and not _NO_VERDICT.search(found["before"]) else None
