"""What a real Label Studio gave back: recorded by `tests/harness/label_studio.py`, read here without a server."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness.label_studio import RECORDED, imported, taken_back
from tests.harness.study import new_study

from prbench.people.annotate.exchange import label_studio_tasks
from prbench.people.annotate.records import Mode

MODES = list(Mode)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["item"], row["annotator"]): row for row in rows}


@pytest.mark.parametrize("mode", MODES)
def test_what_was_sent_is_what_we_export_today(recorded: dict[str, Any], mode: Mode, tmp_path: Path) -> None:
    """If this fails, the format has changed: run the script again against a server, with --record."""
    store = new_study(tmp_path / "today.db", mode, ["ada", "ben"])
    imported(store, tmp_path / "answers.json", recorded[mode]["answers"])
    assert label_studio_tasks(store) == recorded[mode]["sent"]


@pytest.mark.parametrize("mode", MODES)
def test_answers_that_label_studio_kept_come_back_the_same(
    recorded: dict[str, Any], mode: Mode, tmp_path: Path
) -> None:
    sent, back = by_key(recorded[mode]["answers"]), by_key(taken_back(tmp_path, mode, recorded[mode]["back"]))
    kept = {key: row for key, row in back.items() if key[1] in ("ada", "ben")}
    assert len(sent) == 6
    assert len(kept) == 5
    assert all(sent[key] == row for key, row in kept.items())


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_given_there_comes_in_and_a_skipped_one_does_not(
    recorded: dict[str, Any], mode: Mode, tmp_path: Path
) -> None:
    back, sent = taken_back(tmp_path, mode, recorded[mode]["back"]), by_key(recorded[mode]["answers"])
    answered = {item for item, _ in sent}
    (row,) = [row for row in back if row["item"] not in answered]
    task = next(task for task in recorded[mode]["back"] if task["data"]["item"] == row["item"])
    assert row["annotator"] == "label-studio:1"
    assert row["choice"] == ("chosen" if task["data"]["response_2"].startswith("Sow") else "rejected")
    assert row["seconds"] == 7.5
    if mode is Mode.COLLECT:
        assert row["why"] == [{"aspect": "Grüße", "reason": "a reason"}, {"aspect": "and another", "reason": ""}]
    else:
        first = "rejected" if row["choice"] == "chosen" else "chosen"
        assert (row["ratings"][first]["correctness"], row["note"]) == (3, "„Gut“")


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_changed_there_is_of_whoever_changed_it(
    recorded: dict[str, Any], mode: Mode, tmp_path: Path
) -> None:
    """It still carries the name and the time that it was sent with."""
    sent, back = by_key(recorded[mode]["answers"]), by_key(taken_back(tmp_path, mode, recorded[mode]["back"]))
    ((item, annotator),) = sent.keys() - back.keys()
    changed = back[(item, "label-studio:1")]
    assert changed["saved_at"] > sent[(item, annotator)]["saved_at"]
    # In the project that it came from, the answer that was given here stays.
    store = new_study(tmp_path / "original.db", mode, ["ada", "ben"])
    imported(store, tmp_path / "answers.json", recorded[mode]["answers"])
    both = by_key(imported(store, tmp_path / "back.json", recorded[mode]["back"]))
    assert both[(item, annotator)] == sent[(item, annotator)]
    assert both[(item, "label-studio:1")]["choice"] == changed["choice"]
    assert len(both) == len(sent) + 2
