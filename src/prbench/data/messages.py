"""Chats as text: a prompt of several turns becomes one readable question, and the turns themselves are kept."""

from collections.abc import Mapping, Sequence

from prbench.data.rows import refuse
from prbench.schema import Json

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
        raise refuse(where, field, "must be text or a list of messages with role and content", "Correct the row")
    if len(prompt) == 1 and prompt[0]["role"] in ("user", "human"):
        return _content(prompt[0], where, field)
    return _transcript(prompt, where, field)


def to_response(value: Json, where: str, field: str) -> str:
    """The response as one text, from a text, a message or a list of messages."""
    if isinstance(value, str):
        return value
    turns = [value] if _is_message(value) else value
    if not is_messages(turns):
        raise refuse(where, field, "must be text, a message, or a list of messages", "Correct the row")
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
    return "\n\n".join(f"{_speaker(turn)}: {_content(turn, where, field)}" for turn in turns)


def _speaker(turn: Mapping[str, Json]) -> str:
    role = str(turn["role"])
    return _SPEAKERS.get(role, role.capitalize())


def _content(turn: Mapping[str, Json], where: str, field: str) -> str:
    """A turn's text; parts that are not text (images, tool calls) have no place in a text benchmark."""
    content = turn["content"]
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)
    raise refuse(where, field, "has a turn whose content is not text", "Drop the row")
