"""Label Studio: tasks with annotations in its JSON format, and the labelling configuration that goes with them."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import quoteattr

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
from prbench.people.annotate.rows import AnswerRow, Seconds, StoredTime, answer_rows, check
from prbench.people.annotate.store import Store
from prbench.schema import Json

FACTS = "prbench"  # in `meta` of an annotation's first result

_READ = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Value(BaseModel):
    model_config = _READ
    choices: list[str] | None = None
    rating: Json = None
    text: str | list[str] | None = None


class _Result(BaseModel):
    model_config = _READ
    from_name: str | None = None  # relations between regions have none, and answer nothing
    value: _Value = _Value()
    meta: dict[str, Json] | None = None


class _Person(BaseModel):
    model_config = _READ
    id: int | str | None = None
    email: str | None = None


class _Annotation(BaseModel):
    model_config = _READ
    result: list[_Result] | None = None
    completed_by: int | str | _Person | None = None
    lead_time: Seconds | None = None
    created_at: StoredTime | None = None
    was_cancelled: bool | None = None


class _Task(BaseModel):
    model_config = _READ
    data: dict[str, Json]
    annotations: list[_Annotation] | None = None


def to_tasks(store: Store) -> list[dict[str, Json]]:
    """Return every item as a task with its annotations.

    `completed_by` is left out: an instance refuses people it does not know. Who answered stands in `meta`.
    """
    by_item: dict[str, list[AnswerRow]] = {}
    for row in answer_rows(store):
        by_item.setdefault(row["item"], []).append(row)
    tasks = []
    for item in store.items():
        asked = as_asked(store, item)
        annotations = [_annotation(row, values_of(row, asked)) for row in by_item.get(item.id, [])]
        data: dict[str, Json] = {"item": item.id} | dict(asked.texts)
        tasks.append({"data": data, "annotations": annotations})
    return tasks


def to_rows(store: Store, tasks: Sequence[Json], name: str) -> Iterator[tuple[str, AnswerRow]]:
    """Yield the annotations of Label Studio's tasks as our rows, each with its place; cancelled ones are left out."""
    items = {item.id: item for item in store.items()}
    for number, found in enumerate(tasks, 1):
        where = f"{name}:{number}"
        if not isinstance(found, dict) or not isinstance(found.get("data"), dict):
            raise DataError(f"{where}: is not a task of Label Studio. Export it as JSON.")
        task = check(_Task, found, where)
        item = find_item(items, task.data.get("item"), where)
        for place, annotation in enumerate(task.annotations or [], 1):
            if annotation.was_cancelled or not annotation.result:
                continue
            values = {each.from_name: _value(each.value) for each in annotation.result if each.from_name}
            yield where, to_row(store, item, task.data, values, _facts(annotation, place, where), where)


def to_config(store: Store) -> str:
    """Return the labelling configuration of a project for these tasks."""
    mode = store.project.mode
    lines = ['<Header value="Question"/>', '<Text name="question" value="$question"/>']
    if mode is Mode.VALIDATE:
        lines += ['<Header value="What this person looks for"/>', '<Text name="rubric" value="$rubric"/>']
    for number in (1, 2):
        lines += [
            f'<Header value="Response {number}"/>',
            f'<Text name="response_{number}" value="$response_{number}"/>',
        ]
    choices = "".join(f'<Choice value="{title}"/>' for title in TITLES.values())
    lines.append(f"<Header value={quoteattr(ASKED[mode])}/>")
    lines.append(f'<Choices name="choice" toName="question" choice="single-radio" required="true">{choices}</Choices>')
    if mode is Mode.VALIDATE:
        for number, place in enumerate(PLACES, 1):
            for quality in QUALITIES:
                lines.append(f'<Header value="{TITLES[place]}: {quality}" size="5"/>')
                lines.append(
                    f'<Rating name="{place}_{quality}" toName="response_{number}" maxRating="5" required="true"/>'
                )
    else:
        lines.append('<Header value="What mattered to you? One thing per line"/>')
        lines.append('<TextArea name="why" toName="question" rows="3" maxSubmissions="1"/>')
    lines += ['<Header value="Note"/>', '<TextArea name="note" toName="question" rows="2" maxSubmissions="1"/>']
    return "\n".join(("<View>", *("  " + line for line in lines), "</View>")) + "\n"


def _annotation(row: AnswerRow, values: Mapping[str, Json]) -> dict[str, Json]:
    results = [_result(row, name, value) for name, value in values.items()]
    results[0]["meta"] = {FACTS: json.dumps(facts_of(row), ensure_ascii=False)}
    return {
        "result": results,
        "was_cancelled": False,
        "ground_truth": False,
        "lead_time": row["seconds"],
        "created_at": row["saved_at"],
    }


def _result(row: AnswerRow, name: str, value: Json) -> dict[str, Json]:
    place, _, quality = name.partition("_")
    one = {
        "id": hashlib.sha256(f"{row['item']}:{row['annotator']}:{name}".encode()).hexdigest()[:10],
        "from_name": name,
    }
    if quality:
        number = PLACES.index(place) + 1
        return one | {"to_name": f"response_{number}", "type": "rating", "value": {"rating": value}}
    if name == "choice":
        return one | {"to_name": "question", "type": "choices", "value": {"choices": [TITLES[value]]}}
    return one | {"to_name": "question", "type": "textarea", "value": {"text": [value]}}


def _value(value: _Value) -> Json:
    if value.choices is not None:
        return {title: name for name, title in TITLES.items()}.get((value.choices or [""])[0])
    if value.rating is not None:
        return value.rating
    return "\n".join([value.text] if isinstance(value.text, str) else value.text or [])


def _facts(annotation: _Annotation, place: int, where: str) -> Facts:
    """Return who answered when; for an annotation that was made there, what Label Studio says of it."""
    for result in annotation.result or []:
        if facts := read_facts((result.meta or {}).get(FACTS), f"{where}: annotations.{place - 1}: meta.{FACTS}"):
            return facts
    return Facts(
        annotator=f"label-studio:{_who(annotation, place)}",
        seconds=annotation.lead_time or 0.0,
        saved_at=annotation.created_at,
    )


def _who(annotation: _Annotation, place: int) -> int | str:
    """Return who answered. Nobody is taken for somebody else: the nameless of one task are counted through."""
    who = annotation.completed_by
    name = (who.email or who.id) if isinstance(who, _Person) else who
    return f"unknown-{place}" if name in (None, "") else name
