"""Bring your own reward model: any object with `score(inputs)`.

Run it from anywhere after `pip install prbench`:  python examples/quickstart.py
"""

from collections.abc import Sequence

import prbench
from prbench import RewardInput


class SharedWords:
    """Scores a response by how many of its words the user has used before."""

    name = "shared-words"

    def score(self, inputs: Sequence[RewardInput]) -> list[float]:
        """Return one number per input; higher means that this user would like it more. `None` means no idea."""
        return [float(len(set(one.response.lower().split()) & set(one.context.lower().split()))) for one in inputs]


run = prbench.evaluate("lab", SharedWords(), context="profile")
for name in ("accuracy", "personalization_gain"):
    figure = run.summary[name]
    print(f"{name}: {figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]")
print(f"swap gap: {run.summary['swap']['gap']['value']:+.3f}")
