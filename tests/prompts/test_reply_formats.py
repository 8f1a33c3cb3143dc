"""Reply formats: the tables of the presets, properties that hold for all of them, and formats of one's own."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.preset_forms import PICKS, PRESET_FORMS, SAID, formats_table, presets_table
from tests.support.reply_forms import Form, forms_table

from prbench.errors import UsageError
from prbench.prompts import load_template, parse_template
from prbench.prompts.formats import ReplyFormat, formats_that_read, open_format
from prbench.registry import REPLIES
from prbench.schema import Pick

FORMS = [(name, form) for name, forms in PRESET_FORMS.items() for form in forms]
PAIRWISE = tuple(name for name in PRESET_FORMS if load_template(name).answer == "pick")
STEADY = settings(deadline=None, max_examples=60)  # a busy machine is no failure
VERDICTS = st.sampled_from([(name, *each) for name in SAID for each in zip(SAID[name], PICKS, strict=False)])
WRAPPERS = st.sampled_from(
    (
        *(
            "{}",
            "**{}**",
            "*{}*",
            "`{}`",
            '"{}"',
            "'{}'",
            "“{}”",
            "({})",
            "__{}__",
            "{}.",
            "**{}**.",
            "({}).",
            "**{}.**",
        ),
        *("**{}.**", "## {}", "\n\n{}\n\n", "```\n{}\n```", "  {}  "),
    )
)
WORDS = st.sampled_from(
    (
        *("the", "response", "of", "assistant", "A", "and", "B", "names", "its", "price", "which", "output", "says"),
        *("more", "than", "is", "better", "Output (a)", "Response 1", "Assistant 2", "[[A]] or", "tie", "1.", "A:"),
        *("both", "8/10", "(b)", "verdict"),
    )
)
PROSE = st.lists(WORDS, min_size=1, max_size=15).map(" ".join)


@cache
def reader(name: str) -> ReplyFormat:
    return open_format(load_template(name).reply)


def pick(name: str, reply: str) -> Pick:
    return reader(name).require_pick(name)(reply)


@pytest.mark.parametrize("name,form", FORMS, ids=[f"{name}: {form.reply or 'empty'}" for name, form in FORMS])
def test_table_of_a_preset(name: str, form: Form) -> None:
    template = load_template(name)
    if template.scale is None:
        assert pick(name, form.reply) == form.reading
    else:
        expected = float(form.reading) if form.reading else None
        assert reader(name).require_score(name)(form.reply, *template.scale) == expected


def test_every_table_has_accepted_and_refused_forms() -> None:
    for name, forms in PRESET_FORMS.items():
        accepted = [form for form in forms if form.reading not in ("", Pick.UNREADABLE)]
        assert len(accepted) >= 15, name
        assert len(forms) - len(accepted) >= 15, name


def test_the_documentation_shows_the_formats_the_presets_and_their_tables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "reply-formats.md").read_text(encoding="utf-8")
    assert formats_table() in page
    assert presets_table() in page
    for name, forms in PRESET_FORMS.items():
        assert f"### `{name}`\n" in page
        assert forms_table(forms) in page, name


def test_every_format_has_a_preset_or_is_our_own() -> None:
    formats = {load_template(name).reply.partition("?")[0] for name in PRESET_FORMS}
    assert formats == set(REPLIES.names) - {"result", "pattern"}


@pytest.mark.parametrize("name", PRESET_FORMS)
def test_a_prompt_echoed_back_is_no_answer(name: str) -> None:
    template = load_template(name)
    echo = "\n\n".join(text for _, text in template.fill(**dict.fromkeys(template.slots, "some text")))
    assert formats_that_read([echo]) == []
    assert formats_that_read([echo], scores=True) == []


@pytest.mark.parametrize("name", PRESET_FORMS)
def test_a_preset_shows_the_person_and_both_texts_in_their_order(name: str) -> None:
    template = load_template(name)
    slots = {slot: f"<<{slot}>>" for slot in template.slots}
    filled = "\n".join(text for _, text in template.fill(**slots))
    order = [filled.index(f"<<{slot}>>") for slot in ("context", "question", "first", "second") if slot in slots]
    assert order == sorted(order)
    without = "\n".join(text for _, text in template.fill(**{**slots, "context": ""}))
    assert "known about" not in without
    assert template.max_tokens is not None


def test_ties_are_read_where_the_format_has_them_and_nowhere_else() -> None:
    for name in PAIRWISE:
        has_ties = any(form.reading == Pick.TIE for form in PRESET_FORMS[name])
        assert reader(name).has_ties is has_ties is (len(SAID[name]) == 3), name


@STEADY
@given(VERDICTS, WRAPPERS, PROSE)
def test_wrapping_and_prose_before_it_keep_a_verdict(said: tuple[str, str, Pick], wrapper: str, prose: str) -> None:
    name, verdict, expected = said
    assert pick(name, wrapper.format(verdict)) is expected
    assert pick(name, f"Well, {prose} say.\n\n{wrapper.format(verdict)}") is expected
    assert pick(name, f"Well, {prose} say. {verdict}.") is expected


@STEADY
@given(st.sampled_from(PAIRWISE), PROSE)
def test_prose_is_no_verdict(name: str, prose: str) -> None:
    assert pick(name, f"Well, {prose} indeed") is Pick.UNREADABLE


@STEADY
@given(VERDICTS, PROSE, PROSE)
def test_a_mention_is_no_verdict(said: tuple[str, str, Pick], before: str, after: str) -> None:
    name, verdict, _ = said
    assert pick(name, f"Well, {before} say {verdict} and then {after}, which") is Pick.UNREADABLE


@STEADY
@given(VERDICTS, VERDICTS, PROSE)
def test_a_quotation_does_not_decide(said: tuple[str, str, Pick], other: tuple[str, str, Pick], prose: str) -> None:
    """A response that speaks the judge's language is quoted by the judge; what the judge says itself counts."""
    name, verdict, expected = said
    for quoted in SAID[name]:
        for quotation in (f'It says "{quoted}." at its end.', f"> {quoted}.", f"Response B ends with:\n\n{quoted}."):
            assert pick(name, f"{verdict}.\n\n{quotation}") is expected
            assert pick(name, f"Well, {prose} say.\n\n{quotation}") is Pick.UNREADABLE


