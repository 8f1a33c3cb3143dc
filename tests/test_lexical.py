"""bm25s leaves JAX alone, which would take most of a GPU's memory."""

import subprocess
import sys
from pathlib import Path

START = """
import sys
{before}
from prbench.backends.bm25 import load_bm25s
assert load_bm25s().BM25 is load_bm25s().BM25
print(load_bm25s().selection.JAX_IS_AVAILABLE, "jax" in sys.modules)
import jax
print(jax.started)
"""


def started(folder: Path, before: str = "") -> list[str]:
    """Load bm25s beside a JAX that says whether anybody used it."""
    package = folder / "jax"
    package.mkdir()
    (package / "__init__.py").write_text("started = []\n")
    (package / "lax.py").write_text("import jax\ndef top_k(scores, k):\n    jax.started.append(k)\n")
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{START.format(before=before)}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def test_an_installed_jax_is_not_started(tmp_path: Path) -> None:
    assert started(tmp_path) == ["False False", "[]"]


def test_a_loaded_jax_stays_loaded(tmp_path: Path) -> None:
    assert started(tmp_path, "import jax.lax; jax.lax.top_k([], 7)") == ["False True", "[7]"]


def test_many_threads_may_ask_for_it_at_once() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from prbench.backends.bm25 import load_bm25s\n"
        "with ThreadPoolExecutor(8) as threads:\n"
        "    found = list(threads.map(lambda _: load_bm25s().BM25, range(8)))\n"
        "print(len(set(found)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"
