"""RM-R1 and its like: reasons in tags of their own, then `<answer>[[A]]</answer>`. It knows no ties."""

import re

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.formats.arena import meaning_of
from prbench.prompts.formats.sentences import NOUN, labeled, last_labeled, without_blanks_in_tags
from prbench.prompts.replies import strip_blocks, strip_thinking
from prbench.schema import Pick
from prbench.specs import Spec

# What the judge quotes and weighs stands in such blocks, so no verdict does.
_WEIGHING = re.compile(
    r"<(?P<end>/?)(?P<name>rubric|justify|eval|solution|type|quote_[ab]|summary_[ab])\b[^<>]*>(?P<end2>)",
    re.IGNORECASE,
)
_LABEL = labeled(rf"<answer> ?(?:\[\[ ?)?(?:{NOUN} )?(?P<label>[ab](?: ?(?:>>?|<<?) ?[ab])?) ?(?:\]\] ?)?</answer>")


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `rmr1`."""
    return ReplyFormat(pick=read)


def read(reply: str) -> Pick:
    """Return what the last answer of its own decides, outside of all blocks of reasons."""
    rest = without_blanks_in_tags(strip_blocks(strip_thinking(reply), _WEIGHING))
    return last_labeled(rest, _LABEL.fullmatch, meaning_of) or Pick.UNREADABLE
