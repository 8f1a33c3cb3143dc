"""`prbench models`: what `--model` takes."""

from dataclasses import asdict

from rich.table import Table

from prbench.cli import options
from prbench.reward_models import known_models


def models(json: options.Json = False) -> None:
    """List the kinds of reward model that `--model` takes, with an example each.

    Example: `prbench models`
    """
    kinds = known_models()
    if json:
        options.print_json([asdict(kind) for kind in kinds])
        return
    table = Table("example", "what it is", "needs", box=None, header_style="bold", pad_edge=False)
    for kind in kinds:
        table.add_row(kind.example, kind.what, kind.needs)
    options.out_console.print(table)
