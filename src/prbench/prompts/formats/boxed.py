"""What stands in a LaTeX box, as reasoning models are trained to answer: `\\boxed{A}`, `\\boxed{Assistant 1}`."""

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.sentences import NOUN, NUMBER, SIDE, TIE, labeled, last_labeled, side_of
from prbench.prompts.replies import number_on, within
from prbench.schema import Pick
from prbench.specs import Spec

_BOX = (
    r"(?:\\{{1,2}}[(\[] ?)?\\{{1,2}}boxed ?\{{ ?"
    r"(?:\\{{1,2}}(?:text(?:bf|rm|it|sf|tt)?|math(?:bf|rm|it|sf|tt)) ?\{{ ?)?{inside}"
    r" ?\}}?\}}(?:[.!]? ?\\{{1,2}}[)\]])?"
)
_LABEL = labeled(_BOX.format(inside=rf"\(?(?:{NOUN} )?\(?(?P<label>{SIDE}|{TIE})\)?"))
_SCORE = labeled(_BOX.format(inside=rf"(?P<label>{NUMBER})"))


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `boxed`."""
    return ReplyFormat(pick=read, score=read_score, has_ties=True)


def read(reply: str) -> Pick:
    """Return what the last box of its own decides."""
    return last_labeled(reply, _LABEL.fullmatch, side_of) or Pick.UNREADABLE


def read_score(reply: str, low: float, high: float) -> float | None:
    """Return the number in the last box of its own."""

    def number(label: str) -> float | None:
        return number_on(label, low, high)

    return within(
        last_labeled(reply, _SCORE.fullmatch, number),
        low,
        high,
    )
