"""Texts taken apart into sentences."""

from prbench.sentences import sentences_of


def test_a_sentence_ends_with_its_mark() -> None:
    assert sentences_of("One. Two!  Three? four") == ("One.", "Two!", "Three?", "four")
    assert sentences_of("no full stop") == ("no full stop",)
    assert sentences_of(" \n") == ()
