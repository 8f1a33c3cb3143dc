"""Rows of `text_chosen` and `text_rejected`: whole conversations, as text or messages, with the prompt inside."""

from collections.abc import Mapping

from prbench.data import trl_preference
from prbench.schema import Json


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair, as of TRL's rows; where there is a `subset`, it is the category and part of the id."""
    rest = {name: value for name, value in raw.items() if name not in ("text_chosen", "text_rejected", "subset")}
    made = trl_preference.to_rows({**rest, "chosen": raw["text_chosen"], "rejected": raw["text_rejected"]}, where)
    subset = raw.get("subset")
    return [{**row, "id": f"{subset}/{row['id']}", "category": subset} if subset else row for row in made]
