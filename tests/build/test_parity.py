"""What may tell the two responses apart: nothing but the rubric."""

from itertools import product

import pytest

from prbench.construction.build import responses
from prbench.construction.build.records import CHOSEN, REJECTED, BuildItem, DraftResponse, PairDraft
from prbench.schema import User

ITEM = BuildItem(id="i", user=User(id="u"), question="How do I cook on weeknights?")
CHOSEN_TEXT = "Cook a big pot on Sunday and eat from it for days. Buy the beans dry, as they cost half as much."
REJECTED_TEXT = "Ask two friends to cook with you on Sundays. Try one herb a week, as they lift even a plain dish."


def draft(chosen: str = CHOSEN_TEXT, rejected: str = REJECTED_TEXT, item: BuildItem = ITEM) -> PairDraft:
    return PairDraft(item=item, chosen=DraftResponse(text=chosen), rejected=DraftResponse(text=rejected))


def faults(chosen: str, rejected: str, words: int = 20) -> list[tuple[str, str]]:
    return [(fault.reason, fault.side) for fault in responses.measure_differences(draft(chosen, rejected), words)]


def test_matched_responses_pass() -> None:
    assert faults(CHOSEN_TEXT, REJECTED_TEXT) == []


def test_the_longer_one_may_have_a_tenth_more() -> None:
    one = "abcd " * 19 + "abcde"  # 100 characters
    assert len(one) == 100
    within, beyond = "abcd " * 20 + "abcd efghi", "abcd " * 20 + "abcd efghij"
    assert (len(within), len(beyond)) == (110, 111)
    assert (responses.LENGTH, REJECTED) not in faults(one, within)
    assert faults(one, beyond) == [(responses.LENGTH, REJECTED)]


@pytest.mark.parametrize("words,blamed", [(20, CHOSEN), (40, REJECTED)])
def test_the_length_further_from_what_was_asked_is_to_blame(words: int, blamed: str) -> None:
    assert faults(f"{CHOSEN_TEXT} {CHOSEN_TEXT}", REJECTED_TEXT, words) == [(responses.LENGTH, blamed)]


@pytest.mark.parametrize(
    "name,other",
    [
        (
            "question marks",
            "Cook? A big pot? On Sunday? And then eat from it. Buy the beans dry, as they cost half as well.",
        ),
        (
            "digits",
            "Cook for 120 minutes at 180 degrees, with 250 grams of beans. Buy the beans dry, as they cost less.",
        ),
        (
            "first person",
            "I cook my big pot on my Sunday and I eat from it. I buy my beans dry, as they cost me half of it.",
        ),
        (
            "readability",
            "Preparing considerable quantities beforehand facilitates straightforward weeknight consumption.",
        ),
    ],
)
def test_every_margin_of_style_is_kept(name: str, other: str) -> None:
    plain = CHOSEN_TEXT[: len(other)] if len(other) < 96 else CHOSEN_TEXT
    found = [
        fault.detail
        for fault in responses.measure_differences(draft(plain, other), 20)
        if fault.reason == responses.STYLE
    ]
    assert any(name in detail for detail in found), found


def test_readability_is_the_automated_readability_index() -> None:
    # 4 words of 3, 4, 5 and 4 characters in one sentence: 4.71 * 4 + 0.5 * 4 - 21.43 = -0.59
    assert responses.style_of("One fine small test.")["readability"] == pytest.approx(-0.59)


def test_responses_that_hardly_differ_test_nothing() -> None:
    long = " ".join(f"word{n}" for n in range(60))
    assert (responses.TOO_ALIKE, REJECTED) in faults(long, long.replace("word30", "wordxx"))


def ratings(chosen: tuple[float, ...], rejected: tuple[float, ...]) -> dict[str, dict[str, float]]:
    return {
        CHOSEN: dict(zip(responses.DIMENSIONS, chosen, strict=True)),
        REJECTED: dict(zip(responses.DIMENSIONS, rejected, strict=True)),
    }


