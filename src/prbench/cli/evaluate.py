"""`prbench eval`: ask one reward model about every pair."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from prbench.cli import options
from prbench.errors import UsageError
from prbench.evaluation import Run, Shown, as_loaded, evaluate_store
from prbench.evaluation.engines import open_engine
from prbench.evaluation.first_items import nothing_readable
from prbench.evaluation.settings import read_probes
from prbench.evaluation.summary import MAX_FAILED, failed_share, read_over
from prbench.metrics.estimate import USERS
from prbench.pages.board import print_summary


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Under which profiles, and in which orders, each pair is asked about."""

    probes: Annotated[str, options.flag("Ask each pair with the own, no, and another user's profile.")] = (
        "own,none,swap"
    )
    orders: Annotated[str, options.flag("Judges: `both` orders, or `one` (a fixed coin per item).")] = "both"


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where the model computes."""

    engine: Annotated[str, options.flag("`local` (this process) or `ray` (a pool of workers).", options.SCALE)] = (
        "local"
    )
    workers: Annotated[
        int | None,
        options.flag(
            "Ray: workers, each with the model; default: one per GPU, or one per node without GPUs.",
            options.SCALE,
            min=1,
        ),
    ] = None
    worker_gpus: Annotated[
        float | None,
        options.flag("Ray: GPUs of each worker, e.g. 0.5 or 2; default: 1 where there are any.", options.SCALE, min=0),
    ] = None
    ray_address: Annotated[
        str | None,
        options.flag("Ray: HOST:PORT of a cluster's head, or `auto`; default: start Ray here.", options.SCALE),
    ] = None


def evaluate(
    model: options.RewardModels,
    data: options.DataOptions,
    context: options.ContextOptions,
    labels: options.LabelOptions,
    asked: ProbeOptions,
    running: options.ModelOptions,
    engine: EngineOptions,
    cost: options.LimitOptions,
    group_by: options.GroupBy = [],  # noqa: B006
    resample: options.Resample = None,
    seed: options.Seed = 0,
    max_failed: options.MaxFailed = MAX_FAILED,
    out: options.Out = Path("runs"),
    fresh: options.Fresh = False,
    log_to: options.LogTo = [],  # noqa: B006
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Score every pair of a dataset with one reward model, with and without the user.

    The same command again continues where it was interrupted; finished items are never computed twice.

    Example: `prbench eval --model control:overlap --data pairs.jsonl --context profile`
    """
    how = context.settings(
        probes=read_probes([name.strip() for name in asked.probes.split(",") if name.strip()], "--probes"),
        orders=options.one_of("--orders", asked.orders, ("both", "one")),
        seed=seed,
    )
    options.check_trackers(log_to)
    which = data.which()
    over = read_over(resample or USERS, "--resample")
    settings = running.settings(seed=seed, cache=out / "cache" / "llm.sqlite")
    if cost != options.LimitOptions() and engine.engine != "local":
        raise UsageError("--max-requests, --max-tokens, --max-cost and prices need --engine local.")
    where = open_engine(
        engine.engine, workers=engine.workers, worker_gpus=engine.worker_gpus, address=engine.ray_address
    )
    given = labels.open(which)
    shown = {spec: Shown.of(spec, how.context, given) for spec in model}
    runs = []
    with cost.applied() as ledger, options.open_rows(which) as store, where as opened:
        for spec in model:
            loaded = as_loaded(spec, settings, opened)
            if loaded.note:
                options.notes.print(f"{spec}: {loaded.note}", soft_wrap=True)
            with options.progress_bar(spec, quiet=json) as progress:
                run = evaluate_store(
                    store,
                    loaded,
                    replace(how, context=shown[spec].context),
                    which,
                    group_by=group_by,
                    over=over,
                    max_failed=max_failed,
                    out=out,
                    fresh=fresh,
                    command=options.command_line(),
                    progress=progress,
                    engine=opened,
                    labels=shown[spec].open_labels(which),
                    warn=_warn,
                )
            runs.append(run)
            for note in run.notes:
                options.notes.print(note, style="yellow", soft_wrap=True)
    for run in runs:
        options.log_summary(log_to, run.summary)
    options.print_spent(ledger)
    _print_runs(runs, json=json)
    unread = [line for run in runs if (line := nothing_readable(run.summary))]
    for line in unread:
        _warn(line)
    if unread or any(failed_share(run.items) > max_failed for run in runs):
        raise typer.Exit(1)


def _print_runs(runs: Sequence[Run], *, json: bool) -> None:
    if json:
        options.print_json(runs[0].summary if len(runs) == 1 else [run.summary for run in runs])
        return
    command = options.command_line()
    for run in runs:
        print_summary(run.summary, run.folder, options.out_console, command=command, items=run.items)


def _warn(line: str) -> None:
    options.notes.print(line, soft_wrap=True)
