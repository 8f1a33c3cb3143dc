"""`prbench train`: turn pairs into a reward model that `--model` takes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from prbench.cli import options
from prbench.context.labels import read_labels
from prbench.data import DataSettings, open_data
from prbench.evaluation import EvalSettings, Run, as_loaded, evaluate_store
from prbench.lab import LAB
from prbench.registry import METHODS
from prbench.reward_models import ModelSettings
from prbench.schema import Json
from prbench.training.data import TRAIN_SPLIT, VALIDATION_SPLIT, TrainingData, load_training_data
from prbench.training.folder import (
    POSTS,
    RECENT,
    Config,
    ProgressCallback,
    Trained,
    figure_lines,
    held_out_figures,
    no_progress,
    usage,
    write_card,
)
from prbench.training.methods import load_method, make_config
from prbench.training.methods import train as train_method

_COSTS = (("seconds", "s"), ("peak_memory_mib", "MiB"))


def train(
    method: Annotated[
        str, typer.Option(help=f"How to train: {', '.join(METHODS.names)}.", rich_help_panel=options.MODEL)
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model; empty, or of the same command.")],
    data: options.Data = LAB,
    subset: options.Subset = None,
    train_split: Annotated[
        str | None,
        typer.Option(help="Split to learn from.", show_default=TRAIN_SPLIT, rich_help_panel=options.DATA),
    ] = None,
    validation_split: Annotated[
        str | None,
        typer.Option(
            help="Split of other users, to stop early and to measure.",
            show_default=VALIDATION_SPLIT,
            rich_help_panel=options.DATA,
        ),
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(help="Hold this share of the users of one split out instead.", rich_help_panel=options.DATA),
    ] = None,
    hold_out_by: Annotated[
        str,
        typer.Option(help="What is held out: user; or category, where nobody has two.", rich_help_panel=options.DATA),
    ] = "user",
    revision: options.Revision = None,
    limit: Annotated[
        int | None, typer.Option(help="Learn from the first N rows only.", min=1, rich_help_panel=options.DATA)
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", help="A setting of the method, as name=value.", rich_help_panel=options.MODEL),
    ] = [],  # noqa: B006
    backbone: Annotated[
        str | None,
        typer.Option(help="Model to start from: `smollm2`, a folder, a hub id.", rich_help_panel=options.MODEL),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn.", min=0)] = None,
    fresh: options.Fresh = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Train a reward model on pairs, and measure it on users that it has not seen.

    The same command again continues where it was interrupted, and comes to the same weights.

    Example: `prbench train --method head --data lab --out my-head`
    """
    how = load_method(method)
    chosen = {name: value for name, value in (("backbone", backbone), ("seed", seed)) if value is not None}
    wanted = make_config(how, settings, **chosen)
    rows = load_training_data(
        data,
        train_split=train_split,
        validation_split=validation_split,
        subset=subset,
        revision=revision,
        limit=limit,
        held_out=hold_out,
        held_out_by=hold_out_by,
    )
    with _training_bar(method, quiet=json) as say:
        trained = train_method(how, rows, wanted, out, say, fresh=fresh)
    if trained.is_policy:
        card = write_card(out, method, wanted, rows, trained)
    else:
        run = measure(rows, trained, wanted, quiet=json)
        card = write_card(out, method, wanted, rows, trained, held_out_figures(run.summary))
    if json:
        options.print_json({"spec": trained.spec, "method": method, "out": str(out), **card})
    elif trained.is_policy:
        _show_policy(trained, wanted)
    else:
        _show(trained, wanted, card["validation"])


def measure(data: TrainingData, trained: Trained, config: Config, *, quiet: bool) -> Run:
    """Evaluate the model on the held-out users, in the context that it was trained for."""
    how = EvalSettings(
        context=trained.context,
        posts=getattr(config, "posts", POSTS),
        rank=getattr(config, "rank", RECENT),
        seed=config.seed,
    )
    which = DataSettings(source=data.name, split=data.measured_on)
    with (
        open_data(replace(which, source="", split=None), data.validation) as store,
        options.progress_bar("held-out users", quiet=quiet) as progress,
    ):
        loaded = as_loaded(trained.spec, ModelSettings(seed=config.seed))
        labels = read_labels(store, shots=trained.shots) if trained.shots else None  # never the pair under test
        return evaluate_store(store, loaded, how, which, labels=labels, progress=progress)


def _show(trained: Trained, config: Config, figures: Mapping[str, Json]) -> None:
    options.out_console.print(f"--model {trained.spec} {usage(trained, config)}", soft_wrap=True)
    labels = ", who are known by their other pairs" if trained.shots else ""
    options.out_console.print(f"{figures['pairs']} pairs of {figures['users']} held-out users{labels}:")
    width = max(len(label) for label, _ in figure_lines(figures))
    for label, value in figure_lines(figures):
        options.out_console.print(f"  {label:<{width}}  {value}")
    _show_costs(trained)


def _show_policy(trained: Trained, config: Config) -> None:
    options.out_console.print(f"--policy {trained.spec} {usage(trained, config)}", soft_wrap=True)
    options.out_console.print(f"held-out loss {trained.facts['validation_loss']} per token of an answer")
    _show_costs(trained)


def _show_costs(trained: Trained) -> None:
    facts = ", ".join(f"{trained.facts[name]} {unit}" for name, unit in _COSTS if name in trained.facts)
    options.out_console.print(f"trained in {facts}")


@contextmanager
def _training_bar(label: str, *, quiet: bool) -> Iterator[ProgressCallback]:
    """Show steps, time left and what the method says of the last step; nothing where nobody watches."""
    if quiet or not options.notes.is_terminal:
        yield no_progress
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=options.notes, transient=True) as bar:
        task = bar.add_task(label, total=None, said="")

        def say(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, said=text)

        yield say
