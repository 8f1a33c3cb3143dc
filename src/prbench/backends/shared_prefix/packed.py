"""Runs packs (`prefixes`) through the decoders of transformers, without padding, each prefix computed once.

Attention is computed in two parts and merged by their log-sum-exp: every prefix and every tail within itself, and all
tails of a group over their prefix. That is exact, keys and values are stored once, and no masked product is computed.
The parts are PyTorch's own flash kernels on CPU and CUDA. A prefix may also come from an earlier pack (`kept`).

On CUDA, a prefix with few tails is copied before each of them instead: one kernel then does all, and rounds once.
Where a layer needs more (a sliding window shorter than the text, capped logits) or the device has no such kernel, the
same attention is computed with an explicit mask.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from prbench.backends.shared_prefix.batching import Forward, TokenCount, Tokens, memory_errors, rope_border
from prbench.backends.shared_prefix.prefixes import GroupSpan, KeptPrefixes, Pack, group_by_prefix, pack_groups

Value = TypeVar("Value")
# From a pack's last hidden states (tokens, size) to one value per member.
ReadPack = Callable[[Any, Pack], Sequence[Value]]

NAME = "prbench_packed"
FEWEST_TOKENS, MOST_TOKENS, CPU_TOKENS = 2048, 65536, 8192
MOST_COPIES = 4  # times the tokens of a pack: up to here a prefix is copied before its tails, on CUDA


@dataclass
class Budget:
    """How much goes through the model at once; halved where memory does not hold it, and remembered."""

    tokens: int
    members: int | None = None  # `None`: as many as the tokens allow


@dataclass
class PackLayout:
    """A pack as attention needs it, on the device."""

    spans: list[GroupSpan]
    tokens: int
    device: torch.device
    keep: dict[int, int] = field(default_factory=dict)  # spans whose first tokens to keep -> how many
    found: dict[int, dict[int, tuple[Tensor, Tensor]]] = field(default_factory=dict)  # what to keep, by span and layer
    _cache: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what was made for an earlier layer, or make it."""
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    @property
    def prefixed(self) -> list[GroupSpan]:
        """Return the groups that have a prefix; they come first, those whose prefix is kept after the others."""
        return [span for span in self.spans if span.prefix]

    def collect(self, key: Tensor, value: Tensor, layer: int) -> None:
        """Copy the keys and values of this layer that are to be kept, behind those that were kept before."""
        for number, tokens in self.keep.items():
            span = self.spans[number]
            before = span.kept.layer(layer) if span.kept else (key[0, :, :0], value[0, :, :0])
            start = span.prefix_start if span.prefix and not span.kept else span.tail_start
            own = slice(start, start + tokens - before[0].shape[1])
            found = self.found.setdefault(number, {})
            if layer in found:
                raise NotImplementedError("a layer that attends twice cannot be kept")
            found[layer] = (torch.cat([before[0], key[0, :, own]], 1), torch.cat([before[1], value[0, :, own]], 1))


class _Active(threading.local):
    """The pack that goes through a model now; each thread has its own."""

    layout: PackLayout | None = None


_active = _Active()


