"""JudgeLRM: one score from 1 to 10 for each response, `<answer>3</answer><answer>8</answer>`; the higher one wins."""

import re

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.sentences import INTRO, LEAD, NOUN, NUMBER, Sentence, last_verdict, without_blanks_in_tags
from prbench.prompts.replies import number_on, strip_thinking, within
from prbench.schema import Pick
from prbench.specs import Spec

LOW, HIGH = 1, 10

_FIRST, _SECOND = (rf"(?:(?:the )?{NOUN} {side} ?[:=]? ?)?" for side in ("(?:1|a)", "(?:2|b)"))
_AND = r"(?: ?[,;&]| and)? ?"
_TWO_TAGS = (
    rf"{_FIRST}<answer> ?{_FIRST}(?P<first>{NUMBER}) ?</answer>"
    rf"{_AND}{_SECOND}<answer> ?{_SECOND}(?P<second>{NUMBER}) ?</answer>"
)
_ONE_TAG = rf"<answer> ?{_FIRST}(?P<one>{NUMBER})(?: ?[,;] ?| and | ){_SECOND}(?P<two>{NUMBER}) ?</answer>"
_SCORES = re.compile(
    rf"{INTRO}(?:{LEAD}|(?:my |the )?scores(?: are)? ?:? ?)?(?:{_TWO_TAGS}|{_ONE_TAG})", re.IGNORECASE
)
# The two may stand on lines of their own, each with the name of its response.
_BETWEEN = re.compile(
    rf"</answer>(?:[ \t]*+\n[ \t]*+(?=<answer>)|\s++(?={NOUN}[ \t]++[2b][ \t]*+:?[ \t]*+<answer>))", re.IGNORECASE
)
# Also with blank lines between them, where each is alone on its line.
_LONE = r"<answer>[^<>\n]{0,60}+</answer>"
_APART = re.compile(
    rf"^([ \t*`]*+{_LONE})[ \t*`]*+\n\s*+(?=[ \t*`]*+{_LONE}[ \t*`.]*+$)", re.IGNORECASE | re.MULTILINE
)


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `judgelrm`."""
    return ReplyFormat(pick=read, has_ties=True)


def read(reply: str) -> Pick:
    """Compare the scores of the last pair: equal ones are a tie, and one that is out of range decides nothing."""
    joined = _APART.sub(r"\1 ", without_blanks_in_tags(strip_thinking(reply)))
    return last_verdict(_BETWEEN.sub("</answer> ", joined), _of_sentence) or Pick.UNREADABLE


def _of_sentence(sentence: Sentence) -> Pick | None:
    found = _SCORES.fullmatch(sentence.text)
    if not found or sentence.is_item:
        return None
    texts = (found["first"] or found["one"], found["second"] or found["two"])
    first, second = (within(number_on(text, LOW, HIGH), LOW, HIGH) for text in texts)
    if first is None or second is None:
        return Pick.UNREADABLE
    return Pick.TIE if first == second else Pick.FIRST if first > second else Pick.SECOND
