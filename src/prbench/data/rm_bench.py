"""RM-Bench: three right and three wrong responses to a prompt, in styles from concise to formatted."""

from collections.abc import Mapping

from prbench.data.importing import ORIGINAL, content_id, file_stem, leftover, original_messages, to_question
from prbench.data.rows import row_error
from prbench.schema import COUNTED_AS, Json

STYLES = ("concise", "detailed_plain", "detailed_markdown")
DOMAINS = ("chat", "code", "math", "safety-refuse", "safety-response")
_USED = frozenset({"id", "prompt", "chosen", "rejected", "domain"})
_ADDED = frozenset(
    {
        "user_id",
        "question",
        "profile",
        "category",
        "group",
        "chosen_style",
        "rejected_style",
        "difficulty",
        "pairs_of_prompt",
        ORIGINAL,
        COUNTED_AS,
    }
)


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """Nine rows, one per cell of the style matrix, each with its `difficulty` in `meta`.

    The nine share a `user_id`, so that intervals are clustered by prompts, not pairs. Ids start anew in each file of
    the authors, so the domain is part of ours: the row's own, or what the file is named after (`chat_filtered.json`).
    """
    for field in ("chosen", "rejected"):
        if len(raw[field]) != len(STYLES):
            fact = f"holds {len(raw[field])} responses, but RM-Bench rows hold {len(STYLES)}, one per style"
            raise row_error(where, field, fact, "For other lists of responses add the RewardBench 2 columns")
    prompt, domain = raw["prompt"], raw.get("domain") or _domain_in(where)
    question = to_question(prompt, where, "prompt")
    own_id = content_id(prompt, raw["chosen"]) if raw.get("id") is None else raw["id"]
    group = f"{domain}/{own_id}" if domain else str(own_id)
    common = {
        **leftover(raw, _USED, _ADDED, where),
        "user_id": group,
        "question": question,
        "profile": [],
        "category": domain,
        "group": group,
        "pairs_of_prompt": len(STYLES) ** 2,
        COUNTED_AS: "rm_bench",
        **original_messages(question, "", "", prompt, None, None),
    }
    return [
        {
            **common,
            "id": f"{group}#{i}-{j}",
            "chosen": right,
            "rejected": wrong,
            "chosen_style": STYLES[i],
            "rejected_style": STYLES[j],
            "difficulty": difficulty(i, j),
        }
        for i, right in enumerate(raw["chosen"])
        for j, wrong in enumerate(raw["rejected"])
    ]


def _domain_in(where: str) -> str:
    name = file_stem(where).removesuffix("_filtered")
    return name if name in DOMAINS else ""


def difficulty(chosen_style: int, rejected_style: int) -> str:
    """`hard` where the wrong response has the fancier style, `easy` where the right one has it."""
    if chosen_style == rejected_style:
        return "normal"
    return "hard" if chosen_style < rejected_style else "easy"