@STEADY
@given(VERDICTS, st.sampled_from(["</s>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", ".</s>\n<|im_end|>\n"]))
def test_an_end_mark_of_a_chat_template_changes_nothing(said: tuple[str, str, Pick], mark: str) -> None:
    name, verdict, expected = said
    assert pick(name, verdict + mark) is expected
    result = open_format("result").require_pick("result")
    assert result(f"Result: B{mark}") is result(f"B{mark}") is Pick.SECOND


@STEADY
@given(VERDICTS, st.sampled_from(["<think>{}</think>", "<thinking>\n{}\n</thinking>\n", "{}</think>"]), PROSE)
def test_thinking_before_the_verdict_changes_nothing(said: tuple[str, str, Pick], block: str, prose: str) -> None:
    name, verdict, expected = said
    for other in SAID[name]:
        assert pick(name, block.format(f"{prose}\n\n{other}.\n") + verdict) is expected
    assert pick(name, f"<think>{prose}\n\n{verdict}") is Pick.UNREADABLE


@STEADY
@given(st.sampled_from(PAIRWISE), st.lists(st.tuples(PROSE, st.integers(0, 2)), min_size=1, max_size=4))
def test_the_last_explicit_verdict_wins(name: str, parts: list[tuple[str, int]]) -> None:
    sides = [(prose, side % len(SAID[name])) for prose, side in parts]
    reply = "".join(f"Well, {prose} say.\n\n{SAID[name][side]}.\n\n" for prose, side in sides)
    assert pick(name, reply) is PICKS[sides[-1][1]]


@STEADY
@given(
    st.sampled_from(PAIRWISE), st.text(max_size=200) | st.text(alphabet="[]AB<>=./ answer()RESULT\n\"'*:", max_size=80)
)
def test_any_text_can_be_read(name: str, text: str) -> None:
    assert isinstance(pick(name, text), Pick)


