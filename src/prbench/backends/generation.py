"""Sampling from a causal language model in batches, in which a row depends on its own prompt and seed alone.

Prompts are padded on the left and share a key-value cache of fixed size, so that on a GPU one decoding step can be
captured once and replayed. The next token is the one with the largest `logits / temperature + Gumbel noise`, which
draws from the softmax; the noise is a hash of the row's seed, the step and the token, computed where the logits are.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from prbench.errors import UsageError

log = logging.getLogger(__name__)

Finish = Literal["stop", "length"]

WIDTH_STEP = 64  # captured prompts are as wide as a multiple of this: few shapes, few captures
FEWEST_CAPTURED = 8  # new tokens from which on a capture pays; it takes a few steps itself
LARGEST_GAP = 0.05  # of log-probabilities, on average, between captured and plain steps in half precision
STEPS_PER_CHECK = 16  # on a GPU, asking whether all rows have ended waits for the step to end
PLAIN_ATTENTION = "sdpa"
_UNUSUAL = ("position_bias", "softcap", "cache")  # arguments that only the plain attention knows
_LOW_32_BITS = 0xFFFFFFFF
# Multipliers of the integer hash `lowbias32` (C. Wellons, hash-prospector), and 2^32 over the golden ratio.
_FIRST, _SECOND, _SPREAD = 0x7FEB352D, 0x846CA68B, 0x9E3779B9
_ALMOST_ONE = 1 - 2**-24  # the largest float32 below 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What was sampled after one prompt."""

    ids: tuple[int, ...]  # without the token that ended it
    finish: Finish  # stop, or length where `max_new_tokens` cut it off
    # Of every sampled token under softmax(logits / temperature), before `top_p`; greedy samples are read at 1. Where
    # it stopped, the last one is that of the token that ended it.
    logprobs: tuple[float, ...]
    end: int | None = None  # the token that ended it; none where it was cut off

    @property
    def tokens(self) -> tuple[int, ...]:
        """The sampled tokens with the one that ended them, one for each of `logprobs`."""
        return self.ids if self.end is None else (*self.ids, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How samples are drawn."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise UsageError(f"--max-new-tokens {self.max_new_tokens} leaves no room for an answer. Give 1 or more.")
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise UsageError(
                f"--temperature {self.temperature} must not be negative; --top-p {self.top_p} lies above 0, up to 1."
            )


class Sampler:
    """Samples from one model, whose weights may change between the calls.

    With `captured`, a decoding step is a CUDA graph: it is captured again only for larger batches and longer prompts.
    """

    def __init__(self, model: Any, *, eos_ids: Sequence[int], pad_id: int, captured: bool = False) -> None:
        self._model = model
        self._device = next(model.parameters()).device
        self._ends = torch.tensor(sorted(set(eos_ids)), device=self._device)
        self._pad = pad_id
        self._captured = captured and self._device.type == "cuda"
        self._slots: _Slots | None = None
        self.seconds = 0.0  # that the last call took, with reading the prompts

    def generate(
        self, prompts: Sequence[Sequence[int]], how: Sampling, *, seeds: Sequence[int], batch_size: int
    ) -> list[Generated]:
        """Return one sample per prompt, in the same order."""
        if len(seeds) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need as many seeds, not {len(seeds)}")
        window = getattr(self._model.config, "max_position_embeddings", None)
        longest = max(map(len, prompts), default=0)
        if window is not None and longest + how.max_new_tokens > window:
            raise UsageError(
                f"A prompt of {longest} tokens and an answer of up to {how.max_new_tokens} do not fit the policy's "
                f"window of {window}. Show fewer posts, or ask for shorter answers."
            )
        started = time.monotonic()
        order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
        samples: dict[int, Generated] = {}
        was_training = self._model.training
        self._model.eval()
        try:
            with shared_keys(self._model), torch.no_grad():
                for start in range(0, len(order), batch_size):
                    rows = order[start : start + batch_size]
                    slots = self._fitting_slots(rows, prompts, how, batch_size)
                    found = slots.run([prompts[row] for row in rows], [seeds[row] for row in rows])
                    samples.update(zip(rows, found, strict=True))
        finally:
            self._model.train(was_training)
        self.seconds = time.monotonic() - started
        return [samples[row] for row in range(len(prompts))]

    def release(self) -> None:
        """Free the buffers; the next call makes them again."""
        self._slots = None

    def _fitting_slots(
        self, rows: Sequence[int], prompts: Sequence[Sequence[int]], how: Sampling, batch_size: int
    ) -> "_Slots":
        """Return buffers for these rows: captured ones are kept as long as they are large enough."""
        width, size = max(len(prompts[row]) for row in rows), len(rows)
        if self._captured:
            size, width = min(batch_size, len(prompts)), -(-max(map(len, prompts)) // WIDTH_STEP) * WIDTH_STEP
            kept = self._slots
            if kept and kept.how == how and kept.size == size and width <= kept.width <= 2 * width:
                return kept
        self._slots = None  # frees its memory before more is taken
        made = _Slots(self._model, how, size=size, width=width, ends=self._ends, pad=self._pad)
        if self._captured:
            try:
                made.capture()
            except RuntimeError as error:
                log.warning("decoding steps are not captured, and slower: %s", " ".join(str(error).split())[:200])
                self._captured = False
                return _Slots(self._model, how, size=size, width=width, ends=self._ends, pad=self._pad)
            self._slots = made
        return made


class _Slots:
    """Buffers of fixed shapes for one batch, and the steps that fill them."""

    def __init__(self, model: Any, how: Sampling, *, size: int, width: int, ends: Tensor, pad: int) -> None:
        from transformers import StaticCache

        self.how, self.size, self.width = how, size, width
        self._model, self._ends, self._pad = model, ends, pad
        device, new = ends.device, how.max_new_tokens
        self._cache = StaticCache(config=model.config, max_cache_len=width + new)
        self._mask = torch.ones(size, width + new, dtype=torch.long, device=device)  # 0 only left of the prompts
        self._token = torch.zeros(size, 1, dtype=torch.long, device=device)
        self._position = torch.zeros(size, 1, dtype=torch.long, device=device)
        self._step = torch.zeros(1, dtype=torch.long, device=device)
        self._keys = torch.zeros(size, new, 2, dtype=torch.long, device=device)
        self._ended = torch.zeros(size, dtype=torch.bool, device=device)
        self._ids = torch.full((size, new), pad, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(size, new, dtype=torch.float32, device=device)
        self._decode: Callable[[], None] = self._forward
        self._trial = [list(range(3, 3 + min(8, width)))] * size, list(range(size))  # short prompts, and their seeds

    def capture(self) -> None:
        """Record one decoding step as a CUDA graph; a RuntimeError says why that cannot be done."""
        if self.how.max_new_tokens < FEWEST_CAPTURED:
            return
        plain = self._try_out()
        self._begin(*self._trial)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # libraries choose and set up their kernels at the first calls
                self._forward()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._forward()
        self._decode = graph.replay
        # A cache that counts in Python would write every step of the graph to one place, without an error.
        if (self._try_out() - plain).abs().mean() > LARGEST_GAP:
            raise RuntimeError("this model's cache does not follow a captured step")

    def _try_out(self) -> Tensor:
        """Return the log-probabilities of a few steps after the trial prompts."""
        self._begin(*self._trial)
        for _ in range(FEWEST_CAPTURED - 1):
            self._decode()
        return self._logprobs[:, :FEWEST_CAPTURED].clone()

    def run(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Generated]:
        """Sample for up to `size` prompts; rows to spare repeat the last one and are dropped."""
        spare = self.size - len(prompts)
        self._begin([*prompts, *[prompts[-1]] * spare], [*seeds, *[seeds[-1]] * spare])
        every = STEPS_PER_CHECK if self._token.is_cuda else 1
        for step in range(1, self.how.max_new_tokens):
            if step % every == 0 and bool(self._ended.all()):
                break
            self._decode()
        ends, samples = set(self._ends.tolist()), []
        for ids, logprobs in zip(self._ids[: len(prompts)].tolist(), self._logprobs.tolist(), strict=False):
            place = next((place for place, token in enumerate(ids) if token in ends), None)
            if place is None:
                samples.append(Generated(ids=tuple(ids), finish="length", logprobs=tuple(logprobs)))
            else:
                kept = tuple(logprobs[: place + 1])  # with that of the token that ended it
                samples.append(Generated(ids=tuple(ids[:place]), finish="stop", logprobs=kept, end=ids[place]))
        return samples

    def _begin(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> None:
        """Read the prompts, and sample the first tokens."""
        lengths = [len(prompt) for prompt in prompts]
        padded = [[self._pad] * (self.width - len(prompt)) + list(prompt) for prompt in prompts]
        ids = torch.tensor(padded, device=self._token.device)
        left = self.width - torch.tensor(lengths, device=ids.device).unsqueeze(1)  # (batch, 1)
        places = torch.arange(self._mask.shape[1], device=ids.device)
        self._mask.copy_(places >= left)
        # Two 32-bit keys of noise for every seed and step, (batch, steps, 2).
        streams = [blake2b(str(seed).encode(), digest_size=8).digest() for seed in seeds]
        dice = [np.random.Philox(key=int.from_bytes(stream, "little")) for stream in streams]
        raw = np.array([each.random_raw(self.how.max_new_tokens) for each in dice], dtype=np.uint64)
        keys = np.stack([raw >> np.uint64(32), raw & np.uint64(_LOW_32_BITS)], axis=2).astype(np.int64)
        self._keys.copy_(torch.from_numpy(keys))
        for buffer, value in ((self._step, 0), (self._ended, False), (self._ids, self._pad), (self._logprobs, 0.0)):
            buffer.fill_(value)
        self._cache.reset()
        found = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=(places[: self.width] - left).clamp(min=0),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._position.copy_(self.width - left)
        self._place(found.logits[:, -1])

    def _forward(self) -> None:
        """Read the last tokens, and sample the next ones."""
        found = self._model(
            input_ids=self._token,
            attention_mask=self._mask,
            position_ids=self._position,
            past_key_values=self._cache,
            use_cache=True,
        )
        self._position.add_(1)
        self._place(found.logits[:, -1])

    def _place(self, logits: Tensor) -> None:
        """Sample one token per row and note it; rows that have ended get padding."""
        scaled = logits.float() / (self.how.temperature or 1.0)  # (batch, vocabulary)
        allowed = scaled
        if self.how.top_p < 1:
            # Only the likeliest tokens count that together reach `top_p`; the likeliest one always stays.
            ordered, places = scaled.sort(dim=1, descending=True)
            chances = ordered.softmax(dim=1)
            kept = ordered.masked_fill(chances.cumsum(dim=1) - chances >= self.how.top_p, -torch.inf)
            allowed = torch.full_like(scaled, -torch.inf).scatter(1, places, kept)
        if self.how.temperature > 0:
            keys = self._keys.index_select(1, self._step).squeeze(1)
            allowed = allowed + gumbel_noise(keys, logits.shape[1])
        token = allowed.argmax(dim=1, keepdim=True)
        chance = scaled.gather(1, token) - scaled.logsumexp(dim=1, keepdim=True)
        over = self._ended.unsqueeze(1)
        self._token.copy_(token.masked_fill(over, self._pad))
        self._ids.index_copy_(1, self._step, self._token)
        self._logprobs.index_copy_(1, self._step, chance.masked_fill(over, 0.0))
        self._ended.logical_or_((token == self._ends).any(dim=1))
        self._step.add_(1)


def gumbel_noise(keys: Tensor, vocabulary: int) -> Tensor:
    """Return standard Gumbel noise, (rows, vocabulary), that two 32-bit keys per row decide."""
    tokens = torch.arange(vocabulary, device=keys.device)
    bits = (tokens * _SPREAD + keys[:, :1]) & _LOW_32_BITS
    bits = ((bits ^ (bits >> 16)) * _FIRST) & _LOW_32_BITS
    bits = bits ^ keys[:, 1:]
    bits = ((bits ^ (bits >> 15)) * _SECOND) & _LOW_32_BITS
    bits = bits ^ (bits >> 16)
    uniform = ((bits.float() + 0.5) * 2.0**-32).clamp(max=_ALMOST_ONE)
    # Large noise comes from small numbers, which floats tell apart best.
    return -torch.log(-torch.log1p(-uniform))


def shared_key_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Return what `sdpa` returns, (rows, tokens, heads, width), for steps of one token in less time.

    `transformers` copies the keys and values once for every head of queries that shares them, as long as there is a
    mask; at one token a step, these copies take longer than all the rest together. Here the queries that share keys
    are asked together instead, as if they were several tokens of one head, which comes to the same: a step has one
    position, so they all may see the same. Prompts are read by `sdpa` itself.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    rows, heads, tokens, width = query.shape
    own = heads // key.shape[1]  # queries to each head of keys
    by_head = attention_mask is not None and attention_mask.shape[1] > 1
    if tokens > 1 or own == 1 or by_head or any(options.get(name) is not None for name in _UNUSUAL):
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return found
    together = query.reshape(rows, heads // own, own, width)  # (rows, heads of keys, queries of each, width)
    attended = scaled_dot_product_attention(
        together,
        key,
        value,
        attn_mask=attention_mask,
        scale=options.get("scaling"),
        dropout_p=options.get("dropout", 0.0),
    )
    return attended.reshape(rows, 1, heads, value.shape[-1]), None


@contextmanager
def shared_keys(model: Any) -> Iterator[None]:
    """Let a model attend by `shared_key_attention`, if it attends by `sdpa`; another goes on as it does.

    The model keeps the name `sdpa`, by which some choose what else to do, such as the form of their masks.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if model.config.get_text_config(decoder=True)._attn_implementation != PLAIN_ATTENTION:
        yield
        return
    before = ALL_ATTENTION_FUNCTIONS[PLAIN_ATTENTION]
    ALL_ATTENTION_FUNCTIONS[PLAIN_ATTENTION] = shared_key_attention
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS[PLAIN_ATTENTION] = before
