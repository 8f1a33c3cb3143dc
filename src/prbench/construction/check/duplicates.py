"""Rows that repeat or contradict each other, exactly or almost. A pair mirrored for another user is wanted.

Exact repeats are found by 64-bit fingerprints of folded texts, so that memory does not grow with the texts. For near
ones, texts are compared as sets of shingles (three words in a row) by Jaccard's index. All pairs of rows would be too
many, so candidates come from MinHash signatures (Broder 1997) cut into bands; each candidate is then compared exactly.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prbench.construction.check.finding import (
    BAD,
    DIGITS,
    GOOD,
    LOOK,
    MOST_SAMPLES,
    CheckFinding,
    CheckSample,
    cut,
    grade,
    in_turns,
    worst,
)
from prbench.data import ExampleStore
from prbench.data.rows import hash64
from prbench.data.texts import fold, words
from prbench.metrics.number_format import percent_text
from prbench.schema import Example, Progress, RatedExample

Shingles = npt.NDArray[np.uint64]  # sorted, each once

LOOK_SHARE = 0.01  # of rows that repeat an earlier one; above it, they are too many
ALIKE = 0.8  # Jaccard's index from which two texts count as almost the same
MOST_ROWS = 20_000  # compared for near repeats
PAIR_SHARES = (0.01, 0.05)  # of pairs with near-identical responses: good up to, look up to
ROW_SHARES = (0.05, 0.20)  # of rows that nearly repeat another user's
# Two texts whose Jaccard index is s meet in one of b bands of r values with probability 1 - (1 - s^r)^b (Leskovec et
# al., Mining of Massive Datasets, 3.4): here 0.985 at the threshold of 0.8, and 0.9998 at 0.9.
_BANDS, _BAND_SIZE = 8, 4
_MIX = tuple(np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
# Hash functions: an odd factor and a shift each. Fixed, so that the same texts give the same candidates.
_DRAWN = np.random.Generator(np.random.PCG64(0)).integers(0, 2**64, size=(2, _BANDS * _BAND_SIZE), dtype=np.uint64)
_FACTORS, _SHIFTS = _DRAWN[0] | np.uint64(1), _DRAWN[1]


class PairKey(NamedTuple):
    """One pair by the fingerprints of its texts."""

    user: str
    question: int
    chosen: int
    rejected: int

    @property
    def responses(self) -> tuple[int, int]:
        """Both responses in an order that does not tell the label."""
        return min(self.chosen, self.rejected), max(self.chosen, self.rejected)

    @property
    def mirrored(self) -> "PairKey":
        return self._replace(chosen=self.rejected, rejected=self.chosen)


def fingerprint(text: str) -> int:
    """Return 64 bits that stand for the folded text: texts that fold alike count as the same."""
    return hash64(fold(text))


def iterate_pairs(store: ExampleStore) -> Iterator[Example]:
    return (pair_at(store, position) for position in range(len(store)))


def pair_at(store: ExampleStore, position: int) -> Example:
    example = store[position]
    assert isinstance(example, Example), "only pairs have two responses"
    return example


def pair_keys(store: ExampleStore) -> list[PairKey]:
    """Return the key of every pair, in order."""
    return [
        PairKey(
            user=example.user.id,
            question=fingerprint(example.question),
            chosen=fingerprint(example.chosen),
            rejected=fingerprint(example.rejected),
        )
        for example in iterate_pairs(store)
    ]


def sample_positions(keys: Sequence[PairKey], most: int, *, seed: int) -> list[int]:
    """Return at most `most` positions, drawn by a seeded rule; rows with the same two responses stay together.

    Rows drawn one by one would tear mirrored pairs apart, and with them the balance of the set.
    """
    if len(keys) <= most:
        return list(range(len(keys)))
    sizes = Counter(key.responses for key in keys)
    order = sorted(sizes, key=lambda both: sha256(f"{seed}:{both[0]}:{both[1]}".encode()).digest())
    taken, rows = set(), 0
    for both in order:
        if rows + sizes[both] <= most:
            taken.add(both)
            rows += sizes[both]
    return [position for position, key in enumerate(keys) if key.responses in taken]


def check_duplicates(store: ExampleStore, keys: Sequence[PairKey]) -> CheckFinding:
    """Look for pairs that repeat, contradict, or differ in white space and case only.

    The same pair with the opposite label is what personalization is, as long as something tells the two users apart:
    their ids, and the posts that a model sees of them. Where one of these is the same, something is wrong.
    """
    first: dict[PairKey, int] = {}
    users: dict[tuple[int, int, int], set[str]] = defaultdict(set)
    of_posts: dict[tuple[tuple[int, int, int], int], int] = {}  # the first row with this pair and these posts
    for position, key in enumerate(keys):
        first.setdefault(key, position)
        users[key[1:]].add(key.user)
        of_posts.setdefault((key[1:], store.posts_hash(position)), position)
    repeated: dict[int, int] = {}
    same: dict[int, int] = {}
    contradicting: dict[int, int] = {}  # by the same user, as far as ids and posts tell
    changing: dict[int, int] = {}  # by the same id with other posts
    alike: dict[int, int] = {}  # by another id with the same posts
    for position, key in enumerate(keys):
        posts = store.posts_hash(position)
        if first[key] != position:
            repeated[position] = first[key]
        if key.chosen == key.rejected:
            same[position] = position
            continue
        by_id, by_posts = first.get(key.mirrored), of_posts.get((key.mirrored[1:], posts))
        if by_posts is not None and by_id is not None:
            contradicting[position] = by_id
        elif by_id is not None:
            changing[position] = by_id
        elif by_posts is not None and pair_at(store, position).user.profile:
            alike[position] = by_posts
    mirrored = sum(bool(users.get(key.mirrored[1:], set()) - {key.user}) for key in keys) / len(keys)
    counts = {"repeated": len(repeated), "same_responses": len(same), "contradicting": len(contradicting)}
    figure = (
        f"{len(repeated)} repeated rows, {len(contradicting)} contradicted, "
        f"{len(same)} whose responses differ in space or case only; balanced by mirroring: {percent_text(mirrored)}"
    )
    if changing:
        counts["contradicting_with_other_posts"] = len(changing)
        figure += f"; {len(changing)} contradicted under the same user id with other posts"
    if alike:
        counts["contradicting_with_same_posts"] = len(alike)
        figure += f"; {len(alike)} contradicted by another user with the same posts"
    remedies = {
        "Keep one row of each repeated group.": repeated,
        "Drop pairs with equal responses.": same,
        "Drop pairs that one user answered both ways; if two people did, give each their own user_id.": contradicting,
        "If two people share a user id, give each their own; if one person changed, nothing is to do.": changing,
        "Two users who want the opposite are what to look for, but only their posts can tell them apart: give each "
        "their own posts.": alike,
    }
    return CheckFinding(
        "duplicates",
        worst(
            grade(len(repeated) / len(keys), good=0, look=LOOK_SHARE),
            LOOK if changing else GOOD,
            BAD if same or contradicting or alike else GOOD,
        ),
        figure,
        why=(
            "A repeated row counts twice; a pair without a difference, or with both labels for users whom nothing "
            "tells apart, cannot be answered, so accuracy stops below 100 %."
        ),
        remedy=" ".join(remedy for remedy, found in remedies.items() if found),
        values={"rows": len(keys), **counts, "mirrored_share": round(mirrored, DIGITS)},
        samples=in_turns(
            (
                _samples(store, "repeats", repeated),
                _samples(store, "is contradicted by", contradicting),
                _samples(store, "is contradicted, under the same user id, by", changing),
                _samples(store, "is contradicted, with the same posts, by", alike),
                _samples(store, "has the same response twice", same),
            )
        ),
    )


def _samples(store: ExampleStore, relation: str, found: Mapping[int, int]) -> list[CheckSample]:
    samples = []
    for position, other in list(found.items())[:MOST_SAMPLES]:
        row = pair_at(store, position)
        title = f"{row.id} {relation}" if position == other else f"{row.id} {relation} {store[other].id}"
        texts = (("question", cut(row.question)), ("chosen", cut(row.chosen)), ("rejected", cut(row.rejected)))
        samples.append(CheckSample(title=title, texts=texts))
    return samples


def check_rated_duplicates(store: ExampleStore) -> CheckFinding:
    """Look for responses that the same user rated twice, alike or differently."""
    first: dict[tuple[str, int, int], tuple[str, float]] = {}
    rows, repeated, contradicting = 0, 0, 0
    samples: list[CheckSample] = []
    for row in store:
        assert isinstance(row, RatedExample), "a store of ratings holds ratings only"
        rows += 1
        key = row.user.id, fingerprint(row.question), fingerprint(row.response)
        if key not in first:
            first[key] = row.id, row.rating
            continue
        earlier, rating = first[key]
        repeated += rating == row.rating
        contradicting += rating != row.rating
        if len(samples) < MOST_SAMPLES:
            title = f"{row.id} ({row.rating:g}) rates the same as {earlier} ({rating:g})"
            samples.append(CheckSample(title=title, texts=(("response", cut(row.response)),)))
    return CheckFinding(
        "duplicates",
        worst(grade(repeated / rows, good=0, look=LOOK_SHARE), BAD if contradicting else GOOD),
        f"{repeated} repeated rows, {contradicting} with another rating than before",
        why="A repeated row counts twice, and two ratings of one response by one user cannot both be predicted.",
        remedy="Keep one row of each; where the ratings differ, ask the user again, or take their mean.",
        values={"rows": rows, "repeated": repeated, "contradicting": contradicting},
        samples=tuple(samples),
    )


def check_near(
    store: ExampleStore, keys: Sequence[PairKey], *, seed: int, advance: Progress | None = None
) -> CheckFinding:
    """Look for responses that hardly differ, and for pairs that nearly repeat another user's."""
    positions = sample_positions(keys, MOST_ROWS, seed=seed)
    texts = _read(store, keys, positions, advance)
    repeats = _near_repeats(texts.distinct, texts.owners)
    near_rows = sum(texts.sizes[index] for index in repeats)
    shares = len(texts.hardly_differ) / len(positions), near_rows / len(positions)
    identical = (len(positions) - len(texts.distinct)) / len(positions)
    sampled = "" if len(positions) == len(keys) else f"in a sample of {len(positions)} rows, "
    return CheckFinding(
        "near-duplicates",
        worst(
            grade(shares[0], good=PAIR_SHARES[0], look=PAIR_SHARES[1]),
            grade(shares[1], good=ROW_SHARES[0], look=ROW_SHARES[1]),
        ),
        f"{sampled}{percent_text(shares[0])} of pairs have almost the same response twice; "
        f"{percent_text(shares[1])} of rows nearly repeat another user's "
        f"(identical or mirrored rows, counted apart: {percent_text(identical)})",
        why="Responses that hardly differ test nothing; rows that nearly repeat make the set smaller than it looks.",
        remedy=" ".join(
            remedy
            for remedy, share in zip(
                (
                    "Drop or rewrite pairs whose responses hardly differ.",
                    "Keep one of similar rows with the same preference; another user's opposite preference stays.",
                ),
                shares,
                strict=True,
            )
            if share
        ),
        values={
            "rows": len(positions),
            "sampled": len(positions) < len(keys),
            "threshold": ALIKE,
            "pairs_alike": len(texts.hardly_differ),
            "pairs_alike_share": round(shares[0], DIGITS),
            "near_rows": near_rows,
            "near_rows_share": round(shares[1], DIGITS),
            "identical_share": round(identical, DIGITS),
        },
        samples=_near_samples(store, texts, repeats),
    )


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """The shingles of every distinct pair of a sample; lists run in parallel."""

    distinct: list[Shingles]
    first: list[int]  # the position of the first row with this question and these responses, in either order
    sizes: list[int]  # how many rows have them
    owners: list[str | None]  # whose they are; `None` for several users
    hardly_differ: list[int]  # positions of rows whose two responses are almost the same


