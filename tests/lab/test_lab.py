"""The simulated population: balanced where it must be, disjoint where it must be, the same on every machine."""

import json
from collections import Counter
from hashlib import sha256
from itertools import combinations, pairwise

import pytest

from prbench.data.rows import as_row
from prbench.data.texts import sentences_of
from prbench.errors import DataError, UsageError
from prbench.lab import DEFAULT_SIZES, LabSize, default_dataset, make_lab, make_split, sizes
from prbench.lab.population import CATEGORIES, LEVELS, TRAITS, load_library
from prbench.schema import Example

# The default lab, as JSON lines; experiments/lab_bytes.py printed the same on Python 3.11, 3.12 and 3.13.
HASHES = {
    "test": "705051f4c248079f52ccf7700ba5b6ac8d97451856423bdc7d0180ecea2516ab",
    "test_population": "1a80d61387337f74517ea25f08c62fec25c87c0f5c387d92ae953eba9fd07afe",
    "train": "4e05b736000e929c3c31b6766c3f95079d11f352b2b19b3b1e115085a8995282",
    "validation": "87db6c7b00879bf8a5ab579c282b54dd828905980800004ed5781ab1cd2d9d78",
    "test_general": "8af78cf8bbe3f7791ea4a7c6957add9cdd5e9ed82deafbe3d58fc68390232e24",
    "train_general": "8d3b6351b6d0eab0a2a158340c91cd1a35fdd7a37e98750ebcf0e6b8dc8a47b6",
}
SMALL = LabSize(users=120, pairs=240)


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Example]]:
    """A small lab, split by split."""
    return {split: list(make_split(split, SMALL, seed=3)) for split in DEFAULT_SIZES}


def test_the_texts_cover_the_official_categories_and_all_traits() -> None:
    library = load_library()
    assert Counter(subject.category for subject in library.subjects) == dict.fromkeys(CATEGORIES, 6)
    assert {aspect.trait for subject in library.subjects for aspect in subject.aspects} == set(TRAITS)
    assert len(library.neutral) >= 120
    for subject in library.subjects:
        assert len(subject.questions) == 10
        for aspect in subject.aspects:
            assert len(aspect.points) >= 8
            assert [len(aspect.signals[level]) >= least for level, least in zip(LEVELS, (4, 6, 4), strict=True)] == [
                True
            ] * 3


def test_points_are_14_to_30_words_and_no_aspect_is_longer_than_the_others() -> None:
    for subject in load_library().subjects:
        lengths = {aspect.name: [len(point.split()) for point in aspect.points] for aspect in subject.aspects}
        assert all(14 <= length <= 30 for counts in lengths.values() for length in counts), subject.subject
        means = [sum(counts) / len(counts) for counts in lengths.values()]
        overall = sum(means) / len(means)
        assert all(abs(mean - overall) <= 0.1 * overall for mean in means), subject.subject


def test_test_pairs_come_mirrored_for_users_who_want_the_opposite(splits: dict[str, list[Example]]) -> None:
    test = splits["test"]
    assert len(test) == SMALL.pairs
    for one, other in zip(test[::2], test[1::2], strict=True):
        assert (one.question, one.chosen, one.rejected) == (other.question, other.rejected, other.chosen)
        assert one.user.id != other.user.id
        assert one.meta["majority"] is not other.meta["majority"]
        assert set(one.meta["gold"]["chosen"]) <= set(one.meta["wanted"])
        assert not set(one.meta["gold"]["rejected"]) & set(one.meta["wanted"])


def test_responses_are_equally_long_and_have_equally_many_sentences(splits: dict[str, list[Example]]) -> None:
    for split, examples in splits.items():
        for example in examples:
            shorter, longer = sorted((len(example.chosen), len(example.rejected)))
            assert longer <= 1.1 * shorter
            if "general" not in split:
                assert len(sentences_of(example.chosen)) == len(sentences_of(example.rejected)) == 3


def test_tiers_and_flaws_vary_within_a_user(splits: dict[str, list[Example]]) -> None:
    for split, field in (("train", "aspects_differ"), ("test_population", "aspects_differ"), ("test_general", "flaw")):
        of_user: dict[str, list[object]] = {}
        for example in splits[split]:
            of_user.setdefault(example.user.id, []).append(example.meta[field])
        several = [kinds for kinds in of_user.values() if len(kinds) > 1]
        assert sum(len(set(kinds)) > 1 for kinds in several) > 0.9 * len(several)


def test_neither_ids_nor_categories_of_posts_tell_anything(splits: dict[str, list[Example]]) -> None:
    first = [example.meta["majority"] for example in splits["test"] if example.id.endswith("a")]
    assert 0.35 <= sum(first) / len(first) <= 0.65  # 120 coins: 0.5 plus or minus 0.09 at two standard errors
    assert {post.category for example in splits["test"] for post in example.user.profile} == set(CATEGORIES)


def test_splits_share_no_user_no_question_and_no_post(splits: dict[str, list[Example]]) -> None:
    def seen(split: str) -> tuple[set[str], ...]:
        examples = splits[split]
        posts = {post.text for example in examples for post in example.user.profile}
        evidence = {aspect.evidence for example in examples for aspect in example.rubric}
        return {example.user.id for example in examples}, {example.question for example in examples}, posts, evidence

    for one, other in pairwise(["train", "validation", "test", "train"]):
        for ours, theirs in zip(seen(one), seen(other), strict=True):
            assert not ours & theirs
    for one, other in combinations(splits, 2):
        assert not seen(one)[0] & seen(other)[0]


def test_splits_share_no_point(splits: dict[str, list[Example]]) -> None:
    points = {point for subject in load_library().subjects for aspect in subject.aspects for point in aspect.points}

    def used(split: str) -> set[str]:
        text = "\n".join(f"{example.chosen} {example.rejected}" for example in splits[split])
        return {point for point in points if point in text}

    assert not used("train") & used("test")
    assert not used("validation") & used("test")
    assert not used("train") & used("validation")


def test_post_ids_are_unique_and_no_post_comes_twice(splits: dict[str, list[Example]]) -> None:
    for example in splits["test"]:
        posts = example.user.profile
        assert len({post.id for post in posts}) == len({post.text for post in posts}) == len(posts)


def test_the_same_seed_gives_the_same_rows_and_another_seed_does_not() -> None:
    def digest(seed: int) -> str:
        rows = make_lab(sizes(120, 60), seed=seed)
        return sha256(repr([as_row(example) for example in rows]).encode()).hexdigest()

    assert digest(1) == digest(1) != digest(2)


@pytest.mark.parametrize("split", HASHES)
def test_the_default_lab_has_the_recorded_bytes(split: str) -> None:
    digest = sha256()
    users = set()
    examples = default_dataset(split)
    for example in examples:
        digest.update(json.dumps(as_row(example), ensure_ascii=False, sort_keys=True).encode() + b"\n")
        users.add(example.user.id)
    assert digest.hexdigest() == HASHES[split]
    if split == "test":
        assert len(examples) >= 1200
        assert len(users) >= 300
    if split == "train":
        assert len(examples) >= 6000


def test_an_unknown_split_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="It has: test, test_population, train, validation, test_general"):
        default_dataset("dev")


def test_a_subject_file_with_a_mistake_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "tea.yaml").write_text(
        "subject: tea\ncategory: Society_and_Culture\ntitle: Tea\nquestions: []\naspects: []\n"
    )
    with pytest.raises(DataError, match=r"tea\.yaml: questions"):
        load_library(tmp_path)
