"""What the store remembers of each row: about 150 bytes, whatever the size of the row."""

import hashlib
import sys
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

# Points of each user on the ring of donors: more points share the rows out more evenly.
_POINTS_PER_USER = 8
_GOLDEN = 0x9E3779B97F4A7C15
_INT_BYTES = 32  # of a number as Python holds it


def hash64(text: str) -> int:
    """64 bits that stand for a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class _Ring:
    """The users of one category, each at several places of a circle, sorted by place."""

    points: Hashes
    users: Hashes
    rows: npt.NDArray[np.int64]  # for each point, a row that holds the user's profile

    def next_other(self, point: int, user: int) -> int | None:
        """The row of the first user after `point` who is not `user`."""
        start = int(np.searchsorted(self.points, np.uint64(point)))
        for step in range(len(self.points)):
            at = (start + step) % len(self.points)
            if int(self.users[at]) != user:
                return int(self.rows[at])
        return None


class RowIndex:
    """Ids, users and categories of all rows, by position."""

    def __init__(self) -> None:
        self._ids = array("Q")
        self._users = array("Q")
        self._categories = array("I")
        self._has_profile = array("B")
        self._names: dict[str, int] = {}
        self._positions: dict[int, int] = {}  # of the first row with a hashed id
        self._rings: dict[tuple[int, bool], _Ring] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, in order of appearance."""
        return tuple(self._names)

    @property
    def users(self) -> int:
        """How many different people there are."""
        return int(np.unique(np.asarray(self._users)).size)

    @property
    def bytes_used(self) -> int:
        """Memory held for the rows; grows with their number only."""
        arrays = (self._ids, self._users, self._categories, self._has_profile)
        keys_and_values = _INT_BYTES * 2 * len(self._positions)
        return sum(map(sys.getsizeof, (*arrays, self._positions))) + keys_and_values

    def add(self, example_id: str, user_id: str, category: str, has_profile: bool) -> None:
        """Append a row."""
        self._ids.append(hash64(example_id))
        self._users.append(hash64(user_id))
        self._categories.append(self._names.setdefault(category, len(self._names)))
        self._has_profile.append(has_profile)
        self._positions.setdefault(self._ids[-1], len(self._ids) - 1)

    def find(self, example_id: str) -> int | None:
        """The position of the row whose id has the same hash, if there is one."""
        return self._positions.get(hash64(example_id))

    def donor(self, position: int, seed: int) -> int | None:
        """The position of a row that holds another user's profile, of the same category; `None` if there is none.

        The row's hashed id is a point on a ring of hashed users, and the next user there is the donor: a row that
        comes or goes moves only the rows next to it. Users with posts come before users without.
        """
        point, user = hash64(f"{seed}:{self._ids[position]}"), self._users[position]
        for with_profile in (True, False):
            found = self._ring(self._categories[position], with_profile).next_other(point, user)
            if found is not None:
                return found
        return None

    def _ring(self, category: int, with_profile: bool) -> _Ring:
        key = (category, with_profile)
        if key in self._rings:
            return self._rings[key]
        belongs = np.asarray(self._categories) == category
        if with_profile:
            belongs &= np.asarray(self._has_profile) == 1
        rows = np.flatnonzero(belongs)
        users, ids = np.asarray(self._users)[rows], np.asarray(self._ids)[rows]
        # Of a user's rows, the one with the smallest hash lends the profile: rows that come or go rarely change that.
        order = np.lexsort((ids, users))
        unique, first = np.unique(users[order], return_index=True)
        lenders = rows[order][first]
        points = np.concatenate([_scatter(unique, number) for number in range(_POINTS_PER_USER)])
        around = np.argsort(points, kind="stable")
        self._rings[key] = _Ring(
            points[around], np.tile(unique, _POINTS_PER_USER)[around], np.tile(lenders, _POINTS_PER_USER)[around]
        )
        return self._rings[key]


def _scatter(hashes: Hashes, number: int) -> Hashes:
    """Mix the bits (splitmix64), so that a user's points lie far apart."""
    mixed = hashes + np.uint64(_GOLDEN * (number + 1) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
