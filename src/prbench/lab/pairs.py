"""The pairs of the lab: both responses are equally good advice, and only the user decides between them.

In the general set it is a good response against a bad one, whoever asks, as in today's benchmarks.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from prbench.errors import UsageError
from prbench.lab.population import POPULARITY, LabAspect, LabUser, Subject, rng
from prbench.schema import Aspect, Example, Json

POINTS = 3  # sentences per response
LENGTH_RATIO = 1.1  # the longer response has at most this many times the characters of the shorter
TRIES = 200


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences that one split may use."""

    questions: Mapping[str, Sequence[str]]  # by subject
    points: Mapping[tuple[str, str], Sequence[str]]  # by subject and trait
    evidence: Mapping[tuple[str, str], Sequence[str]]  # likewise
    rambling: Sequence[str]


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """Two responses to one question, and the aspects in which they differ."""

    subject: Subject
    question: str
    ours: str
    theirs: str
    our_aspects: tuple[LabAspect, ...]
    their_aspects: tuple[LabAspect, ...]


def balanced_pairs(
    users: Sequence[LabUser], subjects: Sequence[Subject], sentences: Sentences, split: str, size: int, seed: int
) -> Iterator[Example]:
    """Yield pairs that come twice: once for a user, once mirrored for one who wants the opposite.

    A rule that looks at the responses alone is therefore right exactly half of the time.
    """
    dice = rng("balanced", seed, split)
    made = 0
    for turn in turns(size, users):
        if made >= size:
            return
        subject = subjects[dice.randrange(len(subjects))]
        one = users[turn % len(users)]
        answers = _draw_answers(dice, one, subject, sentences, differ=1 + in_turn(turn, len(users), POINTS))
        if answers is None:
            continue
        # Somebody who wants what is unwanted here, and the reverse.
        want = {aspect.trait for aspect in answers.their_aspects}
        avoid = {aspect.trait for aspect in answers.our_aspects}
        start = dice.randrange(len(users))
        others = (users[(start + step) % len(users)] for step in range(len(users)))
        other = next((each for each in others if want <= each.wanted and not avoid & each.wanted), None)
        if other is None:
            continue
        name = f"{split}-{made // 2:05d}"
        sides = [(one, False), (other, True)]
        dice.shuffle(sides)  # so that neither an id nor the order of rows says who is with the majority
        for letter, (user, mirrored) in zip("ab", sides, strict=True):
            yield _example(f"{name}{letter}", split, user, answers, sentences, mirrored=mirrored, pair=name)
        made += 2


def population_pairs(
    users: Sequence[LabUser], subjects: Sequence[Subject], sentences: Sentences, split: str, size: int, seed: int
) -> Iterator[Example]:
    """Yield pairs as the population would give them: no mirror, so the average user can be learned."""
    dice = rng("population", seed, split)
    made = 0
    for turn in turns(size, users):
        if made >= size:
            return
        one = users[turn % len(users)]
        subject = subjects[dice.randrange(len(subjects))]
        answers = _draw_answers(dice, one, subject, sentences, differ=1 + in_turn(turn, len(users), POINTS))
        if answers:
            name = f"{split}-{made:05d}"
            yield _example(name, split, one, answers, sentences, mirrored=False, pair=name)
            made += 1


def turns(size: int, users: Sequence[LabUser]) -> Iterator[int]:
    """Count the attempts to draw a pair; more than a hundred per pair mean that these users allow none."""
    yield from range(100 * size + 1000)
    raise UsageError(f"{len(users)} users are too few or too alike to draw {size} pairs. Take more users.")


