"""The general set of the lab: a good response against a bad one, whoever asks, as in today's benchmarks."""

import random
from collections.abc import Iterator, Sequence

from prbench.lab.library import Subject
from prbench.lab.pairs import POINTS, TRIES, Sentences, equally_long, example_meta, in_turn, turns
from prbench.lab.population import LabUser, rng
from prbench.schema import Example

FLAWS = ("off_topic", "rambling", "repeated", "shuffled", "cut_off")


def general_pairs(
    users: Sequence[LabUser], subjects: Sequence[Subject], sentences: Sentences, split: str, size: int, seed: int
) -> Iterator[Example]:
    """Yield pairs of equal length in which `rejected` has one of five flaws, and nothing depends on the user."""
    dice = rng("general", seed, split)
    made = 0
    for turn in turns(size, users):
        if made >= size:
            return
        subject, flaw = subjects[dice.randrange(len(subjects))], FLAWS[in_turn(turn, len(users), len(FLAWS))]
        responses = _draw_responses(dice, subject, subjects, sentences, flaw)
        if responses is None:
            continue
        good, bad = responses
        user, name = users[turn % len(users)], f"{split}-{made:05d}"
        yield Example(
            id=name,
            user=user.user,
            question=dice.choice(sentences.questions[subject.subject]),
            chosen=good,
            rejected=bad,
            category=subject.category,
            split=split,
            meta={**example_meta(subject, user, pair=name), "flaw": flaw},
        )
        made += 1


def _draw_responses(
    dice: random.Random, subject: Subject, subjects: Sequence[Subject], sentences: Sentences, flaw: str
) -> tuple[str, str] | None:
    """Draw a good response and one with the flaw, equally long; a coin says which may be the longer."""
    good_is_longer = dice.random() < 0.5
    for _ in range(TRIES):
        good = " ".join(_points(dice, subject, sentences, POINTS))
        bad = _flawed(dice, subject, subjects, sentences, flaw)
        if equally_long(good, bad) and len(good) != len(bad) and (len(good) > len(bad)) == good_is_longer:
            return good, bad
    return None


def _flawed(
    dice: random.Random, subject: Subject, subjects: Sequence[Subject], sentences: Sentences, flaw: str
) -> str:
    match flaw:
        case "off_topic":
            other = dice.choice([one for one in subjects if one is not subject])
            parts = _points(dice, other, sentences, POINTS)
        case "rambling":
            parts = dice.sample(sentences.rambling, POINTS)
        case "repeated":
            parts = _points(dice, subject, sentences, 1) * POINTS
        case "shuffled":
            parts = [_shuffled(dice, point) for point in _points(dice, subject, sentences, POINTS)]
        case "cut_off":
            parts = [_cut_off(dice, point) for point in _points(dice, subject, sentences, POINTS + 2)]
        case _:
            raise AssertionError(f"no such flaw: {flaw}")
    return " ".join(parts)


def _points(dice: random.Random, subject: Subject, sentences: Sentences, number: int) -> list[str]:
    """Draw points of different aspects of a subject."""
    aspects = dice.sample(subject.aspects, number)
    return [dice.choice(sentences.points[subject.subject, aspect.trait]) for aspect in aspects]


def _shuffled(dice: random.Random, point: str) -> str:
    """Return the words of a point in disorder."""
    words = point.rstrip(".").split()
    return " ".join(dice.sample(words, len(words))) + "."


def _cut_off(dice: random.Random, point: str) -> str:
    """Return a point that stops in the middle."""
    words = point.split()
    return " ".join(words[: dice.randint(len(words) // 2, 2 * len(words) // 3)])
