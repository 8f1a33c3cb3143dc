"""Label Studio: tasks with annotations in its JSON format, and the labelling configuration that goes with them."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import quoteattr

from prbench.annotate.foreign import (
    ASKED,
    PLACES,
    TITLES,
    as_asked,
    facts_of,
    find_item,
    read_facts,
    to_row,
    values_of,
)
from prbench.annotate.records import QUALITIES, Mode
from prbench.annotate.rows import AnswerRow, answer_rows
from prbench.annotate.store import Store
from prbench.errors import DataError
from prbench.schema import Json

FACTS = "prbench"  # in `meta` of an annotation's first result


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
    for number, task in enumerate(tasks, 1):
        where = f"{name}:{number}"
        if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
            raise DataError(f"{where}: is not a task of Label Studio. Export it as JSON.")
        item = find_item(items, task["data"].get("item"), where)
        for annotation in task.get("annotations") or []:
            if annotation.get("was_cancelled") or not annotation.get("result"):
                continue
            values = {each["from_name"]: _value(each) for each in annotation["result"]}
            yield where, to_row(store, item, task["data"], values, _facts(annotation), where)


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


def _value(result: Mapping[str, Json]) -> Json:
    value = result.get("value") or {}
    if "choices" in value:
        return {title: name for name, title in TITLES.items()}.get((value["choices"] or [""])[0])
    return value["rating"] if "rating" in value else "\n".join(value.get("text") or [])


def _facts(annotation: Mapping[str, Json]) -> dict[str, Json]:
    """Return who answered when; for an annotation that was made there, what Label Studio says of it."""
    for result in annotation["result"]:
        if facts := read_facts((result.get("meta") or {}).get(FACTS)):
            return facts
    who = annotation.get("completed_by")
    name = who.get("email") if isinstance(who, dict) else who
    return {
        "annotator": f"label-studio:{name or 'unknown'}",
        "seconds": annotation.get("lead_time") or 0.0,
        "saved_at": annotation.get("created_at"),
    }
