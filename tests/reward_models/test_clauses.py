"""Which parts of what people write speak for something, and which against it."""

import pytest

from prbench.reward_models.match import Stance, clauses_of


def stances(text: str) -> list[tuple[str, str]]:
    return [(clause.text, str(clause.stance)) for clause in clauses_of(text)]


def test_one_sentence_may_speak_for_and_against() -> None:
    assert stances("I usually prefer trains over planes, as flying scares me.") == [
        ("I usually prefer trains", "for"),
        ("planes", "against"),
        ("flying scares me", "against"),
    ]


def test_what_is_not_chosen_may_have_an_article() -> None:
    assert stances("I like a walk better than a run") == [("I like a walk better", "for"), ("a run", "against")]


def test_words_of_contrast_turn_nothing_where_nobody_chooses() -> None:
    assert stances("We drove over the hills.") == [("We drove over the hills", "neither")]


@pytest.mark.parametrize(
    ("text", "stance"),
    [
        ("I can't stand loud bars", Stance.AGAINST),
        ("I can’t stand loud bars", Stance.AGAINST),
        ("no meat for me", Stance.AGAINST),
        ("I'd rather not fly", Stance.AGAINST),
        ("it was too crowded", Stance.AGAINST),
        ("I wouldn't mind a window seat", Stance.NEITHER),
        ("I can't wait to go hiking", Stance.FOR),
        ("I can’t live without coffee", Stance.FOR),
        ("I never miss a jazz concert", Stance.FOR),
        ("I couldn't be happier with my electric car", Stance.FOR),
        ("More than anything I love jazz", Stance.FOR),
        ("I have more than twenty years of sailing behind me", Stance.NEITHER),
        ("That option took over an hour", Stance.NEITHER),
        ("at least twenty books", Stance.NEITHER),
        ("I love old maps", Stance.FOR),
        ("the shop opens at nine", Stance.NEITHER),
        ("the hatter knows", Stance.NEITHER),
    ],
)
def test_cue_words_give_the_stance(text: str, stance: Stance) -> None:
    assert [clause.stance for clause in clauses_of(text)] == [stance]


def test_a_text_without_letters_has_no_clauses() -> None:
    assert clauses_of("... 12, 13!") == ()
    assert clauses_of("") == ()
