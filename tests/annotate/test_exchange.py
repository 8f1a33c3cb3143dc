"""What goes out comes back the same, in all three formats; and what other tools write comes in."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from prbench.errors import DataError, UsageError
from prbench.people.annotate.exchange import FORMATS, argilla_settings, export, import_answers, user_id, write_export
from prbench.people.annotate.records import ItemAnswer, Mode, Ratings, Reason, Status
from prbench.people.annotate.rows import answer_rows
from prbench.people.annotate.store import Store
from prbench.schema import Verdict

from .conftest import count_events

CHOICES = (Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE)


def fill(store: Store) -> None:
    """Let everybody answer everything, each in another way; one item is skipped and one is a draft."""
    for person in store.people.all():
        if store.project.mode is Mode.COLLECT and person.id == 1:
            store.save_about(person.id, ("I grow beans.", 'A "post"\nof two lines :: and more'), seen=0, tab="t")
        for position, _, _ in store.positions(person.id):
            store.save(
                person.id, position, *_answer(store, person.id, position), seen=0, tab="t", seconds=position / 4
            )


def _answer(store: Store, person: int, position: int) -> tuple[ItemAnswer, Status]:
    choice = CHOICES[(person + position) % 3]
    note = 'Ünïcode, "quotes",\nand a new line' if position % 2 else ""
    if store.project.mode is Mode.COLLECT:
        why = (Reason(aspect="thrift :: really", reason="money"), Reason(aspect="calm")) if position % 2 else ()
        answer = ItemAnswer(choice=choice, note=note, why=why)
    else:
        ratings = [Ratings(correctness=1 + (position + n) % 5, relevance=5, helpfulness=1 + n) for n in (0, 1)]
        answer = ItemAnswer(choice=choice, chosen=ratings[0], rejected=ratings[1], note=note, is_flagged=position == 3)
    return answer, {5: Status.SKIPPED, 6: Status.DRAFT}.get(position, Status.DONE)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("form", ["rows", "argilla", "label-studio"])
def test_import_of_what_export_wrote_gives_the_same_answers(make, tmp_path: Path, form: str, mode: Mode) -> None:
    source = make(8, mode=mode, name="source.db").open()
    fill(source)
    before = answer_rows(source)
    assert len(before) == 12
    path = write_export(source, form, tmp_path / "out.json")[0]
    target = make(8, mode=mode, name="target.db", annotators=["zoe"], seed=7).open()
    taken = import_answers(target, path)
    assert (taken.added, taken.known) == (12, 0)
    key = ("item", "annotator")
    after = sorted(answer_rows(target), key=lambda row: [row[name] for name in key])
    assert after == sorted(before, key=lambda row: [row[name] for name in key])
    again = import_answers(target, path)
    assert (again.added, again.known) == (0, 12)


def test_a_newer_answer_is_not_replaced_by_an_older_file(make, tmp_path: Path) -> None:
    store = make(2, annotators=["ada"], overlap=1).open()
    fill(store)
    path = write_export(store, "rows", tmp_path / "old.jsonl")[0]
    changed = ItemAnswer(choice=Verdict.TIE, chosen=Ratings(correctness=1), rejected=Ratings(), note="newer")
    store.save(1, 1, changed, Status.DONE, seen=0, tab="u", seconds=0)
    assert import_answers(store, path).added == 0
    assert "newer" in [row["note"] for row in answer_rows(store)]


@pytest.mark.parametrize(
    "older,newer",
    [
        ("2026-01-01T05:00:00+14:00", "2026-01-01T00:00:00Z"),  # 2025-12-31 15:00 in UTC
        ("2026-01-01T00:00:00.5Z", "2025-12-31T23:00:01-01:00"),
        ("2026-01-01T00:00:00", "2026-01-01T00:00:00.001+00:00"),  # without a zone: UTC
    ],
)
def test_newer_is_what_the_clock_says_in_whatever_zone(make, tmp_path: Path, older: str, newer: str) -> None:
    def notes(*times: str) -> list[str]:
        store = make(2, name=f"{len(list(tmp_path.iterdir()))}.db").open()
        row = bare_row(store)
        for number, time in enumerate(times):
            path = tmp_path / "row.jsonl"
            path.write_text(json.dumps(row | {"saved_at": time, "note": time}) + "\n")
            assert import_answers(store, path).added == (0 if number and time == older else 1)
        return [found["note"] for found in answer_rows(store)]

    assert notes(older, newer) == [newer]
    assert notes(newer, older) == [newer]


def bare_row(store: Store) -> dict[str, Any]:
    """A row as somebody else might write it."""
    return {
        "item": store.items()[0].id,
        "annotator": "zed",
        "choice": "chosen",
        "side_chosen": "left",
        "ratings": {"chosen": {}, "rejected": {}},
        "saved_at": "2026-01-01T00:00:00Z",
        "mode": "validate",
    }


def argilla_record(item: Any, *, swap: bool) -> dict[str, Any]:
    """A record as Argilla 2.8 writes it after people answered there: no status, no facts of ours."""
    both = (item.rejected, item.chosen) if swap else (item.chosen, item.rejected)
    answers = {"choice": "first", "first_correctness": 5, "second_correctness": 2, "note": "from there"}
    return {
        "id": item.id,
        "fields": {"question": item.question, "rubric": "-", "response_1": both[0], "response_2": both[1]},
        "metadata": {},
        "suggestions": {},
        "responses": {name: [{"value": value, "user_id": "6a4c…1"}] for name, value in answers.items()},
        "vectors": {},
        "status": "completed",
        "_server_id": "9f0e",
    }


@pytest.mark.parametrize("swap", [False, True])
def test_answers_that_were_given_in_argilla_come_in(make, tmp_path: Path, swap: bool) -> None:
    store = make(2).open()
    path = tmp_path / "argilla.json"
    path.write_text(json.dumps([argilla_record(store.items()[0], swap=swap)]))
    assert import_answers(store, path).added == 1
    (row,) = answer_rows(store)
    assert row["choice"] == ("rejected" if swap else "chosen")
    assert row["side_chosen"] == ("right" if swap else "left")
    assert row["ratings"]["rejected" if swap else "chosen"]["correctness"] == 5
    assert (row["annotator"], row["note"]) == ("6a4c…1", "from there")


def test_answers_that_were_given_in_label_studio_come_in(make, tmp_path: Path) -> None:
    store = make(2).open()
    item = store.items()[1]
    result = [
        {"from_name": "choice", "to_name": "question", "type": "choices", "value": {"choices": ["Response 2"]}},
        {"from_name": "first_relevance", "to_name": "response_1", "type": "rating", "value": {"rating": 3}},
    ]
    task = {
        "id": 1,
        "data": {"item": item.id, "question": item.question, "response_1": item.rejected, "response_2": item.chosen},
        "annotations": [
            {"result": result, "completed_by": {"id": 3, "email": "who@example.org"}, "lead_time": 12.5,
             "created_at": "2026-03-09T22:16:08.728353Z", "was_cancelled": False},
            {"result": result, "completed_by": 4, "was_cancelled": True},
        ],
    }  # fmt: skip
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([task]))
    assert import_answers(store, path).added == 1
    (row,) = answer_rows(store)
    assert (row["choice"], row["annotator"], row["seconds"]) == ("chosen", "label-studio:who@example.org", 12.5)
    assert row["ratings"]["rejected"]["relevance"] == 3


@pytest.mark.parametrize(
    "change,fact",
    [
        ({"item": "elsewhere"}, "not in the project"),
        ({"choice": "left"}, "choice"),
        ({"ratings": {"chosen": {"correctness": 6}, "rejected": {}}}, "correctness"),
        ({"mode": "collect"}, "mode is collect"),
        ({"saved_at": "yesterday"}, "saved_at"),
        ({"annotator": ""}, "annotator"),
        ({"surprise": 1}, "surprise"),
        ({"ratings": {"chosen": {"correctness": True}, "rejected": {}}}, "correctness"),
        ({"ratings": {"chosen": {"correctness": "5"}, "rejected": {}}}, "correctness"),
        ({"seconds": "12"}, "seconds"),
        ({"seconds": True}, "seconds"),
        ({"saved_at": "0001-01-01T00:00:00+14:00"}, "saved_at"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_added(make, tmp_path: Path, change: dict[str, Any], fact: str) -> None:
    store = make(8).open()
    fill(store)
    rows = answer_rows(store)
    empty = make(8, name="empty.db").open()
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows[:3], rows[3] | change]))
    with pytest.raises(DataError, match=fact) as error:
        import_answers(empty, path)
    assert "rows.jsonl:4" in str(error.value)
    assert count_events(empty) == 0


CHOICE = {"from_name": "choice", "to_name": "question", "type": "choices", "value": {"choices": ["Response 1"]}}


def argilla_change(**change: Any) -> Any:
    return lambda item: argilla_record(item, swap=False) | change


def task_with(*annotations: Any) -> Any:
    """A task of Label Studio with these annotations."""
    return lambda item: {
        "data": {"item": item.id, "response_1": item.chosen, "response_2": item.rejected},
        "annotations": list(annotations),
    }


def with_facts(**facts: Any) -> dict[str, Any]:
    return {"result": [CHOICE | {"meta": {"prbench": json.dumps({"annotator": "zed"} | facts)}}]}


@pytest.mark.parametrize(
    "made,fact",
    [
        (argilla_change(responses={"choice": [{"value": "first"}]}), "responses.choice.0.user_id"),
        (argilla_change(responses=[{"x": 1}]), "responses"),
        (argilla_change(responses={"choice": [5]}), "responses.choice.0: Input should be an object"),
        (argilla_change(responses={"choice": [{"value": ["first"], "user_id": "u"}]}), "choice: is"),
        (argilla_change(metadata=["x"]), "metadata"),
        (argilla_change(metadata={"prbench": ['{"annotator": 5}']}), "metadata.prbench: annotator"),
        (argilla_change(id=5), "id"),
        (task_with(5), "annotations.0: Input should be an object"),
        (task_with({"result": [CHOICE], "completed_by": 3, "lead_time": "x"}), "annotations.0.lead_time"),
        (task_with({"result": [CHOICE], "completed_by": 3, "created_at": 5}), "annotations.0.created_at"),
        (task_with({"result": [CHOICE | {"value": {"text": [5]}}]}), "annotations.0.result.0.value.text"),
        (task_with({"result": [CHOICE | {"value": {"choices": "Response 1"}}]}), "annotations.0.result.0.value"),
        (task_with({"result": [CHOICE], "completed_by": [1]}), "annotations.0.completed_by"),
        (task_with(with_facts(seconds="abc")), "meta.prbench: seconds"),
        (task_with(with_facts(seconds="12")), "meta.prbench: seconds"),
        (task_with(with_facts(why=5)), "meta.prbench: why"),
    ],
)
def test_what_other_tools_never_wrote_gets_one_line_with_its_place(make, tmp_path: Path, made: Any, fact: str) -> None:
    store = make(2).open()
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps([made(store.items()[0])]))
    with pytest.raises(DataError) as error:
        import_answers(store, path)
    assert str(error.value).startswith(f"{path}:1: ")
    assert fact in str(error.value)
    assert "\n" not in str(error.value)
    assert count_events(store) == 0


def test_label_studios_relations_answer_nothing_and_the_nameless_are_not_one_person(make, tmp_path: Path) -> None:
    store = make(2).open()
    second = CHOICE | {"value": {"choices": ["Response 2"]}}
    relation = {"type": "relation", "from_id": "a", "to_id": "b"}
    task = task_with(
        {"result": [CHOICE, relation], "completed_by": {"id": 7}},
        {"result": [CHOICE]},
        {"result": [second]},
        {"result": [second], "completed_by": 0},
    )
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([task(store.items()[0])]))
    assert import_answers(store, path).added == 4
    assert {row["annotator"]: row["choice"] for row in answer_rows(store)} == {
        "label-studio:7": "chosen",
        "label-studio:unknown-2": "chosen",
        "label-studio:unknown-3": "rejected",
        "label-studio:0": "rejected",
    }


@pytest.mark.parametrize("form", ["rows", "argilla"])
@pytest.mark.parametrize("name", ["study.db", "link.db", "study.db-wal", "sub/../study.db"])
def test_an_export_never_goes_over_the_project_itself(make, tmp_path: Path, name: str, form: str) -> None:
    made = make(2)
    store = made.open()
    fill(store)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.db").symlink_to(made.path)
    with pytest.raises(UsageError, match="is a file of the project itself"):
        write_export(store, form, tmp_path / name)
    store.close()
    assert len(answer_rows(made.open())) == 4


def test_neither_does_what_goes_with_it(make, tmp_path: Path) -> None:
    store = make(2, name="b.settings.json").open()
    with pytest.raises(UsageError, match="is a file of the project itself"):
        write_export(store, "argilla", tmp_path / "b.json")
    assert len(store.items()) == 2


def test_texts_that_are_not_the_items_are_refused(make, tmp_path: Path) -> None:
    store = make(2).open()
    record = argilla_record(store.items()[0], swap=False)
    record["fields"]["response_1"] += " edited"
    path = tmp_path / "argilla.json"
    path.write_text(json.dumps([record]))
    with pytest.raises(DataError, match="responses are not those"):
        import_answers(store, path)


@pytest.mark.parametrize("form", ["argilla", "label-studio"])
def test_nothing_in_a_file_for_other_tools_says_which_response_is_the_chosen(make, form: str) -> None:
    store = make(20).open()
    text = export(store, form)
    assert "chosen" not in text
    assert "rejected" not in text
    shown = [each.get("fields") or each["data"] for each in json.loads(text)]
    assert 4 <= sum(each["response_1"].startswith("Sow") for each in shown) <= 16, "the order is mixed"


def test_argilla_settings_name_what_the_records_hold(make) -> None:
    store = make(2).open()
    fill(store)
    records, settings = json.loads(export(store, "argilla")), argilla_settings(store)
    assert {field["name"] for field in settings["fields"]} == set(records[0]["fields"])
    assert set(records[0]["responses"]) <= {question["name"] for question in settings["questions"]}
    assert settings["distribution"]["min_submitted"] == 2
    (facts,) = settings["metadata"]
    assert facts["visible_for_annotators"] is False
    assert user_id("ada") == user_id("ada") != user_id("ben")


def test_label_studio_configuration_names_what_the_tasks_hold(make) -> None:
    store = make(2).open()
    fill(store)
    config = ElementTree.fromstring(export(store, "label-studio-config"))
    controls = {each.get("name"): each for each in config.iter() if each.get("toName")}
    objects = {each.get("name"): each.get("value", "")[1:] for each in config.iter("Text")}
    for task in json.loads(export(store, "label-studio")):
        assert set(objects.values()) <= set(task["data"])
        for annotation in task["annotations"]:
            for result in annotation["result"]:
                assert controls[result["from_name"]].get("toName") == result["to_name"] in objects
                assert controls[result["from_name"]].tag.lower() == result["type"]


def test_pairs_come_only_from_collecting(make) -> None:
    with pytest.raises(UsageError, match="mode collect"):
        export(make(2).open(), "pairs")
    with pytest.raises(UsageError, match="no format"):
        export(make(2, name="other.db").open(), "xml")
    assert len(FORMATS) == 6