def _read(store: ExampleStore, keys: Sequence[PairKey], positions: Sequence[int], advance: Progress | None) -> _Texts:
    texts = _Texts(distinct=[], first=[], sizes=[], owners=[], hardly_differ=[])
    place: dict[tuple[int, tuple[int, int]], int] = {}
    alike: set[int] = set()
    for done, position in enumerate(positions, 1):
        key = keys[position]
        index = place.setdefault((key.question, key.responses), len(place))
        if index == len(texts.distinct):
            pair = pair_at(store, position)
            sides = shingles(pair.chosen), shingles(pair.rejected)
            texts.distinct.append(np.unique(np.concatenate([shingles(pair.question), *sides])))
            texts.first.append(position)
            texts.sizes.append(1)
            texts.owners.append(key.user)
            if key.chosen != key.rejected and jaccard(*sides) >= ALIKE:
                alike.add(index)
        else:
            texts.sizes[index] += 1
            if texts.owners[index] != key.user:
                texts.owners[index] = None
        if index in alike:
            texts.hardly_differ.append(position)
        if advance:
            advance(done, len(positions))
    return texts


_hash_of_word = lru_cache(maxsize=200_000)(hash64)


def shingles(text: str) -> Shingles:
    """Return the hashes of every three words in a row, each once; a mark stands before and after the text."""
    hashes = np.array([0, *map(_hash_of_word, words(text)), 1], dtype=np.uint64)
    if len(hashes) == 2:
        return np.zeros(0, dtype=np.uint64)  # not a word in it
    mixed = _MIX[0] * hashes[:-2] ^ _MIX[1] * hashes[1:-1] ^ _MIX[2] * hashes[2:]
    return np.unique(mixed ^ (mixed >> np.uint64(29)))  # products leave the low bits poor: mix the high ones in


