"""Which importer reads a row, told by its columns, so that `--data FILE` just works."""

from collections.abc import Mapping

from prbench.data import judgebench, rewardbench, rewardbench2, rm_bench, synthesizeme, trl_preference
from prbench.data.importing import ToRows
from prbench.schema import Json

_OURS = frozenset({"profile", "rubric_aspects", "narrative", "response", "rating"})


def to_our_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """The row itself, if it has our columns, or what its importer makes of it."""
    importer = find_importer(raw)
    return [dict(raw)] if importer is None else importer(raw, where)


def find_importer(raw: Mapping[str, Json]) -> ToRows | None:
    """The importer for a row with these columns; `None` for a row of our own format, sound or not."""
    columns = raw.keys()
    if {"question", "response_A", "response_B", "label"} <= columns:
        return judgebench.to_rows
    if "question" in columns or not {"chosen", "rejected"} <= columns:
        return None
    if columns & _OURS and "prompt" not in columns:
        return None
    if _is_text_list(raw["chosen"]) and _is_text_list(raw["rejected"]) and "prompt" in columns:
        return rewardbench2.to_rows if columns & {"num_correct", "total_completions"} else rm_bench.to_rows
    if "context" in columns and "prompt" not in columns:
        return synthesizeme.to_rows
    return rewardbench.to_rows if {"prompt", "subset"} <= columns else trl_preference.to_rows


def _is_text_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)
