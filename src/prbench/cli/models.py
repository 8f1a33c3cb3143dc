"""`prbench models`: everything that can be named, from the tables that the loaders read."""

from typing import Annotated

import typer
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from prbench.cli import options
from prbench.cli.options import one_of
from prbench.errors import UsageError
from prbench.registry import MODELS, TABLES, Kind, Table
from prbench.schema import Json
from prbench.specs import describe


def models(
    kind: Annotated[str, typer.Argument(help="Show the options of this kind of reward model.")] = "",
    of: Annotated[str, typer.Option(help=f"Another table: {', '.join(TABLES)}.")] = "models",
    json: options.Json = False,
) -> None:
    """List the kinds of reward model that `--model` takes, with examples; or what else can be named.

    Example: `prbench models head`
    """
    table = TABLES[one_of("--of", of, tuple(TABLES))]
    broken = {} if kind else table.broken
    rows = [table.find(kind)] if kind else [row for row in table.rows if row.name not in broken]
    if json:
        options.print_json(
            [line for row in rows for line in _lines(table, row)]
            + [_line(name, error=fault) for name, fault in broken.items()]
        )
        return
    grid = Grid(
        Column("example", overflow="fold"), "what it is", "needs", box=None, header_style="bold", pad_edge=False
    )
    for row in rows:
        for usage in row.usages:
            grid.add_row(usage.example, usage.summary, row.install_line(usage.extra))
    for name, fault in broken.items():
        grid.add_row(f"{name}:", Text(f"broken: {fault}", style="red"), "")
    options.out_console.print(grid)
    if kind:
        _print_options(table, rows[0])
    elif table is MODELS:
        options.out_console.print(
            "Every model also takes ?context=, ?labels=, ?shots=, ?noise= and ?fail=. "
            "`prbench models KIND` shows the options of a kind.",
            soft_wrap=True,
        )


def _lines(table: Table, row: Kind) -> list[dict[str, Json]]:
    """Return one line per example; the options stand with each of them."""
    found = [{"name": name, "values": values, "help": text} for name, values, text in _options(table, row)]
    return [
        _line(
            row.name,
            example=usage.example,
            what=usage.summary,
            needs=row.install_line(usage.extra),
            compares=row.compares,
            options=found,
        )
        for usage in row.usages
    ]


def _line(kind: str, **facts: Json) -> dict[str, Json]:
    """Return a line with all its keys; of a kind that is broken, there is nothing but its `error`."""
    nothing: dict[str, Json] = {"example": "", "what": "", "needs": "", "compares": False, "options": [], "error": ""}
    return {"kind": kind, **nothing, **facts}


def _options(table: Table, row: Kind) -> list[tuple[str, str, str]]:
    """Return name, values and help of every option; none where the code behind a kind is not installed."""
    try:
        records = [record for record in (row.options_type(), table.shared_options) if record is not None]
    except UsageError:
        return []
    return [
        (each.name, each.values if each.default is None else f"{each.values}; default: {each.default}", each.help)
        for record in records
        for each in describe(record)
    ]


def _print_options(table: Table, row: Kind) -> None:
    grid = Grid("option", "takes", "what it is", box=None, header_style="bold", pad_edge=False)
    for name, values, text in _options(table, row):
        grid.add_row(name, values, text)
    options.out_console.print()
    options.out_console.print(grid if grid.row_count else f"{row.name} names no options.")
