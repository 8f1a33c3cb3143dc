"""What a method learns from: pairs of some users to train on, and pairs of other users to be measured on."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256

from prbench.data import open_examples
from prbench.data.rows import profile_hash, to_row
from prbench.errors import DataError, UsageError
from prbench.lab import LAB, default_dataset
from prbench.schema import Example

PROFILES, RUBRICS = "profiles", "rubrics"  # what a method may need


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Pairs to train on, and pairs of other users: for early stopping and for the held-out figures."""

    train: Sequence[Example]
    validation: Sequence[Example]
    name: str  # what `--data` said
    digest: str  # of all rows, in order; goes into the card and the checkpoint


def make_training_data(
    train: Sequence[Example], validation: Sequence[Example], *, name: str = "rows given in Python"
) -> TrainingData:
    """Put rows together that are at hand; whether a method can use them is for `check_training_data` to say."""
    return TrainingData(train=train, validation=validation, name=name, digest=_digest([*train, *validation]))


def load_training_data(
    source: str,
    *,
    train_split: str = "train",
    validation_split: str = "validation",
    subset: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
) -> TrainingData:
    """Read both splits of what `--data` names, and refuse them where users leak; `limit` is for the train split."""
    if train_split == validation_split:
        raise UsageError(f"{source}: both splits are {train_split!r}, so nobody is held out. Name two splits.")
    data = make_training_data(
        _read(source, train_split, subset, revision, limit),
        _read(source, validation_split, subset, revision, None),
        name=source,
    )
    check_training_data(data)
    return data


def check_training_data(data: TrainingData, *, needs: Collection[str] = ()) -> None:
    """Refuse rows that cannot teach or measure anything about users; `needs` names `PROFILES` or `RUBRICS`."""
    for split, rows in (("train", data.train), ("validation", data.validation)):
        if not rows:
            raise DataError(f"{data.name}: the {split} split has no rows. Name another one, or add rows.")
    _refuse_few_users(data)
    _refuse_leaks(data)
    if PROFILES in needs:
        _refuse_missing(data, "post", [bool(example.user.profile) for example in data.train])
    if RUBRICS in needs:
        _refuse_missing(data, "rubric", [bool(example.rubric) for example in data.train])


def _read(source: str, split: str, subset: str | None, revision: str | None, limit: int | None) -> list[Example]:
    if source == LAB and subset is None and revision is None:
        return default_dataset(split)[:limit]
    rows = default_dataset(split) if source == LAB else source
    with open_examples(rows, subset=subset, split=split, revision=revision, limit=limit) as store:
        if store.kind != "pairs":
            raise DataError(f"{source}: split {split!r} has rated responses, and training takes pairs. Use pairs.")
        return [example for example in store if isinstance(example, Example)]


def _refuse_few_users(data: TrainingData) -> None:
    for split, rows in (("train", data.train), ("validation", data.validation)):
        if len({example.user.id for example in rows}) < 2:
            raise DataError(
                f"{data.name}: all {len(rows)} rows of the {split} split come from one user, {rows[0].user.id!r}, so "
                "nothing can be said about how users differ. Add rows of other users, or correct user_id."
            )


def _refuse_leaks(data: TrainingData) -> None:
    """No user may be in both splits: by id, or under two ids with the same posts."""
    known = {example.user.id for example in data.train}
    leaking = sorted({example.user.id for example in data.validation} & known)
    if leaking:
        raise DataError(
            f"{data.name}: user {leaking[0]!r} is in both train and validation{_more(len(leaking))}. "
            "Split the rows by user."
        )
    posts = {profile_hash(example.user.profile): example.user.id for example in data.train if example.user.profile}
    for example in data.validation:
        other = posts.get(profile_hash(example.user.profile)) if example.user.profile else None
        if other is not None:
            raise DataError(
                f"{data.name}: users {other!r} (train) and {example.user.id!r} (validation) have the same posts, so "
                "they are one person. Split the rows by user."
            )


def _more(leaking: int) -> str:
    return f", as are {leaking - 1} others" if leaking > 1 else ""


def _refuse_missing(data: TrainingData, what: str, has: Sequence[bool]) -> None:
    if not any(has):
        raise DataError(
            f"{data.name}: no row of the train split has a {what}, and this method learns from them. "
            f"Add them, or choose a method that needs no {what}s, e.g. bt."
        )


def _digest(rows: Sequence[Example]) -> str:
    digest = sha256()
    for example in rows:
        digest.update(json.dumps(to_row(example), sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
