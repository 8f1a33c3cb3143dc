"""Does a reward model know whom it is talking to, and does that show in the policy it trains?

    run = prbench.evaluate("pairs.jsonl", "control:overlap", context="profile")
    print(run.summary["accuracy"], run.summary["swap"])

Data is a path, a hub id, `lab`, or rows; a model is a spec (`prbench models` lists them) or any object of yours.
Options that people reach for are keyword arguments. What lies one import deeper: `prbench.construction`,
`prbench.people`, `prbench.insight`, `prbench.serve`, `prbench.judging`, `prbench.registry`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prbench.data import load_dataset
    from prbench.downstream.api import best_of_n, optimize_policy
    from prbench.downstream.rewards import prompt_rows, reward_function
    from prbench.evaluation import Run
    from prbench.evaluation.api import evaluate, load_runs
    from prbench.judging import RubricJudge
    from prbench.reward_models import load_model
    from prbench.reward_models.base import RewardModel
    from prbench.schema import Comparison, Example, Post, RewardInput, Score, User, UserContext
    from prbench.training.methods import train

__all__ = [
    "Comparison",
    "Example",
    "Post",
    "RewardInput",
    "RewardModel",
    "RubricJudge",
    "Run",
    "Score",
    "User",
    "UserContext",
    "best_of_n",
    "evaluate",
    "load_dataset",
    "load_model",
    "load_runs",
    "optimize_policy",
    "prompt_rows",
    "reward_function",
    "train",
]

# Where each name is defined. A module is imported when one of its names is first used, so that `import prbench`, and
# with it every command of the command line, loads nothing that it does not need.
_HOMES = {
    **dict.fromkeys(
        ("Comparison", "Example", "Post", "RewardInput", "Score", "User", "UserContext"), "prbench.schema"
    ),
    "RewardModel": "prbench.reward_models.base",
    "RubricJudge": "prbench.judging",
    "Run": "prbench.evaluation",
    "best_of_n": "prbench.downstream.api",
    "evaluate": "prbench.evaluation.api",
    "load_dataset": "prbench.data",
    "load_model": "prbench.reward_models",
    "load_runs": "prbench.evaluation.api",
    "optimize_policy": "prbench.downstream.api",
    "prompt_rows": "prbench.downstream.rewards",
    "reward_function": "prbench.downstream.rewards",
    "train": "prbench.training.methods",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
