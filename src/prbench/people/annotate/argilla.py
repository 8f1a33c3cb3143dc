"""Argilla 2: records as `dataset.records.to_json` writes them, and the settings that go with them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from uuid import NAMESPACE_URL, uuid5

from pydantic import BaseModel, ConfigDict

from prbench.errors import DataError
from prbench.people.agreement.answers import QUALITIES
from prbench.people.annotate.external_formats import (
    ASKED,
    PLACES,
    TITLES,
    Facts,
    as_asked,
    facts_of,
    find_item,
    read_facts,
    to_row,
    values_of,
)
from prbench.people.annotate.records import Mode
from prbench.people.annotate.rows import AnswerRow, answer_rows, check
from prbench.people.annotate.store import Store
from prbench.schema import Json

FACTS = "prbench"  # the metadata property with what Argilla has no question for


_READ = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Response(BaseModel):
    model_config = _READ
    value: Json
    user_id: str | int
    status: str | None = None


class _Record(BaseModel):
    model_config = _READ
    id: str
    fields: dict[str, Json]
    metadata: dict[str, Json] | None = None
    responses: dict[str, list[_Response]] | None = None


def user_id(name: str) -> str:
    """Return the id under which an annotator's answers stand in a file; Argilla wants a UUID."""
    return str(uuid5(NAMESPACE_URL, f"prbench:annotator:{name}"))


def to_records(store: Store) -> list[dict[str, Json]]:
    """Return every item as a record with its answers."""
    by_item: dict[str, list[AnswerRow]] = {}
    for row in answer_rows(store):
        by_item.setdefault(row["item"], []).append(row)
    records = []
    for item in store.items():
        asked, rows = as_asked(store, item), by_item.get(item.id, [])
        responses: dict[str, list[Json]] = {}
        for row in rows:
            for name, value in values_of(row, asked).items():
                answer = {"value": value, "user_id": user_id(row["annotator"]), "status": "submitted"}
                responses.setdefault(name, []).append(answer)
        metadata = {FACTS: [json.dumps(facts_of(row), ensure_ascii=False) for row in rows]} if rows else {}
        records.append(
            {
                "id": item.id,
                "fields": dict(asked.texts),
                "metadata": metadata,
                "suggestions": {},
                "responses": responses,
                "vectors": {},
            }
        )
    return records


def to_rows(store: Store, records: Sequence[Json], name: str) -> Iterator[tuple[str, AnswerRow]]:
    """Yield the answers of Argilla's records as our rows, each with its place."""
    items = {item.id: item for item in store.items()}
    for number, found in enumerate(records, 1):
        where = f"{name}:{number}"
        if not isinstance(found, dict) or not isinstance(found.get("fields"), dict):
            raise DataError(f"{where}: is not a record of Argilla. Export it with dataset.records.to_json.")
        record = check(_Record, found, where)
        item = find_item(items, record.id, where)
        facts = _facts(record, where)
        for user, values in _by_user(record.responses or {}).items():
            yield where, to_row(store, item, record.fields, values, facts.get(user, Facts(annotator=user)), where)


def to_settings(store: Store) -> dict[str, Json]:
    """Return the dataset's settings, for `rg.Settings.from_json`."""
    mode = store.project.mode
    fields = ["question", *(["rubric"] if mode is Mode.VALIDATE else []), "response_1", "response_2"]
    labels = [{"value": value, "text": text} for value, text in TITLES.items()]
    questions = [_question("choice", ASKED[mode], {"type": "label_selection", "options": labels}, required=True)]
    if mode is Mode.VALIDATE:
        scale = {"type": "rating", "options": [{"value": value} for value in range(1, 6)]}
        questions += [
            _question(f"{place}_{quality}", f"{TITLES[place]}: {quality}", scale, required=True)
            for place in PLACES
            for quality in QUALITIES
        ]
    else:
        questions.append(_question("why", "What mattered to you? One thing per line", {"type": "text"}))
    questions.append(_question("note", "Note", {"type": "text"}))
    return {
        "guidelines": store.project.instructions or ASKED[mode],
        "questions": questions,
        "fields": [
            {
                "name": name,
                "title": name.replace("_", " ").capitalize(),
                "required": True,
                "settings": {"type": "text"},
            }
            for name in fields
        ],
        "vectors": [],
        "metadata": [{"name": FACTS, "title": FACTS, "settings": {"type": "terms"}, "visible_for_annotators": False}],
        "allow_extra_metadata": True,
        "distribution": {"strategy": "overlap", "min_submitted": store.project.overlap},
    }


def _question(name: str, title: str, settings: dict[str, Json], *, required: bool = False) -> dict[str, Json]:
    return {"name": name, "title": title, "required": required, "settings": settings}


def _facts(record: _Record, where: str) -> dict[str, Facts]:
    """Return what our export wrote about each answer, by the id of who gave it."""
    written = (record.metadata or {}).get(FACTS) or []
    texts = written if isinstance(written, list) else [written]  # Argilla may give a single term without its list
    known = [read_facts(text, f"{where}: metadata.{FACTS}") for text in texts]
    return {user_id(each.annotator): each for each in known if each}


def _by_user(responses: Mapping[str, Sequence[_Response]]) -> dict[str, dict[str, Json]]:
    """Turn answers by question into answers by person; drafts and discarded ones are left out."""
    found: dict[str, dict[str, Json]] = {}
    for question, answers in responses.items():
        for answer in answers:
            if answer.status in (None, "submitted"):
                found.setdefault(str(answer.user_id), {})[question] = answer.value
    return found
