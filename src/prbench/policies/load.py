"""The one place where policies are looked up by name."""

import math

from prbench.errors import UsageError
from prbench.policies.base import Policy

TEMPERATURE = 1.0
MAX_TOKENS = 256


def load_policy(spec: str, *, temperature: float = TEMPERATURE, max_tokens: int = MAX_TOKENS) -> Policy:
    """Build the policy named on the command line: `lab`, `hf:FOLDER_OR_ID`, or any chat model, e.g. `fake:yes`."""
    if not 0 <= temperature < math.inf:
        raise UsageError(f"--temperature {temperature}: give a number that is not negative.")
    if max_tokens < 1:
        raise UsageError(f"--max-tokens {max_tokens}: an answer has at least one. Give 1 or more.")
    kind, _, target = spec.partition(":")
    match kind:
        case "lab":
            from prbench.policies.lab import LabPolicy

            if target:
                raise UsageError(f"{spec!r}: the lab has one policy. Write `lab`.")
            return LabPolicy()
        case "hf" if target:
            from prbench.policies.hf import HFPolicy

            return HFPolicy(target, temperature=temperature, max_tokens=max_tokens)
        case _:
            from prbench.llm import KINDS, load_llm
            from prbench.policies.chat import ChatPolicy

            if kind not in KINDS:
                raise UsageError(f"Unknown kind {kind!r} of policy in {spec!r}. Known: lab, {', '.join(KINDS)}.")
            return ChatPolicy(load_llm(spec), temperature=temperature, max_tokens=max_tokens)
