"""Files out and files in: our own rows, Argilla 2 and Label Studio.

The other tools show two responses in a blind order. Which one comes first is a coin per item, and nothing in the file
says which one is the chosen: on the way back the texts tell. What they have no question for travels beside an answer.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import NAMESPACE_URL, uuid5
from xml.sax.saxutils import quoteattr

from pydantic import BaseModel, ConfigDict

from prbench.data.source import read_file
from prbench.errors import DataError, UsageError
from prbench.people.agreement.answers import QUALITIES
from prbench.people.annotate.assignment import side_of_chosen
from prbench.people.annotate.people import now
from prbench.people.annotate.records import Mode, ProjectItem, Reason, ResponseSide
from prbench.people.annotate.rows import (
    AnswerRow,
    ImportResult,
    Seconds,
    StoredTime,
    answer_rows,
    check,
    import_rows,
    pair_rows,
)
from prbench.people.annotate.store import Store
from prbench.runs.files import write_text
from prbench.schema import Json, Verdict

FIRST, SECOND, TIE = "first", "second", "tie"
PLACES = (FIRST, SECOND)
TITLES = {FIRST: "Response 1", SECOND: "Response 2", TIE: "Cannot tell"}
PROMPTS = {
    Mode.VALIDATE: "Which response fits what this person looks for?",
    Mode.COLLECT: "Which response would you rather have?",
}
BETWEEN = " :: "  # between an aspect and its reason
FACTS = "prbench"  # Argilla's metadata property, and the key in `meta` of the first result in Label Studio
WHY = "What mattered to you? One thing per line"


def _lines(rows: Iterable[Json]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _document(content: Json) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


class _ExternalRecord(BaseModel):
    """Something another tool wrote: fields that are not ours are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Facts(_ExternalRecord):
    """Who answered when, and what else the other tools have no question for."""

    annotator: str
    side_chosen: Literal["left", "right"] | None = None
    seconds: Seconds = 0.0
    saved_at: StoredTime | None = None
    flagged: bool = False
    why: list[Reason] = []
    posts: list[str] = []


def _blind_items(store: Store) -> Iterator[tuple[str, dict[str, str], list[tuple[AnswerRow, dict[str, Json]]]]]:
    """Yield every item with its texts in a blind order, and the answers to it with their values by question name."""
    by_item: dict[str, list[AnswerRow]] = {}
    for row in answer_rows(store):
        by_item.setdefault(row["item"], []).append(row)
    for item in store.items():
        is_first = side_of_chosen(item.id, "elsewhere", seed=store.project.seed) is ResponseSide.LEFT
        order = ("chosen", "rejected") if is_first else ("rejected", "chosen")
        responses = {"chosen": item.chosen, "rejected": item.rejected}
        texts = {"question": item.question, "response_1": responses[order[0]], "response_2": responses[order[1]]}
        if store.project.mode is Mode.VALIDATE:
            texts["rubric"] = "\n".join(f"- {each.aspect}: {each.reason} “{each.evidence}”" for each in item.rubric)
        place = dict(zip(order, PLACES, strict=True))
        yield item.id, texts, [(row, _values_of(row, place)) for row in by_item.get(item.id, [])]


def _values_of(row: AnswerRow, place: Mapping[str, str]) -> dict[str, Json]:
    values: dict[str, Json] = {"choice": TIE if row["choice"] == Verdict.TIE else place[row["choice"]]}
    for response, ratings in row["ratings"].items():
        for quality in QUALITIES:
            if ratings[quality] is not None:
                values[f"{place[response]}_{quality}"] = ratings[quality]
    if row.get("why"):
        values["why"] = _why_text(row["why"])
    if row["note"]:
        values["note"] = row["note"]
    return values


def _facts_of(row: AnswerRow) -> str:
    kept = ("annotator", "side_chosen", "seconds", "saved_at", "flagged", "why", "posts")
    return json.dumps({name: row[name] for name in kept if row.get(name)}, ensure_ascii=False)


