"""`prbench bench`: what shared prefixes save on this machine."""

from typing import Annotated

import typer

from prbench.cli import options
from prbench.cli.evaluate import one_of
from prbench.errors import UsageError


def bench(
    shape: Annotated[str, typer.Option(help="Llama-shaped random classifier: `tiny`, `30m` or `3b`.")] = "30m",
    prefix: Annotated[int, typer.Option(help="Tokens that the candidates of a prompt share.", min=1)] = 1000,
    response: Annotated[int, typer.Option(help="Tokens of each candidate.", min=1)] = 100,
    candidates: Annotated[int, typer.Option(help="Candidates of each prompt.", min=1)] = 16,
    prompts: Annotated[int, typer.Option(help="Prompts in flight.", min=1)] = 1,
    vary: Annotated[float, typer.Option(help="Prompts differ in length by up to this share.", min=0, max=0.9)] = 0.0,
    repeats: Annotated[int, typer.Option(help="Measurements of each way; the median counts.", min=1)] = 3,
    dtype: options.Dtype = "float32",
    device: Annotated[str, typer.Option(help="`auto`, `cpu` or `cuda`.")] = "auto",
    compile: options.Compile = False,  # noqa: A002
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Score the same rows by padded batches of 16 and by shared prefixes, side by side, and compare.

    Example: `prbench bench --prefix 1000 --response 100 --candidates 16`
    """
    try:
        from prbench.bench import BenchSettings, run_bench
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
        dtype=one_of("--dtype", dtype, ("float32", "bfloat16", "float16")),
        device=device,
        compile=compile,
        seed=seed,
    )
    found = run_bench(settings, say=lambda line: None if json else options.notes.print(line, soft_wrap=True))
    if json:
        options.print_json(found)
        return
    for name, key, unit in (
        ("naive", "naive_seconds", "s"),
        ("shared prefixes", "seconds", "s"),
        ("ratio", "ratio", "times"),
        ("largest difference of scores", "parity_max_abs", ""),
        ("tokens per second, naive", "naive_tokens_per_second", ""),
        ("tokens per second", "tokens_per_second", ""),
        ("share of the matmul rate", "share_of_matmul_rate", ""),
        ("peak memory", "peak_memory_bytes", "bytes"),
    ):
        options.out_console.print(f"{name:<30} {found[key]:>14} {unit}")
