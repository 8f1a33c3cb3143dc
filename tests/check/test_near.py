"""Near-duplicates: Jaccard's index of shingles, by hand, and the search for candidates."""

import random

import pytest

from prbench.construction.check import duplicates
from prbench.construction.check.duplicates import check_near, jaccard, pair_keys, shingles
from prbench.construction.check.finding import BAD, GOOD


def check(store):
    return check_near(store, pair_keys(store), seed=0)


def sentence(seed: int, length: int = 60) -> list[str]:
    return [f"w{random.Random(f'{seed}/{place}').randrange(10_000)}" for place in range(length)]


def changed(words: list[str], place: int) -> list[str]:
    return [*words[:place], "changed", *words[place + 1 :]]


def test_jaccard_by_hand() -> None:
    # ^ab abc bcd cd$ against ^ab abx bxd xd$: 1 in common, 7 in all
    assert jaccard(shingles("a b c d"), shingles("a b x d")) == pytest.approx(1 / 7)
    assert jaccard(shingles("A b, C."), shingles("a b c")) == 1.0
    assert jaccard(shingles("…"), shingles("…")) == 0.0  # not a word in it
    assert len(shingles("word")) == 1


def test_one_changed_word_of_sixty_is_almost_the_same(pair, open_rows) -> None:
    words = sentence(1)
    row = pair(0, chosen=" ".join(words), rejected=" ".join(changed(words, 30)))
    finding = check(open_rows([row, pair(1)]))
    assert (finding.verdict, finding.values["pairs_alike"], finding.values["pairs_alike_share"]) == (BAD, 1, 0.5)
    assert finding.samples[0].title == "item-0: the responses hardly differ"


def test_different_rows_are_good(pair, open_rows) -> None:
    rows = [pair(n, chosen=" ".join(sentence(n)), rejected=" ".join(sentence(1000 + n))) for n in range(50)]
    finding = check(open_rows(rows))
    assert (finding.verdict, finding.values["near_rows"], finding.values["identical_share"]) == (GOOD, 0, 0.0)


def near_rows(pair, users: tuple[str, str]):
    first, second = sentence(1), sentence(2)
    one = pair(0, user_id=users[0], question="Which?", chosen=" ".join(first), rejected=" ".join(second))
    # The near row is also the other way round: the label must not matter.
    return [
        one,
        one | {"id": "b", "user_id": users[1], "chosen": one["rejected"], "rejected": " ".join(changed(first, 9))},
    ]


def test_rows_that_nearly_repeat_another_users_are_found(pair, open_rows) -> None:
    finding = check(open_rows([*near_rows(pair, ("ann", "bob")), pair(7), pair(8)]))
    assert (finding.verdict, finding.values["near_rows"], finding.values["near_rows_share"]) == (BAD, 2, 0.5)
    assert finding.samples[0].title == "b nearly repeats item-0: question and chosen"


def test_near_rows_of_one_user_are_not_counted(pair, open_rows) -> None:
    assert check(open_rows([*near_rows(pair, ("ann", "ann")), pair(7)])).values["near_rows"] == 0


def test_mirrored_rows_are_counted_apart(pair, open_rows) -> None:
    one = pair(0)
    turned = one | {"id": "m", "user_id": "bob", "chosen": one["rejected"], "rejected": one["chosen"]}
    finding = check(open_rows([one, turned, pair(1), pair(2)]))
    assert (finding.verdict, finding.values["near_rows"], finding.values["identical_share"]) == (GOOD, 0, 0.25)


def test_texts_without_a_word_do_no_harm(pair, open_rows) -> None:
    rows = [pair(n, question=f"{'?' * (n + 1)}", chosen="!" * (n + 1), rejected="." * (n + 1)) for n in range(3)]
    assert check(open_rows(rows)).verdict == GOOD


def test_a_large_set_is_sampled_and_says_so(pair, open_rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MOST_ROWS", 5)
    finding = check(open_rows([pair(n) for n in range(9)]))
    assert finding.figure.startswith("in a sample of 5 rows, ")
    assert (finding.values["rows"], finding.values["sampled"]) == (5, True)
