"""From boards to one self-contained page: no network at view time, and text from data stays text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from prbench.pages.board import LEGEND, Board, Line
from prbench.pages.charts import charts
from prbench.pages.items import Items
from prbench.pages.shell import read_asset, render_page
from prbench.schema import Json


@dataclass(frozen=True)
class Column:
    """One column of the board: its name, what it means, and how to read it off a line."""

    name: str
    help: str
    kind: str  # text, estimate or share
    read: Callable[[Line], Json]


COLUMNS = (
    Column("#", "Rank group: runs with the same number cannot be told apart", "text", lambda line: line.group or ""),
    Column(
        "model",
        "The spec to use on the command line",
        "text",
        lambda line: line.run.model,
    ),
    Column("context", "What the model was told about the user", "text", lambda line: line.summary["context"]),
    Column("role", "Controls are floors; oracle runs saw the gold rubric", "text", lambda line: line.role),
    Column(
        "accuracy", "Unreadable counts as wrong, a tie as one half", "estimate", lambda line: line.summary["accuracy"]
    ),
    Column(
        "by user", "Mean over users of their accuracy", "estimate", lambda line: line.summary["macro_user_accuracy"]
    ),
    Column(
        "worst decile",
        "Mean accuracy of the worst tenth of users",
        "estimate",
        lambda line: line.summary["worst_decile_accuracy"],
    ),
    Column(
        "gain",
        "Accuracy with the profile minus without, paired",
        "estimate",
        lambda line: line.summary["personalization_gain"],
    ),
    Column(
        "swap gap",
        "Own profile minus another user's, paired",
        "estimate",
        lambda line: (line.summary["swap"] or {}).get("gap"),
    ),
    Column(
        "minority",
        "Where this user wants what most do not",
        "estimate",
        lambda line: line.summary["minority_accuracy"],
    ),
    Column(
        "majority", "Where this user wants what most do", "estimate", lambda line: line.summary["majority_accuracy"]
    ),
    Column("ties", "Share of ties", "share", lambda line: _value(line.summary["tie_rate"])),
    Column("coverage", "Share of readable verdicts", "share", lambda line: _value(line.summary["coverage"])),
    Column(
        "order flips",
        "Judges: verdicts that change with the order",
        "share",
        lambda line: _value((line.summary["order"] or {}).get("flip_rate")),
    ),
    Column(
        "position bias",
        "Judges: +1 always picks the first",
        "share",
        lambda line: _value((line.summary["order"] or {}).get("position_bias")),
    ),
    Column(
        "ECE",
        "Calibration error after one temperature",
        "share",
        lambda line: (line.summary["calibration"] or {}).get("ece"),
    ),
)


RATING_COLUMNS = (
    *COLUMNS[1:4],
    Column(
        "alignment",
        "1 - |mapped score - rating|, mean over users",
        "estimate",
        lambda line: line.summary["ratings"]["alignment"],
    ),
    Column("floor", "Guessing the others' mean rating", "estimate", lambda line: line.summary["ratings"]["floor"]),
    Column("gain", "Alignment with minus without the profile", "estimate", lambda line: _contrast(line, "gain")),
    Column("swap gap", "Alignment, own minus another's profile", "estimate", lambda line: _contrast(line, "swap_gap")),
    Column("Spearman × 100", "Mean over users", "estimate", lambda line: line.summary["ratings"]["spearman"]),
    Column("Kendall × 100", "Mean over users", "estimate", lambda line: line.summary["ratings"]["kendall"]),
    Column("coverage", "Share of readable scores", "share", lambda line: _value(line.summary["coverage"])),
)


def _contrast(line: Line, name: str) -> Json:
    return (line.summary["ratings"][name] or {}).get("alignment")


def render(boards: Sequence[Board], items: Items, *, title: str = "Personalized reward models") -> str:
    """Return the page as a string."""
    page = {
        "title": title,
        "boards": [_board(board) for board in boards],
        "planners": [_planner(line) for board in boards for line in board.lines if line.run.planner],
        "browser": items.as_json(),
        "version": version("prbench"),
        "runs": [line.run.folder.name for board in boards for line in board.lines],
    }
    return render_page("board.html", page=page, script=read_asset("page.js"))


def _board(board: Board) -> dict[str, Json]:
    columns = COLUMNS if board.kind == "pairs" else RATING_COLUMNS
    return {
        "unit": "pairs" if board.kind == "pairs" else "ratings",
        "data": board.data,
        "n": board.n,
        "users": board.users,
        "resolution": board.resolution,
        "legend": LEGEND if board.kind == "pairs" else "",
        "columns": columns,
        "lines": [{"role": line.role, "cells": [_cell(column, line) for column in columns]} for line in board.lines],
        "charts": charts(board) if board.kind == "pairs" else [],
    }


def _planner(line: Line) -> dict[str, Json]:
    figures = line.run.planner or {}
    means = (("judge", "by the judge"), ("lab", "by the lab's truth"))
    found = [{"means": name, **figures[key]} for key, name in means if figures.get(key)]
    return {"run": line.run.name, "planner": figures["settings"]["planner"], "all": figures, "figures": found}


def _cell(column: Column, line: Line) -> dict[str, Json]:
    value = column.read(line)
    sort = _value(value) if column.kind == "estimate" else value
    return {"kind": column.kind, "value": value, "sort": "" if sort is None else sort, "wide": column.name == "model"}


def _value(estimate: Json) -> float | None:
    return None if estimate is None else float(estimate["value"])
