"""The one place where policies are looked up by name."""

import math

from prbench.errors import UsageError
from prbench.policies.base import Policy

TEMPERATURE = 1.0
MAX_TOKENS = 256
TOP_P = 1.0  # of all tokens


def load_policy(
    spec: str,
    *,
    temperature: float = TEMPERATURE,
    max_tokens: int = MAX_TOKENS,
    top_p: float = TOP_P,
    batch_size: int | None = None,
    dtype: str = "auto",
) -> Policy:
    """Build the policy named on the command line: `lab`, `hf:FOLDER_OR_ID`, or any chat model, e.g. `fake:yes`.

    `top_p`, `batch_size` and `dtype` are for `hf:`, which runs in this process; `None` is a batch size that suits it.
    """
    if not 0 <= temperature < math.inf:
        raise UsageError(f"--temperature {temperature}: give a number that is not negative.")
    if max_tokens < 1:
        raise UsageError(f"--max-tokens {max_tokens}: an answer has at least one. Give 1 or more.")
    if not 0 < top_p <= 1:
        raise UsageError(f"--top-p {top_p}: give a share above 0, at most 1.")
    kind, _, target = spec.partition(":")
    if kind != "hf" and top_p != TOP_P:
        raise UsageError(f"--top-p {top_p}: only hf: policies are sampled so. Leave it out for {spec}.")
    match kind:
        case "lab":
            from prbench.policies.lab import LabPolicy

            if target:
                raise UsageError(f"{spec!r}: the lab has one policy. Write `lab`.")
            return LabPolicy()
        case "hf" if target:
            from prbench.policies.hf import BATCH_SIZE, HFPolicy

            return HFPolicy(
                target,
                temperature=temperature,
                max_tokens=max_tokens,
                top_p=top_p,
                batch_size=batch_size or BATCH_SIZE,
                dtype=dtype,
            )
        case _:
            from prbench.llm import KINDS, load_llm
            from prbench.policies.chat import ChatPolicy

            if kind not in KINDS:
                raise UsageError(f"Unknown kind {kind!r} of policy in {spec!r}. Known: lab, {', '.join(KINDS)}.")
            return ChatPolicy(load_llm(spec), temperature=temperature, max_tokens=max_tokens)
