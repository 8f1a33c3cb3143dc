"""Texts taken apart into sentences."""

from prbench.data.texts import sentences_of


def test_a_sentence_ends_with_its_mark() -> None:
    assert sentences_of("One. Two!  Three? four") == ("One.", "Two!", "Three?", "four")
    assert sentences_of("no full stop") == ("no full stop",)
    assert sentences_of(" \n") == ()


def test_lists_are_taken_apart_and_their_marks_are_no_sentences() -> None:
    assert sentences_of("1. Sow seeds. 2. Wait!") == ("Sow seeds.", "Wait!")
    assert sentences_of("- sow seeds\n- wait\n\n3) reap") == ("sow seeds", "wait", "reap")
    assert sentences_of("Take 2.5 litres. 10 % more.") == ("Take 2.5 litres.", "10 % more.")