def _find_item(items: Mapping[str, ProjectItem], item_id: Json, where: str) -> ProjectItem:
    if not isinstance(item_id, str) or item_id not in items:
        raise DataError(f"{where}: item {item_id!r} is not in the project. Use a project of the same data.")
    return items[item_id]


def _to_row(
    store: Store,
    item: ProjectItem,
    texts: Mapping[str, Json],
    values: Mapping[str, Json],
    facts: _Facts,
    where: str,
) -> AnswerRow:
    """Return one answer from elsewhere as our row; what was answered there first has no facts yet."""
    both = (texts.get("response_1"), texts.get("response_2"))
    if both not in ((item.chosen, item.rejected), (item.rejected, item.chosen)):
        raise DataError(f"{where}: the responses are not those of item {item.id!r}. Use a project of the same data.")
    order = ("chosen", "rejected") if both[0] == item.chosen else ("rejected", "chosen")
    side = ResponseSide.LEFT if order[0] == "chosen" else ResponseSide.RIGHT
    choices = dict(zip(PLACES, order, strict=True)) | {TIE: Verdict.TIE.value}
    choice = values.get("choice")
    if not isinstance(choice, str) or choice not in choices:
        raise DataError(f"{where}: choice: is {choice!r}, not one of {', '.join(choices)}. Correct it.")
    ratings = {
        response: {quality: values.get(f"{place}_{quality}") for quality in QUALITIES}
        for place, response in zip(PLACES, order, strict=True)
    }
    row: AnswerRow = {
        "item": item.id,
        "annotator": facts.annotator,
        "question": item.question,
        "choice": choices[choice],
        "side_chosen": facts.side_chosen or side.value,
        "ratings": {response: ratings[response] for response in ("chosen", "rejected")},
        "note": values.get("note", ""),
        "seconds": facts.seconds,
        "saved_at": facts.saved_at or now(),
        "mode": store.project.mode.value,
    }
    if facts.flagged:
        row["flagged"] = True
    if store.project.mode is Mode.COLLECT:
        text, known = values.get("why", ""), [why.model_dump() for why in facts.why]
        if not isinstance(text, str):
            raise DataError(f"{where}: why: is {text!r}, not a text. Correct it.")
        split = [line.partition(BETWEEN) for line in text.splitlines() if line.strip()]
        told = [{"aspect": aspect.strip(), "reason": reason.strip()} for aspect, _, reason in split]
        row["why"] = known if _why_text(known) == text else told
        row["posts"] = facts.posts
    return row


def _read_facts(text: Json, where: str) -> _Facts | None:
    """Return facts that were written as JSON text; `None` where somebody else wrote the text."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    return check(_Facts, found, where) if isinstance(found, dict) and "annotator" in found else None


def _why_text(reasons: Sequence[Mapping[str, str]]) -> str:
    """Return reasons as lines that a person can read."""
    return "\n".join(why["aspect"] + (BETWEEN + why["reason"] if why["reason"] else "") for why in reasons)


class _ArgillaResponse(_ExternalRecord):
    value: Json
    user_id: str | int
    status: str | None = None


class _ArgillaRecord(_ExternalRecord):
    id: str
    fields: dict[str, Json]
    metadata: dict[str, Json] | None = None
    responses: dict[str, list[_ArgillaResponse]] | None = None


def user_id(name: str) -> str:
    """Return the id under which an annotator's answers stand in a file; Argilla wants a UUID."""
    return str(uuid5(NAMESPACE_URL, f"prbench:annotator:{name}"))


def argilla_records(store: Store) -> list[dict[str, Json]]:
    """Return every item as a record with its answers, as `dataset.records.to_json` writes them."""
    records = []
    for item, texts, answers in _blind_items(store):
        responses: dict[str, list[Json]] = {}
        for row, values in answers:
            for name, value in values.items():
                answer = {"value": value, "user_id": user_id(row["annotator"]), "status": "submitted"}
                responses.setdefault(name, []).append(answer)
        records.append(
            {
                "id": item,
                "fields": texts,
                "metadata": {FACTS: [_facts_of(row) for row, _ in answers]} if answers else {},
                "suggestions": {},
                "responses": responses,
                "vectors": {},
            }
        )
    return records


