"""A policy in this process: a causal language model of transformers, sampled in batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from prbench.backends.llm.hf import TransformersLLM
from prbench.backends.policy import MAX_TOKENS, TEMPERATURE, TOP_P, FailedSample, Prompt, Sample
from prbench.backends.policy_prompt import answer_template, messages_of
from prbench.downstream.policies.chat import sample_seed
from prbench.schema import Json
from prbench.specs import Above, AtLeast, AtMost, Spec, option

if TYPE_CHECKING:
    from prbench.backends.generation import Generated, Sampler

BATCH_SIZE = 64


@dataclass(frozen=True, kw_only=True)
class HfPolicyOptions:
    """How a language model in this process is sampled."""

    temperature: Annotated[float, AtLeast(0)] = option(TEMPERATURE, "of its samples")
    max_tokens: Annotated[int, AtLeast(1)] = option(MAX_TOKENS, "of an answer")
    top_p: Annotated[float, Above(0), AtMost(1)] = option(TOP_P, "sample from this share of likely tokens")
    batch_size: Annotated[int, AtLeast(1)] | None = option(None, "samples in a batch; default: 64")
    dtype: str = option("auto", "auto, float32, bfloat16 or float16")


def load(spec: Spec, options: HfPolicyOptions) -> "HFPolicy":
    """Return `hf:ID_OR_FOLDER`."""
    return HFPolicy(
        spec.target,
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        top_p=options.top_p,
        batch_size=options.batch_size or BATCH_SIZE,
        dtype=options.dtype,
    )


class HFPolicy(TransformersLLM):
    """A folder or hub id with a chat template; on a CPU every sample depends on its own prompt and seed alone."""

    def __init__(
        self,
        target: str,
        *,
        temperature: float,
        max_tokens: int,
        top_p: float = 1.0,
        batch_size: int = BATCH_SIZE,
        dtype: str = "auto",
    ) -> None:
        super().__init__(target, batch_size=batch_size, dtype=dtype)
        self.at_once = batch_size  # samples of one batch
        self._temperature = temperature
        self._top_p = top_p
        self._max_tokens = max_tokens

    @cached_property
    def _sampler(self) -> "Sampler":
        from prbench.backends.generation import Sampler

        on_gpu = self._model.device.type == "cuda"
        return Sampler(self._model, eos_ids=self._ends, pad_id=self._pad, captured=on_gpu)

    def release(self) -> None:
        """Free the buffers of sampling, before graders and reward models are loaded."""
        self._sampler.release()

    @property
    def identity(self) -> Mapping[str, Json]:
        """The weights, how they are asked and sampled; not the batch size, which on a CPU changes nothing."""
        return {
            "policy": self.name,
            "weights": self._weights,
            "dtype": str(self._model.dtype),
            "template": answer_template().hash,
            "temperature": self._temperature,
            "top_p": self._top_p,
            "max_tokens": self._max_tokens,
        }

    def fits(self, prompt: Prompt) -> bool:
        """Tell whether the prompt leaves room for an answer."""
        return self._window is None or len(self._ids(prompt)) + self._max_tokens <= self._window

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        """Return `n` samples for every prompt."""
        from prbench.backends.generation import Sampling

        fitting = [prompt for prompt in prompts if self.fits(prompt)]
        drawn = self._sampler.generate(
            [ids for ids in map(self._ids, fitting) for _ in range(n)],
            Sampling(max_new_tokens=self._max_tokens, temperature=self._temperature, top_p=self._top_p),
            seeds=[sample_seed(seed, prompt, number) for prompt in fitting for number in range(n)],
            batch_size=self.at_once,
        )
        samples = iter([self._as_sample(each) for each in drawn])
        too_long = f"the prompt and {self._max_tokens} tokens of an answer exceed the window of {self._window}"
        return [
            [next(samples) if prompt in fitting else FailedSample(error=too_long) for _ in range(n)]
            for prompt in prompts
        ]

    def _ids(self, prompt: Prompt) -> list[int]:
        return self._prompt(messages_of(prompt))

    def _as_sample(self, drawn: "Generated") -> Sample:
        text = self._tokenizer.decode(drawn.ids, skip_special_tokens=True).strip()
        return Sample(text=text, finish=drawn.finish, tokens=len(drawn.ids))
