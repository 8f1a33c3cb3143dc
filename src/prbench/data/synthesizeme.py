"""PersonalRewardBench (SynthesizeMe): `context` (messages), `chosen`, `rejected` (a message), `user_id`, `split`."""

from collections.abc import Mapping

from prbench.data.importing import (
    ORIGINAL,
    content_id,
    leftover,
    original_messages,
    to_question,
    to_response,
)
from prbench.schema import Json

_USED = frozenset({"id", "context", "chosen", "rejected"})
_ADDED = frozenset({"question", "profile", ORIGINAL})


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair, with an empty profile.

    The set has no posts. What the same user chose in other rows is a label, not a history, so it is not made one.
    """
    context, chosen, rejected = raw["context"], raw["chosen"], raw["rejected"]
    question = to_question(context, where, "context")
    first, second = to_response(chosen, where, "chosen"), to_response(rejected, where, "rejected")
    own_id = raw.get("id")
    made_id = content_id(raw.get("user_id"), context, chosen, rejected)
    return [
        {
            **leftover(raw, _USED, _ADDED, where),
            "id": made_id if own_id is None else own_id,
            "question": question,
            "profile": [],
            "chosen": first,
            "rejected": second,
            **original_messages(question, first, second, context, chosen, rejected),
        }
    ]
