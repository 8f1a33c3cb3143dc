"""Policies by name: what `--policy` takes. `prbench.registry` lists them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prbench.errors import UsageError
from prbench.policies.base import MAX_TOKENS, TEMPERATURE, TOP_P, Policy, Prompt, Sample
from prbench.registry import POLICIES, load_python
from prbench.schema import Json
from prbench.specs import Spec, parse_spec


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

    An option in the spec overrides its argument: `hf:FOLDER?temperature=0.7`. `top_p`, `batch_size` and `dtype` are
    for `hf:`, which runs in this process; `None` is a batch size that suits it.
    """
    if not 0 <= temperature < math.inf:
        raise UsageError(f"--temperature {temperature}: give a number that is not negative.")
    if max_tokens < 1:
        raise UsageError(f"--max-tokens {max_tokens}: an answer has at least one. Give 1 or more.")
    if not 0 < top_p <= 1:
        raise UsageError(f"--top-p {top_p}: give a share above 0, at most 1.")
    parsed = parse_spec(spec, POLICIES)
    if top_p != TOP_P and "top_p" not in (POLICIES.option_names(parsed.kind) or ()):
        raise UsageError(f"--top-p {top_p}: only hf: policies are sampled so. Leave it out for {spec}.")
    kind = POLICIES.find(parsed.kind)
    given = {
        "temperature": temperature,
        "max_tokens": max_tokens,
        "top_p": top_p,
        "batch_size": batch_size,
        "dtype": dtype,
    }
    policy: Policy = kind.loader()(parsed, kind.read_options(parsed, given))
    return policy


def load_own(spec: Spec, options: None) -> Policy:
    """Return `python:package.module:Factory`: what the factory makes, if it samples."""
    made = load_python(spec)
    if not callable(getattr(made, "sample", None)):
        raise UsageError(
            f"{spec.text}: a {type(made).__name__} has no sample(prompts, n=, seed=), so it is no policy."
        )
    return made if isinstance(made, Policy) else OwnPolicy(spec, made)


class OwnPolicy:
    """An object that samples, with the name and identity that it lacks; it may give plain texts."""

    def __init__(self, spec: Spec, inner: Any) -> None:
        self.name = spec.text
        self.identity: Mapping[str, Json] = {"policy": spec.text, **getattr(inner, "identity", {})}
        self._inner = inner

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        """Return `n` samples for every prompt."""
        drawn = self._inner.sample(prompts, n=n, seed=seed)
        return [[each if isinstance(each, Sample) else Sample(text=each) for each in some] for some in drawn]