def rows_of_argilla(store: Store, records: Sequence[Json], name: str) -> Iterator[tuple[str, AnswerRow]]:
    """Yield the answers of Argilla's records as our rows, each with its place; drafts and discarded ones stay out."""
    items = {item.id: item for item in store.items()}
    for number, found in enumerate(records, 1):
        where = f"{name}:{number}"
        if not isinstance(found, dict) or not isinstance(found.get("fields"), dict):
            raise DataError(f"{where}: is not a record of Argilla. Export it with dataset.records.to_json.")
        record = check(_ArgillaRecord, found, where)
        item = _find_item(items, record.id, where)
        written = (record.metadata or {}).get(FACTS) or []
        texts = written if isinstance(written, list) else [written]  # Argilla may give a single term without its list
        known = [_read_facts(text, f"{where}: metadata.{FACTS}") for text in texts]
        facts = {user_id(each.annotator): each for each in known if each}
        by_user: dict[str, dict[str, Json]] = {}
        for question, answers in (record.responses or {}).items():
            for answer in answers:
                if answer.status in (None, "submitted"):
                    by_user.setdefault(str(answer.user_id), {})[question] = answer.value
        for user, values in by_user.items():
            yield where, _to_row(store, item, record.fields, values, facts.get(user, _Facts(annotator=user)), where)


def argilla_settings(store: Store) -> dict[str, Json]:
    """Return the settings of Argilla's dataset, for `rg.Settings.from_json`."""
    mode = store.project.mode
    fields = ["question", *(["rubric"] if mode is Mode.VALIDATE else []), "response_1", "response_2"]
    labels = [{"value": value, "text": text} for value, text in TITLES.items()]
    questions = [_question("choice", PROMPTS[mode], {"type": "label_selection", "options": labels}, required=True)]
    if mode is Mode.VALIDATE:
        scale = {"type": "rating", "options": [{"value": value} for value in range(1, 6)]}
        questions += [
            _question(f"{place}_{quality}", f"{TITLES[place]}: {quality}", scale, required=True)
            for place in PLACES
            for quality in QUALITIES
        ]
    else:
        questions.append(_question("why", WHY, {"type": "text"}))
    questions.append(_question("note", "Note", {"type": "text"}))
    return {
        "guidelines": store.project.instructions or PROMPTS[mode],
        "questions": questions,
        "fields": [
            _question(name, name.replace("_", " ").capitalize(), {"type": "text"}, required=True) for name in fields
        ],
        "vectors": [],
        "metadata": [{"name": FACTS, "title": FACTS, "settings": {"type": "terms"}, "visible_for_annotators": False}],
        "allow_extra_metadata": True,
        "distribution": {"strategy": "overlap", "min_submitted": store.project.overlap},
    }


def _question(name: str, title: str, settings: dict[str, Json], *, required: bool = False) -> dict[str, Json]:
    return {"name": name, "title": title, "required": required, "settings": settings}


class _Value(_ExternalRecord):
    choices: list[str] | None = None
    rating: Json = None
    text: str | list[str] | None = None


class _TaskResult(_ExternalRecord):
    from_name: str | None = None  # relations between regions have none, and answer nothing
    value: _Value = _Value()
    meta: dict[str, Json] | None = None


class _Person(_ExternalRecord):
    id: int | str | None = None
    email: str | None = None


class _Annotation(_ExternalRecord):
    result: list[_TaskResult] | None = None
    completed_by: int | str | _Person | None = None
    updated_by: int | str | _Person | None = None  # of an imported annotation: who changed it there, if anybody did
    lead_time: Seconds | None = None
    created_at: StoredTime | None = None
    updated_at: StoredTime | None = None
    was_cancelled: bool | None = None


class _Task(_ExternalRecord):
    data: dict[str, Json]
    annotations: list[_Annotation] | None = None


