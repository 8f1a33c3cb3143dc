"""Evaluation: rows in, verdicts and their summary out. `prbench.evaluate` is the function.

One example through the modules: `score` says who is shown, asks the model about the responses and makes a row of what
it said, `batches` repeats that on an engine of `engines`, `summary` adds up, and `run` keeps it in a folder.
"""

from prbench.evaluation.batches import as_loaded
from prbench.evaluation.run import Run, evaluate, evaluate_store, run_config
from prbench.evaluation.settings import PROBES, EvalSettings, Model, Shown, context_maker, open_labels

__all__ = [
    "PROBES",
    "EvalSettings",
    "Model",
    "Run",
    "Shown",
    "as_loaded",
    "context_maker",
    "evaluate",
    "evaluate_store",
    "open_labels",
    "run_config",
]
