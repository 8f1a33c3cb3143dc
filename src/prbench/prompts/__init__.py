"""Prompt templates: text files with declared slots and a declared answer, filled in one pass.

A file is a header between `---` lines, then a `## system` part (optional) and a `## user` part:

    ---
    slots: question, response
    answer: score 1-10
    ---
    ## system
    You rate responses.
    ## user
    <response-{nonce}>
    {response}
    </response-{nonce}>
    ...

Two lines of the header are for judges of other makes: `reply: arena` names the format that replies have (a row of
`prbench.registry.REPLIES`; ours without), and `max_tokens: 2048` says how long one may be unless the user says it.

Marks: `{slot}` is replaced by the slot's text; `{?slot} ... {/slot}` is kept only where that text is not empty;
`{nonce}` is filled in by `Template.fill`; `{{word}}` stands for the characters `{word}`.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import count
from pathlib import Path

from prbench.errors import UsageError
from prbench.registry import REPLIES
from prbench.specs import parse_spec

_BLOCK = re.compile(r"\{\?([A-Za-z_]\w*)\}(.*?)\{/\1\}", re.DOTALL)
_MARK = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")
_STRAY = re.compile(r"\{[?/][A-Za-z_]\w*\}")
_PART = re.compile(r"^## (system|user)[ \t]*$", re.MULTILINE)
_SCORE = re.compile(r"score ([0-9]+(?:\.[0-9]+)?)-([0-9]+(?:\.[0-9]+)?)")
_SLOT_NAME = re.compile(r"[a-z][a-z_]*")
_ANSWERS = "pick, score LOW-HIGH, aspects, json, text"
_NONCE = "nonce"
_KEYS = ("slots", "answer", "reply", "max_tokens")
HASH_LENGTH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A prompt with holes in it, and the kind of answer that it asks for."""

    name: str
    slots: tuple[str, ...]
    answer: str  # "pick", "score 1-10", "aspects", "json" or "text"
    system: str  # "": the prompt has no system part
    user: str
    hash: str  # 12 hex digits of the file's SHA-256: any edit is another template
    reply: str = "result"  # the format in which a pick or a score comes, e.g. "arena" or "json?field=winner"
    max_tokens: int | None = None  # of a reply; `None`: whatever the caller allows

    @property
    def scale(self) -> tuple[float, float] | None:
        """Lowest and highest score, for a template that asks for one."""
        found = _SCORE.fullmatch(self.answer)
        return (float(found[1]), float(found[2])) if found else None

    def require(self, *slots: str, answer: str) -> "Template":
        """Return the template itself, once it is known to serve a caller that fills `slots` and reads `answer`.

        `answer` is the first word of the kind: "score" accepts every scale.
        """
        if set(slots) != set(self.slots):
            raise UsageError(
                f"Template {self.name!r} has the slots {', '.join(self.slots)}; here it must have exactly "
                f"{', '.join(slots)}. Choose or write another template."
            )
        if self.answer.split()[0] != answer:
            raise UsageError(
                f"Template {self.name!r} asks for {self.answer!r}, but the reply is read as {answer!r}. "
                "Choose or write another template."
            )
        return self

    def fill(self, **slots: str) -> tuple[tuple[str, str], ...]:
        """Return the messages as (role, text) pairs; what stands in a slot's text is never read as a mark."""
        missing, extra = sorted(set(self.slots) - set(slots)), sorted(set(slots) - set(self.slots))
        if missing or extra:
            wrong = f"lacks a text for {', '.join(missing)}" if missing else f"has no slot {', '.join(extra)}"
            raise UsageError(f"Template {self.name!r} {wrong}. Its slots are: {', '.join(self.slots)}.")
        # A code for the fences that occurs in none of the texts, so that none of them can close a fence. It depends on
        # the first slot alone (the question) unless another text happens to hold it: candidates for one question then
        # share their prompt's prefix, and both orders of a pair carry the same code.
        first, lowered = slots[self.slots[0]], [text.lower() for text in slots.values()]
        codes = (sha256(f"{attempt}:{first}".encode(errors="surrogatepass")).hexdigest()[:8] for attempt in count())
        nonce = next(code for code in codes if not any(code in text for text in lowered))
        texts = {**slots, _NONCE: nonce}
        filled = []
        for role, part in (("system", self.system), ("user", self.user)):
            # The conditions are settled first, on the template's own text; then every slot is put in, in one pass.
            settled = _BLOCK.sub(lambda block: block[2] if texts[block[1]] else "", part)
            whole = _MARK.sub(lambda mark: f"{{{mark[1]}}}" if mark[1] else texts[mark[2]], settled)
            filled += [(role, whole)] if part else []
        return tuple(filled)


