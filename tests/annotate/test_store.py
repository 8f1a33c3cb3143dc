"""Items and answers on disk."""

import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from prbench.errors import UsageError
from prbench.people.annotate.records import ItemAnswer, Mode, Ratings, ResponseSide, Status, form_fields, read_answer
from prbench.people.annotate.store import GoneError, forget
from prbench.schema import Verdict

from .conftest import count_events

FULL = Ratings(correctness=5, relevance=4, helpfulness=3)
COMPLETE = ItemAnswer(choice=Verdict.CHOSEN, chosen=FULL, rejected=FULL)


def draft(
    store, answer: ItemAnswer, *, seen: int = 0, tab: str = "a", action: Status = Status.DRAFT, seconds: float = 1.0
):
    return store.save(1, 1, answer, action, seen=seen, tab=tab, seconds=seconds)


def test_tokens_are_long_and_only_their_hashes_are_in_the_file(make) -> None:
    made = make()
    tokens = [made.links.owner, *made.links.annotators.values()]
    assert all(len(token) * 6 >= 128 for token in tokens), "six bits per character"
    assert len(set(tokens)) == 3
    made.open().close()
    assert not any(token.encode() in made.path.read_bytes() for token in tokens)
    assert made.path.stat().st_mode & 0o077 == 0, "nobody else may read the file"


def test_items_are_chosen_by_the_seed_and_more_rows_do_not_reshuffle_them(make) -> None:
    few = [item.id for item in make(12, items=12, name="few.db").open().items()]
    many = [item.id for item in make(20, items=20, name="many.db").open().items()]
    assert [item for item in many if item in few] == few
    other = make(12, items=5, seed=1, name="other.db").open().items()
    assert [item.id for item in other] != few[:5]


def test_what_a_user_wrote_is_not_copied_into_the_project(make) -> None:
    made = make()
    made.open().close()
    assert b"wrote post" not in made.path.read_bytes()


