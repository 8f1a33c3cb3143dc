"""Does a reward model know whom it is talking to, and does that show in the policy it trains?

import prbench
run = prbench.evaluate("pairs.jsonl", "control:overlap", context="profile")
print(run.summary["accuracy"], run.summary["swap"])
"""

from prbench.evaluation import Run, evaluate
from prbench.schema import Example, Post, RewardInput, Score, User

__all__ = ["Example", "Post", "RewardInput", "Run", "Score", "User", "evaluate"]
