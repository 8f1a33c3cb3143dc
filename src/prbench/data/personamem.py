"""PersonaMem: questions in a CSV file, and the conversations that they refer to in a JSONL file beside it."""

import ast
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from prbench.data.importing import file_stem, leftover
from prbench.data.rows import quoted, row_error
from prbench.errors import DataError
from prbench.schema import Json

_QUESTION = ("user_question_or_message", "question")  # the second in early versions
_INDEX = "end_index_in_shared_context"
_CONTEXT = "shared_context_id"
_USED = frozenset({"id", "question_id", "persona_id", "topic", "all_options", *_QUESTION, _CONTEXT, _INDEX})
_ADDED = frozenset({"user_id", "profile", "category", "chosen", "rejected", "group", "rejected_option"})
_LABEL = re.compile(r"\(([a-z])\)\s*")
_SPEAKER = re.compile(r"User:\s*")


def to_rows(raw: Mapping[str, Json], where: str, file: Path | None) -> list[dict[str, Json]]:
    """One row for the right option against each wrong one; the user's turns before the question are the profile."""
    options = _options(raw["all_options"], where)
    right = _LABEL.fullmatch(str(raw["correct_answer"]).strip())
    if right is None or right[1] not in options:
        fact = f"is {quoted(raw['correct_answer'])}, which is none of the options {', '.join(options)}"
        raise row_error(where, "correct_answer", fact, "Correct the row, or drop it")
    question = next((raw[name] for name in _QUESTION if raw.get(name)), None)
    group = f"{raw['question_id']}" if raw.get("question_id") else f"{raw[_CONTEXT]}/{where}"
    owner = raw.get("persona_id")
    common = {
        **leftover(raw, _USED, _ADDED, where),
        "user_id": f"persona-{owner}" if owner not in (None, "") else str(raw[_CONTEXT]),
        "question": question,
        "profile": _profile(raw, where, file),
        "category": raw.get("topic"),
        "chosen": options[right[1]],
        "group": group,
    }
    return [
        {**common, "id": f"{group}#{label}", "rejected": text, "rejected_option": label}
        for label, text in options.items()
        if label != right[1]
    ]


def _options(listed: Json, where: str) -> dict[str, str]:
    """The options by letter, without it: a list, or the text of one as Python writes it."""
    try:
        found = ast.literal_eval(listed) if isinstance(listed, str) else listed
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    texts = found if isinstance(found, list) else []
    labels = [_LABEL.match(text) if isinstance(text, str) else None for text in texts]
    if len(texts) < 2 or None in labels:
        fact = f"is {quoted(listed)}, which is no list of options (a), (b), …"
        raise row_error(where, "all_options", fact, "Correct the row, or drop it")
    return {label[1]: text[label.end() :] for label, text in zip(labels, texts, strict=True) if label}


def _profile(raw: Mapping[str, Json], where: str, file: Path | None) -> list[dict[str, Json]]:
    if file is None:
        fact = "names a conversation that lies in another file, and this row comes from none"
        raise row_error(where, _CONTEXT, fact, "Pass the authors' file or folder")
    beside = file.with_name(f"{file_stem(f'{file}:0').replace('questions', 'shared_contexts')}.jsonl")
    if not beside.is_file():
        fact = f"names a conversation, and {beside.name} is not there"
        raise row_error(where, _CONTEXT, fact, "Put the authors' files beside each other")
    turns = _contexts(beside).get(str(raw[_CONTEXT]))
    if turns is None:
        fact = f"{quoted(raw[_CONTEXT])} is not in {beside.name}"
        raise row_error(where, _CONTEXT, fact, "Take both files of one version of the set")
    try:
        end = int(raw[_INDEX])
    except (TypeError, ValueError):
        raise row_error(where, _INDEX, f"is {quoted(raw[_INDEX])}, not a whole number", "Correct the row") from None
    return [
        {"id": f"{str(raw[_CONTEXT])[:8]}-{place}", "category": raw.get("topic") or "", "text": said}
        for place, turn in enumerate(turns[:end])
        if turn.get("role") == "user" and (said := _SPEAKER.sub("", str(turn.get("content") or ""), count=1).strip())
    ]


@lru_cache(maxsize=2)
def _contexts(path: Path) -> dict[str, list[dict[str, Json]]]:
    """The conversations of a file by id; each line holds one or more of them."""
    found: dict[str, list[dict[str, Json]]] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line) if line.strip() else {}
        except ValueError as error:
            raise DataError(f"{path}:{number}: row: is not JSON ({error}). Copy or download it again.") from error
        if not isinstance(row, dict) or not all(isinstance(turns, list) for turns in row.values()):
            raise DataError(f"{path}:{number}: row: is no object of conversations by id. Copy or download it again.")
        found |= row
    return found
