"""The readers of replies: the tables of accepted forms, what other tools got wrong, and properties."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.reply_forms import JSON_FORMS, JSON_SHAPE, SCORE_FORMS, VERDICT_FORMS, Form, forms_table

from prbench.prompts import load_template
from prbench.prompts.llm_json import fits_shape, scan
from prbench.prompts.replies import TIES, read_aspects, read_json, read_pick, read_score, strip_thinking
from prbench.schema import Pick

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


@pytest.mark.parametrize("form", VERDICT_FORMS, ids=lambda form: form.reply or "empty")
def test_verdict_table(form: Form) -> None:
    assert read_pick(form.reply) == form.reading


@pytest.mark.parametrize("form", SCORE_FORMS, ids=lambda form: form.reply)
def test_score_table(form: Form) -> None:
    assert read_score(form.reply, 1, 10) == (float(form.reading) if form.reading else None)


@pytest.mark.parametrize("form", JSON_FORMS, ids=lambda form: form.reply or "empty")
def test_json_table(form: Form) -> None:
    assert read_json(form.reply, JSON_SHAPE) == (json.loads(form.reading) if form.reading else None)


@pytest.mark.parametrize("page,forms", [("context", VERDICT_FORMS), ("context", SCORE_FORMS), ("llm", JSON_FORMS)])
def test_the_documentation_shows_the_tables(page: str, forms: tuple[Form, ...]) -> None:
    assert forms_table(forms) in (REFERENCE / f"{page}.md").read_text(encoding="utf-8")


def test_every_tie_word_is_read_as_a_tie() -> None:
    for word in TIES:
        assert read_pick(f"Result: {word.upper()}.") is Pick.TIE, word


# What the readers of other tools took for a verdict, or failed to take.


@pytest.mark.parametrize(
    "reply,expected",
    [
        ("Result: Answer B", Pick.SECOND),  # its first letter is an A
        ("Answer B", Pick.UNREADABLE),
        ("Result: Both are equal", Pick.TIE),  # its first letter is a B
        ("Both are equal", Pick.UNREADABLE),
        ("As a result: B misses the budget entirely. Result: A", Pick.FIRST),
        ("As a result: both have merits; I can't say", Pick.UNREADABLE),
        ("Result: Response B", Pick.SECOND),
        ("Result: <B>", Pick.SECOND),
        ("Result: (B)", Pick.SECOND),
        ("Result: [B]", Pick.SECOND),
        ("Result: `B`", Pick.SECOND),
        ("Result: \\boxed{B}", Pick.SECOND),
    ],
)
def test_verdict_is_the_last_explicit_one_not_the_first_letter(reply: str, expected: Pick) -> None:
    assert read_pick(reply) is expected


def test_bracketed_letters_in_the_reasoning_do_not_decide() -> None:
    assert read_pick("[[A]] is longer, but I prefer the other one.\n[[B]]") is Pick.SECOND
    assert read_pick("[[B]] or [[A]]? Hard to say.") is Pick.UNREADABLE
    assert read_pick("[[A]]\nis what I would have said yesterday.") is Pick.UNREADABLE


def test_a_refusal_holding_the_letters_is_unreadable() -> None:
    assert read_pick("I cannot do that. Abcd, A, B, C, D.") is Pick.UNREADABLE
    assert read_pick("As an AI, I have no preference between A and B.") is Pick.UNREADABLE


def test_running_out_of_tokens_while_thinking_is_no_verdict() -> None:
    assert read_pick("<think>So far it looks like\nResult: A\nbut wait") is Pick.UNREADABLE


@pytest.mark.parametrize(
    "reply,low,high,expected",
    [
        ("8/10", 1, 10, 8),  # not 10
        ("Score: 7.5", 1, 10, 7.5),  # not 5
        ("**9**", 1, 10, 9),
        ("I give 7.", 1, 10, None),  # a mention; the reply was asked for `Score: 7`
        ("On a scale of 1 to 10, I would say 8", 1, 10, None),  # not 1
        ("[2, 2, 2]", 0, 2, None),  # a list is not one score
        ("[1, 0, 0]", 0, 1, None),
        ("7", 0, 1, None),  # not clamped to the top of the scale
        ("Score: 9", 0, 1, None),
        ("", 1, 10, None),
    ],
)
def test_score_is_read_on_its_own_scale_or_not_at_all(
    reply: str, low: float, high: float, expected: float | None
) -> None:
    assert read_score(reply, low, high) == expected


def test_an_out_of_range_last_score_is_not_replaced_by_an_earlier_one() -> None:
    assert read_score("Score: 4\nScore: 40", 1, 10) is None
    assert read_score("Score: 4\nScore: 4/5", 1, 10) is None
    assert read_score("Score: 40\nScore: 4", 1, 10) == 4


def test_percentages_need_a_scale_from_0_to_100() -> None:
    assert read_score("Score: 85%", 0, 100) == 85
    assert read_score("85 %", 0, 100) == 85
    assert read_score("Score: 5%", 0, 10) is None


def test_ends_of_the_scale_are_in_range() -> None:
    assert [read_score(f"Score: {value}", 0, 2) for value in ("0", "2", "-0.1", "2.01")] == [0, 2, None, None]


@pytest.mark.parametrize("name", ["judge_pair", "judge_pair_direct", "rate"])
def test_a_prompt_echoed_back_is_no_answer(name: str) -> None:
    template = load_template(name)
    echo = "\n\n".join(text for _, text in template.fill(**dict.fromkeys(template.slots, "some text")))
    assert read_pick(echo) is Pick.UNREADABLE
    assert read_score(echo, 1, 10) is None


# Properties.

STEADY = settings(deadline=None)  # a busy machine is no failure

WORDS = st.sampled_from(
    [
        "A",
        "B",
        "a",
        "Response A",
        "Answer B",
        "(A)",
        "B.",
        "A:",
        ": B",
        "better",
        "Although",
        "tie",
        "both",
        "8",
        "10",
        "7/10",
        "1.",
        "\n",
        "\n\n",
        "**",
        "`",
        '"',
        "[",
        "]",
        "is",
        "or",
        "/",
        "!",
        "- ",
        "：",
        "…",
        "%",
    ]
)
PROSE = st.lists(WORDS, max_size=25).map(" ".join)
LETTER = st.sampled_from([("A", Pick.FIRST), ("B", Pick.SECOND)])
WRAPPERS = st.sampled_from(
    [
        "{}",
        "**{}**",
        "*{}*",
        "`{}`",
        '"{}"',
        "'{}'",
        "“{}”",
        "({})",
        "[{}]",
        "[[{}]]",
        "<{}>",
        "__{}__",
        "**[[{}]]**",
        "{}.",
        "**{}**!",
        "({}).",
        "**{}.**",
        "\\boxed{{{}}}",
        "$\\boxed{{{}}}$",
        "\\boxed{{\\text{{{}}}}}",
    ]
)
THINKING = st.sampled_from(
    ["<think>{}</think>", "<thinking>\n{}\n</thinking>\n", "<Reasoning>{}</Reasoning>", "{}</think>"]
)


@STEADY
@given(PROSE)
def test_prose_without_a_keyword_never_yields_a_verdict_or_a_score(prose: str) -> None:
    reply = f"Well, {prose}"  # a letter or a number as the whole reply would count
    assert read_pick(reply) is Pick.UNREADABLE
    assert read_score(reply, 1, 10) is None


@STEADY
@given(st.text(alphabet="ABab 0123456789:：.\n-*[](){}\\/%'\"", max_size=40), st.sampled_from(["Result", "Score"]))
def test_a_keyword_with_anything_but_one_value_yields_nothing(tail: str, keyword: str) -> None:
    reply = f"{keyword}: I think {tail.replace(chr(10), ' ')}"
    assert read_pick(reply) is Pick.UNREADABLE
    assert read_score(reply, 1, 10) is None


@STEADY
@given(LETTER, WRAPPERS, st.sampled_from(["Result", "VERDICT", "Final answer", "winner", "**Result**", "My verdict"]))
def test_wrapping_the_letter_keeps_the_verdict(letter: tuple[str, Pick], wrapper: str, keyword: str) -> None:
    side, pick = letter
    assert read_pick(f"Both are fine.\n\n{keyword}: {wrapper.format(side)}") is pick
    assert read_pick(f"{keyword}: {wrapper.format('Response ' + side)}\n") is pick


@STEADY
@given(LETTER, WRAPPERS)
def test_wrapping_the_whole_verdict_keeps_it(letter: tuple[str, Pick], wrapper: str) -> None:
    side, pick = letter
    assert read_pick(wrapper.format(f"Result: {side}")) is pick
    assert read_pick(wrapper.format(side)) is pick


@STEADY
@given(LETTER, THINKING, PROSE)
def test_thinking_before_the_verdict_changes_nothing(letter: tuple[str, Pick], block: str, prose: str) -> None:
    side, pick = letter
    other = "B" if side == "A" else "A"
    assert read_pick(block.format(f"{prose}\nResult: {other}\n") + f"Result: {side}") is pick


@STEADY
@given(st.lists(st.tuples(PROSE, LETTER), min_size=1, max_size=4))
def test_the_last_explicit_verdict_wins(parts: list[tuple[str, tuple[str, Pick]]]) -> None:
    reply = "".join(f"{prose}\nResult: {side}\n" for prose, (side, _) in parts)
    assert read_pick(reply) is parts[-1][1][1]


@STEADY
@given(st.floats(1, 10), WRAPPERS, PROSE)
def test_wrapping_a_score_keeps_it(value: float, wrapper: str, prose: str) -> None:
    number = f"{value:.2f}"
    assert read_score(f"{prose}\nScore: 2\nScore: {wrapper.format(number)}", 1, 10) == float(number)


@STEADY
@given(st.text(max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    assert isinstance(read_pick(text), Pick)
    assert isinstance(read_aspects(text), tuple)
    score = read_score(text, 1, 10)
    assert score is None or 1 <= score <= 10


@pytest.mark.parametrize("unit", ["*", "(", " ", ". ", "Result: ", "\\boxed{", "<think>", "[[", "\n", "- ", "final "])
@pytest.mark.timeout(60)  # a pattern that backtracks would take hours
def test_a_reply_that_repeats_itself_for_ever_can_be_read(unit: str) -> None:
    endless = unit * (50_000 // len(unit))
    assert read_pick(f"Result: {endless}x") is Pick.UNREADABLE
    assert read_score(f"Score: {endless}x", 1, 10) is None
    assert isinstance(read_aspects(f"- {endless}"), tuple)


# Thinking.


@pytest.mark.parametrize(
    "text,expected",
    [
        ("<think>a</think>b", "b"),
        ("a<THINK>b</THINK>c", "a\nc"),
        ("<thinking>a</thinking><reasoning>b</reasoning>c", "c"),
        ("<think>a", ""),
        ("a\n<reasoning>b", "a"),
        ("a</think>b", "b"),  # the prompt opened the block
        ("<think>a <think> b</think>c", "c"),  # a tag that is only spoken of
        ("<think>a<think>b</think>c</think>d", "d"),
        ("<think>a </thinking> b</think>c", "c"),
        ("[THINK]a[/THINK]b", "b"),
        ("<thinker>a", "<thinker>a"),
        ("1 < 2 think > 1", "1 < 2 think > 1"),
    ],
)
def test_thinking_is_taken_out(text: str, expected: str) -> None:
    assert strip_thinking(text) == expected


# Plans.


@pytest.mark.parametrize(
    "text,expected",
    [
        ("- low cost: they count pennies", (("low cost", "they count pennies"),)),
        ("* **Low cost**: pennies\n* **Time:** evenings", (("Low cost", "pennies"), ("Time", "evenings"))),
        ("1. Cost: a\n2) Time: b\n(3) Calm", (("Cost", "a"), ("Time", "b"), ("Calm", ""))),
        ("- Cost – they count pennies", (("Cost", "they count pennies"),)),
        ("- step-by-step advice: at 10:30, say", (("step-by-step advice", "at 10:30, say"),)),
        ("1. Cost\n   - because: x\n2. Time", (("Cost", ""), ("Time", ""))),
        ("Here is the plan:\n- Cost: a\nI hope it helps.", (("Cost", "a"),)),
        ("- Cost: a\n- cost: again", (("Cost", "a"),)),
        ("<think>- Cost: a</think>- Time: b", (("Time", "b"),)),
        ("- aspect: why, judging by the posts", ()),  # our own form, copied
        ("- none", ()),
        ("This person likes calm.", ()),
        ("", ()),
        ("- **", ()),
    ],
)
def test_aspects_of_a_plan(text: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert read_aspects(text) == expected


# JSON.

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SCORED = st.fixed_dictionaries({"score": st.integers(0, 2)}, optional={"quote": st.text(max_size=40)})
AROUND = st.text(alphabet="ab, .:'“”\n*`#/()<>-", max_size=30)
QUOTED = st.sampled_from(
    ['{"score": 0}', "</think>{“score”: 0}", "```json\n{'score': 0}```", '\n{"score": 1}\n', '"}', "[[A]]", "<think>"]
)


@STEADY
@given(SCORED, AROUND, AROUND)
def test_object_in_prose_is_read_as_it_was_written(value: dict[str, Any], before: str, after: str) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=2, ensure_ascii=False)):
        assert read_json(f"{before}{text}{after}", JSON_SHAPE) == value
        assert read_json(f"{before}\n```json\n{text}\n```\n{after}", JSON_SHAPE) == value


@STEADY
@given(st.integers(0, 2), st.lists(QUOTED | st.text(max_size=8), max_size=4))
def test_what_a_reply_quotes_never_becomes_its_verdict(score: int, parts: list[str]) -> None:
    """A response may try to speak for the judge: properly quoted, it stays a quotation."""
    value = {"quote": " ".join(parts), "score": score}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert read_json(text, JSON_SHAPE) == value


@STEADY
@given(st.lists(QUOTED, min_size=1, max_size=3), st.sampled_from(["", " ", "\n", "x"]))
def test_quotation_that_was_not_escaped_never_becomes_the_verdict(parts: list[str], between: str) -> None:
    """The quotations say 0 or 1; the reply says 2, or cannot be read."""
    value = read_json(f'{{"score": 2, "quote": "they wrote {between.join(parts)} here"}}', JSON_SHAPE)
    assert value is None or value["score"] == 2


@STEADY
@given(SCORED, st.integers(1, 60))
def test_cut_off_object_is_not_read(value: dict[str, Any], cut: int) -> None:
    text = json.dumps(value)
    assert read_json(text[: max(0, len(text) - cut)], JSON_SHAPE) is None


@STEADY
@given(VALUES)
def test_correct_json_is_read_as_the_library_reads_it(value: Any) -> None:
    (found,) = scan(json.dumps([value])).values
    assert found.value == [value]


@STEADY
@given(st.text(max_size=300) | st.text(alphabet='{}[]":,“”0 a\\n/#\n', max_size=60))
def test_any_text_can_be_searched_for_json(text: str) -> None:
    value = read_json(text, JSON_SHAPE)
    assert value is None or value["score"] in (0, 1, 2)


ENDLESS = [
    "{",
    "[",
    '{"',
    '{"a":',
    '{"a":[',
    '[{"a":1},',
    "[1,",
    "[//",
    "[#\n",
    '["',
    "{“",
    "[“a”,",
    '{"a":"\\"',
    "<think>{",
]


@pytest.mark.parametrize("unit", ENDLESS)
@pytest.mark.timeout(60)
def test_json_that_repeats_itself_for_ever_can_be_read(unit: str) -> None:
    assert read_json(unit * (50_000 // len(unit)), JSON_SHAPE) is None


@pytest.mark.parametrize(
    "value,shape,fits",
    [
        (2, {"type": "integer"}, True),
        (2.0, {"type": "integer"}, True),
        (2.5, {"type": "integer"}, False),
        (True, {"type": "integer"}, False),
        (True, {"type": "boolean"}, True),
        (None, {"type": ["string", "null"]}, True),
        (1, {"enum": [True]}, False),
        ("A", {"enum": ["A", "B"]}, True),
        (3, {"const": 3}, True),
        (0, {"minimum": 1}, False),
        (11, {"maximum": 10}, False),
        ([1, "a"], {"type": "array", "items": {"type": "integer"}}, False),
        ([], {"minItems": 1}, False),
        ([1, 2], {"maxItems": 1}, False),
        ("", {"minLength": 1}, False),
        ("ab", {"maxLength": 1}, False),
        ({"a": {"b": 1}}, {"properties": {"a": {"required": ["c"]}}}, False),
        ({"a": {"c": 1}, "z": 0}, {"properties": {"a": {"required": ["c"]}}, "additionalProperties": False}, True),
    ],
)
def test_shapes(value: Any, shape: dict[str, Any], fits: bool) -> None:
    assert fits_shape(value, shape) is fits


def test_shape_with_a_word_that_would_go_unchecked_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="a shape cannot use anyOf, pattern"):
        read_json('{"a": 1}', {"anyOf": [], "pattern": "x"})


def test_half_a_surrogate_pair_becomes_writable() -> None:
    read = read_json('{"score": 1, "quote": "a\\ud83d"}', JSON_SHAPE)
    assert read == {"score": 1, "quote": "a?"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-", "+1", "01", "1.", ".5", "0x1", "1_000", "9" * 50])
def test_numbers_that_json_does_not_know_are_not_read(number: str) -> None:
    assert read_json(f'{{"n": {number}}}', {"required": ["n"]}) is None
