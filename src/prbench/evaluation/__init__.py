"""Evaluation: rows in, verdicts and their summary out. `prbench.evaluate` is the function.

One example through the modules: `items` says who is shown and prepares the context, `score` asks the model about its
responses, `rows` makes a verdict of what it said, `batches` repeats that on an engine of `engines`, `summary` adds up,
and `run` keeps it in a folder.
"""

from prbench.evaluation.run import (
    Model,
    Run,
    Shown,
    as_loaded,
    context_maker,
    evaluate,
    evaluate_store,
    open_labels,
    run_config,
)
from prbench.evaluation.settings import PROBES, EvalSettings

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
