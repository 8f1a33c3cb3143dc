"""bm25s, loaded without JAX.

Where JAX is installed, bm25s starts it at import, for a function that is not used here; and JAX, as it starts, takes
three quarters of a GPU's memory away from the models under test.
"""

import sys
from threading import Lock
from types import ModuleType

_HIDDEN = ("jax", "jax.lax")
_one_at_a_time = Lock()


def load_bm25s() -> ModuleType:
    """Import bm25s; JAX is as it was afterwards, whether it was loaded or not."""
    with _one_at_a_time:
        if "bm25s" not in sys.modules:
            before = {name: sys.modules[name] for name in _HIDDEN if name in sys.modules}
            sys.modules.update(dict.fromkeys(_HIDDEN))  # type: ignore[arg-type]  # `None` makes an import fail
            try:
                import bm25s  # noqa: F401
            finally:
                for name in _HIDDEN:
                    del sys.modules[name]
                sys.modules.update(before)
        return sys.modules["bm25s"]
