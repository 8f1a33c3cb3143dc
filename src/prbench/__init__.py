"""Does a reward model know whom it is talking to, and does that show in the policy it trains?

import prbench
run = prbench.evaluate("pairs.jsonl", "control:overlap", context="profile")
print(run.summary["accuracy"], run.summary["swap"])
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prbench.api import (
        best_of_n,
        evaluate,
        load_dataset,
        load_model,
        load_runs,
        optimize_policy,
        reward_function,
        train,
    )
    from prbench.evaluation import Run
    from prbench.judging import RubricJudge
    from prbench.reward_models.base import RewardModel
    from prbench.schema import Comparison, Example, Post, RewardInput, Score, User, UserContext

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
    "reward_function",
    "train",
]

# Where each name is defined; those that are not named here are functions of `prbench.api`. A module is imported when
# one of its names is first used, so that `import prbench`, and with it every command of the command line, loads
# nothing that it does not need.
_HOMES = {
    "Run": "prbench.evaluation",
    "RewardModel": "prbench.reward_models.base",
    "RubricJudge": "prbench.judging",
    **dict.fromkeys(
        ("Comparison", "Example", "Post", "RewardInput", "Score", "User", "UserContext"), "prbench.schema"
    ),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_HOMES.get(name, "prbench.api")), name)
    return found


def __dir__() -> list[str]:
    return __all__
