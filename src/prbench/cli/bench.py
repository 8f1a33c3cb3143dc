"""`prbench bench`: what shared prefixes save on this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from prbench.cli import options
from prbench.errors import UsageError
from prbench.pages.speed import plot_sweep
from prbench.runs.files import write_json


def bench(
    shape: Annotated[str, typer.Option(help="Llama-shaped random classifier: `tiny`, `30m` or `3b`.")] = "30m",
    prefix: Annotated[int, typer.Option(help="Tokens that the candidates of a prompt share.", min=1)] = 1000,
    response: Annotated[int, typer.Option(help="Tokens of each candidate.", min=1)] = 100,
    candidates: Annotated[int, typer.Option(help="Candidates of each prompt.", min=1)] = 16,
    sweep: Annotated[bool, typer.Option("--sweep", help="Measure 2, 4, 8, … candidates, up to --candidates.")] = False,
    prompts: Annotated[int, typer.Option(help="Prompts in flight.", min=1)] = 1,
    vary: Annotated[float, typer.Option(help="Prompts differ in length by up to this share.", min=0, max=0.9)] = 0.0,
    repeats: Annotated[int, typer.Option(help="Measurements of each way; the median counts.", min=1)] = 3,
    dtype: options.Dtype = "float32",
    device: Annotated[str, typer.Option(help="`auto`, `cpu` or `cuda`.")] = "auto",
    compile: options.Compile = False,  # noqa: A002
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for bench.json and the plot, bench.svg.")] = None,
    json: options.Json = False,
) -> None:
    """Score the same rows by padded batches of 16 and by shared prefixes, side by side, and compare.

    Example: `prbench bench --prefix 1000 --response 100 --candidates 16 --sweep --out speed`
    """
    try:
        from prbench.evaluation.bench import BenchSettings, doubling, run_sweep
    except ImportError as error:
        raise UsageError(f"bench needs {error.name or 'PyTorch'}. Install with: pip install 'prbench[hf]'") from error
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
        say=lambda line: None if json else options.notes.print(line, soft_wrap=True),
    )
    shown = found if sweep else found["points"][0]
    if out is not None:
        plot_sweep(out / "bench.svg", found)
        write_json(out / "bench.json", shown)
        options.notes.print(f"wrote {out / 'bench.json'} and {out / 'bench.svg'}", soft_wrap=True)
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
