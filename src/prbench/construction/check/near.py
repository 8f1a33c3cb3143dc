"""Texts that are almost the same: both responses of a pair, or whole pairs of different users.

Texts are compared as sets of shingles (three words in a row) by Jaccard's index. All pairs of rows would be too many,
so candidates come from MinHash signatures (Broder 1997) cut into bands; each candidate is then compared exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from prbench.construction.check.finding import (
    DIGITS,
    MOST_SAMPLES,
    Finding,
    Sample,
    cut,
    grade,
    in_turns,
    make_finding,
    percent,
)
from prbench.construction.check.finding import worst as worst_of
from prbench.construction.check.keys import PairKey, pair_at, sample_positions
from prbench.data import ExampleStore
from prbench.data.index import hash64
from prbench.data.texts import words
from prbench.schema import Example, Progress

Shingles = npt.NDArray[np.uint64]  # sorted, each once

ALIKE = 0.8  # Jaccard's index from which two texts count as almost the same
MOST_ROWS = 20_000
PAIR_SHARES = (0.01, 0.05)  # of pairs with near-identical responses: good up to, look up to
ROW_SHARES = (0.05, 0.20)  # of rows that nearly repeat another user's
# Two texts at the threshold of 0.8 meet in one of the 8 bands with probability 0.985, at 0.9 with 0.9998.
_BANDS, _BAND_SIZE = 8, 4
_MIX = tuple(np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


def check_near(
    store: ExampleStore, keys: Sequence[PairKey], *, seed: int, progress: Progress | None = None
) -> Finding:
    """Look for responses that hardly differ, and for pairs that nearly repeat another user's."""
    positions = sample_positions(keys, MOST_ROWS, seed=seed)
    texts = _read(store, keys, positions, progress)
    repeats = _near_repeats(texts.distinct, texts.owners)
    near_rows = sum(texts.sizes[index] for index in repeats)
    shares = len(texts.hardly_differ) / len(positions), near_rows / len(positions)
    identical = (len(positions) - len(texts.distinct)) / len(positions)
    sampled = "" if len(positions) == len(keys) else f"in a sample of {len(positions)} rows, "
    return make_finding(
        "near-duplicates",
        worst_of(
            grade(shares[0], good=PAIR_SHARES[0], look=PAIR_SHARES[1]),
            grade(shares[1], good=ROW_SHARES[0], look=ROW_SHARES[1]),
        ),
        f"{sampled}{percent(shares[0])} of pairs have almost the same response twice; {percent(shares[1])} of rows "
        f"nearly repeat another user's (identical or mirrored rows, counted apart: {percent(identical)})",
        why="Responses that hardly differ test nothing; rows that nearly repeat make the set smaller than it looks.",
        remedy="Drop or rewrite pairs whose responses hardly differ, and keep one of each group of similar rows.",
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
        samples=in_turns((_pair_samples(store, texts.hardly_differ), _row_samples(store, texts.first, repeats))),
    )


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """The shingles of every distinct pair of a sample; lists run in parallel."""

    distinct: list[Shingles]
    first: list[int]  # the position of the first row with this question and these responses, in either order
    sizes: list[int]  # how many rows have them
    owners: list[str | None]  # whose they are; `None` for several users
    hardly_differ: list[int]  # positions of rows whose two responses are almost the same


def _read(store: ExampleStore, keys: Sequence[PairKey], positions: Sequence[int], progress: Progress | None) -> _Texts:
    texts = _Texts(distinct=[], first=[], sizes=[], owners=[], hardly_differ=[])
    place: dict[tuple[int, tuple[int, int]], int] = {}
    alike: set[int] = set()
    for done, position in enumerate(positions, 1):
        key = keys[position]
        index = place.setdefault((key.question, key.responses), len(place))
        if index == len(texts.distinct):
            question, sides = _shingles_of(pair_at(store, position))
            texts.distinct.append(np.unique(np.concatenate([question, *sides])))
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
        if progress:
            progress(done, len(positions))
    return texts


def _shingles_of(example: Example) -> tuple[Shingles, tuple[Shingles, Shingles]]:
    return shingles(example.question), (shingles(example.chosen), shingles(example.rejected))


def shingles(text: str) -> Shingles:
    """Return the hashes of every three words in a row, each once; a mark stands before and after the text."""
    hashes = np.array([0, *map(_word_hash, words(text)), 1], dtype=np.uint64)
    if len(hashes) == 2:
        return np.zeros(0, dtype=np.uint64)  # not a word in it
    mixed = _MIX[0] * hashes[:-2] ^ _MIX[1] * hashes[1:-1] ^ _MIX[2] * hashes[2:]
    return np.unique(mixed ^ (mixed >> np.uint64(29)))


@lru_cache(maxsize=200_000)
def _word_hash(word: str) -> int:
    return hash64(word)


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
    """Yield pairs of texts with one band in common: each member of a bucket with the first and with its neighbour."""
    filled = [index for index, text in enumerate(texts) if len(text)]
    if not filled:
        return
    signatures = np.stack([_signature(texts[index]) for index in filled])  # (texts, bands * size)
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


def _signature(text: Shingles) -> Shingles:
    """Return the smallest value of each hash function over the text; equal with probability Jaccard."""
    factors, shifts = _hash_functions()
    minima: Shingles = ((text[:, None] * factors + shifts) >> np.uint64(16)).min(axis=0)
    return minima


@lru_cache(maxsize=1)
def _hash_functions() -> tuple[Shingles, Shingles]:
    generator = np.random.Generator(np.random.PCG64(0))  # fixed: the same texts give the same candidates
    factors, shifts = generator.integers(0, 2**64, size=(2, _BANDS * _BAND_SIZE), dtype=np.uint64)
    return factors | np.uint64(1), shifts


def _pair_samples(store: ExampleStore, positions: Sequence[int]) -> list[Sample]:
    rows = [pair_at(store, position) for position in positions[:MOST_SAMPLES]]
    return [
        Sample(
            title=f"{row.id}: the responses hardly differ",
            texts=(("chosen", cut(row.chosen)), ("rejected", cut(row.rejected))),
        )
        for row in rows
    ]


def _row_samples(store: ExampleStore, first: Sequence[int], repeats: dict[int, int]) -> list[Sample]:
    samples: list[Sample] = []
    for index, other in sorted(repeats.items()):
        if index < other and len(samples) < MOST_SAMPLES:
            one, two = pair_at(store, first[index]), pair_at(store, first[other])
            texts = tuple((row.id, cut(f"{row.question}\n{row.chosen}")) for row in (one, two))
            samples.append(Sample(title=f"{two.id} nearly repeats {one.id}: question and chosen", texts=texts))
    return samples
