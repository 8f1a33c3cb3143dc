"""`prbench parity`: do two backends of one model give the same scores?"""

from typing import Annotated

import typer

from prbench.cli import options
from prbench.data import DataSettings, open_data
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings
from prbench.evaluation.parity import Parity, compare
from prbench.lab import LAB
from prbench.reward_models import ModelSettings, check_not_gold, load_reward_model, read_ref


def parity(
    model: Annotated[list[str], typer.Option(help="Give two, e.g. `classifier:PATH` and `server:URL`.")],
    data: options.Data = LAB,
    subset: options.Subset = None,
    split: options.Split = None,
    revision: options.Revision = None,
    limit: options.Limit = 100,
    context: options.ContextKind = "profile",
    posts: options.Posts = 10,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = "auto",
    worst: Annotated[int, typer.Option(help="How many of the worst rows to show.", min=0)] = 5,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Exit with 1 when a score differs by more, or only one model has it.", min=0),
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Score the same rows with two models and show how far their scores are apart.

    Meant for one model behind two backends: transformers and vLLM, float32 and bfloat16, a folder and its server.

    Example: `prbench parity --model classifier:PATH --model server:http://127.0.0.1:8000 --limit 50`
    """
    if len(model) != 2:
        raise UsageError(f"--model is given {len(model)} times, and two models are compared. Give it twice.")
    how = EvalSettings(context=options.one_of("--context", context, ("none", "profile")), posts=posts, seed=seed)
    for spec in model:
        check_not_gold(read_ref(spec), "parity")
    which = DataSettings(source=data, subset=subset, split=split, revision=revision, limit=limit)
    with open_data(which) as store:
        settings = ModelSettings(batch_size=options.parse_batch_size(batch_size), seed=seed)
        first, second = (load_reward_model(spec, settings) for spec in model)
        for each in (first, second):
            if each.note:
                options.notes.print(f"{each.spec}: {each.note}", soft_wrap=True)
        with options.progress_bar("parity", quiet=json) as progress:
            found = compare(store, first, second, how, worst=worst, progress=progress)
    if json:
        options.print_json(found.as_json())
    else:
        _print(found)
    if tolerance is not None and found.exceeds(tolerance):
        raise typer.Exit(1)


def _print(found: Parity) -> None:
    show = options.out_console.print
    show(
        f"{found.first} against {found.second}: {found.compared} of {found.n} responses scored by both", soft_wrap=True
    )
    if found.left_out:
        show(f"  rows that do not fit both windows: {found.left_out}", style="yellow")
    if found.only_one:
        show(f"  scored by one of them alone: {found.only_one}", style="yellow")
    show(f"  difference: max {_number(found.max_abs)}, mean {_number(found.mean_abs)}")
    show(f"  same order: Spearman {_share(found.spearman)}, equal verdicts {_share(found.verdicts_agree)}")
    for row in found.worst:
        one, two = _number(row["first"]), _number(row["second"])
        show(f"  {_number(row['abs_difference'])}  {row['id']} {row['side']}: {one} and {two}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"
