"""Labels in double square brackets, as MT-Bench and Arena-Hard ask for: `[[A]]`, `[[C]]` for a tie, `[[B>>A]]`."""

import re

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.sentences import NOUN, labeled, last_labeled
from prbench.schema import Pick
from prbench.specs import Spec

_LABEL = labeled(rf"(?:\\boxed\{{ ?)?\[\[ ?(?:{NOUN} )?(?P<label>[abc]|tie|[ab] ?(?:>>?|<<?|=) ?[ab]) ?\]\](?: ?\}})?")
_COMPARED = re.compile(r"(?P<left>[ab])(?P<sign>[><=])[><]?(?P<right>[ab])")


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `arena`."""
    return ReplyFormat(pick=read, has_ties=True)


def read(reply: str) -> Pick:
    """Return what the last label of its own decides."""
    return last_labeled(reply, _LABEL.fullmatch, meaning_of) or Pick.UNREADABLE


def meaning_of(label: str) -> Pick | None:
    """Return what a label means; `A>A` means nothing."""
    label = label.lower().replace(" ", "")
    if label in ("c", "tie"):
        return Pick.TIE
    found = _COMPARED.fullmatch(label)
    if not found:
        return Pick.FIRST if label == "a" else Pick.SECOND
    if found["left"] == found["right"]:
        return None
    if found["sign"] == "=":
        return Pick.TIE
    return Pick.FIRST if (found["left"] == "a") is (found["sign"] == ">") else Pick.SECOND