def load_template(name_or_path: str | Path) -> Template:
    """Read a template of the package by name (`judge_pair`), or any other by its path (`./mine.md`)."""
    if not isinstance(name_or_path, Path) and "/" not in name_or_path and not name_or_path.endswith(".md"):
        name = name_or_path
        if name not in packaged_names():
            known = ", ".join(packaged_names())
            raise UsageError(f"There is no template {name!r}. Use one of {known}, or a path that ends in .md.")
        text = files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")
        return parse_template(text, name=name, place=f"template {name}")
    path = Path(name_or_path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: the template cannot be read ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the template is not UTF-8 text ({error.reason}). Save it as UTF-8.") from error
    return parse_template(text, name=path.stem, place=str(path))


def packaged_names() -> tuple[str, ...]:
    """The names that `load_template` knows without a path, sorted."""
    found = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in found if name.endswith(".md")))


def parse_template(text: str, *, name: str, place: str) -> Template:
    """Check the text of a template file; `place` is what an error calls it."""
    header, body = _read_header(text, place)
    slots, answer = _slots(header, place), _answer(header, place)
    before, *rest = _PART.split(body)
    roles, texts = rest[::2], [text.strip() for text in rest[1::2]]
    if before.strip() or roles not in (["user"], ["system", "user"]) or not all(texts):
        raise UsageError(f"{place}: after the header, write `## system` (optional), then `## user`, each with text.")
    # Marks are declared slots, and the text of every declared slot is shown.
    conditions = {found[1] for part in texts for found in _BLOCK.finditer(part)}
    opened = [_BLOCK.sub(lambda block: block[2], part) for part in texts]
    marks = {found[2] for part in opened for found in _MARK.finditer(part) if found[2]} - {_NONCE}
    for undeclared in sorted((marks | conditions) - set(slots)):
        raise UsageError(f"{place}: the mark {{{undeclared}}} is not a declared slot. Add it to the `slots:` line.")
    for unused in sorted(set(slots) - marks):
        raise UsageError(f"{place}: the slot {unused!r} is declared but never used. Put {{{unused}}} into the text.")
    for stray in filter(None, map(_STRAY.search, opened)):
        raise UsageError(f"{place}: {stray[0]} has no partner. Write {{?slot}} ... {{/slot}}, without nesting.")
    parts = dict(zip(roles, texts, strict=True))
    digest = sha256(text.encode()).hexdigest()[:HASH_LENGTH]
    return Template(
        name=name,
        slots=slots,
        answer=answer,
        system=parts.get("system", ""),
        user=parts["user"],
        hash=digest,
        reply=_reply(header, answer, place),
        max_tokens=_max_tokens(header, place),
    )


def _read_header(text: str, place: str) -> tuple[dict[str, str], str]:
    """Return the lines of the header by their keys, and what follows the header."""
    found = re.match(r"---\n(.*?)\n---\n(.*)\Z", text, re.DOTALL)
    if not found:
        raise UsageError(f"{place}: the file must begin with a header between two `---` lines (slots, answer).")
    header: dict[str, str] = {}
    for line in filter(str.strip, found[1].splitlines()):
        key, colon, value = (piece.strip() for piece in line.partition(":"))
        if not colon or key not in _KEYS or key in header:
            raise UsageError(
                f"{place}: header line {line!r} is not understood. Write one `slots:`, one `answer:`; a judge has "
                "maybe one `reply:`, one `max_tokens:`."
            )
        header[key] = value
    return header, found[2]


def _slots(header: dict[str, str], place: str) -> tuple[str, ...]:
    slots = tuple(slot.strip() for slot in header.get("slots", "").split(","))
    for slot in slots:
        if not _SLOT_NAME.fullmatch(slot) or slot == _NONCE or slots.count(slot) > 1:
            raise UsageError(
                f"{place}: {slot!r} cannot be a slot. List distinct lower-case names in `slots:`; `nonce` is taken."
            )
    return slots


def _answer(header: dict[str, str], place: str) -> str:
    answer = header.get("answer", "")
    scale = _SCORE.fullmatch(answer)
    if answer not in ("pick", "aspects", "json", "text") and not scale:
        raise UsageError(f"{place}: the `answer:` line says {answer!r}. It must be one of: {_ANSWERS}.")
    if scale and float(scale[1]) >= float(scale[2]):
        raise UsageError(f"{place}: the scale in `answer: {answer}` is empty. Put the lower end first.")
    return answer


def _reply(header: dict[str, str], answer: str, place: str) -> str:
    reply = header.get("reply", "result")
    if "reply" in header and answer != "pick" and not _SCORE.fullmatch(answer):
        raise UsageError(f"{place}: `reply:` is for verdicts and scores, and `answer:` says {answer!r}. Leave it out.")
    try:
        parse_spec(reply, REPLIES)
    except UsageError as error:
        raise UsageError(f"{place}: `reply:` {error}") from error
    return reply


def _max_tokens(header: dict[str, str], place: str) -> int | None:
    text = header.get("max_tokens")
    if text is not None and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"{place}: `max_tokens: {text}` is no whole number of at least 1. Correct it.")
    return None if text is None else int(text)
