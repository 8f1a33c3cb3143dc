"""The lab: an embedded benchmark of a simulated population whose preferences are known."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType

from prbench.errors import UsageError
from prbench.lab.pairs import Sentences, balanced_pairs, general_pairs, population_pairs
from prbench.lab.population import (
    LEVELS,
    TRAITS,
    LabUser,
    Level,
    Library,
    PostPool,
    Subject,
    Trait,
    Users,
    load_library,
    rng,
)
from prbench.schema import Example
from prbench.specs import Spec

LAB = "lab"
SEED = 2026
# Trained on the lab's own `train` split; `lab-average` knows no users.
SHIPPED_HEADS = {name: Path(__file__).parent / "heads" / name for name in ("lab-user", "lab-average")}
MOST_LABELS = 30  # labeled pairs of a user, more or less: a draw that fails is not made up for
BUILD_SPLIT, BUILD_USERS = "validation", 20  # what `prbench build` draws questions from, and of how many users
FEWEST_USERS = 16  # of a split: with fewer, some pairs have nobody who wants the opposite
SHARES = {"train": 5, "validation": 2, "test": 3}  # of questions, signals and points: no sentence is in two of them


@dataclass(frozen=True, kw_only=True)
class LabSize:
    """How much of one split to make."""

    users: int
    pairs: int


@dataclass(frozen=True)
class LabSplit:
    """How one split is made: from which share of the texts, and by which rule."""

    share: str
    make: Callable[[Sequence[LabUser], Sequence[Subject], Sentences, str, int, int], Iterator[Example]]
    size: LabSize  # in the default lab


# `test` is balanced by mirroring; the population rules train, validation and test_population; in the general sets
# nothing depends on the user.
LAB_SPLITS: Mapping[str, LabSplit] = MappingProxyType(
    {
        "test": LabSplit("test", balanced_pairs, LabSize(users=400, pairs=1600)),
        "test_population": LabSplit("test", population_pairs, LabSize(users=300, pairs=1200)),
        "train": LabSplit("train", population_pairs, LabSize(users=1500, pairs=6000)),
        "validation": LabSplit("validation", population_pairs, LabSize(users=300, pairs=1000)),
        "test_general": LabSplit("test", general_pairs, LabSize(users=300, pairs=1200)),
        "train_general": LabSplit("train", general_pairs, LabSize(users=500, pairs=2000)),
    }
)
DEFAULT_SIZES = {name: split.size for name, split in LAB_SPLITS.items()}
# Splits whose users have labeled pairs, and what those are called.
LABEL_SPLITS = {f"{name}_labels": name for name in ("test", "test_population", "validation")}


def sizes(users: int, pairs: int) -> dict[str, LabSize]:
    """Return the sizes of a lab with that many users and pairs in all, dealt to the splits as in the default lab."""
    if users < FEWEST_USERS * len(LAB_SPLITS) or pairs < 2 * len(LAB_SPLITS):
        raise UsageError(
            f"{users} users and {pairs} pairs are too few for {len(LAB_SPLITS)} splits. "
            f"Take at least {FEWEST_USERS * len(LAB_SPLITS)} users and {2 * len(LAB_SPLITS)} pairs."
        )
    people = _apportion(users, [size.users for size in DEFAULT_SIZES.values()], least=FEWEST_USERS)
    shares = _apportion(pairs, [size.pairs for size in DEFAULT_SIZES.values()], least=2)
    wanted = {
        name: LabSize(users=count, pairs=share)
        for name, count, share in zip(DEFAULT_SIZES, people, shares, strict=True)
    }
    if wanted["test"].pairs % 2:  # every pair of `test` comes with its mirror image
        wanted["test"] = replace(wanted["test"], pairs=wanted["test"].pairs - 1)
        wanted["train"] = replace(wanted["train"], pairs=wanted["train"].pairs + 1)
    return wanted


def default_dataset(split: str = "test") -> list[Example]:
    """Return one split of the default lab."""
    return list(load(split=split))


def load(spec: Spec | None = None, options: None = None, split: str | None = None) -> Iterator[Example]:
    """Yield the rows of `lab`, as `--data` names it; none is made before it is asked for."""
    split = split or "test"
    if split in LABEL_SPLITS:
        return make_labels(split, DEFAULT_SIZES[LABEL_SPLITS[split]].users, seed=SEED)
    if split not in LAB_SPLITS:
        known = ", ".join((*LAB_SPLITS, *LABEL_SPLITS))
        raise UsageError(f"--split {split}: the lab has no such split. It has: {known}.")
    return make_split(split, DEFAULT_SIZES[split], seed=SEED)


def questions(users: int | None = None) -> Iterator[Example]:
    """Yield one question of each of so many users, for `prbench build`; `meta` keeps the truth about the user."""
    wanted = BUILD_USERS if users is None else users
    drawn = max(wanted, FEWEST_USERS)
    seen: set[str] = set()
    for example in make_split(BUILD_SPLIT, LabSize(users=drawn, pairs=4 * drawn)):
        if len(seen) == wanted:
            return
        if example.user.id not in seen:
            seen.add(example.user.id)
            yield replace(example, meta={key: example.meta[key] for key in ("subject", "level", "wanted")})


def make_lab(wanted: Mapping[str, LabSize], *, seed: int = SEED) -> Iterator[Example]:
    """Yield the pairs of all splits, one split after the other; the same seed gives the same rows anywhere."""
    for split, size in wanted.items():
        yield from make_split(split, size, seed=seed)


def make_split(split: str, size: LabSize, *, seed: int = SEED, assignment: int = 0) -> Iterator[Example]:
    """Yield the pairs of one split.

    `assignment` shuffles which texts belong to train, validation and test. All labs have the same one, so that a model
    trained on one has never seen another one's test sentences; others are for repeating an experiment.
    """
    library, how = load_library(), LAB_SPLITS[split]
    pool, sentences = texts_of_share(library, how.share, assignment)
    users = Users(size.users, split, seed, pool)
    return how.make(users, library.subjects, sentences, split, size.pairs, seed)


def make_labels(
    split: str, users: int, *, per_user: int = MOST_LABELS, seed: int = SEED, assignment: int = 0
) -> Iterator[Example]:
    """Yield pairs that the users of a split compared before; `split` is one of `LABEL_SPLITS`.

    They are drawn by the population's rule from the questions and sentences of `train`, so that no text of the pairs
    under test is in them. The first pairs of all users come first, then the second ones, and so on.
    """
    library, owners = load_library(), LABEL_SPLITS[split]
    pool, _ = texts_of_share(library, LAB_SPLITS[owners].share, assignment)
    _, sentences = texts_of_share(library, "train", assignment)
    people = Users(users, owners, seed, pool)
    return population_pairs(people, library.subjects, sentences, split, per_user * users, seed)


def texts_of_share(library: Library, share: str, assignment: int) -> tuple[PostPool, Sentences]:
    """Return one share of the texts. Shares have no question, no post and no point in common."""
    signals: dict[tuple[Trait, Level], list[tuple[str, str]]] = {(t, level): [] for t in TRAITS for level in LEVELS}
    questions: dict[str, Sequence[str]] = {}
    points: dict[tuple[str, str], Sequence[str]] = {}
    evidence: dict[tuple[str, str], Sequence[str]] = {}
    for subject in library.subjects:
        questions[subject.subject] = _part(subject.questions, share, assignment, subject.subject, "questions")
        for aspect in subject.aspects:
            place = f"{subject.subject}/{aspect.trait}"
            points[subject.subject, aspect.trait] = _part(aspect.points, share, assignment, place, "points")
            evidence[subject.subject, aspect.trait] = _part(aspect.evidence, share, assignment, place, "evidence")
            for level in LEVELS:
                texts = _part(aspect.signals[level], share, assignment, place, level)
                signals[aspect.trait, level] += [(subject.category, text) for text in texts]
    neutral = _part(library.neutral, share, assignment, "neutral")
    rambling = _part(library.rambling, share, assignment, "rambling")
    pool = PostPool(signals={key: tuple(posts) for key, posts in signals.items()}, neutral=tuple(neutral))
    return pool, Sentences(questions=questions, points=points, evidence=evidence, rambling=rambling)


def _part(texts: Sequence[str], share: str, assignment: int, *place: str) -> Sequence[str]:
    """Deal texts to the shares by a fixed shuffle; each share gets at least one."""
    shuffled = rng("split", assignment, *place).sample(texts, len(texts))
    ends = list(accumulate(_apportion(len(texts), list(SHARES.values()), least=1), initial=0))
    index = list(SHARES).index(share)
    return shuffled[ends[index] : ends[index + 1]]


def _apportion(total: int, weights: Sequence[int], *, least: int) -> list[int]:
    """Deal things in proportion to the weights: at least so many to each, the rest by largest remainder."""
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [max(least, int(share)) for share in exact]
    while sum(counts) != total:
        step = 1 if sum(counts) < total else -1
        movable = [i for i in range(len(counts)) if counts[i] + step >= least]
        place = max(movable, key=lambda i: step * (exact[i] - counts[i]))
        counts[place] += step
    return counts


__all__ = [
    "DEFAULT_SIZES",
    "LAB",
    "LABEL_SPLITS",
    "LAB_SPLITS",
    "SHIPPED_HEADS",
    "LabSize",
    "default_dataset",
    "make_lab",
    "make_labels",
    "make_split",
    "questions",
    "sizes",
]
