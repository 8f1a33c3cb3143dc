"""`prbench agreement`: what a panel's answers say about the label, about quality, and about each other."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from prbench.cli import options
from prbench.metrics.equivalence import Equivalence
from prbench.pages.agreement import annotator_cells, coefficient_cells, percent, quality_cells, render
from prbench.pages.shell import prepare_place, write_page
from prbench.people.agreement import PanelReport, QuestionReply, Settings
from prbench.people.agreement import agreement as measure_agreement
from prbench.schema import Estimate

COLORS = {QuestionReply.YES: "green", QuestionReply.NO: "red", QuestionReply.CANNOT_TELL: "yellow"}


def agreement(
    files: Annotated[
        list[Path], typer.Argument(help="Rows of `prbench annotate export` (.jsonl), or item,annotator,label (.csv).")
    ],
    judge_run: Annotated[
        list[Path], typer.Option(help="Folder of a run, whose verdicts stand beside people's; may be repeated.")
    ] = [],  # noqa: B006
    margin: Annotated[float, typer.Option(help="Points of 1 to 5 by which equal quality may differ.")] = 0.5,
    bar: Annotated[float, typer.Option(help="Share of answers with the label that the interval must exceed.")] = 0.75,
    alpha: Annotated[float, typer.Option(help="Level of the tests.")] = 0.05,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "--html", help="Where to write the page.", rich_help_panel=options.OUTPUT)
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """How far do people agree, is the label what they find, and are both responses equally good?

    Example: `prbench agreement rows.jsonl --judge-run runs/1a2b3c --out agreement.html`
    """
    settings = Settings(margin=margin, bar=bar, alpha=alpha, seed=seed)
    if out is not None:
        prepare_place(out, "agreement.html")
    panel = measure_agreement(files, judge_runs=judge_run, settings=settings)
    if json:
        options.print_json(panel.as_json())
    else:
        _print(panel)
    if out is not None:
        write_page(render(panel), out)
        options.notes.print(f"page: {out}", soft_wrap=True)


def _print(panel: PanelReport) -> None:
    show = options.out_console.print
    show(f"{panel.answers} answers of {panel.people} people to {panel.items} items")
    for note in panel.notes:
        show(f"  {note}", style="dim", soft_wrap=True)
    for question in panel.questions:
        show()
        show(Text.assemble(question.text, " ", (question.reply.value, f"bold {COLORS[question.reply]}")))
        show(f"  {question.because}", soft_wrap=True)
    if panel.caveats:
        show()
    for line in panel.caveats:
        show(f"caveat: {line}", style="yellow", soft_wrap=True)
    show()
    _print_table(("agreement with each other", "value and 95 % interval"), _coefficients(panel))
    if isinstance(panel.position.difference, Estimate):
        show()
        left, gap = percent(panel.position.left_share), percent(panel.position.difference)
        show(f"left picks: {left} %; the label on the left minus on the right: {gap} points")
    if any(isinstance(quality.test, Equivalence) for quality in panel.qualities):
        show()
        _print_table(("quality", "chosen", "rejected", "p above", "p below", "equal?", "resolves"), _qualities(panel))
    show()
    _print_table(("annotator", "answers", "label", "others", "alpha without", "seconds", "left"), _annotators(panel))
    for each in panel.annotators:
        for flag in each.flags:
            show(f"worth a look: {each.name}: {flag}", style="yellow", soft_wrap=True)


def _coefficients(panel: PanelReport) -> list[list[str]]:
    return [
        [f"{about}: {name}", value if value != "–" else remark]
        for about, name, value, _, remark in coefficient_cells(panel)[1]
    ]


def _qualities(panel: PanelReport) -> list[list[str]]:
    return [[*row[:3], *row[4:]] for row in quality_cells(panel)[1]]


def _annotators(panel: PanelReport) -> list[list[str]]:
    """Return the values alone: the intervals are on the page and in the JSON."""
    return [[cell.partition(" [")[0] for cell in row[:7]] for row in annotator_cells(panel)[1]]


def _print_table(names: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(*names, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    options.out_console.print(table)
