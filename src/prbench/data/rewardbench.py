"""RewardBench: `prompt` (text or messages), `chosen`, `rejected`, `subset`, `id`."""

from collections.abc import Mapping

from prbench.data.importing import (
    ORIGINAL,
    content_id,
    leftover,
    original_messages,
    to_question,
    to_response,
)
from prbench.schema import COUNTED_AS, Json

_USED = frozenset({"id", "prompt", "chosen", "rejected", "subset"})
_ADDED = frozenset({"question", "profile", "category", ORIGINAL, COUNTED_AS})


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair; the subset is the category and part of the id, since ids start anew in each subset."""
    prompt, chosen, rejected = raw["prompt"], raw["chosen"], raw["rejected"]
    question = to_question(prompt, where, "prompt")
    first, second = to_response(chosen, where, "chosen"), to_response(rejected, where, "rejected")
    own_id = raw.get("id")
    return [
        {
            **leftover(raw, _USED, _ADDED, where),
            "id": f"{raw['subset']}/{content_id(prompt, chosen, rejected) if own_id is None else own_id}",
            "question": question,
            "profile": [],
            "category": raw["subset"],
            "chosen": first,
            "rejected": second,
            COUNTED_AS: "rewardbench",
            **original_messages(question, first, second, prompt, chosen, rejected),
        }
    ]
