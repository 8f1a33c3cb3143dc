"""`prbench demo`: the whole walk on the embedded lab, in a minute."""

import time
from pathlib import Path
from typing import Annotated

import typer

from prbench.cli import options
from prbench.cli.demo_run import Entry, run_demo
from prbench.evaluation.load import load_runs
from prbench.pages import write_report
from prbench.pages.board import make_boards, print_boards
from prbench.schema import Progress


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs.", rich_help_panel=options.OUTPUT)] = Path(
        "runs/demo"
    ),
    html: Annotated[Path, typer.Option(help="Where to write the page.", rich_help_panel=options.OUTPUT)] = Path(
        "runs/demo/board.html"
    ),
    limit: options.Limit = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Evaluate the controls and small models on the lab, print the board, write one HTML page.

    Needs no network, no accelerator and no key. A second call only reads the finished runs.

    Example: `prbench demo`
    """
    started = time.monotonic()

    def watch(entry: Entry) -> Progress | None:
        if not json:
            options.notes.print(f"{entry.model} · {entry.context}", style="dim")
        return None

    runs = run_demo(out, limit=limit, seed=seed, watch=watch)
    finished = load_runs([run.folder for run in runs if run.folder]).runs
    boards = make_boards(finished)
    write_report(boards, html)
    if json:
        options.print_json([run.summary for run in finished])
        return
    print_boards(boards, options.out_console)
    options.out_console.print(f"\npage: {html}", soft_wrap=True)
    options.notes.print(f"took {time.monotonic() - started:.0f} s", style="dim")
