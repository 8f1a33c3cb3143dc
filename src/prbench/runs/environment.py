"""What computed a run: versions, machine and commit, as its manifest holds them."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prbench.schema import Json

# What scores or texts may hang on; listed where it was loaded, and never imported for this.
PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "vllm",
    "xllamacpp",
    "gguf",
    "openai",
    "ray",
    "numpy",
    "bm25s",
)


def environment(**told: Json) -> dict[str, Json]:
    """Return what computes here; `told` is what only the caller knows, e.g. which model a server says it has."""
    found: dict[str, Json] = {"prbench": version("prbench"), "python": platform.python_version()}
    found |= {name: _version(name) for name in PACKAGES if name in sys.modules}
    found |= {
        "system": platform.system(),
        "processor": platform.machine(),
        "device": _device(),
        "git": _commit(Path.cwd()),
    }
    return {name: value for name, value in {**found, **told}.items() if value not in (None, "", {})}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device() -> str:
    """Return the accelerator that loaded packages would use, or `cpu`."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "cpu"
    if torch.cuda.is_available():
        return f"cuda ({torch.cuda.get_device_name()})"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _commit(folder: Path) -> str | None:
    """Return the commit that is checked out where the command runs, read from git's files."""
    try:
        top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
        if top is None:
            return None
        git = top / ".git"
        if git.is_file():  # a worktree
            git = top / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / (git / "commondir").read_text(encoding="utf-8").strip() if (git / "commondir").exists() else git
        if (common / name).exists():
            return (common / name).read_text(encoding="utf-8").strip()
        packed = (common / "packed-refs").read_text(encoding="utf-8").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
    except (OSError, ValueError):
        return None
