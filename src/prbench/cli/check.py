"""`prbench check`: audit a dataset before trusting a number from it."""

import typer
from rich.table import Table
from rich.text import Text

from prbench.check import BAD, GOOD, LOOK, check_pairs
from prbench.cli import options
from prbench.evaluation import DataSettings, open_data
from prbench.lab import LAB

COLOURS = {GOOD: "green", LOOK: "yellow", BAD: "red"}


def check(
    data: options.Data = LAB,
    subset: options.Subset = None,
    split: options.Split = None,
    revision: options.Revision = None,
    limit: options.Limit = None,
    skip_bad_rows: options.SkipBadRows = 0,
    seed: options.Seed = 0,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Audit a dataset: rows, users, lengths, and rules that must not solve it. Exit code 1 if a check is bad.

    Example: `prbench check --data pairs.jsonl`
    """
    which = DataSettings(
        source=data, subset=subset, split=split, revision=revision, limit=limit, skip_bad_rows=skip_bad_rows
    )
    with open_data(which) as store:
        for line in store.bad_rows:
            options.notes.print(f"skipped: {line}", soft_wrap=True)
        findings = list(check_pairs(store, seed=seed))
    if json:
        keys = ("check", "verdict", "figure", "remedy")
        options.print_json([{key: getattr(finding, key) for key in keys} for finding in findings])
    else:
        table = Table("check", "verdict", "figure", "remedy", box=None, header_style="bold", pad_edge=False)
        for finding in findings:
            verdict = Text(finding.verdict, style=COLOURS[finding.verdict])
            table.add_row(finding.check, verdict, finding.figure, finding.remedy)
        options.out_console.print(table)
    if any(finding.verdict == BAD for finding in findings):
        raise typer.Exit(1)
