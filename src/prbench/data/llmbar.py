"""LLMBar: `input`, `output_1`, `output_2`, and a `label` (1 or 2) that says which output follows the instruction."""

import re
from collections.abc import Mapping

from prbench.data.importing import content_id, leftover
from prbench.data.rows import quoted, row_error
from prbench.schema import COUNTED_AS, Json

SUBSETS = ("Natural", "Neighbor", "GPTInst", "GPTOut", "Manual")
_USED = frozenset({"id", "input", "output_1", "output_2", "subset"})
_ADDED = frozenset({"question", "profile", "category", "chosen", "rejected", COUNTED_AS})


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair; `label` stays in `meta`.

    The subset, which is the category, is the row's own `subset` or else part of the file's path: the authors keep each
    in a folder of its name (`Adversarial/GPTOut/dataset.json`).
    """
    label, outputs = raw["label"], (raw["output_1"], raw["output_2"])
    if type(label) is not int or label not in (1, 2):
        raise row_error(where, "label", f"is {quoted(label)}, but LLMBar labels are 1 or 2", "Drop the row")
    subset = raw.get("subset") or _subset_in(where)
    own_id = content_id(raw["input"], *outputs) if raw.get("id") is None else raw["id"]
    return [
        {
            **leftover(raw, _USED, _ADDED, where),
            "id": f"{subset}/{own_id}" if subset else own_id,
            "question": raw["input"],
            "profile": [],
            "category": subset,
            "chosen": outputs[label - 1],
            "rejected": outputs[2 - label],
            COUNTED_AS: "llmbar",
        }
    ]


def _subset_in(where: str) -> str:
    """The subset that a place is named after, the last one if there are several; "" if there is none."""
    return next((word for word in reversed(re.findall(r"[A-Za-z]+", where)) if word in SUBSETS), "")
