"""Stage `generate`: `chosen` serves the rubric; `rejected` is as good an answer that serves other concerns.

The writer sees the aspects and the reasons, but neither the posts nor the evidence: an answer that echoes the user's
own words could be told by the words alone.
"""

import re
from collections.abc import Sequence

from prbench.backends.llm.asking import CUT_OFF, Asker, Prompt, Task, Unusable, filled
from prbench.backends.llm.client import Finish, Reply, always
from prbench.construction.build.draft import CHOSEN, REJECTED, Checked, Fault, PairDraft, Side
from prbench.construction.build.rows import Row, stage_row
from prbench.construction.check.style import FEATURES, features
from prbench.data.texts import words as words_of
from prbench.prompts import load_template
from prbench.prompts.replies import strip_thinking
from prbench.schema import as_list

TEMPLATES = {CHOSEN: "build_chosen", REJECTED: "build_rejected"}
LEAST_WORDS = 15  # of a response
KEPT_SHARE = 0.5  # of the words asked for: so many must stand in whole sentences of a response that was cut off
EMPTY, TOO_SHORT = "empty", "too_short"
_SENTENCE_END = re.compile(r"""(?<![0-9])[.!?]["'”’)\]]*(?=\s+[^\sa-z]|\s*\Z)|[。！？]""")
_LENGTHS = 0.05  # the length that is asked for, give or take


def write(drafts: Sequence[PairDraft], asker: Asker, words: int) -> tuple[list[Checked], list[Row]]:
    """Write every response that is due: the chosen ones first, so that the rejected ones can take their form."""
    checked = [Checked(draft=draft) for draft in drafts]
    for name in (CHOSEN, REJECTED):
        due = [place for place, each in enumerate(checked) if each.draft.side(name).is_due and not each.faults]
        tasks = [task(checked[place].draft, name, words) for place in due]
        label = f"generate {name}, round {drafts[0].round}" if drafts else ""
        for place, answer in zip(due, asker.ask(tasks, label), strict=True):
            draft = checked[place].draft
            if answer.value:
                side = Side(text=answer.value, round=draft.round)
                checked[place] = Checked(draft=draft.with_side(name, side))
            else:
                fault = Fault(reason=answer.reason, detail=answer.detail, side=name)
                checked[place] = Checked(draft=draft, faults=(fault,))
    return checked, [_row(before, after) for before, after in zip(drafts, checked, strict=True)]


def task(draft: PairDraft, name: str, words: int) -> Task[str]:
    """Ask for one response, again with the reason why an earlier one was refused."""
    slots = ("question", "aspects", "form", "previous", "feedback")
    template = load_template(TEMPLATES[name]).require(*slots, answer="text")
    side, other = draft.side(name), draft.side(REJECTED if name == CHOSEN else CHOSEN)
    form = f"plain prose of about {words} words, without lists" if other.is_due else form_of(other.text)

    def prompt(problem: str) -> Prompt:
        return filled(
            template,
            question=draft.item.question,
            aspects=as_list([aspect.text for aspect in draft.item.rubric]),
            form=form,
            previous=side.text,
            feedback=problem or side.feedback,
        )

    return Task(
        id=draft.item.id,
        owner=draft.item.user.id,
        round=draft.round,
        about=name,
        prompt=prompt,
        read=lambda reply: read(reply, words),
        cut_is_enough=always,
    )


def read(reply: Reply, asked: int) -> str | Unusable:
    """Return the response without thinking. Of one that was cut off, the whole sentences are kept, if they are enough.

    `asked` is the number of words that were asked for. A response is data: unlike a verdict, it says nothing less
    for having no end.
    """
    text = strip_thinking(reply.text)
    if reply.finish is Finish.LENGTH:
        text = whole_sentences(text)
        if len(words_of(text)) < KEPT_SHARE * asked:
            return Unusable(CUT_OFF, "It was cut off before its end. Be brief.")
    if not text:
        return Unusable(EMPTY, "It was empty.")
    if len(words_of(text)) < LEAST_WORDS:
        return Unusable(TOO_SHORT, f"It had fewer than {LEAST_WORDS} words.")
    return text


def whole_sentences(text: str) -> str:
    """Return a text up to the end of its last whole sentence; an abbreviation or a list's number is none."""
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return text[: ends[-1]] if ends else ""


def form_of(text: str) -> str:
    """Describe length and shape of a response, such that another one can be given the same."""
    found = dict(zip(FEATURES, map(int, features(text)), strict=True))
    low, high = round(len(text) * (1 - _LENGTHS)), round(len(text) * (1 + _LENGTHS))
    shape = "as a list or with headings" if found["list and Markdown marks"] else "in plain prose without lists"
    sentences = f"{found['sentences']} sentence{'' if found['sentences'] == 1 else 's'}"
    return f"about {found['words']} words in {sentences} ({low} to {high} characters), {shape}"


def _row(before: PairDraft, after: Checked) -> Row:
    draft = after.draft
    written = [name for name in (CHOSEN, REJECTED) if before.side(name).is_due]
    return stage_row(
        draft.item,
        draft.round,
        ok=not after.faults,
        written=written,
        feedback={name: before.side(name).feedback for name in written if before.side(name).feedback},
        faults=[{"reason": fault.reason, "detail": fault.detail, "side": fault.side} for fault in after.faults],
        chosen=draft.chosen.text,
        rejected=draft.rejected.text,
    )
