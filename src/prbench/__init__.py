"""Does a reward model know whom it is talking to, and does that show in the policy it trains?

import prbench
run = prbench.evaluate("pairs.jsonl", "control:overlap", context="profile")
print(run.summary["accuracy"], run.summary["swap"])
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prbench.evaluation import Run, evaluate
    from prbench.reward_models.base import RewardModel
    from prbench.schema import Comparison, Example, Post, RewardInput, Score, User, UserContext

__all__ = [
    "Comparison",
    "Example",
    "Post",
    "RewardInput",
    "RewardModel",
    "Run",
    "Score",
    "User",
    "UserContext",
    "evaluate",
]

# Where each name is defined. A module is imported when one of its names is first used, so that `import prbench`,
# and with it every command of the command line, loads nothing that it does not need.
_HOMES = {
    **dict.fromkeys(("Run", "evaluate"), "prbench.evaluation"),
    **dict.fromkeys(
        ("Comparison", "Example", "Post", "RewardInput", "Score", "User", "UserContext"), "prbench.schema"
    ),
    "RewardModel": "prbench.reward_models.base",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
