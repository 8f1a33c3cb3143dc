"""What counts as a quote."""

import pytest

from prbench.data.texts import is_quote

TEXT = "I can't spend much. So I always count my coins, twice — before I buy anything new!"


@pytest.mark.parametrize(
    "quote",
    [
        "I always count my coins",
        "ALWAYS  count\nmy coins",
        "“I can’t spend much.”",
        "count my coins twice before I buy",
        "I can't spend much ... before I buy anything",
        "I can't spend much […] before I buy anything",
        TEXT,
    ],
)
def test_words_in_order_are_a_quote(quote: str) -> None:
    assert is_quote(quote, ["Something else.", TEXT])


@pytest.mark.parametrize(
    "quote",
    [
        "",
        "...",
        "coins",
        "my coins",  # two words prove nothing
        "I never count my coins",
        "always count my coin",  # part of a word
        "before I buy anything ... I can't spend much",  # in the wrong order
        "I can't spend much ... coins",  # a part that is too short
        "spend much. count my coins",
    ],
)
def test_anything_else_is_none(quote: str) -> None:
    assert not is_quote(quote, ["Something else.", TEXT])


def test_a_short_text_may_be_quoted_whole() -> None:
    assert is_quote("No, thanks", ["No thanks."])
    assert not is_quote("No", ["No thanks."])


def test_a_quote_does_not_run_over_two_texts() -> None:
    assert not is_quote("one two three four", ["one two", "three four"])
