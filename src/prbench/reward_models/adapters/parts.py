"""A reward model in its parts: the backbone that transformers loads, and a head of our own."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from prbench.backends.shared_prefix.batching import Tokens, rope_border
from prbench.errors import UsageError
from prbench.reward_models.base import ModelSettings, failed
from prbench.reward_models.chat import CannotEncodeError, Chat
from prbench.reward_models.hf_models import HfModel, Scorer, load_hf_model, run
from prbench.schema import Json, RewardInput, Score

if TYPE_CHECKING:
    from prbench.backends.shared_prefix.prefixes import Pack


# As transformers writes them; the first that is there is read.
_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


class HeadWeights:
    """The weights of a checkpoint whose names begin with one of `prefixes`, in float32."""

    def __init__(self, source: str, revision: str | None, prefixes: tuple[str, ...]) -> None:
        self._source = source
        self._found: dict[str, Any] = {}
        for path in _shards(source, revision, prefixes):
            self._found.update({name: weight.float() for name, weight in _read(path, prefixes)})

    def take(self, name: str, *shape: int) -> Any:
        """Return one weight; `-1` in the shape stands for any size."""
        weight = self.find(name)
        if weight is None:
            raise UsageError(
                f"{self._source}: {name} is not among the saved weights, so this adapter cannot read its head. Say "
                "?adapter=none for a plain classifier, or give the published files."
            )
        fits = weight.ndim == len(shape) and all(
            want in (-1, size) for want, size in zip(shape, weight.shape, strict=True)
        )
        if not fits:
            raise UsageError(
                f"{self._source}: {name} has the shape {tuple(weight.shape)} and not {shape}, so its head is not the "
                "one that this adapter reads. Say ?adapter=none for a plain classifier."
            )
        return weight

    def find(self, name: str) -> Any:
        """Return one weight, or `None` where it was not saved."""
        return self._found.get(name)

    def indices(self, prefix: str) -> list[int]:
        """Return the numbers that follow `prefix` in the names, in order: the layers of a stack."""
        parts = {name.removeprefix(prefix).partition(".")[0] for name in self._found if name.startswith(prefix)}
        return sorted(int(part) for part in parts if part.isdecimal())


def _shards(source: str, revision: str | None, prefixes: tuple[str, ...]) -> list[Path]:
    for name in _FILES:
        path = _file(source, revision, name)
        if path is None:
            continue
        if path.suffix != ".json":
            return [path]
        placed: Mapping[str, str] = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        shards = sorted({shard for weight, shard in placed.items() if weight.startswith(prefixes)})
        found = {shard: _file(source, revision, shard) for shard in shards}
        missing = [shard for shard, file in found.items() if file is None]
        if missing:
            raise UsageError(f"{source}: {missing[0]}, which {name} names, is not there. Get the file.")
        return [file for file in found.values() if file is not None]
    raise UsageError(f"{source} holds no weights ({', '.join(_FILES[::2])}). Check that its files are complete.")


def _file(source: str, revision: str | None, name: str) -> Path | None:
    """Return a file of a folder, or of the hub's cache, into which the backbone was just loaded."""
    from transformers.utils import cached_file

    quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    found = cached_file(source, name, revision=revision, **quiet)
    return None if found is None else Path(found)


