"""`prbench diagnose`: where models fail, what to label next, and the hard slice to train on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from prbench.cli import options
from prbench.errors import UsageError
from prbench.insight.diagnose import (
    Diagnosis,
    check_not_test,
    disagreements,
    named,
    weakest,
    write_hard,
    write_label_next,
)
from prbench.insight.diagnose import diagnose as diagnose_runs
from prbench.insight.diagnose.label_next import check_label_file
from prbench.insight.diagnose.slices import Slice, SliceFinding
from prbench.metrics.number_format import PERCENT, POINTS, counted
from prbench.pages.board import visible
from prbench.pages.diagnose import LETTERS, finding_text, limits_text, none_weaker, render
from prbench.pages.shell import prepare_place, write_page

MOST_SHOWN = 20  # items to label that are printed; the file has them all
LABEL = "What to label next"
EXPORT = "The hard slice"


@dataclass(frozen=True, kw_only=True)
class LabelNextOptions:
    """What to name for people to label next."""

    label_next: Annotated[int | None, options.flag("Name that many items to label next.", LABEL, min=1)] = None
    label_file: Annotated[
        Path,
        options.flag("Where to write them, for `prbench annotate create --data`; replaces only such a file.", LABEL),
    ] = Path("label_next.jsonl")
    unlabeled: Annotated[
        bool,
        options.flag(
            "The two responses stand in any order: name items to label, and nothing else.", LABEL, "--unlabeled"
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Which slice to write as training data."""

    export: Annotated[Path | None, options.flag("Write a slice as a dataset folder to train on.", EXPORT)] = None
    slices: Annotated[
        list[str],
        options.flag(
            "FIELD=VALUE to export; may be repeated. Default: the weakest slice of the first run.", EXPORT, "--slice"
        ),
    ] = field(default_factory=list)
    errors_only: Annotated[
        bool, options.flag("Export only pairs that no run gets right.", EXPORT, "--errors-only")
    ] = False
    allow_test: Annotated[bool, options.flag("Export even from a test split.", EXPORT, "--allow-test")] = False


