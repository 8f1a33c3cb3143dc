"""Which importer reads a row of another benchmark: one table, told by the columns of a row.

An importer is a module with `to_rows(raw, where) -> rows`, one entry here, and its test. It is imported when a row of
its format comes. Where several formats fit, the first one is meant, which therefore stands before those that ask for
fewer columns. If another one asks for columns of which it knows nothing, nobody can tell, and the row is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from prbench.data.rows import RawRow, row_error
from prbench.schema import Json

ToRows = Callable[..., list[dict[str, Json]]]
_loaded = cache(resolve_name)


def _columns(names: str) -> frozenset[str]:
    return frozenset(names.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """One foreign format: which columns tell it, and the function that makes our rows of it."""

    name: str
    load: str  # "package.module:function", imported when used
    needs: frozenset[str]  # columns that a row must have, filled or not
    any_of: frozenset[str] = frozenset()  # of which it must have one
    without: frozenset[str] = frozenset()  # which it must not have
    takes_lists: bool = False  # `chosen` and `rejected` are lists of texts
    looks_beside: bool = False  # its function is given the path of the row's file, too: a part lies in another one
    # Files that hold no rows of their own, each with the file whose presence says so: globs from the same folder on.
    parts: tuple[tuple[str, str], ...] = ()

    def reads(self, raw: Mapping[str, Json]) -> bool:
        """Is this a row of the format?"""
        columns = raw.keys()
        fits = self.needs <= columns and columns.isdisjoint(self.without)
        return fits and not (self.any_of and columns.isdisjoint(self.any_of)) and (not self.takes_lists or _lists(raw))

    @property
    def to_rows(self) -> Any:
        """The function that makes our rows."""
        return _loaded(self.load)

    def rows(self, raw: RawRow) -> list[dict[str, Json]]:
        """Our rows, made of one of its own."""
        beside: tuple[Path | None, ...] = (raw.file,) if self.looks_beside else ()
        made: list[dict[str, Json]] = self.to_rows(raw.value, raw.where, *beside)
        return made


def _lists(raw: Mapping[str, Json]) -> bool:
    return all(
        isinstance(raw[side], list) and raw[side] and all(isinstance(text, str) for text in raw[side])
        for side in ("chosen", "rejected")
    )


# A row of ours has a question; one with a profile but without a question or a prompt is ours too, and incomplete.
_OURS = _columns("question")
_PERHAPS_OURS = _columns("question profile rubric_aspects narrative response rating")

IMPORTERS = (
    Importer(
        name="judgebench",
        load="prbench.data.judgebench:to_rows",
        needs=_columns("question response_A response_B label"),
    ),
    Importer(
        name="llmbar",
        load="prbench.data.llmbar:to_rows",
        needs=_columns("input output_1 output_2 label"),
        without=_PERHAPS_OURS,
        parts=(("evaluators/*/*/*.json", "dataset.json"),),
    ),
    Importer(
        name="personamem",
        load="prbench.data.personamem:to_rows",
        needs=_columns("all_options correct_answer shared_context_id end_index_in_shared_context"),
        looks_beside=True,
        parts=(("shared_contexts*.jsonl", "questions*.csv"),),
    ),
    Importer(
        name="prefeval",
        load="prbench.data.prefeval:to_rows",
        needs=_columns("question preference explanation"),
        without=_columns("profile chosen rejected response rating"),
        looks_beside=True,
    ),
    Importer(
        name="psoups",
        load="prbench.data.psoups:to_rows",
        needs=_columns("user_input completion_a completion_b"),
        without=_PERHAPS_OURS,
    ),
    Importer(
        name="helpsteer3",
        load="prbench.data.helpsteer3:to_rows",
        needs=_columns("context response1 response2 overall_preference"),
        without=_PERHAPS_OURS,
    ),
    Importer(
        name="pku_saferlhf",
        load="prbench.data.pku_saferlhf:to_rows",
        needs=_columns("prompt response_0 response_1 better_response_id"),
        without=_PERHAPS_OURS,
    ),
    Importer(
        name="ultrafeedback",
        load="prbench.data.ultrafeedback:to_rows",
        needs=_columns("instruction completions"),
        without=_PERHAPS_OURS,
    ),
    Importer(
        name="rewardbench2",
        load="prbench.data.rewardbench2:to_rows",
        needs=_columns("prompt chosen rejected"),
        any_of=_columns("num_correct total_completions"),
        without=_OURS,
        takes_lists=True,
    ),
    Importer(
        name="rm_bench",
        load="prbench.data.rm_bench:to_rows",
        needs=_columns("prompt chosen rejected"),
        without=_OURS,
        takes_lists=True,
        parts=(("*_filtered.json", "total_dataset.json"),),
    ),
    Importer(
        name="synthesizeme",
        load="prbench.data.synthesizeme:to_rows",
        needs=_columns("context chosen rejected"),
        without=_PERHAPS_OURS | _columns("prompt"),
    ),
    Importer(
        name="text_pairs",
        load="prbench.data.text_pairs:to_rows",
        needs=_columns("text_chosen text_rejected"),
        without=_PERHAPS_OURS,
    ),
    Importer(
        name="rewardbench",
        load="prbench.data.rewardbench:to_rows",
        needs=_columns("prompt chosen rejected subset"),
        without=_OURS,
    ),
    Importer(
        name="trl",
        load="prbench.data.trl_preference:to_rows",
        needs=_columns("prompt chosen rejected"),
        without=_OURS,
    ),
    Importer(
        name="trl, implicit prompt",
        load="prbench.data.trl_preference:to_rows",
        needs=_columns("chosen rejected"),
        without=_PERHAPS_OURS,
    ),
)
PARTS = tuple(part for importer in IMPORTERS for part in importer.parts)


def find_importer(raw: Mapping[str, Json], where: str = "row") -> Importer | None:
    """The importer for a row with these columns; `None` for a row of our own format, sound or not."""
    fitting = [importer for importer in IMPORTERS if importer.reads(raw)]
    if not fitting:
        return None
    best = fitting[0]
    rivals = [one for one in fitting if not (one.needs <= best.needs or best.needs <= one.needs)]
    if rivals:
        fact = f"has the columns of {best.name} and of {rivals[0].name}, so its format is ambiguous"
        remedy = "Say which columns are meant, e.g. --columns 'prompt=…,chosen=…,rejected=…'"
        raise row_error(where, "row", fact, remedy)
    return best
