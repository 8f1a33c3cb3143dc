"""Folds of users, so that nothing is fitted on the people it is reported for."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import numpy.typing as npt

FOLDS = 5


def user_folds(user_ids: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the fold of each row: a hash of its user's id, so that adding a user moves nobody else.

    When all of a handful of users hash alike, each becomes a fold of their own. One user is one fold.
    """
    fold_of = {user: int.from_bytes(sha256(user.encode()).digest()[:8], "big") % FOLDS for user in set(user_ids)}
    if len(set(fold_of.values())) == 1:
        fold_of = {user: index for index, user in enumerate(sorted(fold_of))}
    return np.array([fold_of[user] for user in user_ids], dtype=np.int64)