def diagnose(
    runs: Annotated[list[Path], typer.Argument(help="Run folders on the same data, or a folder of them.")],
    naming: LabelNextOptions,
    hard: ExportOptions,
    data: options.DataIfMoved = None,
    by: Annotated[
        list[str], options.flag("Cut by this field only, e.g. category, trait, level, posts; may be repeated.")
    ] = [],  # noqa: B006
    html: options.Html = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Say where models fail, which items to label next, and write the hard slice as training data.

    The texts are read again from where the runs found them, or from --data where it has moved.

    Example: `prbench diagnose runs/1a2b3c --label-next 50 --html diagnosis.html`
    """
    if naming.unlabeled and hard.export is not None:
        raise UsageError("--export needs labels, and --unlabeled says that there are none. Leave one of them out.")
    if naming.unlabeled and naming.label_next is None:
        raise UsageError("--unlabeled leaves nothing to do without --label-next N. Say how many items to name.")
    if hard.export is None and (hard.slices or hard.errors_only):
        raise UsageError("--slice and --errors-only say what to export. Add --export DIR.")
    if html is not None:
        prepare_place(html, "diagnosis.html")
    found = diagnose_runs(runs, data=data, by=by, label_next=naming.label_next or 0, labeled=not naming.unlabeled)
    for note in found.notes:
        options.notes.print(f"note: {note}", style="yellow", soft_wrap=True)
    chosen: list[Slice] = []
    if hard.export is not None:
        check_not_test(found.run_table, allow_test=hard.allow_test)
        chosen = named(found.slices, hard.slices) if hard.slices else [weakest(found.slices)]
    if naming.label_next:
        check_label_file(naming.label_file, found.run_table.sources)
    if not json:
        _print(found)
    written = _write(found, chosen, naming, hard)
    if json:
        facts = {"slices": [each.name for each in chosen], "rows": written, "out": str(hard.export)}
        options.print_json(found.as_json() | {"export": facts if hard.export is not None else None})
    if html is not None:
        write_page(render(found, command=options.command_line()), html)
        options.notes.print(f"page: {html}", soft_wrap=True)


def _write(
    found: Diagnosis, chosen: Sequence[Slice], naming: LabelNextOptions, hard: ExportOptions
) -> Mapping[str, int]:
    """Write the hard slice and the items to label, as far as they are asked for; return the rows by split."""
    written: Mapping[str, int] = {}
    if hard.export is not None:
        written = write_hard(
            found.run_table, chosen, hard.export, errors_only=hard.errors_only, allow_test=hard.allow_test
        )
    if naming.label_next:
        write_label_next(found, naming.label_file)
        users = len({each.user_id for each in found.label_next})
        line = f"to label: {counted(len(found.label_next), 'item')} of {counted(users, 'user')} in {naming.label_file}"
        options.notes.print(line, soft_wrap=True)
        if any(split.lower().startswith("test") for split in found.run_table.splits):
            line = "note: these are test items. Label them to check the test; a model trained on them would spoil it."
            options.notes.print(line, style="yellow", soft_wrap=True)
    if hard.export is not None:
        counts = ", ".join(f"{count} {split}" for split, count in written.items())
        which = " and ".join(visible(each.name) for each in chosen)
        options.notes.print(f"hard slice: {which}: {counts} pairs in {hard.export}", soft_wrap=True)
    return written


def _print(found: Diagnosis) -> None:
    show = options.out_console.print
    first = found.run_table.runs[0]
    data = first.summary["data"]
    split = f", split {', '.join(found.run_table.splits)}" if found.run_table.splits else ""
    size = f"{counted(found.items, 'pair')} of {counted(data['users'], 'user')}"
    show(f"{visible(data['name'])}{split}: {size}", style="bold", soft_wrap=True)
    for letter, run in zip(LETTERS, found.run_table.runs, strict=False):
        accuracy = PERCENT.estimate(run.summary["accuracy"]) if found.labeled else ""
        show(f"  {letter}  {visible(run.name)}  {accuracy}", soft_wrap=True)
    if found.labeled:
        if len(found.names) > 1:
            counts = disagreements(found.run_table)
            text = ", ".join(f"{name} {count}" for name, count in counts.items())
            show(f"  items: {text}", style="dim")
        _print_weak(found)
        _print_slices(found)
    if found.label_next:
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("label next", "user"):
            table.add_column(name, overflow="fold")
        for name in ("confidence", "disagreement", "value"):
            table.add_column(name, justify="right")
        for each in found.label_next[:MOST_SHOWN]:
            figures = (f"{100 * each.confidence:.0f} %", f"{each.disagreement:.2f}", f"{each.value:.2f}")
            table.add_row(visible(each.id), visible(each.user_id), *figures)
        options.out_console.print()
        options.out_console.print(table)


def _print_weak(found: Diagnosis) -> None:
    show = options.out_console.print
    show()
    if not found.weak:
        show(none_weaker(found), soft_wrap=True)
        return
    show("Weaker than the rest", style="bold")
    for each in found.weak:
        for letter, cell in zip(LETTERS, each.cells, strict=False):
            if cell.finding is SliceFinding.WEAKER and cell.against_rest is not None:
                difference, extra = POINTS.estimate(cell.against_rest.difference), cell.extra_errors
                text = f"{PERCENT.value(cell.accuracy)} %, {difference} points, {extra:.0f} errors more than elsewhere"
                show(f"  {letter}  {visible(each.name)}: {text}", soft_wrap=True)


def _print_slices(found: Diagnosis) -> None:
    several = len(found.names) > 1
    for cut in found.fields:
        inside = [each for each in found.slices if each.field == cut.name]
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(visible(cut.name), overflow="fold", min_width=14)
        for name in ("pairs", "users"):
            table.add_column(name, justify="right")
        for letter in LETTERS[: len(found.names)]:
            table.add_column(f"accuracy {letter}" if several else "accuracy", no_wrap=True)
            table.add_column("" if several else "against the rest", no_wrap=True)
        if several:
            table.add_column("differ", justify="right")
        for each in inside:
            cells = [visible(each.value), str(len(each.items)), str(each.users)]
            for cell in each.cells:
                cells += [PERCENT.estimate(cell.accuracy), finding_text(cell, short=len(each.cells) > 1)]
            if each.disagreement is not None:
                cells.append(f"{100 * each.disagreement:.0f} %")
            table.add_row(*cells)
        options.out_console.print()
        options.out_console.print(table)
    options.out_console.print(limits_text(found), style="dim", soft_wrap=True)
