"""Method `bt-profile`: a Bradley-Terry reward model that reads the user's posts before the question.

Augmentation, all of it off unless asked for, except that some rows are shown without posts:

- `swap`: rows shown again with another user's posts, where the rubrics tell how that user would choose. A user with
  the same rubric for this question keeps the pair. A user with the opposite one (no aspect in common, and together all
  aspects that the question has in the training rows) turns it round: `chosen` differs from `rejected` in aspects of
  the first user's rubric, `rejected` in others, and those are the second user's. In the lab's training rows both rules
  are right in every case, and 60 of 100 rows have an opposite, 70 an equal; users that merely share no aspect are
  indifferent in 19 of 100 cases, so they are not used.
- `swap_unknown`: rows shown again with the posts of anybody, in both orders, which pulls the two scores together: the
  sum of -log sigmoid(d) and -log sigmoid(-d) is least at d = 0. That is only true of an average over users who split
  evenly. It says nothing about whom the posts belong to, and shrinks what is learnt from users who are alike, so it is
  for data without rubrics, where a model would otherwise learn to ignore posts.
- `drop_posts`, `add_posts`: each post is left out, or followed by one of somebody else: no single post must decide.
- `hide_profile`: rows without posts, so that a user of whom nothing is known gets what `bt` would say.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import ClassVar

from prbench.context import make_context
from prbench.errors import DataError, UsageError
from prbench.runs.manifest import Keys
from prbench.schema import Example, Json, Post, User
from prbench.training.bt import BtConfig, train_classifier
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data
from prbench.training.folder import ProgressCallback, Trained

_SHARES = ("swap", "swap_unknown", "drop_posts", "add_posts", "hide_profile")


@dataclass(frozen=True, kw_only=True)
class BtProfileConfig(BtConfig):
    """How to train on posts. Show as many of them, ranked alike, when the model is evaluated."""

    posts: int = 30
    rank: str = "recent"  # recent, bm25 or dense
    swap: float = 0.0  # share of the rows that are shown again with another user's posts
    swap_unknown: float = 0.0
    drop_posts: float = 0.0  # chance of each post
    add_posts: float = 0.0
    hide_profile: float = 0.1  # share of the rows

    KEYS: ClassVar[Keys] = BtConfig.KEYS.plus(
        posts=30, rank="recent", swap=0.0, swap_unknown=0.0, drop_posts=0.0, add_posts=0.0, hide_profile=0.1
    )


def train_bt_profile(data: TrainingData, config: BtProfileConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train on question, posts and responses."""
    check_training_data(data, needs=[PROFILES, *([RUBRICS] if config.swap else [])])
    for name in _SHARES:
        if not 0 <= getattr(config, name) <= 1:
            raise UsageError(f"--set {name}={getattr(config, name)}: is a share. Give a number from 0 to 1.")
    rows, facts = augment(data.train, config)
    maker = make_context("profile", posts=config.posts, rank=config.rank)
    facts |= {"posts": config.posts, "rank": config.rank}
    return train_classifier(data, config, folder, progress, train=rows, maker=maker, facts=facts)


def augment(train: Sequence[Example], config: BtProfileConfig) -> tuple[list[Example], dict[str, Json]]:
    """Return the rows to train on, and how many of them were made up; each row draws from its own seed."""
    swapped = list(swapped_rows(train, config.swap, config.seed)) if config.swap else []
    if config.swap and not swapped:
        raise DataError("No two users with equal or opposite rubrics share a question. Train with --set swap=0.")
    unknown = list(unknown_rows(train, config.swap_unknown, config.seed)) if config.swap_unknown else []
    posts = [post for example in train for post in example.user.profile]
    # Only of real rows is it known what somebody without posts would be told.
    seen = replace(config, hide_profile=0.0)
    rows = [_perturbed(example, posts, config) for example in train]
    rows += [_perturbed(example, posts, seen) for example in [*swapped, *unknown]]
    hidden = sum(not example.user.profile for example in rows)
    return rows, {"rows_swapped": len(swapped), "rows_unknown": len(unknown), "rows_without_posts": hidden}


def swapped_rows(train: Sequence[Example], share: float, seed: int) -> Iterable[Example]:
    """Yield rows with the posts of somebody whose choice the rubrics tell, turned round where it is the opposite one.

    Where a row has both, a draw decides; where it has neither, there is no swapped row.
    """
    by_question: dict[str, list[Example]] = {}
    for example in train:
        by_question.setdefault(example.question, []).append(example)
    named = {question: frozenset().union(*map(_aspects, rows)) for question, rows in by_question.items()}
    for example in train:
        rng = Random(f"{seed}:swap:{example.id}")
        if rng.random() >= share:
            continue
        others = _others(example, by_question[example.question], named[example.question])
        kinds = [kind for kind in ("equal", "opposite") if others[kind]]
        if kinds:
            kind = rng.choice(kinds)
            yield _row_of_user(example, rng.choice(others[kind]), turned=kind == "opposite")


def unknown_rows(train: Sequence[Example], share: float, seed: int) -> Iterable[Example]:
    """Yield rows with the posts of anybody else, in both orders, so that the two scores are pulled together."""
    for example in train:
        rng = Random(f"{seed}:unknown:{example.id}")
        if rng.random() >= share:
            continue
        other = rng.choice(train).user
        while other.id == example.user.id:
            other = rng.choice(train).user
        for turned in (False, True):
            yield _row_of_user(example, other, turned=turned)


def _others(example: Example, rows: Sequence[Example], named: frozenset[str]) -> Mapping[str, list[User]]:
    """Return the users with an equal and with an opposite rubric for the same question."""
    own = _aspects(example)
    found: dict[str, list[User]] = {"equal": [], "opposite": []}
    for row in rows:
        theirs = _aspects(row)
        if row.user.id == example.user.id or not own or not theirs:
            continue
        if theirs == own:
            found["equal"].append(row.user)
        elif not theirs & own and theirs | own == named:
            found["opposite"].append(row.user)
    return found


def _aspects(example: Example) -> frozenset[str]:
    return frozenset(aspect.aspect for aspect in example.rubric)


def _row_of_user(example: Example, user: User, *, turned: bool) -> Example:
    """Return the pair as seen by another user; the rubric goes, since it was the first user's."""
    chosen, rejected = (example.rejected, example.chosen) if turned else (example.chosen, example.rejected)
    mark = "turned" if turned else "kept"
    return replace(
        example, id=f"{example.id}:{user.id}:{mark}", user=user, chosen=chosen, rejected=rejected, rubric=()
    )


def _perturbed(example: Example, posts: Sequence[Post], config: BtProfileConfig) -> Example:
    """Leave posts out and put others' in, as drawn for this row."""
    rng = Random(f"{config.seed}:posts:{example.id}")
    if rng.random() < config.hide_profile:
        return replace(example, user=replace(example.user, profile=()))
    if not config.drop_posts and not config.add_posts:
        return example
    profile: list[Post] = []
    for post in example.user.profile:
        if rng.random() >= config.drop_posts:
            profile.append(post)
        if rng.random() < config.add_posts:
            profile.append(rng.choice(posts))
    return replace(example, user=replace(example.user, profile=tuple(profile)))