def label_studio_tasks(store: Store) -> list[dict[str, Json]]:
    """Return every item as a task with its annotations.

    `completed_by` is left out: an instance refuses people it does not know. Who answered stands in `meta`.
    """
    tasks = []
    for item, texts, answers in _blind_items(store):
        annotations = []
        for row, values in answers:
            results = [_task_result(row, name, value) for name, value in values.items()]
            results[0]["meta"] = {FACTS: _facts_of(row)}
            times = {"lead_time": row["seconds"], "created_at": row["saved_at"]}
            annotations.append({"result": results, "was_cancelled": False, "ground_truth": False, **times})
        tasks.append({"data": {"item": item} | texts, "annotations": annotations})
    return tasks


def rows_of_label_studio(store: Store, tasks: Sequence[Json], name: str) -> Iterator[tuple[str, AnswerRow]]:
    """Yield the annotations of Label Studio's tasks as our rows, each with its place; cancelled ones are left out."""
    items = {item.id: item for item in store.items()}
    for number, found in enumerate(tasks, 1):
        where = f"{name}:{number}"
        if not isinstance(found, dict) or not isinstance(found.get("data"), dict):
            raise DataError(f"{where}: is not a task of Label Studio. Export it as JSON.")
        task = check(_Task, found, where)
        item = _find_item(items, task.data.get("item"), where)
        for place, annotation in enumerate(task.annotations or [], 1):
            if annotation.was_cancelled or not annotation.result:
                continue
            values = {each.from_name: _task_value(each.value) for each in annotation.result if each.from_name}
            at = f"{where}: annotations.{place - 1}: meta.{FACTS}"
            known = (_read_facts((each.meta or {}).get(FACTS), at) for each in annotation.result)
            facts = next(filter(None, known), None)
            if facts is None or annotation.updated_by is not None:
                facts = _task_facts(annotation, place)
            yield where, _to_row(store, item, task.data, values, facts, where)


def label_studio_config(store: Store) -> str:
    """Return the labeling configuration of Label Studio for these tasks."""
    mode = store.project.mode
    lines = ['<Header value="Question"/>', '<Text name="question" value="$question"/>']
    if mode is Mode.VALIDATE:
        lines += ['<Header value="What this person looks for"/>', '<Text name="rubric" value="$rubric"/>']
    for number in (1, 2):
        lines.append(f'<Header value="Response {number}"/>')
        lines.append(f'<Text name="response_{number}" value="$response_{number}"/>')
    choices = "".join(f'<Choice value="{title}"/>' for title in TITLES.values())
    lines.append(f"<Header value={quoteattr(PROMPTS[mode])}/>")
    lines.append(f'<Choices name="choice" toName="question" choice="single-radio" required="true">{choices}</Choices>')
    if mode is Mode.VALIDATE:
        for number, place in enumerate(PLACES, 1):
            for quality in QUALITIES:
                lines.append(f'<Header value="{TITLES[place]}: {quality}" size="5"/>')
                lines.append(
                    f'<Rating name="{place}_{quality}" toName="response_{number}" maxRating="5" required="true"/>'
                )
    else:
        lines.append(f'<Header value="{WHY}"/>')
        lines.append('<TextArea name="why" toName="question" rows="3" maxSubmissions="1"/>')
    lines += ['<Header value="Note"/>', '<TextArea name="note" toName="question" rows="2" maxSubmissions="1"/>']
    return "\n".join(("<View>", *("  " + line for line in lines), "</View>")) + "\n"


def _task_result(row: AnswerRow, name: str, value: Json) -> dict[str, Json]:
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


def _task_value(value: _Value) -> Json:
    if value.choices is not None:
        return {title: name for name, title in TITLES.items()}.get((value.choices or [""])[0])
    if value.rating is not None:
        return value.rating
    return "\n".join([value.text] if isinstance(value.text, str) else value.text or [])


