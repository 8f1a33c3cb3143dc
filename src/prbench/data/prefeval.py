"""PrefEval: a `preference`, a `question` and its `explanation`, with four options of which the first one is right.

The authors keep the options in `mcq_options/TOPIC.json`, and how the preference came up in files of the same name:
said outright (`explicit_preference`), chosen among options or let fall in a conversation (`implicit_preference`).
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from prbench.data.importing import content_id, file_stem, leftover
from prbench.data.rows import row_error
from prbench.errors import DataError
from prbench.schema import Json

OPTIONS = "classification_task_options"
EXPLICIT, CHOICE, PERSONA = "explicit", "choice", "persona"
_FOLDER = "mcq_options"
_USED = frozenset({"id", "question", "preference", "explanation", "conversation", OPTIONS})
_ADDED = frozenset(
    {"user_id", "profile", "rubric_aspects", "category", "chosen", "rejected", "form", "group", "rejected_option"}
)


def to_rows(raw: Mapping[str, Json], where: str, file: Path | None) -> list[dict[str, Json]]:
    """One row for the right option against each wrong one; every preference is a person of its own.

    The preference and its explanation are the rubric. In the explicit form the preference is the profile, too.
    """
    options = raw.get(OPTIONS) or _options_beside(raw, where, file)
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(text, str) for text in options):
        raise row_error(where, OPTIONS, "is no list of at least two texts", "Correct the row, or drop it")
    form, turns = _history(raw, where)
    person = str(content_id(raw["preference"], raw["explanation"]))
    group = f"{form}/{content_id(raw['preference'], raw['question'])}" if raw.get("id") is None else f"{raw['id']}"
    common = {
        **leftover(raw, _USED, _ADDED, where),
        "user_id": person,
        "question": raw["question"],
        "profile": [{"id": f"{form}-{place}", "text": text} for place, text in enumerate(turns)],
        "rubric_aspects": [{"aspect": raw["preference"], "reason": raw["explanation"]}],
        "category": file_stem(where),
        "chosen": options[0],
        "form": form,
        "group": group,
    }
    return [
        {**common, "id": f"{group}#{place}", "rejected": text, "rejected_option": place}
        for place, text in enumerate(options)
        if place
    ]


def _history(raw: Mapping[str, Json], where: str) -> tuple[str, list[str]]:
    """The form, and what the user said before."""
    said = raw.get("conversation")
    if said is None:
        return EXPLICIT, [raw["preference"]]
    if not isinstance(said, Mapping):
        raise row_error(where, "conversation", "is no object of turns", "Correct the row, or drop it")
    if "user_selection" in said:
        return CHOICE, [said[name] for name in ("query", "user_selection") if said.get(name)]
    return PERSONA, list(_user_turns(said, where))


def _user_turns(said: Mapping[str, Json], where: str) -> Iterator[str]:
    for number in said:
        turn = said[number]
        if not isinstance(turn, Mapping) or not isinstance(turn.get("user"), str):
            raise row_error(where, f"conversation.{number}", "has no text of the user", "Correct the row, or drop it")
        yield turn["user"]


def _options_beside(raw: Mapping[str, Json], where: str, file: Path | None) -> Json:
    """The options of the same question, which lie in a folder of their own."""
    places = [parent / _FOLDER / file.name for parent in list(file.parents)[:3]] if file else []
    path = next((place for place in places if place.is_file()), None)
    if path is None or file is None:
        fact = f"has no {OPTIONS}, and no folder {_FOLDER} with a file of this name is near"
        raise row_error(where, "row", fact, "Keep the authors' folders together")
    found = _options_of(path).get((raw["preference"], raw["question"]))
    if found is None:
        fact = f"has no {OPTIONS}, and {_FOLDER}/{path.name} does not have this preference and question"
        raise row_error(where, "row", fact, "Drop the row")
    return found


@lru_cache(maxsize=32)
def _options_of(path: Path) -> dict[tuple[str, str], Json]:
    try:
        rows = json.loads(path.read_bytes())
        return {(row["preference"], row["question"]): row[OPTIONS] for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        fact = f"is no list of rows with preference, question and {OPTIONS} ({type(error).__name__}: {error})"
        raise DataError(f"{path}: {fact}. Copy or download it again.") from error