@pytest.mark.parametrize(
    "label,expected",
    [
        *((label, Pick.FIRST) for label in ("A", "1", "first", "(a)")),
        *((label, Pick.SECOND) for label in ("B", "2", "second", "(b)")),
    ],
)
def test_whatever_a_format_calls_the_two_they_are_positions(label: str, expected: Pick) -> None:
    assert pick("boxed", f"\\boxed{{{label}}}") is expected
    assert pick("json", f'{{"winner": "{label}"}}') is expected
    assert pick("therefore", f"Therefore, response {label} is better.") is expected


@pytest.mark.parametrize(
    "reply,expected", [(r"\(\boxed{7}\)", 7), (r"\[\boxed{\mathrm{7}}\]", 7), (r"not \boxed{7}", None)]
)
def test_a_boxed_score_may_stand_in_latex(reply: str, expected: float | None) -> None:
    assert open_format("boxed").require_score("boxed")(reply, 1, 10) == expected


@pytest.mark.parametrize(
    "reply,expected",
    [
        ('{"score": 4}', 4),
        ('Score: {"score": 4}', 4),
        ('{"score": 4}\nI would not say {"score": 2}.', 4),
        ('{"score": 4}\n{"score": "many"}', None),
        ('I would not say {"score": 2}.', None),
        ('> {"score": 4}', None),
    ],
)
def test_a_score_in_json_stands_alone(reply: str, expected: float | None) -> None:
    assert open_format("json?field=score").require_score("json")(reply, 1, 5) == expected


# Naming the formats that would have read a reply.


@pytest.mark.parametrize("name", PAIRWISE)
def test_the_format_of_a_reply_is_found(name: str) -> None:
    kind = load_template(name).reply.partition("?")[0]
    assert kind in formats_that_read(SAID[name])


def test_no_format_is_named_for_prose() -> None:
    assert formats_that_read(["Both are fine, it depends on the person.", ""]) == []
    assert formats_that_read([]) == []
    assert formats_that_read(["Fine. [RESULT] 4"], scores=True) == ["prometheus2"]


# A pattern of one's own.

TEMPLATE = (
    "---\nslots: question, context, first, second\nanswer: {}\nreply: {}\n---\n## user\n{{question}}{{context}}{}"
)


def own(pattern: str) -> ReplyFormat:
    text = TEMPLATE.format("pick", f"pattern:{pattern}", "{first}{second}")
    return open_format(parse_template(text, name="own", place="own.md").reply)


@pytest.mark.parametrize(
    "reply,expected",
    [
        ("Choice: 1", Pick.FIRST),
        ("  Choice: 2  ", Pick.SECOND),
        ("Choice: none", Pick.TIE),
        ("Choice: 1\nChoice: 2", Pick.SECOND),
        ("Choice: 1\nIt is cheap.", Pick.FIRST),
        ("<think>Choice: 1</think>Choice: 2", Pick.SECOND),
        ("My Choice: 1", Pick.UNREADABLE),
        ("Choice: 3", Pick.UNREADABLE),
        ("Choice: 1" + " " * 400, Pick.FIRST),
        ("Choice: 1" + "x" * 400, Pick.UNREADABLE),
        ("", Pick.UNREADABLE),
    ],
)
def test_a_pattern_of_ones_own_matches_a_whole_line(reply: str, expected: Pick) -> None:
    assert own("Choice: (?:(?P<first>1)|(?P<second>2)|(?P<tie>none))").require_pick("own")(reply) is expected


def test_a_pattern_may_compare_two_scores_or_give_one() -> None:
    compared = own("(?P<score_first>[0-9.]+) vs (?P<score_second>[0-9.]+)").require_pick("own")
    assert [compared(reply) for reply in ("7 vs 3", "3 vs 7.5", "4 vs 4.0", "4 vs 4.0.0")] == [*PICKS, Pick.UNREADABLE]
    assert [compared(reply) for reply in (". vs .", " vs 3")] == [Pick.UNREADABLE] * 2
    named = own(r"(?P<score_first>\S+) (?P<score_second>\S+)").require_pick("own")
    for reply in ("nan 3", "3 nan", "nan nan", "inf inf", "inf 3", "-inf 3"):
        assert named(reply) is Pick.UNREADABLE
    score = own("Stars: (?P<score>.*)").require_score("own")
    assert [score(f"Stars: {stars}", 1, 5) for stars in ("4", "4/5", "4/10", "9", "many")] == [4, 4, None, None, None]