class PackRunner:
    """Gives the last hidden states of a decoder for packs."""

    def __init__(self, backbone: Any, *, compiled: bool = False) -> None:
        from transformers import AttentionInterface

        AttentionInterface.register(NAME, _attention)
        self.backbone = backbone
        self._config = backbone.config.get_text_config()
        self._call = torch.compile(backbone, dynamic=True) if compiled else backbone

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        device: torch.device = next(iter(self.backbone.parameters())).device
        return device

    @property
    def can_keep(self) -> bool:
        """Are keys and values all that a later pack needs? Windows and capped logits are computed with a mask."""
        config = self._config
        capped = getattr(config, "sliding_window", None) or getattr(config, "attn_logit_softcapping", None)
        return not capped and rope_border(config) is None and self.device.type in ("cpu", "cuda")

    def hidden(self, pack: Pack, kept: KeptPrefixes | None = None) -> Tensor:
        """Return the last hidden state of every token of the pack, (tokens, size); keep its prefixes if asked."""
        device = self.device
        layout = PackLayout(pack.spans, pack.tokens, device, keep={} if kept is None else kept.wanted(pack))
        ids = torch.tensor([pack.ids()], device=device)
        positions = torch.tensor([pack.positions()], device=device)
        saved = self._config._attn_implementation
        self._config._attn_implementation = NAME
        _active.layout = layout
        try:
            with memory_errors():  # (1, tokens, size)
                states: Tensor = self._call(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state
        finally:
            _active.layout = None
            self._config._attn_implementation = saved
        for number, layers in layout.found.items():
            assert kept is not None, "nothing is collected unless asked for"
            kept.add(pack.groups[number], layout.keep[number], [layers[layer] for layer in sorted(layers)])
        return states[0]

    def budget(self, batch_size: int | None) -> Budget:
        """Return what the device can hold at once, as far as it can be told before trying."""
        if self.device.type != "cuda":
            return Budget(CPU_TOKENS, batch_size)
        free, _ = torch.cuda.mem_get_info(self.device)
        config = self._config
        # Numbers that one token takes in a layer: gate, up and their product, and about eight states. Half of what is
        # free, for what the kernels and the caller need beside them.
        wide = 3 * (getattr(config, "intermediate_size", None) or 4 * config.hidden_size) + 8 * config.hidden_size
        fits = int(0.5 * free / (wide * self.backbone.dtype.itemsize))
        return Budget(max(FEWEST_TOKENS, min(MOST_TOKENS, fits)), batch_size)


def find_runner(
    backbone: Any, trial: Sequence[Tokens], padded: Forward, read: ReadPack[float], *, compiled: bool
) -> tuple[PackRunner | None, str]:
    """Return a runner if this decoder can be packed, or none and the reason.

    The proof is a trial: a few short sequences must get the same numbers packed as padded.
    """
    name = type(backbone).__name__
    if backbone is None or not getattr(backbone, "_supports_attention_backend", False):
        return None, "the model is no decoder of transformers that takes attention from outside"
    if getattr(backbone.config.get_text_config(), "attention_chunk_size", None):
        return None, f"{name} attends in chunks"
    runner = PackRunner(backbone)
    pack = Pack(group_by_prefix(trial))
    try:
        with torch.inference_mode():
            found = read(runner.hidden(pack), pack)
    except (NotImplementedError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        return None, f"{name} cannot be packed ({' '.join(str(error).split())[:100]})"
    expected = dict(zip(trial, padded(trial), strict=True))
    if not _alike(found, [expected[each] for each in pack.members], backbone.dtype):
        return None, f"{name} gives other scores when packed"
    return (PackRunner(backbone, compiled=True) if compiled else runner), ""


def find_store(
    runner: PackRunner, limit: int, trial: Sequence[Tokens], read: ReadPack[float], read_at: Callable[[Tokens], int]
) -> tuple[KeptPrefixes | None, str]:
    """Return a store of so many bytes if the decoder gives the same numbers behind kept prefixes, or the reason."""
    if not runner.can_keep:
        return None, "the model looks back a window, caps its logits, or changes positions with the length"
    eager, budget = PackRunner(runner.backbone), runner.budget(None)  # not compiled, as this is tried out once

    def compute(sequences: Sequence[Tokens], kept: KeptPrefixes | None) -> list[float | MemoryError]:
        return compute_packed(sequences, budget, eager, read, TokenCount(), kept)

    kept = KeptPrefixes(limit, read_at, fewest=1)
    try:
        expected = compute(trial, None)
        compute(trial[:1], kept)
        found = compute(trial, kept)
    except (NotImplementedError, RuntimeError) as error:
        return None, " ".join(str(error).split())[:100]
    values = [each for each in (*expected, *found) if not isinstance(each, MemoryError)]
    if len(values) < 2 * len(trial) or not _alike(values[: len(trial)], values[len(trial) :], runner.backbone.dtype):
        return None, "the model gives other scores behind a kept prompt"
    return KeptPrefixes(limit, read_at), ""


def _alike(found: Sequence[float], expected: Sequence[float], dtype: torch.dtype) -> bool:
    largest = 1 + max(map(abs, expected))
    gap = max(abs(one - other) for one, other in zip(found, expected, strict=True))
    # Not >=, so that NaN is no match.
    return gap < largest * (1e-3 if dtype == torch.float32 else 0.05)


def compute_packed(
    sequences: Sequence[Tokens],
    budget: Budget,
    runner: PackRunner,
    read: ReadPack[Value],
    count: TokenCount,
    kept: KeptPrefixes | None = None,
) -> list[Value | MemoryError]:
    """Return one value for every sequence, in order; each distinct sequence is computed once.

    Where the memory does not hold a pack, kept prefixes are let go, and if there are none the budget is halved, for
    later calls as well. A single sequence that is still too large comes back as its error; the others keep their
    values.
    """
    found: dict[Tokens, Value | MemoryError] = {}
    groups = group_by_prefix(sequences)
    waiting = list(pack_groups(groups if kept is None else map(kept.use, groups), budget.tokens, budget.members))
    while waiting:
        pack = waiting.pop(0)
        try:
            with torch.inference_mode():
                found.update(zip(pack.members, read(runner.hidden(pack, kept), pack), strict=True))
            count.computed += pack.tokens
        except MemoryError as error:
            again = [each for one in (pack, *waiting) for each in one.members]
            most = budget.members
            if kept is not None:
                kept.shrink()
                kept = None  # for the rest of this call
            elif len(pack.members) == 1:
                found[pack.members[0]] = error
                continue
            else:
                budget.tokens = max(1, pack.tokens // 2)
                half = math.ceil(len(pack.members) / 2)
                most = min(most or half, half)
            waiting = list(pack_groups(group_by_prefix(again), budget.tokens, most))
    count.total += sum(len(each.ids) for each in sequences)
    return [found[each] for each in sequences]


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: (1, heads, tokens, size) in, (1, tokens, heads, size) out."""
    scale = options.get("scaling") or query.shape[-1] ** -0.5
    window = options.get("sliding_window")
    softcap = options.get("softcap")
    if options.get("s_aux") is not None:
        raise NotImplementedError("attention sinks cannot be packed")
    layer = getattr(module, "layer_idx", None) or 0
    return torch.ops.prbench.packed_attention(query, key, value, scale, window or 0, softcap or 0.0, layer), None


@torch.library.custom_op("prbench::packed_attention", mutates_args=())
def _packed_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, window: int, softcap: float, layer: int
) -> Tensor:
    """Attend as the active layout says; opaque to torch.compile, so that layouts may change between calls."""
    layout = _active.layout
    assert layout is not None, "packed attention is only called through PackRunner"
    longest = max(span.prefix + max(span.tails) for span in layout.spans)
    if softcap or (window and window < longest) or query.device.type not in ("cpu", "cuda"):
        return _masked(query, key, value, layout, scale, window, softcap)
    layout.collect(key, value, layer)
    if query.device.type == "cpu":
        return _merged_on_cpu(query, key, value, layout, scale, layer)
    query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))  # (tokens, heads, size)
    if sum(span.prefix * len(span.tails) for span in layout.spans) <= MOST_COPIES * layout.tokens:
        return _copied_on_cuda(query, key, value, layout, scale, layer)
    return _merged_on_cuda(query, key, value, layout, scale, layer)


@_packed_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, scale: float, window: int, softcap: float, layer: int) -> Tensor:
    batch, heads, tokens, _ = query.shape
    return query.new_empty(batch, tokens, heads, value.shape[-1])


def _merged_on_cpu(query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float, layer: int) -> Tensor:
    repeats = query.shape[1] // key.shape[1]  # heads of queries that share one of keys
    key, value = _repeated(key, repeats), _repeated(value, repeats)
    out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])
    for number, span in enumerate(layout.spans):
        start, end = span.tail_start, span.tail_start + sum(span.tails)
        own, weight = _within_tails(query, key, value, layout, number, scale)
        if span.prefix:
            if span.kept:
                keys, values = (_repeated(each[None], repeats) for each in span.kept.layer(layer))
            else:
                prefix = slice(span.prefix_start, span.prefix_start + span.prefix)
                keys, values = key[:, :, prefix], value[:, :, prefix]
                out[:, prefix] = _flash_cpu(query[:, :, prefix], keys, values, causal=True, scale=scale)[0].transpose(
                    1, 2
                )
            shared, shared_weight = _flash_cpu(query[:, :, start:end], keys, values, causal=False, scale=scale)
            own = _merge(own, weight, shared, shared_weight)
        out[:, start:end] = own.transpose(1, 2)
    return out


def _repeated(states: Tensor, times: int) -> Tensor:
    """(1, heads of keys, tokens, size) as (1, heads of queries, tokens, size)."""
    return states if times == 1 else states.repeat_interleave(times, 1)


def _within_tails(
    query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, number: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Return causal attention of every tail within itself, and its log-sum-exp: (1, heads, tokens of all tails, …)."""
    span = layout.spans[number]
    start, count, longest = span.tail_start, len(span.tails), max(span.tails)
    if count * longest == sum(span.tails):  # equally long: a view will do
        parts = [
            each[0, :, start : start + count * longest].reshape(-1, count, longest, each.shape[-1]).transpose(0, 1)
            for each in (query, key, value)
        ]  # (tails, heads, longest, size)
        out, weight = _flash_cpu(*parts, causal=True, scale=scale)
        return _joined(out), _joined(weight[..., None])[..., 0]
    places, kept = layout.once(f"tails {number}", lambda: _padded_places(span, layout.device))
    parts = [each[0][:, places].transpose(0, 1) for each in (query, key, value)]  # (tails, heads, longest, size)
    out, weight = _flash_cpu(*parts, causal=True, scale=scale)
    return _joined(out)[:, :, kept], _joined(weight[..., None])[:, :, kept, 0]


def _joined(states: Tensor) -> Tensor:
    """(tails, heads, length, size) as (1, heads, tails x length, size)."""
    return states.transpose(0, 1).reshape(1, states.shape[1], -1, states.shape[-1])


def _padded_places(span: GroupSpan, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the places of each tail's tokens, padded to the longest, and which of them are no padding."""
    longest = max(span.tails)
    within = torch.arange(longest, device=device)
    lengths = torch.tensor(span.tails, device=device)[:, None]
    starts = torch.tensor(span.tail_starts, device=device)[:, None]
    places = starts + within.clamp(max=longest).expand(len(span.tails), -1).minimum(lengths - 1)
    kept = (within < lengths).reshape(-1).nonzero()[:, 0]
    return places, kept


def _flash_cpu(query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Return attention, (rows, heads, tokens, size), and the log-sum-exp of its logits, (rows, heads, tokens)."""
    out, weight = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, scale=scale
    )
    return out, weight


def _copied_on_cuda(query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float, layer: int) -> Tensor:
    """Copy the prefix before each tail; one kernel does the rest, and rounds once.

    A causal kernel lines up the last query with the last key, so a tail sees its prefix and itself.
    """
    sources = layout.once("sources", lambda: Sources(layout))
    kept = [span.kept.layer(layer) for span in layout.spans if span.kept]
    keys = torch.cat([key, *(each.transpose(0, 1) for each, _ in kept)]) if kept else key
    values = torch.cat([value, *(each.transpose(0, 1) for _, each in kept)]) if kept else value
    out, _ = _flash_cuda(
        query, keys[sources.places], values[sources.places], sources.query_cuts, sources.key_cuts,
        sources.longest_query, sources.longest_key, True, scale,
    )  # fmt: skip
    return out[None]


class Sources:
    """Where the keys of each query's sequence lie: in the pack or, behind it, among the kept prefixes."""

    def __init__(self, layout: PackLayout) -> None:
        queries, keys, places = [], [], []
        kept_start = layout.tokens
        starts = []  # of every prefix
        for span in layout.spans:
            starts.append(kept_start if span.kept else span.prefix_start)
            kept_start += span.prefix if span.kept else 0
            if span.prefix and not span.kept:
                queries.append(span.prefix)
                keys.append(span.prefix)
                places.append(torch.arange(span.prefix_start, span.prefix_start + span.prefix))
        for start, span in zip(starts, layout.spans, strict=True):
            for tail_start, tail in zip(span.tail_starts, span.tails, strict=True):
                queries.append(tail)
                keys.append(span.prefix + tail)
                places += [torch.arange(start, start + span.prefix), torch.arange(tail_start, tail_start + tail)]
        self.places = torch.cat(places).to(layout.device)
        self.query_cuts, self.key_cuts = _borders(queries, layout.device), _borders(keys, layout.device)
        self.longest_query, self.longest_key = max(queries), max(keys)


def _merged_on_cuda(query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float, layer: int) -> Tensor:
    cuts = layout.once("cuda", lambda: _cuts(layout))
    out, weight = _flash_cuda(query, key, value, cuts.own, cuts.own, cuts.longest, cuts.longest, True, scale)
    if cuts.tails is not None:
        first, last = cuts.first, cuts.last
        keys, values = key[:first], value[:first]
        if kept := [span.kept.layer(layer) for span in layout.prefixed if span.kept]:
            keys = torch.cat([keys, *(each.transpose(0, 1) for each, _ in kept)])
            values = torch.cat([values, *(each.transpose(0, 1) for _, each in kept)])
        shared, shared_weight = _flash_cuda(
            query[first:last], keys, values, cuts.tails, cuts.prefixes, cuts.most_tails, cuts.longest_prefix, False,
            scale,
        )  # fmt: skip
        out[first:last] = _merge(out[first:last], weight[:, first:last].t(), shared, shared_weight.t())
    return out[None]


@dataclass(frozen=True)
class _Cuts:
    """Borders in the packed sequence, as the varlen kernels take them: each (sequences + 1,), from 0 on, in int32."""

    own: Tensor
    longest: int
    prefixes: Tensor | None = None
    longest_prefix: int = 0
    tails: Tensor | None = None
    most_tails: int = 0
    first: int = 0  # of the tails that have a prefix
    last: int = 0


def _cuts(layout: PackLayout) -> _Cuts:
    prefixed = layout.prefixed
    prefixes = [span.prefix for span in prefixed]
    computed = [span.prefix for span in prefixed if not span.kept]
    lengths = [*computed, *(length for span in layout.spans for length in span.tails)]
    own = _borders(lengths, layout.device)
    if not prefixed:
        return _Cuts(own=own, longest=max(lengths))
    tails = [sum(span.tails) for span in prefixed]
    return _Cuts(
        own=own,
        longest=max(lengths),
        prefixes=_borders(prefixes, layout.device),
        longest_prefix=max(prefixes),
        tails=_borders(tails, layout.device),
        most_tails=max(tails),
        first=sum(computed),
        last=sum(computed) + sum(tails),
    )


def _borders(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *lengths], device=device, dtype=torch.int32).cumsum(0, dtype=torch.int32)


def _flash_cuda(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_cuts: Tensor,
    key_cuts: Tensor,
    longest_query: int,
    longest_key: int,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return attention, (tokens, heads, size), and the log-sum-exp of its logits, (heads, tokens)."""
    out, weight, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, query_cuts, key_cuts, longest_query, longest_key, 0.0, causal, False, scale=scale
    )
    return out, weight


def _merge(one: Tensor, one_weight: Tensor, other: Tensor, other_weight: Tensor) -> Tensor:
    """Return attention over both parts, from each part and the log-sum-exp of its logits.

    With sums Z1 = exp(w1) and Z2 = exp(w2), softmax over both is (Z1 one + Z2 other) / (Z1 + Z2), and
    Z1 / (Z1 + Z2) = sigmoid(w1 - w2). The parts are (…, tokens, size) and their weights (…, tokens).
    """
    share = torch.sigmoid(one_weight - other_weight)[..., None]
    return torch.lerp(other.float(), one.float(), share).to(one.dtype)


def _masked(
    query: Tensor, key: Tensor, value: Tensor, layout: PackLayout, scale: float, window: int, softcap: float
) -> Tensor:
    """Return the same attention with an explicit mask, for what the kernels do not know."""
    repeats = query.shape[1] // key.shape[1]
    key, value = _repeated(key, repeats), _repeated(value, repeats)
    mask = layout.once(f"mask {window}", lambda: _mask(layout, window))
    if not softcap:
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    else:
        logits = softcap * torch.tanh((query @ key.transpose(-1, -2)) * scale / softcap)
        weights = logits.masked_fill(~mask, -math.inf).softmax(-1, dtype=torch.float32).to(query.dtype)
        out = weights @ value
    return out.transpose(1, 2).contiguous()


def _mask(layout: PackLayout, window: int) -> Tensor:
    """Return who may see whom: (1, 1, tokens, tokens)."""
    group = torch.zeros(layout.tokens, dtype=torch.long)
    tail = torch.full((layout.tokens,), -1)  # -1: in the prefix, which all of the group may see
    place = torch.zeros(layout.tokens, dtype=torch.long)
    count = 0
    for number, span in enumerate(layout.spans):
        prefix = slice(span.prefix_start, span.prefix_start + span.prefix)
        group[prefix], place[prefix] = number, torch.arange(span.prefix)
        for start, length in zip(span.tail_starts, span.tails, strict=True):
            own = slice(start, start + length)
            group[own], tail[own] = number, count
            place[own] = torch.arange(span.prefix, span.prefix + length)
            count += 1
    group, tail, place = (each.to(layout.device) for each in (group, tail, place))
    seen = (group[:, None] == group) & ((tail[:, None] == tail) | (tail == -1)) & (place[:, None] >= place)
    if window:
        seen &= place[:, None] - place < window
    return seen[None, None]
