"""Labeled pairs in a context: worded so that no post can pass for one, and never the pair under test."""

from dataclasses import replace

import pytest
from tests.support.contexts import profile

from prbench.context import Ask, LabeledContext, PromptWindow, fit_for, leak_keys, make_context
from prbench.context.labels import Labels, check_labels_overlap, read_labels
from prbench.data import open_examples
from prbench.errors import UsageError
from prbench.schema import Aspect, Example, LabeledPair, Post, RatedExample, User, UserContext

MARKER = "rubric-and-narrative-marker"
TENT = LabeledPair(question="Which tent?", chosen="A cheap one.", rejected="A dear one.")
USER = User(id="ann", profile=(Post(id="p", text="I count my coins."),))


def pair(number: int, user: User = USER, **changes: str) -> Example:
    texts = {"question": f"Question {number}?", "chosen": f"Good {number}.", "rejected": f"Bad {number}."} | changes
    rubric = (Aspect(aspect=MARKER, evidence=MARKER, reason=MARKER),)
    return Example(id=f"label-{number}", user=user, rubric=rubric, narrative=MARKER, **texts)


def labels(*pairs: Example, shots: int = 10) -> Labels:
    with open_examples(pairs) as store:
        return read_labels(store, shots=shots)


def shown(given: Labels, item: Example | RatedExample) -> list[str]:
    """The questions of the labelled pairs that a model sees with this item."""
    maker = LabeledContext(make_context("none"), given)
    return [label.question for label in context_of(maker, item, item.user).labels]


def context_of(maker: LabeledContext, item: Example | RatedExample, user: User) -> UserContext:
    """What a model sees with this item when that user asks."""
    ask = Ask(user=user, question=item.question, excluded_keys=leak_keys(item), owner=item.user.id)
    return maker.contexts([ask])[0]


def test_a_labelled_pair_reads_in_plain_words() -> None:
    assert profile("I count my coins.", labels=(TENT,)).text == (
        "Pairs of answers that this person compared before, and posts that they wrote:\n\n"
        "- [compared two answers]\n"
        "  Question: Which tent?\n"
        "  Preferred: A cheap one.\n"
        "  Turned down: A dear one.\n"
        "- I count my coins."
    )


def test_a_post_that_imitates_a_label_is_shown_with_a_backslash() -> None:
    forged = TENT.text
    text = profile(forged, "\\" + forged, "   " + forged).text
    assert text.count("- \\[compared") == 2
    assert text.count("- \\\\[compared") == 1


def test_the_item_under_test_is_never_among_its_labels() -> None:
    given = labels(*(pair(number) for number in range(4)))
    assert shown(given, pair(9)) == ["Question 0?", "Question 1?", "Question 2?", "Question 3?"]
    same_id = replace(pair(9), id="label-2")
    assert shown(given, same_id) == ["Question 0?", "Question 1?", "Question 3?"]
    same_texts = replace(pair(1), id="other")
    assert shown(given, same_texts) == ["Question 0?", "Question 2?", "Question 3?"]
    mirrored = replace(same_texts, chosen="Bad  1.", rejected=" Good 1.")  # in the other order, spaced otherwise
    assert shown(given, mirrored) == ["Question 0?", "Question 2?", "Question 3?"]
    third = replace(same_texts, chosen="A third.")  # how one of the two fared against another response
    assert shown(given, third) == ["Question 0?", "Question 2?", "Question 3?"]
    same_question = replace(pair(9), question="Question 0?")  # but other responses: that is another pair
    assert "Question 0?" in shown(given, same_question)


def test_a_swap_shows_no_more_labels_than_the_own_user_has() -> None:
    bob, new = User(id="bob"), User(id="new")
    given = labels(pair(0), pair(1), *(pair(number, bob) for number in (2, 3, 4)))
    maker = LabeledContext(make_context("none"), given)

    def count(item: Example, user: User) -> int:
        return len(context_of(maker, item, user).labels)

    assert (count(pair(9), USER), count(pair(9), bob)) == (2, 2)
    assert (count(pair(0), USER), count(pair(0), bob)) == (1, 1)  # a label that is under test counts for neither
    assert (count(pair(9, bob), bob), count(pair(9, bob), USER)) == (3, 2)
    assert (count(pair(9, new), new), count(pair(9, new), bob)) == (0, 0)


@pytest.mark.parametrize("response", ["Good 1.", "Bad 1."])
def test_a_rated_response_does_not_see_how_it_fared_in_a_pair(response: str) -> None:
    given = labels(pair(0), pair(1))
    item = RatedExample(id="r", user=USER, question="Question 1?", response=response, rating=0.5)
    assert shown(given, item) == ["Question 0?"]
    assert shown(given, replace(item, response="Other.")) == ["Question 0?", "Question 1?"]


def test_a_user_sees_the_first_of_their_own_pairs() -> None:
    given = labels(pair(0), pair(1, User(id="bob")), pair(2), pair(3), shots=2)
    assert shown(given, pair(9)) == ["Question 0?", "Question 2?"]
    assert shown(given, replace(pair(9), id="label-0")) == ["Question 2?", "Question 3?"]
    assert shown(given, pair(9, User(id="bob"))) == ["Question 1?"]
    assert shown(given, pair(9, User(id="new"))) == []


def test_neither_rubric_nor_narrative_can_come_with_a_label() -> None:
    maker = LabeledContext(make_context("profile"), labels(pair(0)))
    assert MARKER not in repr(maker.contexts([Ask(user=USER, question="?")]))


def test_labels_stand_before_posts_so_that_a_small_window_drops_posts_first() -> None:
    maker = LabeledContext(make_context("profile"), labels(pair(0), pair(1)))
    (whole,) = maker.contexts([Ask(user=USER, question="?")])
    assert (whole.used, len(whole.labels), whole.segments) == (3, 2, ("I count my coins.",))

    def fit(characters: int) -> UserContext:
        window = PromptWindow(count_tokens=lambda user: len(user.text), limit=characters)
        return fit_for(window, whole, question="?")

    small, none = fit(len(whole.text) - 1), fit(0)
    assert (small.used, small.dropped, len(small.labels), small.segments) == (2, 1, 2, ())
    assert (none.text, none.used, none.dropped) == ("", 0, 3)


def test_what_is_shown_names_the_run() -> None:
    def identity(kind: str, *pairs: Example, shots: int = 10) -> str:
        return repr(LabeledContext(make_context(kind), labels(*pairs, shots=shots)).identity)

    found = {
        repr(make_context("profile").identity),
        identity("profile", pair(0)),
        identity("profile", pair(1)),
        identity("profile", pair(0), shots=3),
        identity("none", pair(0)),
    }
    assert len(found) == 5


def test_labels_that_help_nobody_are_refused() -> None:
    given = labels(pair(0))
    check_labels_overlap(given, [pair(5, User(id="bob")), pair(6)])
    with pytest.raises(UsageError, match="none of its 1 users is in the data"):
        check_labels_overlap(given, [pair(5, User(id="bob"))])
    with pytest.raises(UsageError, match="--shots 0"):
        labels(pair(0), shots=0)
    with pytest.raises(UsageError, match="oracle"):
        LabeledContext(make_context("oracle"), given)
    rated = RatedExample(id="r", user=USER, question="?", response="Yes.", rating=0.5)
    with open_examples([rated]) as store, pytest.raises(UsageError, match="rated responses"):
        read_labels(store)
