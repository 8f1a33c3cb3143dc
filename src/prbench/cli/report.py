"""`prbench report`: the board of any runs, and a page to look around in."""

from pathlib import Path
from typing import Annotated

import typer

from prbench.cli import options
from prbench.evaluation.load import load_runs
from prbench.pages import write_report
from prbench.pages.board import make_boards, print_boards


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or a folder of runs.")],
    html: Annotated[Path | None, typer.Option(help="Where to write the page.", rich_help_panel=options.OUTPUT)] = None,
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
    if html is not None:
        write_report(boards, html)
        options.notes.print(f"page: {html}", soft_wrap=True)
