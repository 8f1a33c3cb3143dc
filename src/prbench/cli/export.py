"""`prbench export`: finished runs in the form that others read, and uploads to a hub."""

from pathlib import Path
from typing import Annotated

import typer

from prbench.cli import options
from prbench.pages.exports.job import ExportJob, export_runs


def export(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or a folder of runs; to `hub:` also a trained model or a dataset folder."),
    ],
    to: options.To,
    out: options.Out = Path("exports"),
    yes: Annotated[
        bool, options.flag("Send what was listed; without it, nothing leaves the machine.", options.OUTPUT, "--yes")
    ] = False,
    with_data: Annotated[
        bool,
        options.flag(
            "Also send texts of people: posts, profiles, pairs, replies of judges.", options.OUTPUT, "--with-data"
        ),
    ] = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Write runs in the form of another tool or site; upload runs, models and datasets, if asked twice.

    `--to` takes `every-eval-ever`, `hf-eval-results`, `rewardbench`, `csv`, `parquet` and `hub:org/name`. An upload is
    listed file by file, and sent only with `--yes`.

    Example: `prbench export runs --to every-eval-ever --out exports`
    """
    job = ExportJob(
        folders=tuple(runs),
        out=out,
        is_confirmed=yes,
        with_data=with_data,
        note=lambda line: options.notes.print(line, style="yellow", soft_wrap=True),
    )
    written = export_runs(to, job)
    if json:
        options.print_json({"to": to, "files": [str(path) for path in written]})
        return
    for path in written:
        options.out_console.print(str(path), soft_wrap=True)
