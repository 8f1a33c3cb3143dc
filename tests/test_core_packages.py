"""What the core needs: no package whose license or size would bind whoever installs it."""

import subprocess
import sys

CODE = """
import importlib, pkgutil, sys
from prbench.errors import UsageError

EXTRAS = {"torch", "ray", "fastapi", "uvicorn", "httpx", "transformers", "playwright"}

class Plain:  # an installation without extras
    def find_spec(self, name, path=None, target=None):
        if name in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def import_core(name):
    try:
        module = importlib.import_module(name)
    except (ModuleNotFoundError, UsageError) as error:  # the module belongs to an extra
        if getattr(error, "name", None) in EXTRAS or "pip install 'prbench[" in str(error):
            return
        raise
    for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
        import_core(f"{name}.{info.name}")

sys.meta_path.insert(0, Plain())
for name in ("metrics", "evaluation", "insight", "people", "runs", "data", "context", "lab", "pages"):
    import_core(f"prbench.{name}")

from prbench.metrics.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha, label_table
from prbench.metrics.compare import rank_board
from prbench.schema import Probe, Row, Verdict

def rows(step):
    won = lambda i: Verdict.CHOSEN if i % step else Verdict.REJECTED
    return [Row(id=str(i), probe=Probe.OWN, user_id=str(i % 7), category="c", verdict=won(i)) for i in range(40)]

rank_board({"one": rows(2), "two": rows(3), "three": rows(4)})
table = label_table((rater, str(i), i % 3 * i % size) for i in range(30) for rater, size in (("a", 3), ("b", 4)))
for level in ("nominal", "ordinal", "interval"):
    krippendorff_alpha(table, level)
fleiss_kappa(table), cohen_kappa(table, "a", "b")
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_the_core_needs_neither_pandas_nor_statsmodels_nor_krippendorff() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert {"numpy", "scipy", "prbench"} <= loaded
    assert not loaded & {"pandas", "statsmodels", "krippendorff"}