def _read(path: Path, prefixes: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(str(path), framework="pt") as file:
            yield from ((name, file.get_tensor(name)) for name in file.keys() if name.startswith(prefixes))  # noqa: SIM118
    else:
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        yield from ((name, weight) for name, weight in saved.items() if name.startswith(prefixes))


class LastTokenHead(nn.Module):
    """One number from the hidden state at the last token."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._network = network

    def forward(self, hidden: Tensor) -> Tensor:
        """Score hidden states (inputs, 1, width)."""
        scores: Tensor = self._network(hidden.float()[:, 0])  # (inputs, 1)
        return scores[:, 0]


def build_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Return a linear layer with these weights."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def build_stack(
    weights: HeadWeights, prefix: str, width: int, activation: type[nn.Module], *, outputs: int
) -> nn.Sequential:
    """Return the layers saved as `<prefix><index>.*`, from `width` inputs to `outputs`.

    A matrix is a linear layer; all but the last are followed by the activation. A vector with running statistics is a
    batch norm, which stands after the activation. Gaps in the numbering are layers without weights.
    """
    indices = weights.indices(prefix) or [0]
    layers: list[nn.Module] = []
    for index in indices:
        name = f"{prefix}{index}"
        if weights.find(f"{name}.running_mean") is not None:
            layers.append(_batch_norm(weights, name, width))
            continue
        is_last = index == indices[-1]
        weight = weights.take(f"{name}.weight", outputs if is_last else -1, width)
        layers.append(build_linear(weight, weights.find(f"{name}.bias")))
        if not is_last:
            layers.append(activation())
        width = weight.shape[0]
    return nn.Sequential(*layers)


def _batch_norm(weights: HeadWeights, name: str, width: int) -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(width)
    norm.weight = nn.Parameter(weights.take(f"{name}.weight", width), requires_grad=False)
    norm.bias = nn.Parameter(weights.take(f"{name}.bias", width), requires_grad=False)
    norm.running_mean = weights.take(f"{name}.running_mean", width)
    norm.running_var = weights.take(f"{name}.running_var", width)
    return norm


def last_token(tokens: Tokens) -> tuple[int, ...]:
    """Read the hidden state at the last token."""
    return (len(tokens.ids) - 1,)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a family's loader gives; it fits `BackboneAndHead`."""

    loaded: HfModel
    head: Callable[[Any], Any]
    read_at: Callable[[Tokens], tuple[int, ...]] = last_token
    end_id: int | None = None  # a token of its own that must end the input

    @property
    def backbone(self) -> Any:
        """The decoder without any head."""
        return self.loaded.model


def load_backbone(source: str, settings: ModelSettings, device: str) -> HfModel:
    """Load the decoder alone, with transformers' own class for it; the weights of the head are left where they are."""
    return load_hf_model(source, "AutoModel", replace(settings, trust_remote_code=False), device=device)


def read_head(source: str, settings: ModelSettings, *prefixes: str) -> HeadWeights:
    """Read the weights of the head, by the beginnings of their names."""
    return HeadWeights(source, settings.revision, prefixes)


def width_of(loaded: HfModel) -> int:
    """Return the size of a hidden state."""
    return int(loaded.model.config.get_text_config().hidden_size)


def on_device(head: Any, loaded: HfModel) -> Any:
    """Return the head, ready to score, where the backbone is. It stays in float32: it costs next to nothing."""
    return head.to(loaded.device).eval()


class AdaptedReward:
    """A reward model of the hub, or of a folder, whose head is our own."""

    def __init__(self, source: str, settings: ModelSettings, adapter: str, parts: Parts, *, bos: str = "one") -> None:
        self.name = source
        self.parts = parts
        self._chat = Chat(
            parts.loaded.tokenizer, parts.backbone.config, settings, bos=bos, may_pair=False, end_id=parts.end_id
        )
        self.identity: Mapping[str, Json] = {**parts.loaded.identity, "head": adapter, **self._chat.identity}
        self.template_hash = self._chat.template_hash
        self.fits = self._chat.fits
        trial = self._chat.encode(RewardInput(question="one", response="two"))
        try:
            parts.read_at(trial)
        except CannotEncodeError as error:  # a chat template that leaves out what the head reads
            raise UsageError(f"{source}: {error}.") from error
        self._scorer = Scorer(
            settings,
            backbone=parts.backbone,
            trial=self._chat.trial(),
            padded=self._forward,
            read=self._read_pack,
            border=rope_border(parts.backbone.config.get_text_config()),
        )
        self.note = self._scorer.note
        self.tokens = self._scorer.tokens

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        return self._scorer.scores([self._encode(each) for each in inputs])

    def _encode(self, each: RewardInput) -> Tokens | Score:
        tokens = self._chat.try_encode(each)
        if isinstance(tokens, Score):
            return tokens
        try:
            self.parts.read_at(tokens)
        except CannotEncodeError as error:
            return failed(str(error))
        return tokens

    def _forward(self, batch: Sequence[Tokens]) -> list[float]:
        # Decoders never look to the right, so any id will do for padding there.
        hidden = run(self.parts.loaded, batch, 0, use_cache=False).last_hidden_state  # (batch, tokens, width)
        places = torch.tensor([self.parts.read_at(each) for each in batch], device=hidden.device)  # (batch, places)
        rows = torch.arange(len(batch), device=hidden.device)[:, None]
        with torch.inference_mode():
            values: list[float] = self.parts.head(hidden[rows, places]).tolist()
        return values

    def _read_pack(self, hidden: Any, pack: "Pack") -> list[float]:
        places = [
            [places.of(token) for token in self.parts.read_at(each)]
            for places, each in zip(pack.places(), pack.members, strict=True)
        ]
        read = torch.tensor(places, device=hidden.device)
        values: list[float] = self.parts.head(hidden[read]).tolist()  # (members, places, width)
        return values
