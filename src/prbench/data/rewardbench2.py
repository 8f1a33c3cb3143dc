"""RewardBench 2: lists of right and wrong completions of one prompt, with their counts."""

from collections.abc import Mapping

from prbench.data.importing import ORIGINAL, content_id, leftover, original_messages, to_question
from prbench.data.rows import row_error
from prbench.schema import COUNTED_AS, Json

_USED = frozenset({"id", "prompt", "chosen", "rejected", "subset"})
_ADDED = frozenset(
    {
        "user_id",
        "question",
        "profile",
        "category",
        "group",
        "chosen_index",
        "rejected_index",
        "pairs_of_prompt",
        "ties_kind",
        "ties_prompt",
        ORIGINAL,
        COUNTED_AS,
    }
)
_TIES = "Ties"


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair of a right and a wrong completion; `group` in `meta` puts a prompt together again.

    The pairs of one prompt share a `user_id`, so that intervals are clustered by prompts, not pairs.
    """
    prompt, subset = raw["prompt"], raw.get("subset") or ""
    question = to_question(prompt, where, "prompt")
    own_id = content_id(prompt, raw["chosen"]) if raw.get("id") is None else raw["id"]
    group = f"{subset}/{own_id}"
    common = {
        **leftover(raw, _USED, _ADDED, where),
        "user_id": group,
        "question": question,
        "profile": [],
        "category": subset,
        "group": group,
        "pairs_of_prompt": len(raw["chosen"]) * len(raw["rejected"]),
        COUNTED_AS: "rewardbench2",
        **_ties(str(own_id), subset, where),
        **original_messages(question, "", "", prompt, None, None),
    }
    return [
        {
            **common,
            "id": f"{group}#{i}-{j}",
            "chosen": right,
            "rejected": wrong,
            "chosen_index": i,
            "rejected_index": j,
        }
        for i, right in enumerate(raw["chosen"])
        for j, wrong in enumerate(raw["rejected"])
    ]


def _ties(own_id: str, subset: str, where: str) -> dict[str, Json]:
    """Ties ids are `ref:n` (one right answer) and `tied:n` (several); n joins the two."""
    if subset != _TIES:
        return {}
    kind, _, number = own_id.partition(":")
    if kind not in ("ref", "tied") or not number.isdecimal():
        raise row_error(
            where, "id", f"is {own_id!r}, but ids of the Ties subset are ref:n or tied:n", "Correct the id"
        )
    return {"ties_kind": kind, "ties_prompt": int(number)}
