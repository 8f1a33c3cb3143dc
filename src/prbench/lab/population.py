"""The people of the lab: what they want is drawn from a skewed population, and their posts betray it.

Posts, questions and points are texts of the library: one YAML file per subject, checked as it is loaded.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from prbench.data.texts import sentences_of
from prbench.errors import DataError
from prbench.schema import Post, User

TEXTS = Path(__file__).parent / "texts"
NEUTRAL, RAMBLING = "neutral.yaml", "rambling.yaml"
POINT_WORDS = (14, 30)  # fewest and most

Trait = Literal["thrift", "time", "safety", "evidence", "craft", "company", "nature", "beauty"]
Level = Literal["plain", "implied", "oblique"]
Category = Literal["Art_and_Entertainment", "Lifestyle_and_Personal_Development", "Society_and_Culture"]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


def _one_sentence(text: str) -> str:
    fewest, most = POINT_WORDS
    if not fewest <= len(text.split()) <= most or len(sentences_of(text)) != 1:
        raise ValueError(f"must be one sentence of {fewest} to {most} words: {text!r}")
    return text


Sentence = Annotated[Text, AfterValidator(_one_sentence)]
TRAITS: tuple[Trait, ...] = get_args(Trait)
LEVELS: tuple[Level, ...] = get_args(Level)
CATEGORIES: tuple[Category, ...] = get_args(Category)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class LabAspect(_Strict):
    """One thing that an answer on this subject can serve, and how people who want it sound."""

    name: Text
    trait: Trait
    reason: Text
    evidence: Annotated[tuple[Text, ...], Field(min_length=4)]
    signals: dict[Level, tuple[Text, ...]]
    points: Annotated[tuple[Sentence, ...], Field(min_length=8)]


class Subject(_Strict):
    """One subject: questions, and six aspects of six different traits."""

    subject: Text
    category: Category
    title: Text
    questions: Annotated[tuple[Text, ...], Field(min_length=10)]
    aspects: Annotated[tuple[LabAspect, ...], Field(min_length=6, max_length=6)]


class NeutralPosts(_Strict):
    """Posts that betray nothing."""

    posts: Annotated[tuple[Text, ...], Field(min_length=120)]


class RamblingSentences(_Strict):
    """Sentences that talk around any question without saying anything."""

    sentences: Annotated[tuple[Sentence, ...], Field(min_length=60)]


Model = TypeVar("Model", bound=_Strict)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one takes a tenth of the time, where it was built


@dataclass(frozen=True)
class Library:
    """All texts of the lab, in a fixed order."""

    subjects: tuple[Subject, ...]
    neutral: tuple[str, ...]
    rambling: tuple[str, ...]


@cache
def load_library(folder: Path = TEXTS) -> Library:
    """Return the texts of a folder, or name the file and field that are wrong."""
    paths = sorted(path for path in folder.glob("*.yaml") if path.name not in (NEUTRAL, RAMBLING))
    if not paths:
        raise DataError(f"{folder}: no subject files (*.yaml) found.")
    subjects = tuple(_load_subject(path) for path in paths)
    neutral = _load(folder / NEUTRAL, NeutralPosts).posts
    rambling = _load(folder / RAMBLING, RamblingSentences).sentences
    texts: Counter[str] = Counter()
    for aspect in (aspect for subject in subjects for aspect in subject.aspects):
        texts.update((*aspect.evidence, *aspect.points, *(text for level in LEVELS for text in aspect.signals[level])))
    texts.update((*neutral, *rambling))
    repeated = [text for text, times in texts.items() if times > 1]
    if repeated:
        raise DataError(f"{folder}: the same text stands in two places: {repeated[0]!r}. Rewrite one.")
    return Library(subjects=subjects, neutral=neutral, rambling=rambling)


def _load_subject(path: Path) -> Subject:
    subject = _load(path, Subject)
    if subject.subject != path.stem:
        raise DataError(
            f"{path}: subject: is {subject.subject!r}, but the file is named {path.stem!r}. Make them equal."
        )
    traits = [aspect.trait for aspect in subject.aspects]
    if len(set(traits)) < len(traits):
        raise DataError(f"{path}: aspects: two of them carry the same trait. Each of the six needs its own.")
    for aspect in subject.aspects:
        short = [level for level in LEVELS if len(aspect.signals.get(level, ())) < 4]
        if short:
            raise DataError(f"{path}: {aspect.name}: signals.{short[0]}: fewer than 4 posts. Write more.")
    return subject


def _load(path: Path, kind: type[Model]) -> Model:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: must hold a mapping.")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{path}: {place}: {first['msg']}.") from None


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
class PostPool:
    """The posts that one split may use: informative ones by trait and level, and neutral ones."""

    signals: Mapping[tuple[Trait, Level], tuple[tuple[str, str], ...]]  # (category, text)
    neutral: tuple[str, ...]


def rng(*parts: object) -> random.Random:
    """Return a generator of its own for each named purpose, the same on every machine and Python version."""
    return random.Random(int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest()[:8], "big"))


class Users(Sequence[LabUser]):
    """The people of one split. Each is drawn when first asked for, and none depends on the others."""

    def __init__(self, count: int, split: str, seed: int, pool: PostPool) -> None:
        # A range counts from the end and ends an iteration as a list does.
        self._numbers, self._split, self._seed, self._pool = range(count), split, seed, pool
        self._drawn: dict[int, LabUser] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:  # one person; nobody asks for slices
        found = self._drawn.get(index)
        if found is None:
            name = f"{self._split}-{self._numbers[index]:05d}"
            found = self._drawn[index] = draw_user(name, self._seed, self._pool)
        return found


def draw_user(name: str, seed: int, pool: PostPool) -> LabUser:
    """Return one person: wanted traits, a way of talking, and a profile in which both show."""
    dice = rng("user", seed, name)
    wanted: frozenset[Trait] = frozenset()
    while not FEWEST <= len(wanted) <= MOST:
        wanted = frozenset(trait for trait in TRAITS if dice.random() < POPULARITY[trait])
    level = dice.choices(LEVELS, LEVEL_SHARE)[0]
    informative = dice.choices(INFORMATIVE, INFORMATIVE_SHARE)[0]
    # Posts that betray the wanted traits in turn, none of them twice.
    order = dice.sample(sorted(wanted), len(wanted))
    times = Counter(order[turn % len(order)] for turn in range(informative))
    posts = [post for trait in order for post in dice.sample(pool.signals[trait, level], times[trait])]
    neutral = dice.sample(pool.neutral, dice.randint(*NEUTRAL_POSTS))
    posts += [(dice.choice(CATEGORIES), text) for text in neutral]  # any, so that the category marks nothing
    dice.shuffle(posts)
    profile = tuple(
        # A plain `extra`, as in rows that were read: the default cannot be sent to the workers of an engine.
        Post(id=f"{name}-post-{number:02d}", category=category, text=text, extra={})
        for number, (category, text) in enumerate(posts)
    )
    return LabUser(user=User(id=name, profile=profile), wanted=wanted, level=level, informative=informative)