EITHER = "(?:(?P<first>1)|(?P<second>2))"


@pytest.mark.parametrize("unit", ["a", "1", " ", "Choice: ", "\n", "=" * 250 + "\n", "=" * 130 + "\n"])
@pytest.mark.parametrize("pattern", [f".*.*.*={EITHER}", f".*.*.*.*={EITHER}", "a?" * 12 + EITHER])
@pytest.mark.timeout(20)
def test_a_careless_pattern_does_not_stop_a_run(pattern: str, unit: str) -> None:
    assert own(pattern).require_pick("own")(unit * (20_000 // len(unit))) is Pick.UNREADABLE


@pytest.mark.parametrize(
    "careless,fact",
    [
        (r"(?:\w+ ?)+: ", "a repetition holds another one"),
        (r"(?:a|ab)*", "a repetition holds another one"),
        (r"(?:a?){30}", "a repetition holds another one"),
        (r"(?:(?=.*x)y)+", "a repetition holds another one"),
        (".*" * 12, "too many repetitions"),
        ("a?" * 40, "too many repetitions"),
    ],
)
@pytest.mark.timeout(20)
def test_a_pattern_that_may_take_years_is_refused(careless: str, fact: str) -> None:
    with pytest.raises(UsageError, match=fact) as caught:
        own(careless + EITHER)
    assert "\n" not in str(caught.value)


def test_a_pattern_may_repeat_characters_and_have_optional_parts() -> None:
    number = r"[0-9]+(?:\.[0-9]+)?"
    compared = own(rf"\**Scores: (?P<score_first>{number}) vs (?P<score_second>{number})").require_pick("own")
    assert compared("**Scores: 7.25 vs 10") is Pick.SECOND
    assert own(rf"\**\s*Choice:\s*\**\s*{EITHER}\**").require_pick("own")("**Choice:** 2") is Pick.SECOND


@pytest.mark.parametrize(
    "reply,fact",
    [
        ("pattern:(?P<first>1", "this is no pattern of Python's re"),
        ("pattern:(?P<first>1)", "its named groups are first. Give it first and second"),
        ("pattern:Choice: [12]", "its named groups are none"),
        ("pattern:(?P<first>1)?(?P<second>2)?", "it matches a line that is empty"),
    ],
)
def test_a_pattern_that_says_nothing_is_refused(reply: str, fact: str) -> None:
    with pytest.raises(UsageError, match="reply: pattern") as caught:
        open_format(reply)
    assert fact in str(caught.value)
    assert "\n" not in str(caught.value)


# The header of a template.


@pytest.mark.parametrize(
    "answer,reply,fact",
    [
        ("pick", "arean", r"own.md: `reply:` Unknown kind 'arean' of reply format.*Did you mean 'arena'"),
        ("pick", "json?feild=winner", "own.md: `reply:` .*unknown option 'feild'"),
        ("pick", "arena:x", "own.md: `reply:` .*there is one reply format 'arena'"),
        ("text", "arena", "own.md: `reply:` is for verdicts and scores"),
        ("pick", "arena\nmax_tokens: many", "own.md: `max_tokens: many` is no whole number"),
        ("pick", "arena\nmax_tokens: 0", "own.md: `max_tokens: 0` is no whole number"),
    ],
)
def test_a_header_that_cannot_be_is_refused_in_one_line(answer: str, reply: str, fact: str) -> None:
    with pytest.raises(UsageError, match=fact) as caught:
        parse_template(TEMPLATE.format(answer, reply, "{first}{second}"), name="own", place="own.md")
    assert "\n" not in str(caught.value)


def test_a_template_without_these_lines_is_ours(tmp_path: Path) -> None:
    template = load_template("judge_pair")
    assert (template.reply, template.max_tokens) == ("result", None)


def test_a_format_without_verdicts_is_no_judge_and_one_without_scores_no_rating() -> None:
    with pytest.raises(UsageError, match="'arena' has verdicts and no scores"):
        open_format("arena").require_score("arena")
    with pytest.raises(UsageError, match="has scores and no verdicts"):
        open_format("pattern:(?P<score>[0-9])").require_pick("mine")