@pytest.mark.parametrize(
    "chosen,rejected,expected",
    [
        ((8, 8, 8), (8, 8, 8), []),
        ((8, 8, 8), (7, 9, 8), []),  # a point either way is within the margin
        ((8, 8, 8), (6.5, 8, 8), [(responses.DIFFERS, REJECTED)]),
        ((8, 6, 8), (8, 8, 8), [(responses.DIFFERS, CHOSEN)]),
        ((4.5, 8, 8), (4, 8, 8), [(responses.TOO_LOW, CHOSEN), (responses.TOO_LOW, REJECTED)]),
        ((8, 8, 8), (8, 8, 4), [(responses.DIFFERS, REJECTED), (responses.TOO_LOW, REJECTED)]),
    ],
)
def test_quality_within_a_margin(
    chosen: tuple[float, ...], rejected: tuple[float, ...], expected: list[tuple[str, str]]
) -> None:
    found = responses.quality_faults(ratings(chosen, rejected))
    assert [(fault.reason, fault.side) for fault in found] == expected


def test_both_orders_are_averaged_for_the_right_side() -> None:
    from prbench.backends.llm.asking import Answer

    def rated(first: int, second: int) -> Answer[responses.PairRatings]:
        value = responses.PairRatings(
            first=dict.fromkeys(responses.DIMENSIONS, first), second=dict.fromkeys(responses.DIMENSIONS, second)
        )
        return Answer(value=value)

    # Whatever stands first gets two points more; chosen then has (9 + 7) / 2 and rejected (7 + 9) / 2.
    found = responses.average_orders([rated(9, 7), rated(9, 7)])
    assert {side: set(values.values()) for side, values in found.items()} == {CHOSEN: {8.0}, REJECTED: {8.0}}
    # Where the chosen one gets 9 in either place, and the rejected one 5, the averages are those.
    found = responses.average_orders([rated(9, 5), rated(5, 9)])
    assert {side: set(values.values()) for side, values in found.items()} == {CHOSEN: {9.0}, REJECTED: {5.0}}


def numbered(number: int, chosen: str, rejected: str) -> PairDraft:
    return draft(chosen, rejected, BuildItem(id=f"i{number}", user=User(id=f"u{number}"), question=ITEM.question))


def test_of_pairs_that_repeat_each_other_the_first_stays() -> None:
    same = [numbered(n, CHOSEN_TEXT, REJECTED_TEXT) for n in range(3)]
    kept, dropped = responses.drop_repeats(same)
    assert [each.item.id for each in kept] == ["i0"]
    assert [(each.item.id, each.reason) for each in dropped] == [("i1", responses.REPEATS), ("i2", responses.REPEATS)]
    assert dropped[1].detail.endswith("those of i0")


def test_a_mirrored_pair_is_no_repeat() -> None:
    kept, dropped = responses.drop_repeats(
        [numbered(0, CHOSEN_TEXT, REJECTED_TEXT), numbered(1, REJECTED_TEXT, CHOSEN_TEXT)]
    )
    assert (len(kept), dropped) == (2, [])


def test_repeats_are_those_of_the_exact_jaccard_index() -> None:
    import random

    from prbench.construction.check.duplicates import ALIKE, jaccard

    dice = random.Random(1)
    base = [f"w{n}" for n in range(80)]
    drafts = []
    for number in range(30):
        words = [word if dice.random() > 0.04 else f"x{number}-{place}" for place, word in enumerate(base)]
        drafts.append(numbered(number, " ".join(words), " ".join(reversed(words))))
    kept, _ = responses.drop_repeats(drafts)
    slow: list[PairDraft] = []
    for each in drafts:
        mine = responses.pair_shingles(each)
        if all(jaccard(mine, responses.pair_shingles(other)) < ALIKE for other in slow):
            slow.append(each)
    assert kept == slow
    assert 1 < len(kept) < 30


def test_the_prompt_of_the_quality_judge_has_no_slot_for_a_user() -> None:
    from prbench.prompts import load_template

    assert set(load_template(responses.QUALITY_TEMPLATE).slots) == {"question", "first", "second", "problem"}
    texts = [responses.rating_task(draft(), chosen_first=first).prompt("")[-1].content for first in (True, False)]
    for text, (one, other) in product(texts, ((CHOSEN_TEXT, REJECTED_TEXT),)):
        assert one in text
        assert other in text
    assert texts[0].index(CHOSEN_TEXT) < texts[0].index(REJECTED_TEXT)
    assert texts[1].index(CHOSEN_TEXT) > texts[1].index(REJECTED_TEXT)
