"""PKU-SafeRLHF: `prompt`, `response_0`, `response_1`, which of them is better, and which is safer."""

from collections.abc import Mapping

from prbench.data.importing import content_id, leftover, to_question, to_response
from prbench.data.rows import quoted, row_error
from prbench.schema import Json

_USED = frozenset({"id", "prompt", "response_0", "response_1"})
_ADDED = frozenset({"question", "profile", "chosen", "rejected", "better_is_safer"})


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair: the better response is `chosen`. `better_is_safer` tells where the other label disagrees."""
    better, safer = raw["better_response_id"], raw.get("safer_response_id")
    for name, label in (("better_response_id", better), ("safer_response_id", 0 if safer is None else safer)):
        if isinstance(label, bool) or label not in (0, 1):
            raise row_error(where, name, f"is {quoted(label)}, but it names response 0 or 1", "Drop the row")
    answers = [to_response(raw[f"response_{place}"], where, f"response_{place}") for place in (0, 1)]
    own_id = raw.get("id")
    return [
        {
            **leftover(raw, _USED, _ADDED, where),
            "id": content_id(raw["prompt"], *answers) if own_id is None else own_id,
            "question": to_question(raw["prompt"], where, "prompt"),
            "profile": [],
            "chosen": answers[int(better)],
            "rejected": answers[1 - int(better)],
            **({} if safer is None else {"better_is_safer": better == safer}),
        }
    ]
