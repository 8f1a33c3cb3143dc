"""`prbench train`: turn pairs into a reward model that `--model` takes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

from rich.table import Table
from typer.core import TyperCommand

from prbench.backends.trackers import figures_of, tracking
from prbench.cli import options
from prbench.context.labels import read_labels
from prbench.data import DataSettings, open_data
from prbench.evaluation import EvalSettings, Run, as_loaded, evaluate_store
from prbench.lab import LAB
from prbench.registry import METHODS
from prbench.reward_models import ModelSettings
from prbench.schema import Json
from prbench.specs import describe
from prbench.training.data import TRAIN_SPLIT, VALIDATION_SPLIT, TrainingData, load_training_data
from prbench.training.folder import (
    POSTS,
    RECENT,
    Config,
    Trained,
    figure_lines,
    held_out_figures,
    no_progress,
    usage,
    write_card,
)
from prbench.training.methods import load_method, make_config, run_method

_COSTS = (("seconds", "s"), ("peak_memory_mib", "MiB"))


class TrainCommand(TyperCommand):
    """Shows with its help the settings of the method that was named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what was typed: `--help` ends the reading before `--method` has a value."""
        ctx.meta["typed"] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the options and, after `--method NAME`, the settings that `--set` takes."""
        super().format_help(ctx, formatter)
        typed = [part for each in ctx.meta["typed"] for part in each.split("=", 1)]
        named = [value for flag, value in pairwise(typed) if flag == "--method"]
        if named:
            table = Table("setting", "takes", "what it is", box=None, header_style="bold", pad_edge=False)
            for each in describe(load_method(named[-1]).config):
                values = each.values if each.default is None else f"{each.values}; default: {each.default}"
                table.add_row(each.name, values, each.help)
            options.out_console.print(f"Settings of --method {named[-1]}, for --set NAME=VALUE", style="bold")
            options.out_console.print(table)


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Whom to learn from, and on whom to measure."""

    train_split: Annotated[
        str | None, options.flag("Split to learn from.", options.DATA, show_default=TRAIN_SPLIT)
    ] = None
    validation_split: Annotated[
        str | None,
        options.flag(
            "Split of other users, to stop early and to measure.", options.DATA, show_default=VALIDATION_SPLIT
        ),
    ] = None
    hold_out: Annotated[
        float | None, options.flag("Hold this share of the users of one split out instead.", options.DATA)
    ] = None
    hold_out_by: Annotated[
        str, options.flag("What is held out: user; or category, where nobody has two.", options.DATA)
    ] = "user"


app = options.new_app("train")


@options.add(app, "train", cls=TrainCommand)
def train(
    method: Annotated[str, options.flag(f"How to train: {', '.join(METHODS.names)}.", options.MODEL)],
    out: options.Out,
    splits: SplitOptions,
    data: options.Data = LAB,
    subset: options.Subset = None,
    revision: options.Revision = None,
    limit: options.Limit = None,
    settings: options.Settings = [],  # noqa: B006
    backbone: Annotated[
        str | None, options.flag("Model to start from: `smollm2`, a folder, a hub id.", options.MODEL)
    ] = None,
    seed: options.SeedIfAny = None,
    fresh: options.Fresh = False,
    log_to: options.LogTo = [],  # noqa: B006
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Train a reward model on pairs, and measure it on users that it has not seen.

    The same command again continues where it was interrupted, and comes to the same weights. With `--method NAME`,
    `--help` shows the settings of that method.

    Example: `prbench train --method head --data lab --out my-head`
    """
    options.check_trackers(log_to)
    how = load_method(method)
    chosen = {name: value for name, value in (("backbone", backbone), ("seed", seed)) if value is not None}
    wanted = make_config(how, settings, **chosen)
    rows = load_training_data(
        data,
        train_split=splits.train_split,
        validation_split=splits.validation_split,
        subset=subset,
        revision=revision,
        limit=limit,
        held_out=splits.hold_out,
        held_out_by=splits.hold_out_by,
    )
    with tracking(log_to, f"{method} {out.name}", {"method": method, "data": data, **asdict(wanted)}) as trackers:
        with options.progress_bar(method, quiet=json) as say:
            trained = run_method(how, rows, wanted, out, say or no_progress, fresh=fresh)
        if trained.is_policy:
            card = write_card(out, method, wanted, rows, trained)
        else:
            run = measure(rows, trained, wanted, quiet=json)
            card = write_card(out, method, wanted, rows, trained, held_out_figures(run.summary))
            trackers.log(figures_of(card["validation"], "held_out"))
        trackers.log(figures_of(trained.facts, "train"))
    if json:
        options.print_json({"spec": trained.spec, "method": method, "out": str(out), **card})
    elif trained.is_policy:
        options.out_console.print(f"--policy {trained.spec} {usage(trained, wanted)}", soft_wrap=True)
        options.out_console.print(f"held-out loss {trained.facts['validation_loss']} per token of an answer")
        _show_costs(trained)
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


def _show_costs(trained: Trained) -> None:
    facts = ", ".join(f"{trained.facts[name]} {unit}" for name, unit in _COSTS if name in trained.facts)
    options.out_console.print(f"trained in {facts}")