def in_turn(turn: int, users: int, kinds: int) -> int:
    """Return a kind, each equally often, and for every user a different one in each round."""
    return (turn + turn // users) % kinds


def _draw_answers(
    dice: random.Random, user: LabUser, subject: Subject, sentences: Sentences, *, differ: int
) -> DrawnPair | None:
    """Draw two responses of equal length that differ in `differ` sentences, wanted here and unwanted there."""
    wanted = [aspect for aspect in subject.aspects if aspect.trait in user.wanted]
    unwanted = [aspect for aspect in subject.aspects if aspect.trait not in user.wanted]
    supply = {aspect.trait: len(sentences.points[subject.subject, aspect.trait]) for aspect in subject.aspects}
    if min(sum(supply[aspect.trait] for aspect in some) for some in (wanted, unwanted)) < differ:
        return None
    question = dice.choice(sentences.questions[subject.subject])
    for _ in range(TRIES):
        ours, theirs = _take(dice, wanted, differ), _take(dice, unwanted, differ)
        shared = _take(dice, subject.aspects, POINTS - differ)
        aspects = (*ours, *theirs, *shared)
        texts = [dice.choice(sentences.points[subject.subject, aspect.trait]) for aspect in aspects]
        our_texts, their_texts, common = texts[:differ], texts[differ : 2 * differ], texts[2 * differ :]
        order = dice.sample(range(POINTS), POINTS)
        our_answer, their_answer = (
            " ".join((own + common)[place] for place in order) for own in (our_texts, their_texts)
        )
        # Where the population has no side, majority and minority would not be defined.
        has_majority = popularity(ours) != popularity(theirs)
        if len(set(texts)) == len(texts) and equally_long(our_answer, their_answer) and has_majority:
            return DrawnPair(subject, question, our_answer, their_answer, ours, theirs)
    return None


def _take(dice: random.Random, aspects: Sequence[LabAspect], number: int) -> tuple[LabAspect, ...]:
    """Draw aspects, different ones as far as there are enough."""
    rounds = -(-number // len(aspects)) if number else 0
    pool = [aspect for _ in range(rounds) for aspect in dice.sample(aspects, len(aspects))]
    return tuple(pool[:number])


def equally_long(one: str, other: str) -> bool:
    """True if neither response is more than a tenth longer than the other."""
    return max(len(one), len(other)) <= LENGTH_RATIO * min(len(one), len(other))


def popularity(aspects: Sequence[LabAspect]) -> float:
    """Return how much the average user wants these aspects."""
    # Added one by one: from Python 3.12 on, `sum` rounds otherwise, and a lab must have the same bytes everywhere.
    return reduce(add, (POPULARITY[aspect.trait] for aspect in aspects)) / len(aspects)


def _example(
    name: str, split: str, user: LabUser, answers: DrawnPair, sentences: Sentences, *, mirrored: bool, pair: str
) -> Example:
    good, bad = answers.our_aspects, answers.their_aspects
    chosen, rejected = answers.ours, answers.theirs
    if mirrored:
        good, bad, chosen, rejected = bad, good, rejected, chosen
    wanted = [aspect for aspect in answers.subject.aspects if aspect.trait in user.wanted]
    dice = rng("narrative", name)
    subject = answers.subject.subject
    evidence = {aspect.trait: dice.choice(sentences.evidence[subject, aspect.trait]) for aspect in wanted}
    return Example(
        id=name,
        user=user.user,
        question=answers.question,
        chosen=chosen,
        rejected=rejected,
        rubric=tuple(
            Aspect(aspect=aspect.name, evidence=evidence[aspect.trait], reason=aspect.reason) for aspect in wanted
        ),
        narrative=" ".join(evidence.values()),
        category=answers.subject.category,
        split=split,
        meta={
            **example_meta(answers.subject, user, pair=pair),
            "aspects_differ": len(good),
            "majority": popularity(good) > popularity(bad),
            "gold": {"chosen": [aspect.trait for aspect in good], "rejected": [aspect.trait for aspect in bad]},
        },
    )


def example_meta(subject: Subject, user: LabUser, *, pair: str) -> dict[str, Json]:
    """Return the truth about subject and user that instruments may read."""
    return {
        "subject": subject.subject,
        "pair": pair,
        "level": user.level,
        "informative_posts": user.informative,
        "wanted": sorted(user.wanted),
    }


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
            points = [point.rstrip(".").split() for point in _points(dice, subject, sentences, POINTS)]
            parts = [" ".join(dice.sample(words, len(words))) + "." for words in points]
        case "cut_off":
            points = [point.split() for point in _points(dice, subject, sentences, POINTS + 2)]
            parts = [" ".join(words[: dice.randint(len(words) // 2, 2 * len(words) // 3)]) for words in points]
        case _:
            raise AssertionError(f"no such flaw: {flaw}")
    return " ".join(parts)


def _points(dice: random.Random, subject: Subject, sentences: Sentences, number: int) -> list[str]:
    """Draw points of different aspects of a subject."""
    aspects = dice.sample(subject.aspects, number)
    return [dice.choice(sentences.points[subject.subject, aspect.trait]) for aspect in aspects]
