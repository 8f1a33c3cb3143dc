"""The texts of the lab, checked as they are loaded: one file per subject, easy to extend."""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from prbench.data.sentences import sentences_of
from prbench.errors import DataError

TEXTS = Path(__file__).parent / "texts"
NEUTRAL, RAMBLING = "neutral.yaml", "rambling.yaml"
POINT_WORDS = (14, 30)  # fewest and most

Trait = Literal["thrift", "time", "safety", "evidence", "craft", "company", "nature", "beauty"]
Level = Literal["plain", "implied", "oblique"]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


def _one_sentence(text: str) -> str:
    fewest, most = POINT_WORDS
    if not fewest <= len(text.split()) <= most or len(sentences_of(text)) != 1:
        raise ValueError(f"must be one sentence of {fewest} to {most} words: {text!r}")
    return text


Sentence = Annotated[Text, AfterValidator(_one_sentence)]
TRAITS: tuple[Trait, ...] = ("thrift", "time", "safety", "evidence", "craft", "company", "nature", "beauty")
LEVELS: tuple[Level, ...] = ("plain", "implied", "oblique")
CATEGORIES = ("Art_and_Entertainment", "Lifestyle_and_Personal_Development", "Society_and_Culture")


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
    category: Literal["Art_and_Entertainment", "Lifestyle_and_Personal_Development", "Society_and_Culture"]
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
    texts = Counter(text for subject in subjects for aspect in subject.aspects for text in _texts(aspect))
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
        return kind.model_validate(_read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{path}: {place}: {first['msg']}.") from None


def _texts(aspect: LabAspect) -> list[str]:
    return [*aspect.evidence, *aspect.points, *(text for level in LEVELS for text in aspect.signals[level])]


def _read_yaml(path: Path) -> dict[str, object]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file.") from None
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: must hold a mapping.")
    return content
