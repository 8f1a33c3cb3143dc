"""Policies by name: what `--policy` takes. `prbench.registry` lists them."""

import math
from collections.abc import Sequence
from typing import Any

from prbench.backends.own_code import asking, identity_of, load_python
from prbench.backends.policy import MAX_TOKENS, TEMPERATURE, TOP_P, Policy, Prompt, Sample, samples_of
from prbench.errors import UsageError
from prbench.registry import POLICIES
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
    policy: Policy = kind.make(parsed, kind.read_options(parsed, given), needs=("name", "identity", "sample"))
    return policy


def load_own(spec: Spec, options: None) -> Policy:
    """Return `python:package.module:Factory`: what the factory makes, if it samples."""
    made = load_python(spec)
    with asking(spec, f"the {type(made).__name__} that it made"):
        if not callable(getattr(made, "sample", None)):
            raise UsageError(
                f"{spec.text}: a {type(made).__name__} has no sample(prompts, n=, seed=), so it is no policy."
            )
        return OwnPolicy(spec, made)


class OwnPolicy:
    """An object that samples, with the name and identity that it lacks; it may give plain texts.

    `fits(prompt)`, `release()` and `at_once` are used where it has them.
    """

    def __init__(self, spec: Spec, inner: Any) -> None:
        self.name = spec.text
        self.identity = {"policy": f"{spec.kind}:{spec.target}", **identity_of(spec, getattr(inner, "identity", {}))}
        self._spec, self._inner = spec, inner
        # Set on the object, so that only a policy that has them promises them: see `Windowed` and `HasBatchSize`.
        if callable(getattr(inner, "fits", None)):
            self.fits = self._fits
        if callable(getattr(inner, "release", None)):
            self.release = self._release
        if (at_once := getattr(inner, "at_once", None)) is not None:
            if type(at_once) is not int or at_once < 1:
                raise UsageError(f"{spec.text}: at_once is {at_once!r}. Make it a whole number above 0.")
            self.at_once = at_once

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        """Return `n` samples for every prompt."""
        with asking(self._spec, "sample"):
            drawn = self._inner.sample(prompts, n=n, seed=seed)
            return samples_of(self.name, drawn, prompts=len(prompts), n=n)

    def _fits(self, prompt: Prompt) -> bool:
        with asking(self._spec, "fits"):
            return bool(self._inner.fits(prompt))

    def _release(self) -> None:
        with asking(self._spec, "release"):
            self._inner.release()
