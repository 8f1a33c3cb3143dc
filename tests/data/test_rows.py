"""The border: what is refused, in which words, and what is kept where."""

import datetime
import decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prbench.data.rows import as_row, from_checked_row, to_example, to_rated, visible
from prbench.errors import DataError
from prbench.schema import Aspect, Example, Post, RatedExample, User

WHERE = "data.jsonl:7"

A_LIST_OF_POSTS = 'Write a list of posts: [{"id": "p1", "text": "…"}].'
REFUSED = [
    ({"id": ""}, "id: is empty. Fill it in, or drop the row."),
    ({"id": None}, "id: is null. Add it, or drop the row."),
    ({"id": True}, "id: must be text, found true or false. Correct the type, or drop the row."),
    ({"id": 1.5}, "id: must be text, found a number. Correct the type, or drop the row."),
    ({"user_id": [1]}, "user_id: must be text, found a list. Correct the type, or drop the row."),
    ({"user_id": " "}, "user_id: is empty. Give the person's id, or leave the column out."),
    ({"question": " \n\t"}, "question: is empty. Fill it in, or drop the row."),
    ({"question": ["Why?"]}, "question: must be text, found a list. Correct the type, or drop the row."),
    ({"chosen": ""}, "chosen: is empty. Fill it in, or drop the row."),
    ({"chosen": {"text": "x"}}, "chosen: must be text, found an object. Correct the type, or drop the row."),
    ({"rejected": "\u2003"}, "rejected: is empty. Fill it in, or drop the row."),
    (
        {"chosen": "Same.", "rejected": "Same. "},
        "rejected: is the same text as chosen, so the pair tests nothing. "
        "Drop the row, or leave it out with --skip-bad-rows 1.",
    ),
    ({"profile": None}, "profile: is null. Add the user's posts; an empty list stands for a user without any."),
    ({"profile": "I walk."}, f"profile: must be a list, found text. {A_LIST_OF_POSTS}"),
    ({"profile": ["I walk."]}, f"profile[0]: must be an object, found text. {A_LIST_OF_POSTS}"),
    (
        {"profile": [{"id": "a", "text": "ok"}, {"id": "b", "text": "  "}]},
        "profile[1].text: is empty. Fill it in, or drop the row.",
    ),
    ({"profile": [{"text": "ok"}]}, "profile[0].id: is missing. Add it, or drop the row."),
    ({"profile": [{"id": "a"}]}, "profile[0].text: is missing. Add it, or drop the row."),
    ({"rubric_aspects": "coast"}, "rubric_aspects: must be a list, found text. Correct the type, or drop the row."),
    (
        {"rubric_aspects": [3]},
        "rubric_aspects[0]: must be an object, found a number. Correct the type, or drop the row.",
    ),
    ({"rubric_aspects": [""]}, "rubric_aspects[0].aspect: is empty. Fill it in, or drop the row."),
    ({"narrative": 3}, "narrative: must be text, found a number. Correct the type, or drop the row."),
    ({"category": ["a"]}, "category: must be text, found a list. Correct the type, or drop the row."),
    ({"meta": "x"}, "meta: is text that holds no JSON object. Correct it, or drop the row."),
    ({"meta": [1]}, "meta: must be an object, found a list. Correct the type, or drop the row."),
    (
        {"question": "half \ud83d"},
        "question: holds half of a surrogate pair, which is not a character. Correct it, or drop the row.",
    ),
    (
        {"source": "a", "meta": {"source": "b"}},
        "meta: 'source' stands both beside it and inside it, with different values. Rename one of the two.",
    ),
    (
        {"weight": float("nan")},
        "meta: has no JSON form (Out of range float values are not JSON compliant). "
        "Use null, numbers, text, lists and objects, or drop the column.",
    ),
]


