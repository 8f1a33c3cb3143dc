"""What a method learns from: pairs of some users to train on, and pairs of other users to be measured on."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from types import MappingProxyType

from prbench.data import content_hash, kind_of_dataset, open_examples, split_names
from prbench.data.rows import profile_hash
from prbench.errors import DataError, UsageError
from prbench.schema import ContextKind, Example, RewardInput, UserContext

TRAIN_SPLIT, VALIDATION_SPLIT = "train", "validation"  # unless others are named
PROFILES, RUBRICS = "profiles", "rubrics"  # what a method may need
REJECTED_ALL = "rejected_all"  # a column of further responses that the user would not pick
# What rows that are held out may have in common, so that no row of the same user or topic is learned from.
HOLD_OUT_BY: Mapping[str, Callable[[Example], str]] = MappingProxyType(
    {"user": lambda example: example.user.id, "category": lambda example: example.category}
)


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Pairs to train on, and pairs of other users: for early stopping and for the held-out figures."""

    train: Sequence[Example]
    validation: Sequence[Example]
    name: str  # what `--data` said
    digest: str  # of both lists of rows, in order; goes into the card and the checkpoint
    measured_on: str = VALIDATION_SPLIT  # what the held-out rows are called


def make_training_data(
    train: Sequence[Example],
    validation: Sequence[Example],
    *,
    name: str = "rows given in Python",
    measured_on: str = VALIDATION_SPLIT,
) -> TrainingData:
    """Put rows together that are at hand; whether a method can use them is for `check_training_data` to say."""
    return TrainingData(
        train=train,
        validation=validation,
        name=name,
        digest=sha256(f"{content_hash(train)} {content_hash(validation)} {measured_on}".encode()).hexdigest(),
        measured_on=measured_on,
    )


def load_training_data(
    source: str,
    *,
    train_split: str | None = None,
    validation_split: str | None = None,
    subset: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
    held_out: float | None = None,
    held_out_by: str = "user",
) -> TrainingData:
    """Read what `--data` names: two splits, or one of which a share of the users is held out.

    `limit` is for the rows that are learned from. Users who leak are refused.
    """
    if held_out is None:
        learned, measured = train_split or TRAIN_SPLIT, validation_split or VALIDATION_SPLIT
        if learned == measured:
            raise UsageError(f"{source}: both splits are {learned!r}, so nobody is held out. Name two splits.")
        if not (train_split or validation_split):
            _check_has_splits(source, subset, revision)
        train = _read(source, learned, subset, revision, limit)
        validation = _read(source, measured, subset, revision, None)
    else:
        if validation_split is not None:
            raise UsageError(f"--hold-out {held_out}: takes rows from one split. Leave --validation-split away.")
        rows = _one_split(source, train_split, subset, revision)
        train, validation = hold_out(rows, held_out, by=held_out_by, name=source)
        users = len({example.user.id for example in rows})
        if held_out_by == "user" and len({example.user.id for example in validation}) < 2 <= users // 2:
            raise UsageError(
                f"--hold-out {held_out} of {users} users is one user, and figures take two. Hold more out: --hold-out "
                f"{_share_of_two(users)}."
            )
        train, measured = train[:limit], f"held-out {held_out_by}"
    data = make_training_data(list(with_every_rejected(train)), validation, name=source, measured_on=measured)
    check_training_data(data)
    return data


def split_to_learn(source: str, split: str | None) -> str | None:
    """Return the split that a policy learns from: the one that was named, or `train` of a dataset that has a name."""
    kind = kind_of_dataset(source)
    return split or (TRAIN_SPLIT if kind is not None and TRAIN_SPLIT in kind.split_names() else None)


def hold_out(
    rows: Sequence[Example], share: float, *, by: str = "user", name: str = "rows given in Python"
) -> tuple[list[Example], list[Example]]:
    """Return the rows to learn from, and those of a share of the users or categories: always the same ones."""
    if by not in HOLD_OUT_BY:
        raise UsageError(f"--hold-out-by {by}: unknown. Use one of: {', '.join(HOLD_OUT_BY)}.")
    if not 0 < share < 1:
        raise UsageError(f"--hold-out {share}: no share. Give a number above 0 and below 1, e.g. 0.2.")
    group_of = HOLD_OUT_BY[by]
    groups = sorted({group_of(example) for example in rows}, key=lambda group: sha256(group.encode()).digest())
    if len(groups) < 2:
        raise DataError(f"{name}: all rows have the same {by}, so none can be held out. Split by something else.")
    aside = set(groups[: min(math.ceil(share * len(groups)), len(groups) - 1)])
    return (
        [example for example in rows if group_of(example) not in aside],
        [example for example in rows if group_of(example) in aside],
    )


