"""The people of the lab: what they want is drawn from a skewed population, and their posts betray it."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from prbench.lab.library import CATEGORIES, LEVELS, TRAITS, Level, Library, Trait
from prbench.schema import Post, User

# Share of the population that wants each trait. The spread makes an average user and a minority; it is mild, so that
# what a single user wants still has to be found in their posts.
POPULARITY: Mapping[Trait, float] = MappingProxyType(
    {
        "thrift": 0.60,
        "time": 0.57,
        "safety": 0.54,
        "evidence": 0.51,
        "company": 0.49,
        "craft": 0.46,
        "nature": 0.43,
        "beauty": 0.40,
    }
)
FEWEST, MOST = 3, 5  # wanted traits per user, so that every subject has wanted and unwanted aspects
INFORMATIVE = (1, 3, 8, 16)  # informative posts of a user, and how many users have that many
INFORMATIVE_SHARE = (1, 2, 4, 5)
LEVEL_SHARE = (4, 4, 3)  # plain, implied, oblique
NEUTRAL_POSTS = (2, 6)  # fewest and most


@dataclass(frozen=True, slots=True)
class LabUser:
    """A simulated person, with the truth about them."""

    user: User
    wanted: frozenset[Trait]
    level: Level
    informative: int


@dataclass(frozen=True, slots=True)
class Voices:
    """The posts that one split may use: informative ones by trait and level, and neutral ones."""

    signals: Mapping[tuple[Trait, Level], tuple[tuple[str, str], ...]]  # (category, text)
    neutral: tuple[str, ...]


def rng(*parts: object) -> random.Random:
    """Return a generator of its own for each named purpose, the same on every machine and Python version."""
    return random.Random(int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest()[:8], "big"))


def voices(library: Library, takes: Mapping[str, Sequence[str]], neutral: Sequence[str]) -> Voices:
    """Collect the posts of a split; `takes` maps a subject and aspect to the texts that belong to it."""
    found: dict[tuple[Trait, Level], list[tuple[str, str]]] = {(t, level): [] for t in TRAITS for level in LEVELS}
    for subject in library.subjects:
        for aspect in subject.aspects:
            for level in LEVELS:
                for text in takes[f"{subject.subject}/{aspect.trait}/{level}"]:
                    found[aspect.trait, level].append((subject.category, text))
    return Voices(signals={key: tuple(texts) for key, texts in found.items()}, neutral=tuple(neutral))


class Users(Sequence[LabUser]):
    """The people of one split. Each is drawn when first asked for, and none depends on the others."""

    def __init__(self, count: int, split: str, seed: int, words: Voices) -> None:
        self._numbers, self._split, self._seed, self._words = range(count), split, seed, words
        self._drawn: dict[int, LabUser] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:  # one person; nobody asks for slices
        found = self._drawn.get(index)
        if found is None:
            name = f"{self._split}-{self._numbers[index]:05d}"
            found = self._drawn[index] = draw_user(name, self._seed, self._words)
        return found


def draw_user(name: str, seed: int, words: Voices) -> LabUser:
    """Return one person: wanted traits, a way of talking, and a profile in which both show."""
    dice = rng("user", seed, name)
    wanted = _draw_wanted(dice)
    level = dice.choices(LEVELS, LEVEL_SHARE)[0]
    informative = dice.choices(INFORMATIVE, INFORMATIVE_SHARE)[0]
    posts = _informative_posts(dice, sorted(wanted), level, informative, words)
    neutral = dice.sample(words.neutral, dice.randint(*NEUTRAL_POSTS))
    posts += [(dice.choice(CATEGORIES), text) for text in neutral]  # any, so that the category marks nothing
    dice.shuffle(posts)
    profile = tuple(
        # A plain `extra`, as in rows that were read: the default cannot be sent to the workers of an engine.
        Post(id=f"{name}-post-{number:02d}", category=category, text=text, extra={})
        for number, (category, text) in enumerate(posts)
    )
    return LabUser(user=User(id=name, profile=profile), wanted=wanted, level=level, informative=informative)


def _draw_wanted(dice: random.Random) -> frozenset[Trait]:
    while True:
        wanted = frozenset(trait for trait in TRAITS if dice.random() < POPULARITY[trait])
        if FEWEST <= len(wanted) <= MOST:
            return wanted


def _informative_posts(
    dice: random.Random, wanted: Sequence[Trait], level: Level, count: int, words: Voices
) -> list[tuple[str, str]]:
    """Return posts that betray the wanted traits in turn, none of them twice."""
    order = dice.sample(wanted, len(wanted))
    times = Counter(order[turn % len(order)] for turn in range(count))
    return [post for trait in order for post in dice.sample(words.signals[trait, level], times[trait])]
