"""Personalized Soups (P-Soups): `user_input`, and `completion_a`, which is preferred to `completion_b`."""

import re
from collections.abc import Mapping

from prbench.data.importing import content_id, file_stem, leftover
from prbench.schema import Json

_USED = frozenset({"id", "user_input", "completion_a", "completion_b", "user_id"})
_ADDED = frozenset({"question", "profile", "category", "chosen", "rejected"})
_PREFERENCE = re.compile(r"P[1-3][A-D](?![A-Za-z0-9])")  # the criterion that a file of the authors is named after


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair. A file holds what one criterion prefers (`P1A.json`), so that criterion is its user."""
    found = _PREFERENCE.search(file_stem(where).replace("_", " "))
    criterion = found[0] if found else ""
    own_id = raw.get("id")
    texts = raw["user_input"], raw["completion_a"], raw["completion_b"]
    made_id = content_id(*texts) if own_id is None else own_id
    owner = raw.get("user_id") or criterion or None
    return [
        {
            **leftover(raw, _USED, _ADDED, where),
            "id": f"{criterion}/{made_id}" if criterion else made_id,
            "user_id": owner,
            "question": texts[0],
            "profile": [],
            "category": criterion,
            "chosen": texts[1],
            "rejected": texts[2],
        }
    ]