def jaccard(one: Shingles, other: Shingles) -> float:
    """Return the share of shingles that two texts have in common; 0 for texts without words."""
    if not len(one) or not len(other):
        return 0.0
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (len(one) + len(other) - common)


def _near_repeats(texts: Sequence[Shingles], owners: Sequence[str | None]) -> dict[int, int]:
    """Return the texts that are almost the same as one of another user, each with one such text."""
    found: dict[int, int] = {}
    for one, other in _candidates(texts):
        if one in found and other in found:
            continue
        several_users = owners[one] is None or owners[one] != owners[other]
        if several_users and jaccard(texts[one], texts[other]) >= ALIKE:
            found.setdefault(one, other)
            found.setdefault(other, one)
    return found


def _candidates(texts: Sequence[Shingles]) -> Iterator[tuple[int, int]]:
    """Yield pairs of texts with one band in common: each member of a bucket with the first and with its neighbor."""
    filled = [index for index, text in enumerate(texts) if len(text)]
    if not filled:
        return
    # The smallest value of each hash function is equal for two texts with probability Jaccard.
    signatures = np.stack(
        [((texts[index][:, None] * _FACTORS + _SHIFTS) >> np.uint64(16)).min(axis=0) for index in filled]
    )  # (texts, bands * size)
    seen: set[tuple[int, int]] = set()
    for band in np.split(signatures, _BANDS, axis=1):
        _, bucket_of = np.unique(band, axis=0, return_inverse=True)
        order = np.argsort(bucket_of.ravel(), kind="stable")
        borders = np.flatnonzero(np.diff(bucket_of.ravel()[order])) + 1
        for bucket in np.split(order, borders):
            members = [filled[index] for index in bucket.tolist()]
            for before, member in pairwise(members):
                for pair in ((members[0], member), (before, member)):
                    if pair not in seen:
                        seen.add(pair)
                        yield pair


def _near_samples(store: ExampleStore, texts: _Texts, repeats: Mapping[int, int]) -> tuple[CheckSample, ...]:
    within, between = [], []
    for row in (pair_at(store, position) for position in texts.hardly_differ[:MOST_SAMPLES]):
        sides = (("chosen", cut(row.chosen)), ("rejected", cut(row.rejected)))
        within.append(CheckSample(title=f"{row.id}: the responses hardly differ", texts=sides))
    for one, other in [pair for pair in sorted(repeats.items()) if pair[0] < pair[1]][:MOST_SAMPLES]:
        rows = [pair_at(store, texts.first[index]) for index in (one, other)]
        both = tuple((row.id, cut(f"{row.question}\n{row.chosen}")) for row in rows)
        title = f"{rows[1].id} nearly repeats {rows[0].id}: question and chosen"
        between.append(CheckSample(title=title, texts=both))
    return in_turns((within, between))
