"""The rows and figures of runs as tables: CSV for spreadsheets and statistics programs, Parquet for data frames."""

import json
from collections.abc import Sequence
from pathlib import Path

from prbench.errors import needs
from prbench.evaluation.summary import FinishedRun
from prbench.pages.board import board_table, make_boards
from prbench.pages.exports.job import ExportJob
from prbench.pages.shell import csv_text
from prbench.runs.files import replacing, write_text
from prbench.runs.rows import to_record
from prbench.schema import Json
from prbench.specs import Spec


def export_csv(spec: Spec, options: None, job: ExportJob) -> Sequence[Path]:
    """Write `csv`: the rows of each run, and one table of all figures."""
    runs, written = job.runs(), []
    for run in runs:
        names, rows = _table(run)
        path = job.out / f"{run.summary['run_id']}.csv"
        write_text(path, csv_text(names, rows))
        written.append(path)
    figures = job.out / "figures.csv"
    write_text(figures, csv_text(*board_table(make_boards(runs))))
    return [*written, figures]


def export_parquet(spec: Spec, options: None, job: ExportJob) -> Sequence[Path]:
    """Write `parquet`: the rows of each run."""
    with needs("parquet", "Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    written = []
    for run in job.runs():
        names, rows = _table(run)
        columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
        path = job.out / f"{run.summary['run_id']}.parquet"
        with replacing(path) as scratch:
            pq.write_table(pa.table({name: _one_type(column) for name, column in columns.items()}), scratch)
        written.append(path)
    return written


def _table(run: FinishedRun) -> tuple[list[str], list[list[Json]]]:
    """Return one line a row: its columns, and the facts of its `groups` as columns of their own."""
    records = []
    for row in run.rows:
        record = to_record(row)
        groups = record.pop("groups")
        for name in ("orders", "replies"):
            record.pop(name, None)  # a judge's own words stay in the run
        named = {"run_id": run.summary["run_id"], "model": run.summary["model"], "context": run.summary["context"]}
        records.append({**named, **record, **{f"group_{name}": value for name, value in groups.items()}})
    names = list(dict.fromkeys(name for record in records for name in record))
    return names, [[record.get(name) for name in names] for record in records]


def _one_type(column: Sequence[Json]) -> list[Json]:
    """Return a column whose cells are of one type, as text where they are of several."""
    types = {type(each) for each in column if each is not None}
    if types <= {int, float} or len(types) < 2:
        return [float(each) if types == {int, float} and each is not None else each for each in column]
    return [None if each is None else each if isinstance(each, str) else json.dumps(each) for each in column]