def _task_facts(annotation: _Annotation, place: int) -> _Facts:
    """Return what Label Studio says of an annotation that was made or changed there.

    A changed one still carries the facts of ours that it came with, but it is no longer what that annotator said.
    """
    who = annotation.completed_by if annotation.updated_by is None else annotation.updated_by
    name = (who.email or who.id) if isinstance(who, _Person) else who
    if name in (None, ""):
        name = f"unknown-{place}"  # nobody is taken for somebody else: the nameless of one task are counted through
    when = annotation.updated_at or annotation.created_at
    return _Facts(annotator=f"label-studio:{name}", seconds=annotation.lead_time or 0.0, saved_at=when)


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """One kind of file that a project can be written to."""

    title: str
    file: str  # what a download is called
    make: Callable[[Store], str]
    media_type: str = "application/json"
    companion: str = ""  # the format that the other tool needs beside it


FORMATS = {
    "rows": ExportFormat(
        title="Answers, one per line (for prbench annotate agreement)",
        file="answers.jsonl",
        make=lambda store: _lines(answer_rows(store)),
        media_type="application/x-ndjson",
    ),
    "pairs": ExportFormat(
        title="New pairs, in the data format of prbench",
        file="pairs.jsonl",
        make=lambda store: _lines(pair_rows(store)),
        media_type="application/x-ndjson",
    ),
    "argilla": ExportFormat(
        title="Argilla records",
        file="argilla.json",
        make=lambda store: _document(argilla_records(store)),
        companion="argilla-settings",
    ),
    "argilla-settings": ExportFormat(
        title="Argilla settings",
        file="argilla.settings.json",
        make=lambda store: _document(argilla_settings(store)),
    ),
    "label-studio": ExportFormat(
        title="Label Studio tasks",
        file="label-studio.json",
        make=lambda store: _document(label_studio_tasks(store)),
        companion="label-studio-config",
    ),
    "label-studio-config": ExportFormat(
        title="Label Studio configuration",
        file="label-studio.config.xml",
        make=label_studio_config,
        media_type="application/xml",
    ),
}


def export(store: Store, form: str) -> str:
    """Return a project's answers in one of the formats."""
    if form not in FORMATS:
        raise UsageError(f"There is no format {form!r}. There are: {', '.join(FORMATS)}.")
    if form == "pairs" and store.project.mode is not Mode.COLLECT:
        raise UsageError("Only a project in mode collect gives new pairs. Use rows, argilla or label-studio.")
    return FORMATS[form].make(store)


def write_export(store: Store, form: str, path: Path) -> list[Path]:
    """Write an export, and beside it what the other tool needs to read it; return the files."""
    written = {path: export(store, form)}
    if companion := FORMATS[form].companion:
        ending = FORMATS[companion].file.removeprefix(form)
        written[path.with_name(path.stem + ending)] = export(store, companion)
    own = [store.database.path.with_name(store.database.path.name + end) for end in ("", "-wal", "-shm")]
    for place in written:
        is_same = place.exists() and any(each.exists() and place.samefile(each) for each in own)
        if is_same or place.resolve() in [each.resolve() for each in own]:
            raise UsageError(f"{place}: is a file of the project itself. Give --to another name.")
    for place, text in written.items():
        write_text(place, text)
    return list(written)


def import_answers(store: Store, path: Path) -> ImportResult:
    """Add the answers of a file in any of the three formats; all are checked before one is added."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file. Check the path.")
    found: list[tuple[str, Json]] = []
    for row in read_file(path):
        if row.problem:
            raise DataError(f"{row.where}: {row.problem}.")
        found.append((row.where, row.value))
    first = found[0][1] if found else None
    if not isinstance(first, dict):
        raise DataError(f"{path}: holds no answers. Give a file of prbench annotate, Argilla or Label Studio.")
    rows: Iterable[tuple[str, AnswerRow]] = found
    if "fields" in first:
        rows = rows_of_argilla(store, [row for _, row in found], str(path))
    elif "data" in first:
        rows = rows_of_label_studio(store, [row for _, row in found], str(path))
    return import_rows(store, rows)
