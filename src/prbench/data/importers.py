"""Which importer reads a row of another benchmark: one table, and the first whose columns fit.

An importer is a module with `to_rows(raw, where) -> rows`, one entry here, and its test. It is imported when a row of
its format comes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name

from prbench.data.importing import ToRows
from prbench.schema import Json


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
    responses: frozenset[str] = _columns("chosen rejected")  # where the texts to judge are

    def reads(self, raw: Mapping[str, Json]) -> bool:
        """Is this a row of the format?"""
        columns = raw.keys()
        fits = self.needs <= columns and columns.isdisjoint(self.without)
        return fits and not (self.any_of and columns.isdisjoint(self.any_of)) and (not self.takes_lists or _lists(raw))


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
        responses=_columns("response_A response_B"),
    ),
    Importer(
        name="llmbar",
        load="prbench.data.llmbar:to_rows",
        needs=_columns("input output_1 output_2 label"),
        without=_PERHAPS_OURS,
        responses=_columns("output_1 output_2"),
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
    ),
    Importer(
        name="synthesizeme",
        load="prbench.data.synthesizeme:to_rows",
        needs=_columns("context chosen rejected"),
        without=_PERHAPS_OURS | _columns("prompt"),
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
RESPONSES = frozenset[str]().union(*(importer.responses for importer in IMPORTERS))

_loaded = cache(resolve_name)


def find_importer(raw: Mapping[str, Json]) -> ToRows | None:
    """The importer for a row with these columns; `None` for a row of our own format, sound or not."""
    found = next((importer for importer in IMPORTERS if importer.reads(raw)), None)
    if found is None:
        return None
    to_rows: ToRows = _loaded(found.load)
    return to_rows
