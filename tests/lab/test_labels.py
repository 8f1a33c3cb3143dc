"""Labelled pairs of the lab's users: theirs, and from the texts of `train` alone."""

from collections import Counter
from hashlib import sha256
from itertools import islice

import pytest

from prbench.data.texts import sentences_of
from prbench.errors import UsageError
from prbench.lab import DEFAULT_SIZES, LABEL_SPLITS, LabSize, default_dataset, make_labels, make_split
from prbench.schema import Example

USERS, SIZE = 40, LabSize(users=40, pairs=120)


def texts(examples: list[Example]) -> set[str]:
    responses = {text for e in examples for side in (e.chosen, e.rejected) for text in sentences_of(side)}
    return responses | {example.question for example in examples}


@pytest.mark.parametrize("split", sorted(LABEL_SPLITS))
def test_labels_are_of_the_users_under_test_and_share_no_text_with_their_pairs(split: str) -> None:
    labels = list(make_labels(split, USERS, per_user=5, seed=3))
    owners = list(make_split(LABEL_SPLITS[split], SIZE, seed=3))
    people = {example.user.id: example.user for example in owners}
    assert {example.user.id for example in labels} <= {f"{LABEL_SPLITS[split]}-{n:05d}" for n in range(USERS)}
    assert all(example.user == people.get(example.user.id, example.user) for example in labels)
    wanted = {example.user.id: example.meta["wanted"] for example in owners}
    for example in labels:
        assert example.meta["wanted"] == wanted.get(example.user.id, example.meta["wanted"])
        assert set(example.meta["gold"]["chosen"]) <= set(example.meta["wanted"])
        assert not set(example.meta["gold"]["rejected"]) & set(example.meta["wanted"])
    assert not texts(labels) & texts(owners)
    assert not {example.id for example in labels} & {example.id for example in owners}


def test_labels_use_the_sentences_of_train() -> None:
    labels = list(make_labels("test_labels", USERS, per_user=5, seed=3))
    train = list(make_split("train", LabSize(users=200, pairs=800), seed=3))
    assert len(texts(labels) & texts(train)) > 0.95 * len(texts(labels))


def test_every_user_has_about_as_many_and_the_first_ones_come_first() -> None:
    labels = list(make_labels("validation_labels", USERS, per_user=6, seed=3))
    counts = Counter(example.user.id for example in labels)
    assert len(labels) == 6 * USERS
    assert min(counts.values()) >= 4
    assert max(counts.values()) <= 8
    assert labels[: 2 * USERS] == list(make_labels("validation_labels", USERS, per_user=2, seed=3))


def test_the_default_labels_are_the_same_on_every_machine() -> None:
    rows = islice(make_labels("validation_labels", DEFAULT_SIZES["validation"].users), 300)
    text = "\n".join(f"{e.id}|{e.user.id}|{e.question}|{e.chosen}|{e.rejected}" for e in rows)
    assert sha256(text.encode()).hexdigest()[:16] == "d443859e2fb194ff"


def test_train_has_no_labels_but_its_own_pairs() -> None:
    with pytest.raises(UsageError, match="train_labels: the lab has no such split"):
        default_dataset("train_labels")
