"""What the importers share: reading a file, ids for rows without, columns that are not ours, chats as text."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from prbench.data.rows import quoted, row_error
from prbench.data.source import DatasetSource
from prbench.schema import Json

ToRows = Callable[[Mapping[str, Json], str], list[dict[str, Json]]]


def read_with(to_rows: ToRows, path: str | Path) -> Iterator[dict[str, Json]]:
    """Yield our rows from a file or folder of rows that are known to be in the importer's format."""
    for raw in DatasetSource(path=str(path)).rows():
        if raw.problem:
            raise raw.refusal()
        try:
            rows = to_rows(raw.value, raw.where)
        except KeyError as error:
            remedy = "Check that this is the file you meant"
            raise row_error(raw.where, str(error.args[0]), "is missing", remedy) from None
        yield from rows


def content_id(*parts: Json) -> str:
    """An id made of the row's content, for rows that have none: it survives sorting and filtering."""
    text = json.dumps(parts, ensure_ascii=True, sort_keys=True, default=str)
    return f"row-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def file_stem(where: str) -> str:
    """The name of the file that a place (`folder/name.json:3`) is in, without its endings; "" if it names none."""
    return PurePath(where.rpartition(":")[0]).name.partition(".")[0]


def leftover(raw: Mapping[str, Json], used: frozenset[str], added: frozenset[str], where: str) -> dict[str, Json]:
    """The columns that the importer does not use; they go to `meta`. One that it would overwrite is refused."""
    for name in raw.keys() & added - used:
        if raw[name] is not None:
            fact = f"the importer needs the name {quoted(name)} for a column of its own"
            raise row_error(where, name, fact, "Rename your column")
    return {name: value for name, value in raw.items() if name not in used}


ORIGINAL = "original_messages"  # the key of `meta` that holds turns which the plain texts do not give back
_SPEAKERS = {"human": "User", "model": "Assistant", "gpt": "Assistant"}


def is_messages(value: Json) -> bool:
    """Is this a list of turns with a role and a content?"""
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Json) -> bool:
    return isinstance(value, Mapping) and "role" in value and "content" in value


def to_question(prompt: Json, where: str, field: str) -> str:
    """The prompt as one text: a single user turn as it is, several turns each under its speaker."""
    if isinstance(prompt, str):
        return prompt
    if not is_messages(prompt):
        raise row_error(where, field, "must be text or a list of messages with role and content", "Correct the row")
    if len(prompt) == 1 and prompt[0]["role"] in ("user", "human"):
        return _content(prompt[0], where, field)
    return _transcript(prompt, where, field)


def to_response(value: Json, where: str, field: str) -> str:
    """The response as one text, from a text, a message or a list of messages."""
    if isinstance(value, str):
        return value
    turns = [value] if _is_message(value) else value
    if not is_messages(turns):
        raise row_error(where, field, "must be text, a message, or a list of messages", "Correct the row")
    return _content(turns[0], where, field) if len(turns) == 1 else _transcript(turns, where, field)


def original_messages(
    question: str, chosen: str, rejected: str, prompt: Json, first: Json, second: Json
) -> dict[str, Json]:
    """The turns to keep beside the texts: those that the texts alone would not give back."""
    plain = {
        "prompt": (prompt, [{"role": "user", "content": question}]),
        "chosen": (first, [{"role": "assistant", "content": chosen}]),
        "rejected": (second, [{"role": "assistant", "content": rejected}]),
    }
    kept = {
        name: value
        for name, (value, obvious) in plain.items()
        if value is not None and not isinstance(value, str) and value not in (obvious, obvious[0])
    }
    return {ORIGINAL: kept} if kept else {}


def shared_turns(chosen: Sequence[Json], rejected: Sequence[Json]) -> int:
    """How many turns both conversations begin with; at least one is left to each."""
    limit = min(len(chosen), len(rejected)) - 1
    return next((i for i in range(limit) if chosen[i] != rejected[i]), limit)


def _transcript(turns: Sequence[Mapping[str, Json]], where: str, field: str) -> str:
    roles = [str(turn["role"]) for turn in turns]
    speakers = [_SPEAKERS.get(role, role.capitalize()) for role in roles]
    return "\n\n".join(f"{who}: {_content(turn, where, field)}" for who, turn in zip(speakers, turns, strict=True))


def _content(turn: Mapping[str, Json], where: str, field: str) -> str:
    """A turn's text; parts that are not text (images, tool calls) have no place in a text benchmark."""
    content = turn["content"]
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)
    raise row_error(where, field, "has a turn whose content is not text", "Drop the row")