def with_every_rejected(rows: Sequence[Example]) -> Iterator[Example]:
    """Yield each row, and one more pair for every further response in its column `rejected_all`."""
    for example in rows:
        yield example
        further = example.meta.get(REJECTED_ALL)
        texts = [text for text in further if isinstance(text, str)] if isinstance(further, list | tuple) else []
        fresh = dict.fromkeys(
            text for text in texts if text.strip() and text not in (example.chosen, example.rejected)
        )
        for number, text in enumerate(fresh, start=2):
            yield replace(example, id=f"{example.id}#{number}", rejected=text)


def check_training_data(data: TrainingData, *, needs: Collection[str] = ()) -> None:
    """Refuse rows from which nothing is learned or measured about users; `needs` names `PROFILES` or `RUBRICS`."""
    for split, rows in (("train", data.train), ("validation", data.validation)):
        if not rows:
            raise DataError(f"{data.name}: the {split} split has no rows. Name another one, or add rows.")
    for split, rows in (("train", data.train), ("validation", data.validation)):
        if len({example.user.id for example in rows}) < 2:
            raise DataError(
                f"{data.name}: all {len(rows)} rows of the {split} split come from one user, {rows[0].user.id!r}, so "
                "nothing can be said about how users differ. Add rows of other users, or correct user_id."
            )
    _check_leaks(data)
    for need, what, has in (
        (PROFILES, "post", any(example.user.profile for example in data.train)),
        (RUBRICS, "rubric", any(example.rubric for example in data.train)),
    ):
        if need in needs and not has:
            raise DataError(
                f"{data.name}: no row of the train split has a {what}, and this method learns from them. "
                f"Add them, or choose a method that needs no {what}s, e.g. bt."
            )


def _check_leaks(data: TrainingData) -> None:
    """No user may be in both splits: by id, or under two ids with the same posts."""
    known = {example.user.id for example in data.train}
    leaking = sorted({example.user.id for example in data.validation} & known)
    if leaking:
        others = f", as are {len(leaking) - 1} others" if len(leaking) > 1 else ""
        raise DataError(
            f"{data.name}: user {leaking[0]!r} is in both train and validation{others}. Split the rows by user."
        )
    posts = {profile_hash(example.user.profile): example.user.id for example in data.train if example.user.profile}
    for example in data.validation:
        other = posts.get(profile_hash(example.user.profile)) if example.user.profile else None
        if other is not None:
            raise DataError(
                f"{data.name}: users {other!r} (train) and {example.user.id!r} (validation) have the same posts, so "
                "they are one person. Split the rows by user."
            )


def _check_has_splits(source: str, subset: str | None, revision: str | None) -> None:
    """Refuse a file whose rows belong to no split, before `train` is looked for in it."""
    if split_names(source, subset, revision):
        return
    with open_examples(source, subset=subset, revision=revision) as store:
        splits, users = {example.split for example in store}, store.users
    if splits == {""}:
        share = max(0.2, _share_of_two(users))
        raise UsageError(
            f"{source}: its rows belong to no split, so nobody is held out. Hold some of its {users} users out with "
            f'--hold-out {share}, or give every row a column split, "{TRAIN_SPLIT}" or "{VALIDATION_SPLIT}".'
        )


def _share_of_two(users: int) -> float:
    """Return a share, to one digit, that is two of so many users or more."""
    return min(math.ceil(20 / users) / 10, 0.9)


def _one_split(source: str, split: str | None, subset: str | None, revision: str | None) -> list[Example]:
    """Read the split that is named, or else `train`, or else rows that belong to no split: never others unasked."""

    def train_of(splits: Sequence[str]) -> str | None:
        if TRAIN_SPLIT in splits or not splits:
            return TRAIN_SPLIT if splits else None
        raise UsageError(f"{source}: has no split {TRAIN_SPLIT!r}. Name one with --train-split: {', '.join(splits)}.")

    if split is None:
        split = train_of(split_names(source, subset, revision))
    rows = _read(source, split, subset, revision, None)
    if split is not None:
        return rows
    only = train_of(sorted({example.split for example in rows} - {""}))
    return [example for example in rows if only is None or example.split == only]


def _read(
    source: str, split: str | None, subset: str | None, revision: str | None, limit: int | None
) -> list[Example]:
    with open_examples(source, subset=subset, split=split, revision=revision, limit=limit) as store:
        if store.kind != "pairs":
            raise DataError(f"{source}: split {split!r} has rated responses, and training takes pairs. Use pairs.")
        return [example for example in store if isinstance(example, Example)]


def pair_inputs(examples: Sequence[Example], *, posts: int) -> list[RewardInput]:
    """Return each row's `chosen` and then its `rejected`, with at most so many posts, the newest first."""
    inputs = []
    for example in examples:
        newest = tuple(post.text for post in example.user.profile[::-1][:posts])
        inputs += inputs_of(
            example, UserContext(kind=ContextKind.PROFILE, segments=newest) if newest else UserContext()
        )
    return inputs


def inputs_of(example: Example, user: UserContext) -> list[RewardInput]:
    """Return the row's `chosen` and then its `rejected`, with the same context."""
    return [
        RewardInput(question=example.question, user=user, response=response)
        for response in (example.chosen, example.rejected)
    ]
