"""`prbench report`: the board of any runs, and a page to look around in."""

from collections.abc import Sequence
from csv import DictWriter
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer

from prbench.cli import options
from prbench.evaluation.summary import load_runs
from prbench.pages import write_report
from prbench.pages.board import Board, make_boards, print_boards
from prbench.pages.shell import prepare_place

FIGURES = ("accuracy", "gain", "swap_gap", "minority", "ties", "coverage", "alignment")
COLUMNS = (
    *("data", "kind", "items", "users", "rank_group", "role", "model", "context", "run_id"),
    *(f"{name}{part}" for name in FIGURES for part in ("", "_low", "_high")),
)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or a folder of runs.")],
    html: options.Html = None,
    csv: Annotated[Path | None, options.flag("Where to write the board as CSV.", options.OUTPUT)] = None,
    group_by: options.GroupBy = [],  # noqa: B006
    json: options.Json = False,
) -> None:
    """Print the board of some runs, recomputed from their rows, and write one self-contained HTML page.

    Example: `prbench report runs --html board.html`
    """
    loaded = load_runs(runs, group_by=group_by)
    for line in loaded.left_out:
        options.notes.print(line, style="yellow", soft_wrap=True)
    boards = make_boards(loaded.runs)
    if json:
        options.print_json([run.summary for run in loaded.runs])
    else:
        print_boards(boards, options.out_console)
    if csv is not None:
        prepare_place(csv, "board.csv")
        csv.write_text(board_csv(boards), encoding="utf-8", newline="")
        options.notes.print(f"board: {csv}", soft_wrap=True)
    if html is not None:
        write_report(boards, html)
        options.notes.print(f"page: {html}", soft_wrap=True)


def board_csv(boards: Sequence[Board]) -> str:
    """Return one line per run, best first: every figure of the board as its value and interval."""
    text = StringIO()
    writer = DictWriter(text, COLUMNS, restval="")
    writer.writeheader()
    for board in boards:
        for line in board.lines:
            found, ratings = line.summary, line.summary["ratings"] or {}
            figures = {
                "accuracy": found["accuracy"],
                "gain": found["personalization_gain"] or ratings.get("gain"),
                "swap_gap": (found["swap"] or {}).get("gap") or ratings.get("swap_gap"),
                "minority": found["minority_accuracy"],
                "ties": found["tie_rate"],
                "coverage": found["coverage"],
                "alignment": ratings.get("alignment"),
            }
            writer.writerow(
                {
                    "data": board.data,
                    "kind": board.kind,
                    "items": board.n,
                    "users": board.users,
                    "rank_group": "" if line.group is None else line.group,
                    "role": line.role,
                    "model": line.run.model,
                    "context": found["context"],
                    "run_id": found["run_id"],
                }
                | {
                    name if part == "value" else f"{name}_{part}": figure[part]
                    for name, figure in figures.items()
                    if figure is not None
                    for part in ("value", "low", "high")
                }
            )
    return text.getvalue()
