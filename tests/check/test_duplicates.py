"""Repeated and contradicting rows; a mirror for another user is neither."""

from prbench.construction.check.duplicates import check_duplicates, check_rated_duplicates, pair_keys, sample_positions
from prbench.construction.check.finding import BAD, GOOD, LOOK


def check(store):
    return check_duplicates(store, pair_keys(store))


def mirrored(row, **changes):
    return row | {"chosen": row["rejected"], "rejected": row["chosen"]} | changes


def test_different_rows_are_good(pair, open_rows) -> None:
    finding = check(open_rows([pair(n) for n in range(4)]))
    assert (finding.verdict, finding.remedy, finding.samples) == (GOOD, "", ())
    assert finding.values == {
        "rows": 4, "repeated": 0, "same_responses": 0, "contradicting": 0, "mirrored_share": 0.0
    }  # fmt: skip


def test_the_same_row_twice_is_found_whatever_its_id_space_and_case(pair, open_rows) -> None:
    again = pair(0, id="again", question="what  about QUESTION0?")
    finding = check(open_rows([pair(0), pair(1), again]))
    assert (finding.verdict, finding.values["repeated"]) == (BAD, 1)  # one of three is above 1 %
    assert finding.samples[0].title == "again repeats item-0"


def test_one_repeated_row_in_a_hundred_is_worth_a_look(pair, open_rows) -> None:
    finding = check(open_rows([*(pair(n) for n in range(99)), pair(0, id="again")]))
    assert finding.verdict == LOOK


def test_responses_that_differ_in_case_only_are_bad(pair, open_rows) -> None:
    finding = check(open_rows([pair(0, chosen="Do  it.", rejected="do it."), pair(1)]))
    assert (finding.verdict, finding.values["same_responses"]) == (BAD, 1)
    assert finding.values["contradicting"] == 0


def test_both_labels_from_one_user_contradict(pair, open_rows) -> None:
    finding = check(open_rows([pair(0), mirrored(pair(0), id="turned"), pair(1)]))
    assert (finding.verdict, finding.values["contradicting"], finding.values["mirrored_share"]) == (BAD, 2, 0.0)


def test_a_mirror_for_another_user_is_wanted(pair, open_rows) -> None:
    mirror = mirrored(pair(0), id="m", user_id="other", profile=[{"id": "p", "text": "I am another."}])
    finding = check(open_rows([pair(0), mirror, pair(1), pair(2)]))
    assert (finding.verdict, finding.values["mirrored_share"]) == (GOOD, 0.5)
    assert "balanced by mirroring: 50.0 %" in finding.figure


def test_the_opposite_of_another_user_with_the_same_posts_cannot_be_told_apart(pair, open_rows) -> None:
    finding = check(open_rows([pair(0), mirrored(pair(0), id="m", user_id="other"), pair(1)]))
    assert (finding.verdict, finding.values["contradicting"]) == (BAD, 0)
    assert finding.values["contradicting_with_same_posts"] == 2
    assert "2 contradicted by another user with the same posts" in finding.figure
    assert "give each their own posts" in finding.remedy
    assert "answered both ways" not in finding.remedy  # nobody did


def test_the_opposite_under_one_user_id_with_other_posts_may_be_two_people(pair, open_rows) -> None:
    other = mirrored(pair(0), id="m", profile=[{"id": "p", "text": "I am another."}])
    finding = check(open_rows([pair(0), other, pair(1)]))
    assert (finding.verdict, finding.values["contradicting"]) == (LOOK, 0)
    assert finding.values["contradicting_with_other_posts"] == 2
    assert finding.remedy == (
        "If two people share a user id, give each their own; if one person changed, nothing is to do."
    )


def test_a_remedy_names_what_was_found_and_nothing_else(pair, open_rows) -> None:
    assert check(open_rows([pair(0), pair(0, id="again")])).remedy == "Keep one row of each repeated group."
    same = check(open_rows([pair(0, chosen="Do it.", rejected="do it."), pair(1)]))
    assert same.remedy == "Drop pairs with equal responses."


def test_a_sample_keeps_mirrored_rows_together(pair, open_rows) -> None:
    rows = [row for n in range(10) for row in (pair(n), mirrored(pair(n), id=f"m{n}", user_id=f"other{n}"))]
    keys = pair_keys(open_rows(rows))
    taken = sample_positions(keys, 7, seed=0)
    assert len(taken) == 6
    assert all(position ^ 1 in taken for position in taken)
    assert taken == sample_positions(keys, 7, seed=0) != sample_positions(keys, 7, seed=1)
    assert sample_positions(keys, 20, seed=0) == list(range(20))


def rated(number, rating, **changes):
    row = {"id": f"r{number}", "user_id": "ann", "question": "Which?", "profile": [], "response": "This."}
    return row | {"rating": rating} | changes


def test_a_response_rated_twice(open_rows) -> None:
    assert check_rated_duplicates(open_rows([rated(0, 0.5), rated(1, 0.5, user_id="bob")])).verdict == GOOD
    finding = check_rated_duplicates(open_rows([rated(0, 0.5), rated(1, 0.5), rated(2, 1.0)]))
    assert (finding.verdict, finding.values) == (BAD, {"rows": 3, "repeated": 1, "contradicting": 1})
