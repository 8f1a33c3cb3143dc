"""The lab: an embedded benchmark of a simulated population whose preferences are known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prbench.lab.library import LEVELS, Library, load_library
from prbench.lab.pairs import Sentences, balanced_pairs, population_pairs
from prbench.lab.population import Voices, draw_users, rng, voices
from prbench.schema import Example

LAB = "lab"
SEED = 7
SPLITS = ("train", "validation", "test")
SHARES = (5, 1, 4)  # of questions, signals and points; no sentence is in two splits


@dataclass(frozen=True, kw_only=True)
class LabSize:
    """How much of one split to make."""

    users: int = 320
    pairs: int = 1200


def default_dataset() -> list[Example]:
    """Return the test pairs of the default lab."""
    return list(make_split("test", LabSize(), seed=SEED))


def make_split(split: str, size: LabSize, *, seed: int = SEED) -> Iterator[Example]:
    """Yield the pairs of one split: `test` is balanced by mirroring, the others follow the population."""
    library = load_library()
    words, sentences = _share(library, split.partition("_")[0])
    users = draw_users(size.users, split, seed, words)
    make = balanced_pairs if split == "test" else population_pairs
    return make(users, library.subjects, sentences, split, size.pairs, seed)


def _share(library: Library, split: str) -> tuple[Voices, Sentences]:
    """Return the part of the texts that belongs to a split. Splits share no question, no post and no point."""
    takes: dict[str, Sequence[str]] = {}
    questions: dict[str, Sequence[str]] = {}
    points: dict[tuple[str, str], Sequence[str]] = {}
    for subject in library.subjects:
        questions[subject.subject] = _part(subject.questions, split, subject.subject, "questions")
        for aspect in subject.aspects:
            place = f"{subject.subject}/{aspect.trait}"
            points[subject.subject, aspect.trait] = _part(aspect.points, split, place, "points")
            for level in LEVELS:
                takes[f"{place}/{level}"] = _part(aspect.signals[level], split, place, level)
    neutral = _part(library.neutral, split, "neutral")
    return voices(library, takes, neutral), Sentences(questions=questions, points=points)


def _part(texts: Sequence[str], split: str, *place: str) -> Sequence[str]:
    """Deal texts to the splits by a fixed shuffle; each split gets at least one."""
    shuffled = rng("split", *place).sample(texts, len(texts))
    total = sum(SHARES)
    borders = [round(len(texts) * sum(SHARES[:i]) / total) for i in range(len(SHARES) + 1)]
    borders[1] = min(borders[1], len(texts) - 2)
    borders[2] = max(borders[2], borders[1] + 1)
    index = SPLITS.index(split)
    return shuffled[borders[index] : borders[index + 1]]


__all__ = ["LAB", "LabSize", "default_dataset", "make_split"]
