"""TRL preference rows: `chosen` and `rejected` as text or messages, with the prompt beside or inside them."""

import re
from collections.abc import Mapping

from prbench.data.importing import (
    ORIGINAL,
    content_id,
    is_messages,
    leftover,
    original_messages,
    shared_turns,
    to_question,
    to_response,
)
from prbench.data.rows import row_error
from prbench.errors import DataError
from prbench.schema import Json

_USED = frozenset({"id", "prompt", "chosen", "rejected"})
_ADDED = frozenset({"question", ORIGINAL})
_TURN_MARK = re.compile(r"(?:^|\n)\s*Assistant:")


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair, with an empty profile unless there is one; columns such as `margin` go to `meta`."""
    chosen, rejected, stated = raw["chosen"], raw["rejected"], raw.get("prompt")
    prompt, first, second = _separate(stated, chosen, rejected, where)
    question = to_question(prompt, where, "prompt")
    answers = to_response(first, where, "chosen"), to_response(second, where, "rejected")
    own_id = raw.get("id")
    return [
        {
            "profile": [],
            **leftover(raw, _USED, _ADDED, where),
            "id": content_id(stated, chosen, rejected) if own_id is None else own_id,
            "question": question,
            "chosen": answers[0],
            "rejected": answers[1],
            **original_messages(question, *answers, prompt, first, second),
            **({} if stated in (None, prompt, question) else {"prompt": stated}),
        }
    ]


def _separate(prompt: Json, chosen: Json, rejected: Json, where: str) -> tuple[Json, Json, Json]:
    """Prompt, chosen and rejected, where the last two no longer repeat the prompt."""
    if is_messages(chosen) and is_messages(rejected):
        shared = _prompt_turns(prompt, chosen, rejected)
        if prompt is None and not shared:
            raise _no_prompt(where)
        # Whole conversations say more than a prompt column that repeats one turn of them.
        return chosen[:shared] if shared else prompt, chosen[shared:], rejected[shared:]
    if prompt is not None:
        return prompt, chosen, rejected
    if not (isinstance(chosen, str) and isinstance(rejected, str)):
        fact = "and rejected must both be text or both be lists of messages"
        raise row_error(where, "chosen", fact, "Correct the row")
    length = min(len(chosen), len(rejected))
    end = _end_of_prompt(chosen[: next((i for i in range(length) if chosen[i] != rejected[i]), length)])
    if not chosen[:end].strip():
        raise _no_prompt(where)
    # Spaces stay where they are: prompt and response put together are the text that came in.
    return chosen[:end], chosen[end:], rejected[end:]


def _prompt_turns(prompt: Json, chosen: list[Json], rejected: list[Json]) -> int:
    """How many turns at the head of both responses are really the prompt."""
    shared = shared_turns(chosen, rejected)
    if is_messages(prompt):
        return len(prompt) if chosen[: len(prompt)] == prompt and len(prompt) <= shared else 0
    return shared if prompt is None or chosen[0]["role"] != "assistant" else 0


def _end_of_prompt(shared: str) -> int:
    """Where the answers start: after the last `Assistant:`, or else at the last space, so that no word is split."""
    marks = list(_TURN_MARK.finditer(shared))
    if marks:
        return marks[-1].end()
    return max((i for i, character in enumerate(shared) if character.isspace()), default=0)


def _no_prompt(where: str) -> DataError:
    return row_error(where, "prompt", "is missing, and chosen and rejected do not begin alike", "Add a prompt column")
