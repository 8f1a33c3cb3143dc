"""`prbench bench`: what shared prefixes save on this machine, and whether two backends give the same scores."""

from typing import Annotated, Any

import typer
from rich.table import Table

from prbench.cli import options
from prbench.data import open_data
from prbench.errors import UsageError, needs
from prbench.evaluation.parity import compare
from prbench.pages.shell import write_page
from prbench.pages.speed import plot_sweep, render
from prbench.reward_models import check_not_gold, load_reward_model, read_ref
from prbench.runs.files import write_json

app = options.new_app("bench", invoke_without_command=True)


def bench(
    ctx: typer.Context,
    shape: Annotated[str, options.flag("Llama-shaped random classifier: `tiny`, `30m` or `3b`.")] = "30m",
    prefix: Annotated[int, options.flag("Tokens that the candidates of a prompt share.", min=1)] = 1000,
    response: Annotated[int, options.flag("Tokens of each candidate.", min=1)] = 100,
    candidates: Annotated[int, options.flag("Candidates of each prompt.", min=1)] = 16,
    sweep: Annotated[
        bool, options.flag("Measure 2, 4, 8, … candidates, up to --candidates.", None, "--sweep")
    ] = False,
    prompts: Annotated[int, options.flag("Prompts in flight.", min=1)] = 1,
    vary: Annotated[float, options.flag("Prompts differ in length by up to this share.", min=0, max=0.9)] = 0.0,
    repeats: Annotated[int, options.flag("Measurements of each way; the median counts.", min=1)] = 3,
    dtype: options.Dtype = "float32",
    device: Annotated[str, options.flag("`auto`, `cpu` or `cuda`.")] = "auto",
    compile: options.Compile = False,  # noqa: A002
    seed: options.Seed = 0,
    out: options.OutIfAny = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Score the same rows by padded batches of 16 and by shared prefixes, side by side, and compare.

    Example: `prbench bench --prefix 1000 --response 100 --candidates 16 --sweep --out speed`
    """
    if ctx.invoked_subcommand is not None:
        return
    with needs("hf", "prbench bench"):
        from prbench.evaluation.bench import BenchSettings, doubling, run_sweep

    settings = BenchSettings(
        shape=shape,
        prefix=prefix,
        response=response,
        candidates=candidates,
        prompts=prompts,
        vary=vary,
        repeats=repeats,
        dtype=options.one_of("--dtype", dtype, ("float32", "bfloat16", "float16")),
        device=device,
        compile=compile,
        seed=seed,
    )
    found = run_sweep(
        settings,
        doubling(candidates) if sweep else [candidates],
        note=lambda line: None if json else options.notes.print(line, soft_wrap=True),
    )
    shown = found if sweep else found["points"][0]
    if out is not None:
        plot_sweep(out / "bench.svg", found)
        write_json(out / "bench.json", shown)
        write_page(render(found, command=options.command_line()), out / "bench.html")
        options.notes.print(f"wrote {out / 'bench.html'}, bench.json and bench.svg", soft_wrap=True)
    if json:
        options.print_json(shown)
    elif sweep:
        _print_sweep(found["points"])
    else:
        _print_one(shown)


def _print_one(found: dict[str, Any]) -> None:
    for name, key, unit in (
        ("naive", "naive_seconds", "s"),
        ("shared prefixes", "seconds", "s"),
        ("ratio", "ratio", "times"),
        ("ratio of the numbers of tokens", "token_ratio", "times"),
        ("largest difference of scores", "parity_max_abs", ""),
        ("tokens per second, naive", "naive_tokens_per_second", ""),
        ("tokens per second", "tokens_per_second", ""),
        ("share of the matmul rate", "share_of_matmul_rate", ""),
        ("peak memory", "peak_memory_bytes", "bytes"),
    ):
        options.out_console.print(f"{name:<30} {found[key]:>14} {unit}")


def _print_sweep(points: list[dict[str, Any]]) -> None:
    table = Table("candidates", "naive s", "shared s", "ratio", "tokens allow", box=None, header_style="bold")
    for each in points:
        shares = (each["naive_seconds"], each["seconds"], each["ratio"], each["token_ratio"])
        table.add_row(str(each["settings"]["candidates"]), *map(str, shares))
    options.out_console.print(table)


app.callback()(options.with_records(bench))


@options.add(app, "parity")
def parity(
    model: options.RewardModels,
    data: Annotated[options.DataOptions, options.Defaults(limit=100)],
    context: options.ContextOptions,
    running: options.ModelOptions,
    worst: Annotated[int, options.flag("How many of the worst rows to show.", min=0)] = 5,
    tolerance: Annotated[
        float | None, options.flag("Exit with 1 when a score differs by more, or only one model has it.", min=0)
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Score the same rows with two models and show how far their scores are apart.

    Meant for one model behind two backends: transformers and vLLM, float32 and bfloat16, a folder and its server.

    Example: `prbench bench parity --model classifier:PATH --model server:http://127.0.0.1:8000 --limit 50`
    """
    if len(model) != 2:
        raise UsageError(f"--model is given {len(model)} times, and two models are compared. Give it twice.")
    options.one_of("--context", context.context, ("none", "profile"))
    how = context.settings(seed=seed)
    for spec in model:
        check_not_gold(read_ref(spec), "parity")
    which = data.which()
    with open_data(which) as store:
        settings = running.settings(seed=seed)
        first, second = (load_reward_model(spec, settings) for spec in model)
        for each in (first, second):
            if each.note:
                options.notes.print(f"{each.spec}: {each.note}", soft_wrap=True)
        with options.progress_bar("parity", quiet=json) as progress:
            found = compare(store, first, second, how, worst=worst, progress=progress)
    if json:
        options.print_json(found.as_json())
    else:
        show = options.out_console.print
        show(
            f"{found.first} against {found.second}: {found.compared} of {found.n} responses scored by both",
            soft_wrap=True,
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
    if tolerance is not None and found.exceeds(tolerance):
        raise typer.Exit(1)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"
