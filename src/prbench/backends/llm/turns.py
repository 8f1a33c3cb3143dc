"""Chat turns made safe and fit for a model: control tokens in data stay data, and a system turn finds its place."""

import re
from collections.abc import Sequence
from typing import Any

from prbench.backends.llm.client import Message

_PROBE = "a system text that no template contains"
# Servers tokenise the rendered chat with control tokens switched on, so a response that contains `<|im_end|>` would
# end its own turn and speak for the assistant. The families in use: ChatML, Llama 3 and most newer models (`<|...|>`,
# `<|...>`, `<...|>`), DeepSeek (the same with full-width bars), Gemma, Llama 2 and Mistral.
CONTROL_TOKEN = re.compile(
    r"<[|｜][^\s<>]{1,64}>"
    r"|<[^\s<>]{1,64}[|｜]>"
    r"|</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<</?SYS>>"
)


def without_control_tokens(messages: Sequence[Message], special: Sequence[str] = ()) -> tuple[Message, ...]:
    """Return the turns with a space after the first character of every control token that their text contains.

    `special` adds the exact tokens of one tokenizer, where they are known.
    """
    longest_first = sorted((token for token in special if len(token) > 1), key=len, reverse=True)
    exact = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def safe(text: str) -> str:
        broken = CONTROL_TOKEN.sub(_break, text)
        return exact.sub(_break, broken) if exact else broken

    return tuple(Message(message.role, safe(message.content)) for message in messages)


def _break(found: re.Match[str]) -> str:
    return f"{found[0][0]} {found[0][1:]}"


def system_in_first_user_turn(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the turns with the system text at the head of the first user turn, for templates without that role."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    turns = [message for message in messages if message.role != "system"]
    if not system:
        return tuple(turns)
    if not turns or turns[0].role != "user":
        return (Message("user", system), *turns)
    return (Message("user", f"{system}\n\n{turns[0].content}"), *turns[1:])


def takes_system_turn(tokenizer: Any) -> bool:
    """Tell whether a chat template takes a system turn: some refuse it, some drop its text without a word."""
    from jinja2 import TemplateError

    turns = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "Hello"}]
    try:
        return _PROBE in tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    except TemplateError:
        return False
