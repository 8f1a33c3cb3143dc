"""`prbench check`: audit a dataset before trusting a number from it."""

import typer
from rich.table import Table
from rich.text import Text

from prbench.cli import options
from prbench.construction.check import BAD, GOOD, LOOK, SKIPPED, Audit, check_store
from prbench.data import DataSettings, open_data
from prbench.lab import LAB
from prbench.pages.check import render
from prbench.pages.shell import prepare_place, write_page

COLOURS = {GOOD: "green", LOOK: "yellow", BAD: "red", SKIPPED: "dim"}


def check(
    data: options.Data = LAB,
    subset: options.Subset = None,
    split: options.Split = None,
    revision: options.Revision = None,
    limit: options.Limit = None,
    skip_bad_rows: options.SkipBadRows = 0,
    encoder: options.CheckEncoder = "minilm",
    seed: options.Seed = 0,
    html: options.Html = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Audit a dataset: rows, duplicates, leaks, style, and rules that must not solve it.

    Exit code 1 if any of them is bad.

    Example: `prbench check --data pairs.jsonl --html check.html`
    """
    which = DataSettings(
        source=data, subset=subset, split=split, revision=revision, limit=limit, skip_bad_rows=skip_bad_rows
    )
    if html is not None:
        prepare_place(html, "check.html")
    with open_data(which) as store:
        for line in store.bad_rows:
            options.notes.print(f"skipped: {line}", soft_wrap=True)
        with options.progress_of_steps(quiet=json) as progress:
            audit = check_store(store, which, encoder=encoder, seed=seed, progress=progress)
    if json:
        options.print_json([finding.as_json() for finding in audit.findings])
    else:
        _print(audit)
    if html is not None:
        write_page(render(audit), html)
        options.notes.print(f"page: {html}", soft_wrap=True)
    if audit.is_bad:
        raise typer.Exit(1)


def _print(audit: Audit) -> None:
    table = Table("check", "verdict", "figure", box=None, header_style="bold", pad_edge=False)
    for finding in audit.findings:
        verdict = Text(finding.verdict, style=COLOURS[finding.verdict])
        said = f"{finding.figure}. {finding.remedy}" if finding.remedy else finding.figure
        table.add_row(finding.check, verdict, said)
    options.out_console.print(table)
