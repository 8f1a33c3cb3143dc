"""The figures of the owner's page."""

import pytest

from prbench.people.annotate.progress import measure
from prbench.people.annotate.records import ItemAnswer, Ratings, Status
from prbench.schema import Verdict

FOUR = Ratings(correctness=4, relevance=4, helpfulness=4)


def answer(store, person: int, choices: dict[str, Verdict], **changes) -> None:
    for position, _, _ in store.positions(person):
        choice = choices[store.task(person, position).item.id]
        given = ItemAnswer(**{"choice": choice, "chosen": FOUR, "rejected": FOUR} | changes)
        store.save(person, position, given, Status.DONE, seen=0, tab="t", seconds=10 * position)


def test_counts_and_agreement_are_read_off_the_answers(make) -> None:
    store = make(4).open()
    ids = [item.id for item in store.items()]
    answer(store, 1, dict.fromkeys(ids, Verdict.CHOSEN))
    answer(store, 2, dict(zip(ids, [Verdict.CHOSEN, Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE], strict=True)))
    figures = measure(store)
    assert (figures.planned, figures.done, figures.skipped) == (8, 8, 0)
    assert [person.median_seconds for person in figures.people] == [25.0, 25.0]
    agreement = figures.agreement
    # Ada 4 of 4; ben 2 and a half of 4.
    assert agreement.with_label is not None
    assert agreement.with_label.value == pytest.approx(6.5 / 8)
    assert agreement.raw is not None
    assert agreement.raw.value == pytest.approx(2 / 4)
    # By hand, items doubled with chosen and rejected exchanged: 16 labels, 7 chosen, 7 rejected, 2 ties.
    # Observed disagreement 1/2; expected 1 - (7*6 + 7*6 + 2*1) / (16*15) = 154/240.
    assert agreement.alpha is not None
    assert agreement.alpha.value == pytest.approx(1 - 0.5 / (154 / 240))
    assert agreement.rating_alphas == dict.fromkeys(("correctness", "relevance", "helpfulness")), "all gave fours"
    assert [item.is_split for item in figures.items] == [False, False, True, True]
    assert figures.items[3].choices == {"chosen": 1, "tie": 1}


def test_people_who_all_pick_the_chosen_response_agree_fully(make) -> None:
    store = make(4).open()
    for person in (1, 2):
        answer(store, person, dict.fromkeys([item.id for item in store.items()], Verdict.CHOSEN))
    alpha = measure(store).agreement.alpha
    assert alpha is not None
    assert alpha.value == 1.0, "the label's name is unknown to them, so this is no matter of chance"


def test_drafts_skipped_and_flagged_are_no_answers(make) -> None:
    store = make(3).open()
    store.save(1, 1, ItemAnswer(choice=Verdict.CHOSEN, is_flagged=True), Status.DRAFT, seen=0, tab="t", seconds=0)
    store.save(1, 2, ItemAnswer(is_flagged=True), Status.SKIPPED, seen=0, tab="t", seconds=0)
    figures = measure(store)
    ada = figures.people[0]
    assert (ada.planned, ada.done, ada.drafts, ada.skipped, ada.flagged) == (3, 0, 1, 1, 2)
    assert (figures.done, figures.agreement.with_label, figures.agreement.alpha) == (0, None, None)
    assert figures.as_json()["people"][0] == {
        "name": "ada", "paused": False, "planned": 3, "done": 0, "drafts": 1, "skipped": 1, "flagged": 2,
        "median_seconds": None,
    }  # fmt: skip


def test_a_table_of_many_items_is_shown_in_pages(make, start) -> None:
    running = start(make(60))
    owner = running.owner()
    first, second = owner.get("/owner").text, owner.get("/owner?page=2").text
    assert first.count("/owner/items/") == 50
    assert second.count("/owner/items/") == 10
    assert owner.get("/owner?page=99").text.count("/owner/items/") == 10
    assert owner.get("/owner?page=x").status_code == 404
