"""Rows that repeat or contradict each other. The same pair mirrored for another user is wanted, and counted apart."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from prbench.construction.check.finding import (
    BAD,
    DIGITS,
    GOOD,
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
from prbench.construction.check.keys import PairKey, fingerprint, pair_at
from prbench.data import ExampleStore
from prbench.schema import RatedExample

LOOK_SHARE = 0.01  # of rows that repeat an earlier one; above it, they are too many
_WHY = (
    "A repeated row counts twice, and a pair without a difference or with both labels cannot be answered, "
    "so accuracy stops below 100 %."
)


def check_duplicates(store: ExampleStore, keys: Sequence[PairKey]) -> Finding:
    """Look for pairs that repeat, contradict, or differ in white space and case only."""
    repeated, contradicting = _repeated(keys), _contradicting(keys)
    same = [position for position, key in enumerate(keys) if key.chosen == key.rejected]
    mirrored = _mirrored_share(keys)
    counts = {"repeated": len(repeated), "same_responses": len(same), "contradicting": len(contradicting)}
    return make_finding(
        "duplicates",
        worst_of(grade(len(repeated) / len(keys), good=0, look=LOOK_SHARE), BAD if same or contradicting else GOOD),
        f"{len(repeated)} repeated rows, {len(contradicting)} contradicted, "
        f"{len(same)} whose responses differ in space or case only; balanced by mirroring: {percent(mirrored)}",
        why=_WHY,
        remedy="Keep one row of each repeated group; drop pairs with equal responses and pairs with both labels.",
        values={"rows": len(keys), **counts, "mirrored_share": round(mirrored, DIGITS)},
        samples=in_turns(
            (
                _samples(store, "repeats", repeated),
                _samples(store, "is contradicted by", contradicting),
                _samples(store, "has the same response twice", {position: position for position in same}),
            )
        ),
    )


def _repeated(keys: Sequence[PairKey]) -> dict[int, int]:
    """Return the positions of rows that were there before, each with the first of its kind."""
    first: dict[PairKey, int] = {}
    return {position: first[key] for position, key in enumerate(keys) if first.setdefault(key, position) != position}


def _contradicting(keys: Sequence[PairKey]) -> dict[int, int]:
    """Return the rows whose user chose the other way round in another row, each with the first such row."""
    first: dict[PairKey, int] = {}
    for position, key in enumerate(keys):
        first.setdefault(key, position)
    turned = {position: first.get(_turned(key)) for position, key in enumerate(keys) if key.chosen != key.rejected}
    return {position: other for position, other in turned.items() if other is not None}


def _turned(key: PairKey) -> PairKey:
    return key._replace(chosen=key.rejected, rejected=key.chosen)


def _mirrored_share(keys: Sequence[PairKey]) -> float:
    """Return the share of rows that come the other way round for another user."""
    users: dict[tuple[int, int, int], set[str]] = defaultdict(set)
    for key in keys:
        users[key[1:]].add(key.user)
    return sum(bool(users.get(_turned(key)[1:], set()) - {key.user}) for key in keys) / len(keys)


def _samples(store: ExampleStore, relation: str, found: Mapping[int, int]) -> list[Sample]:
    samples = []
    for position, other in list(found.items())[:MOST_SAMPLES]:
        row = pair_at(store, position)
        title = f"{row.id} {relation}" if position == other else f"{row.id} {relation} {store[other].id}"
        texts = (("question", cut(row.question)), ("chosen", cut(row.chosen)), ("rejected", cut(row.rejected)))
        samples.append(Sample(title=title, texts=texts))
    return samples


def check_rated_duplicates(store: ExampleStore) -> Finding:
    """Look for responses that the same user rated twice, alike or differently."""
    first: dict[tuple[str, int, int], tuple[str, float]] = {}
    rows, repeated, contradicting = 0, 0, 0
    samples: list[Sample] = []
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
            samples.append(Sample(title=title, texts=(("response", cut(row.response)),)))
    return make_finding(
        "duplicates",
        worst_of(grade(repeated / rows, good=0, look=LOOK_SHARE), BAD if contradicting else GOOD),
        f"{repeated} repeated rows, {contradicting} with another rating than before",
        why="A repeated row counts twice, and two ratings of one response by one user cannot both be predicted.",
        remedy="Keep one row of each; where the ratings differ, ask the user again, or take their mean.",
        values={"rows": rows, "repeated": repeated, "contradicting": contradicting},
        samples=samples,
    )
