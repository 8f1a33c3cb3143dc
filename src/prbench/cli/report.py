"""`prbench report`: the board of any runs, and a page to look around in."""

from pathlib import Path
from typing import Annotated

import typer

from prbench.cli import options
from prbench.evaluation.summary import load_runs, read_over
from prbench.pages import write_report
from prbench.pages.board import board_table, make_boards, print_boards
from prbench.pages.groups import groups_of_boards, users_of_boards
from prbench.pages.shell import csv_text, prepare_place

_CSV_HELP = "Where to write the board as CSV; its users, and its groups if there are any, go to files beside it."


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or a folder of runs.")],
    html: options.Html = None,
    csv: Annotated[Path | None, options.flag(_CSV_HELP, options.OUTPUT)] = None,
    group_by: options.GroupBy = [],  # noqa: B006
    resample: options.Resample = None,
    json: options.Json = False,
) -> None:
    """Print the board of some runs, recomputed from their rows, and write one self-contained HTML page.

    Example: `prbench report runs --html board.html`
    """
    over = None if resample is None else read_over(resample, "--resample")
    loaded = load_runs(runs, group_by=group_by, over=over)
    for line in loaded.left_out:
        options.notes.print(line, style="yellow", soft_wrap=True)
    boards = make_boards(loaded.runs)
    if json:
        options.print_json([run.summary for run in loaded.runs])
    else:
        print_boards(boards, options.out_console)
    if csv is not None:
        prepare_place(csv, "board.csv")
        tables = {
            "board": (csv, board_table(boards)),
            "users": (csv.with_name(f"{csv.stem}.users.csv"), users_of_boards(boards)),
            "groups": (csv.with_name(f"{csv.stem}.groups.csv"), groups_of_boards(boards)),
        }
        for what, (path, table) in tables.items():
            if table[1]:
                path.write_text(csv_text(*table), encoding="utf-8", newline="")
                options.notes.print(f"{what}: {path}", soft_wrap=True)
    if html is not None:
        write_report(boards, html, command=options.command_line())
        options.notes.print(f"page: {html}", soft_wrap=True)