@pytest.mark.parametrize("changes,message", REFUSED)
def test_bad_row_is_refused_in_one_line(make_row: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as error:
        to_example(make_row(**changes), WHERE)
    assert str(error.value) == f"{WHERE}: {message}"


@pytest.mark.parametrize("column", ["id", "question", "profile", "chosen", "rejected"])
def test_missing_column_is_named(make_row: Any, column: str) -> None:
    row = make_row()
    del row[column]
    with pytest.raises(DataError, match=rf"^data\.jsonl:7: {column}: is missing\. "):
        to_example(row, WHERE)


@pytest.mark.parametrize(
    "rating,message",
    [
        (1.5, "rating: is 1.5, outside 0..1. Scale the ratings to 0..1."),
        (-1, "rating: is -1, outside 0..1. Scale the ratings to 0..1."),
        (float("nan"), "rating: is nan, outside 0..1. Scale the ratings to 0..1."),
        ("0.5", "rating: must be a number, found text. Correct the type, or drop the row."),
        (True, "rating: must be a number, found true or false. Correct the type, or drop the row."),
        (None, "rating: is null. Add it, or drop the row."),
    ],
)
def test_bad_rating_is_refused(rating: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        to_rated({"id": 1, "question": "Why?", "profile": [], "response": "So.", "rating": rating}, WHERE)
    assert str(error.value) == f"{WHERE}: {message}"


def test_long_values_do_not_make_long_errors() -> None:
    row = {"id": 1, "question": "Why?", "profile": [], "response": "So.", "rating": 10**200}
    with pytest.raises(DataError) as error:
        to_rated(row, WHERE)
    assert len(str(error.value)) < 200


def test_number_as_id_is_kept_as_text(make_row: Any) -> None:
    example = to_example(make_row(id=7, user_id=8, profile=[{"id": 9, "text": "I walk."}]), WHERE)
    assert (example.id, example.user.id, example.user.profile[0].id) == ("7", "8", "9")


@pytest.mark.parametrize("text", ["x" * 100_000, "walk 🚶‍♀️ مشي 散步", "zero\x00byte", "line\r\nbreak", "{question}"])
def test_long_posts_and_any_unicode_are_accepted(make_row: Any, text: str) -> None:
    example = to_example(make_row(profile=[{"id": "a", "text": text}]), WHERE)
    assert example.user.profile[0].text == text


def test_unknown_columns_go_to_meta_and_come_back(make_row: Any) -> None:
    example = to_example(make_row(rejected_all=["a", "b"], meta={"source": "x"}), WHERE)
    assert example.meta == {"source": "x", "rejected_all": ["a", "b"]}
    assert as_row(example)["meta"] == {"source": "x", "rejected_all": ["a", "b"]}


def test_unknown_post_keys_stay_with_their_post(make_row: Any) -> None:
    posts = [{"id": "a", "text": "one", "date": "2024-01-02"}, {"id": "b", "category": "c", "text": "two"}]
    example = to_example(make_row(profile=posts), WHERE)
    assert example.user.profile[0].extra == {"date": "2024-01-02"}
    assert as_row(example)["profile"] == [
        {"id": "a", "category": "", "text": "one", "date": "2024-01-02"},
        {"id": "b", "category": "c", "text": "two"},
    ]


@pytest.mark.parametrize(
    "extra", [{"date": None}, {"id": "x"}, {"extra": '{"a": 1}'}, {"extra": {"a": 1}}, {"extra": "x"}]
)
def test_awkward_post_keys_survive(extra: dict[str, Any]) -> None:
    user = User(id="u", profile=(Post(id="p", text="I walk.", extra=extra),))
    example = Example(id="a", user=user, question="Why?", chosen="So.", rejected="No.")
    assert to_example(as_row(example), WHERE) == example


def test_unknown_rubric_keys_are_not_lost(make_row: Any) -> None:
    example = to_example(make_row(rubric_aspects=["plain", {"aspect": "rich", "weight": 2}]), WHERE)
    assert example.rubric == (Aspect(aspect="plain"), Aspect(aspect="rich"))
    assert example.meta == {"rubric_extra": [{}, {"weight": 2}]}


def test_null_in_an_optional_column_means_absent(make_row: Any) -> None:
    nulls = dict.fromkeys(("user_id", "rubric_aspects", "narrative", "category", "split", "meta", "unknown"))
    example = to_example(make_row(**nulls), WHERE)
    assert (example.rubric, example.narrative, example.category, example.split) == ((), "", "", "")
    assert example.meta == {}


def test_meta_may_be_json_text(make_row: Any) -> None:
    assert to_example(make_row(meta='{"a": [1, null]}'), WHERE).meta == {"a": [1, None]}


def test_table_values_without_json_form_become_text(make_row: Any) -> None:
    row = make_row(day=datetime.date(2024, 5, 6), at=datetime.datetime(2024, 5, 6, 7, 8), cost=decimal.Decimal("1.50"))
    assert to_example(row, WHERE).meta == {"day": "2024-05-06", "at": "2024-05-06T07:08:00", "cost": "1.50"}


def test_rows_with_the_same_posts_are_the_same_person(make_row: Any) -> None:
    posts = [{"id": "a", "text": "one"}]
    first, second = (to_example(make_row(n, profile=posts), WHERE) for n in (1, 2))
    other = to_example(make_row(3, profile=[{"id": "a", "text": "two"}]), WHERE)
    assert first.user.id == second.user.id != other.user.id


def test_row_without_posts_is_a_person_of_its_own(make_row: Any) -> None:
    first, second = (to_example(make_row(n, profile=[]), WHERE) for n in (1, 2))
    assert first.user.id != second.user.id


def test_rated_row_keeps_a_rubric_in_meta() -> None:
    row = {"id": "r", "user_id": "u", "question": "Why?", "profile": [], "response": "So.", "rating": 1}
    rated = to_rated({**row, "narrative": "n", "rubric_aspects": ["a"]}, WHERE)
    assert rated.rating == 1.0
    assert isinstance(rated.rating, float)
    assert rated.meta == {"narrative": "n", "rubric_aspects": ["a"]}
    assert to_rated(as_row(rated), WHERE) == rated


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(visible)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
# Names that mean something at the border must survive as free-form keys, too.
KEYS = st.sampled_from(["id", "text", "extra", "meta", "date", "chosen", "rubric_extra"]) | ANY_TEXT
FREE = st.dictionaries(KEYS, JSON, max_size=3)
POSTS = st.builds(Post, id=TEXT, text=TEXT, category=ANY_TEXT, extra=FREE)
USERS = st.builds(User, id=TEXT, profile=st.lists(POSTS, max_size=3).map(tuple))
PAIRS = st.builds(
    Example,
    id=TEXT,
    user=USERS,
    question=TEXT,
    chosen=TEXT.map("+".__add__),
    rejected=TEXT.map("-".__add__),
    rubric=st.lists(st.builds(Aspect, aspect=TEXT, evidence=ANY_TEXT, reason=ANY_TEXT), max_size=2).map(tuple),
    narrative=ANY_TEXT,
    category=ANY_TEXT,
    split=ANY_TEXT,
    meta=FREE,
)
RATED = st.builds(
    RatedExample,
    id=TEXT,
    user=USERS,
    question=TEXT,
    response=TEXT,
    rating=st.floats(0, 1),
    category=ANY_TEXT,
    split=ANY_TEXT,
    meta=FREE,
)


@settings(max_examples=150, deadline=None)
@given(PAIRS)
def test_pair_survives_its_row(example: Example) -> None:
    assert to_example(as_row(example), WHERE) == example
    assert from_checked_row(as_row(example)) == example


@settings(max_examples=100, deadline=None)
@given(RATED)
def test_rated_example_survives_its_row(example: RatedExample) -> None:
    assert to_rated(as_row(example), WHERE) == example
    assert from_checked_row(as_row(example)) == example
