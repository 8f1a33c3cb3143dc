"""The lab: an embedded benchmark of a simulated population whose preferences are known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prbench.errors import UsageError
from prbench.lab.library import LEVELS, Library, load_library
from prbench.lab.pairs import Sentences, balanced_pairs, population_pairs
from prbench.lab.population import Voices, draw_users, rng, voices
from prbench.schema import Example

LAB = "lab"
SEED = 7
# Trained on the lab's own `train` split; `lab-average` knows no users.
SHIPPED_HEADS = {name: Path(__file__).parent / "heads" / name for name in ("lab-user", "lab-average")}
SPLITS = ("train", "validation", "test")
SHARES = (5, 1, 4)  # of questions, signals and points; no sentence is in two splits


@dataclass(frozen=True, kw_only=True)
class LabSize:
    """How much of one split to make."""

    users: int
    pairs: int


# `test` is balanced by mirroring; the others follow the population. `test_population` shares the sentences of `test`.
DEFAULT_SIZES = {
    "test": LabSize(users=400, pairs=1600),
    "test_population": LabSize(users=300, pairs=1200),
    "train": LabSize(users=1500, pairs=6000),
    "validation": LabSize(users=300, pairs=1000),
}


def sizes(users: int, pairs: int) -> dict[str, LabSize]:
    """Return the sizes of a lab with that many users and pairs in `test`, four times as many in `train`."""
    once, four_times = LabSize(users=users, pairs=pairs), LabSize(users=4 * users, pairs=4 * pairs)
    return {"test": once, "test_population": once, "train": four_times, "validation": once}


def default_dataset(split: str = "test") -> list[Example]:
    """Return one split of the default lab."""
    if split not in DEFAULT_SIZES:
        raise UsageError(f"--split {split}: the lab has no such split. It has: {', '.join(DEFAULT_SIZES)}.")
    return list(make_split(split, DEFAULT_SIZES[split], seed=SEED))


def make_lab(wanted: Mapping[str, LabSize], *, seed: int = SEED) -> Iterator[Example]:
    """Yield the pairs of all splits, one split after the other; the same seed gives the same rows anywhere."""
    for split, size in wanted.items():
        yield from make_split(split, size, seed=seed)


def make_split(split: str, size: LabSize, *, seed: int = SEED) -> Iterator[Example]:
    """Yield the pairs of one split."""
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


__all__ = ["DEFAULT_SIZES", "LAB", "SHIPPED_HEADS", "LabSize", "default_dataset", "make_lab", "make_split", "sizes"]
