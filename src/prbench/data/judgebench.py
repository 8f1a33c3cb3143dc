"""JudgeBench: `pair_id`, `question`, `response_A`, `response_B`, and a `label` that says which is right."""

from collections.abc import Mapping

from prbench.data.importing import content_id, leftover
from prbench.data.rows import quoted, row_error
from prbench.schema import COUNTED_AS, Json

_USED = frozenset({"pair_id", "question", "response_A", "response_B", "source"})
_ADDED = frozenset({"id", "profile", "category", "chosen", "rejected", COUNTED_AS})


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair; `label` stays in `meta` and tells which side the chosen response stood on."""
    first, second, label = raw["response_A"], raw["response_B"], raw["label"]
    if label not in ("A>B", "B>A"):
        raise row_error(where, "label", f"is {quoted(label)}, which names no preferred response", "Drop the row")
    own_id = raw.get("pair_id")
    return [
        {
            **leftover(raw, _USED, _ADDED, where),
            "id": content_id(raw["question"], first, second) if own_id is None else own_id,
            "question": raw["question"],
            "profile": [],
            "category": raw.get("source"),
            "chosen": first if label == "A>B" else second,
            "rejected": second if label == "A>B" else first,
            COUNTED_AS: "judgebench",
        }
    ]
