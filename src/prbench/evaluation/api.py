"""Evaluate a reward model, and read runs back, in Python: options are keyword arguments."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prbench.context.labels import SHOTS
from prbench.data import Rows, select_rows
from prbench.evaluation.run import Run
from prbench.evaluation.run import evaluate as evaluate_with
from prbench.evaluation.settings import EvalSettings, Model, read_probes
from prbench.evaluation.summary import MAX_FAILED, probes_of, read_over, summarize
from prbench.metrics.estimate import USERS
from prbench.reward_models import model_settings
from prbench.runs import find_runs
from prbench.runs.files import EVAL
from prbench.schema import Progress
from prbench.specs import check_at_least

log = logging.getLogger("prbench")


def evaluate(
    data: Rows,
    model: Model,
    context: str = "profile",
    *,
    posts: int = 10,
    rank: str = "recent",
    planner: str = "",
    probes: str | Sequence[str] = ("own", "none", "swap"),
    orders: str = "both",
    labels: Rows | None = None,
    shots: int = SHOTS,
    subset: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    group_by: str | Sequence[str] = (),
    resample: str = USERS,
    max_failed: float = MAX_FAILED,
    seed: int = 0,
    batch_size: int | None = None,
    max_length: int | None = None,
    dtype: str = "auto",
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Run:
    """Ask a reward model about every pair, and return the run: its figures in `summary`, its rows in `rows()`.

        run = prbench.evaluate("lab", "control:overlap", limit=50, probes=("own", "swap"))
        print(run, run.summary["swap"]["gap"])

    `context` is what the model may know of the user: none, profile, plan (by `planner`) or, as a ceiling, oracle.
    `labels` are pairs that the users compared before, of which the model sees up to `shots`, never the one under test.
    Intervals are for new users; with `resample="users,questions"`, for new users and new questions. Where more
    requests fail than `max_failed`, as a share, there is no accuracy. With `out`, the run is kept in a folder there,
    and continued if it was interrupted.
    """
    check_at_least(1, shots=shots)
    return evaluate_with(
        data,
        model,
        out=out,
        settings=EvalSettings(
            context=context,
            posts=posts,
            rank=rank,
            planner=planner,
            probes=read_probes(as_names(probes)),
            orders=orders,
            seed=seed,
        ),
        group_by=as_names(group_by),
        over=read_over(resample),
        max_failed=max_failed,
        which=replace(select_rows(data, subset=subset, split=split, limit=limit), source=""),
        model_settings=model_settings(seed, batch_size, max_length, dtype),
        progress=progress,
        labels=labels,
        shots=shots,
    )


def load_runs(*paths: str | Path) -> list[Run]:
    """Return the finished evaluations in these folders, every figure computed anew from the rows.

        for run in prbench.load_runs("runs"):
            print(run)

    A folder of runs means all that lie directly in it. Runs of other kinds and unfinished ones are left out, with a
    line in the log.
    """
    found = find_runs([Path(path) for path in paths or ("runs",)], kinds=(EVAL,), groups=None, replies=True)
    for line in found.left_out:
        log.warning("%s", line)
    runs = []
    for stored in found.runs:
        summary = summarize(stored.rows, stored.manifest["facts"], probes_of(stored.manifest))
        runs.append(Run(summary=summary, items=stored.rows, folder=stored.folder))
    return runs


def as_names(given: str | Sequence[str]) -> Sequence[str]:
    """Return one name or several as several."""
    return (given,) if isinstance(given, str) else given