@pytest.mark.parametrize(
    "change,fact",
    [
        ({"items": 13}, "fewer than --items 13"),
        ({"overlap": 0}, "overlap is 0"),
        ({"annotators": ["ada", "ada"]}, "same name"),
        ({"annotators": ["a\tb\x07"]}, "printable"),
    ],
)
def test_a_project_that_cannot_be_is_refused_and_leaves_no_file(make, tmp_path: Path, change, fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        make(**change)
    assert not list(tmp_path.glob("*.db*"))


def test_pairs_without_a_rubric_cannot_be_validated_but_collected(make, rows) -> None:
    bare = [row | {"rubric_aspects": []} for row in rows(3)]
    with pytest.raises(UsageError, match="no rubric"):
        make(bare)
    assert len(make(bare, mode=Mode.COLLECT).open().items()) == 3


def test_a_file_that_is_no_project_is_refused(tmp_path: Path) -> None:
    from prbench.people.annotate.store import Store

    with pytest.raises(UsageError, match="no such project"):
        Store(tmp_path / "nothing.db")
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(UsageError, match="not a project"):
        Store(other)
    other.write_text("no database at all, but long enough to look at it twice" * 20)
    with pytest.raises(UsageError, match="not a project"):
        Store(other)


def test_every_save_is_kept_and_the_last_one_counts(make) -> None:
    store = make().open()
    first = draft(store, ItemAnswer(note="one"))
    second = draft(store, ItemAnswer(note="two"), seen=first.saved.version)
    assert (second.replaced, second.saved.seconds) == (None, 2.0)
    assert [saved.answer.note for saved in store.answers()] == ["two"]
    assert count_events(store) == 2


def test_saving_the_same_again_adds_nothing(make) -> None:
    store = make().open()
    first = draft(store, ItemAnswer(note="one"))
    assert draft(store, ItemAnswer(note="one"), seen=first.saved.version).saved == first.saved
    assert count_events(store) == 1


def test_another_tab_is_told_what_it_replaced_and_the_same_tab_is_not(make) -> None:
    store = make().open()
    draft(store, ItemAnswer(note="one"), tab="a")
    told = draft(store, ItemAnswer(note="two"), tab="b", seen=0)
    assert told.replaced is not None
    assert told.replaced.answer.note == "one"
    again = draft(store, ItemAnswer(note="three"), tab="b", seen=0)
    assert again.replaced is None, "a repeated request of the same tab is no conflict"


def test_an_edited_item_stays_done_while_nothing_is_missing(make) -> None:
    store = make().open()
    assert draft(store, COMPLETE).saved.status is Status.DRAFT, "only an explicit done makes it done"
    assert draft(store, COMPLETE, action=Status.DONE).saved.status is Status.DONE
    edited = ItemAnswer(choice=Verdict.TIE, chosen=FULL, rejected=FULL, note="on second thoughts")
    assert draft(store, edited).saved.status is Status.DONE
    assert draft(store, ItemAnswer(choice=Verdict.TIE)).saved.status is Status.DRAFT


def test_events_cannot_be_changed_or_deleted(make) -> None:
    store = make().open()
    draft(store, ItemAnswer(note="one"))
    for statement in ("DELETE FROM events", "UPDATE events SET answer = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"), store.database.transaction() as connection:
            connection.execute(statement)
    assert count_events(store) == 1


def test_an_item_that_was_opened_stays_with_its_annotator(make) -> None:
    made = make(12, annotators=["ada"], overlap=1)
    store = made.open()
    opened = [store.task(1, position).item.id for position in (1, 2, 3)]
    store.invite("ben")
    planned = store.planned()
    assert set(opened) <= set(planned[1])
    assert {person: len(items) for person, items in planned.items()} == {1: 6, 2: 6}
    assert store.task(1, 1).item.id == opened[0], "positions do not shift"
    gone = next(position for position in range(1, 13) if position not in [each[0] for each in store.positions(1)])
    with pytest.raises(GoneError):
        store.task(1, gone)


def test_what_a_paused_annotator_has_not_begun_can_be_passed_on(make) -> None:
    store = make(12, annotators=["ada", "ben", "cleo"], overlap=1).open()
    draft(store, COMPLETE, action=Status.DONE)
    store.pause(1)
    assert store.release(1) == 3
    counts = {person: len(items) for person, items in store.planned().items()}
    assert counts[1] == 1
    assert sorted((counts[2], counts[3])) == [5, 6]
    assert Counter(item for items in store.planned().values() for item in items) == Counter(
        item.id for item in store.items()
    )


def test_who_is_reopened_gets_what_was_passed_on_and_nobody_could_take(make) -> None:
    store = make(6, annotators=["ada", "ben"], overlap=2).open()
    store.pause(1)
    assert store.release(1) == 6
    assert {person: len(items) for person, items in store.planned().items()} == {2: 6}
    store.reopen(1)
    assert {person: len(items) for person, items in store.planned().items()} == {1: 6, 2: 6}
    assert [person.is_paused for person in store.people.all()] == [False, False]


def test_an_import_never_turns_the_sides_of_a_page_that_is_open(make) -> None:
    store = make(annotators=["ada"], overlap=1).open()
    shown = store.task(1, 1)
    taken = store.import_answer("ada", shown.item.id, shown.side.other, COMPLETE, (1.0, "2020-01-01T00:00:00.000Z"))
    assert taken
    assert store.task(1, 1).side is shown.side
    assert [saved.side for saved in store.answers()] == [shown.side.other], "the event keeps the side of its own"
    form = {"choice": shown.side.value, f"{shown.side.value}_correctness": "5"}
    draft(store, read_answer(form, Mode.VALIDATE, store.task(1, 1).side))
    (saved,) = store.answers()
    assert (saved.answer.choice, saved.answer.chosen.correctness, saved.side) == (Verdict.CHOSEN, 5, shown.side)


def test_a_file_that_was_never_finished_is_named(tmp_path: Path) -> None:
    from prbench.people.annotate.database import Database
    from prbench.people.annotate.store import Store

    Database.make(tmp_path / "half.db").close()
    with pytest.raises(UsageError, match=r"half\.db: was never finished"):
        Store(tmp_path / "half.db")


@pytest.mark.parametrize("side", list(ResponseSide))
def test_a_form_speaks_of_sides_and_the_answer_of_responses(side: ResponseSide) -> None:
    form = {"choice": "left", "left_correctness": "5", "right_correctness": "1", "note": " a\r\nb ", "flag": "yes"}
    answer = read_answer(form, Mode.VALIDATE, side)
    assert answer.choice is (Verdict.CHOSEN if side is ResponseSide.LEFT else Verdict.REJECTED)
    assert (answer.chosen.correctness, answer.rejected.correctness) == (
        (5, 1) if side is ResponseSide.LEFT else (1, 5)
    )
    assert (answer.note, answer.is_flagged) == ("a\nb", True)
    assert form_fields(answer, side) == form | {"note": "a\nb"}


def test_what_is_missing_is_said() -> None:
    assert ItemAnswer().missing(Mode.VALIDATE) == ["your choice", "all six ratings"]
    assert COMPLETE.missing(Mode.VALIDATE) == []
    assert ItemAnswer(choice=Verdict.CHOSEN).missing(Mode.COLLECT) == ["at least one thing that mattered to you"]
    assert ItemAnswer(choice=Verdict.TIE).missing(Mode.COLLECT) == []


def test_forget_removes_a_user_with_all_answers_and_leaves_no_byte(make, rows) -> None:
    data = [row | {"question": f"{row['question']} zebra-{row['user_id']}"} for row in rows(12)]
    made = make(data)
    store = made.open()
    for position, _, _ in store.positions(1):
        answer = ItemAnswer(note=f"about {store.task(1, position).item.user_id}: quagga")
        store.save(1, position, answer, Status.DRAFT, seen=0, tab="a", seconds=0)
    assert b"zebra-user-1" in made.path.read_bytes() + made.path.with_name("study.db-wal").read_bytes()
    store.close()
    assert forget(made.path, "user-1") == 4
    store = made.open()
    assert {item.user_id for item in store.items()} == {"user-0", "user-2"}
    assert len(store.answers()) == 8
    store.close()
    left = b"".join(path.read_bytes() for path in made.path.parent.glob("study.db*"))
    assert b"zebra-user-1" not in left
    assert b"about user-1" not in left
    assert b"zebra-user-0" in left
    assert forget(made.path, "user-1") == 0, "a second time there is nothing"


def test_forget_removes_a_collecting_annotator_who_is_the_user(make) -> None:
    made = make(4, mode=Mode.COLLECT)
    store = made.open()
    store.save_about(1, ("I keep an okapi.",), seen=0, tab="a")
    draft(store, ItemAnswer(choice=Verdict.CHOSEN, note="okapi"))
    store.close()
    assert forget(made.path, "ada") == 2
    store = made.open()
    assert [person.name for person in store.people.all()] == ["ben"]
    store.save_about(2, ("I am ben.",), seen=0, tab="a")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"), store.database.transaction() as connection:
        connection.execute("DELETE FROM events")
    store.close()
    assert b"okapi" not in b"".join(path.read_bytes() for path in made.path.parent.glob("study.db*"))


def test_half_a_surrogate_pair_in_a_note_is_kept(make) -> None:
    store = make().open()
    draft(store, ItemAnswer(note="odd \ud800"))
    saved = store.task(1, 1).saved
    assert saved is not None
    assert saved.answer.note == "odd \ud800"
