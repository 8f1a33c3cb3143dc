"""Decoder reward models whose heads differ: the backbone that transformers loads, and a head of our own per family.

GRM: a value head on Llama 3 or Gemma, trained beside the language-model head. Source: model cards of
Ray2333/GRM-llama3-8B-sftreg, GRM-Llama3.2-3B-sftreg, GRM-Gemma-2B-sftreg and GRM-Gemma2-2B-sftreg
(https://huggingface.co/Ray2333, https://github.com/YangRui2015/Generalizable-Reward-Model); Yang et al., 2024,
"Regularizing Hidden States Enables Learning Generalizable Reward Model for LLMs", arXiv 2406.10216. The "distill" and
"rewardmodel-ft" models of the series are plain classifiers. Weights: v_head.summary.0.{weight,bias} (1024, d) and
v_head.summary.2.{weight,bias} (1, 1024), with ReLU between; or, with `vhead_layer_type` "linear" in the config,
v_head.summary.{weight,bias} (1, d).

Qwen and INF: a small network in place of the linear score layer. Source: Qwen/Qwen2.5-Math-RM-72B and Qwen/WorldPM-72B
(class Qwen2ForRewardModel, https://huggingface.co/Qwen); infly/INF-ORM-Llama3.1-70B (class
INFORMForSequenceClassification, https://huggingface.co/infly; also rewardbench/models/inform.py of
https://github.com/allenai/reward-bench). Weights: score.0.{weight,bias} (d, d) and score.2.{weight,bias} (1, d), with
ReLU between.

URM: five attributes over Llama 3.1, each a normal distribution; the score is the weighted sum of their means. Source:
model card of LxzGordon/URM-LLaMa-3.1-8B (https://huggingface.co/LxzGordon); Lou et al., 2024, "Uncertainty-aware
Reward Model", arXiv 2410.00847; SGLang's LlamaForSequenceClassificationWithNormal_Weights
(https://github.com/sgl-project/sglang, python/sglang/srt/models/llama_reward.py). Weights, with a attributes:
score.weight (2a, d), whose even rows are means and odd rows spreads; weights.fc.{0,2}.{weight,bias} (d, d) and
weights.fc.4.{weight,bias} (a, d), with SELU between, which give the attributes' weights.

ArmoRM: 19 objectives over Llama 3. Source: model card and modeling code of RLHFlow/ArmoRM-Llama3-8B-v0.1
(https://huggingface.co/RLHFlow); Wang et al., 2024, "Interpretable Preferences via Multi-Objective Reward Modeling and
Mixture-of-Experts", arXiv 2406.12845. Weights, with d = 4096: regression_layer.weight (19, d); reward_transform_matrix
(19, 19), which takes verbosity out of the objectives; gating.layers.{0,1,2}.{weight,bias} of width 1024,
gating.layers.3.{weight,bias} (19, 1024); gating.logit_scale (1). Config: num_objectives, gating_temperature.

QRM: quantiles of several objectives over Llama 3 or Gemma 2; the score is their mean. Source: model cards and modeling
code of nicolinho/QRM-Llama3-8B, QRM-Llama3.1-8B, QRM-Llama3.1-8B-v2 and QRM-Gemma-2-27B
(https://huggingface.co/nicolinho, https://github.com/Nicolinho/QRM); Dorka, 2024, "Quantile Regression for
Distributional Reward Models in RLHF", arXiv 2409.10164. Weights, with k objectives and q quantiles:
regression_layer.weight (k · q, d), the quantiles of one objective side by side; reward_transform_matrix (k, k), not
with Gemma; gating.layers: three linear layers without bias, each followed by ReLU and a batch norm (numbers 0, 3, 6
and 2, 5, 8; with dropout in between 0, 4, 8 and 2, 6, 10), and a last linear layer with bias; gating.logit_scale (1).
Config: num_objectives, num_quantiles, gating_temperature.

InternLM2-Reward: a decoder of Llama's kind under names of its own, scored at a reward token that ends the input.
Source: model cards and modeling code of internlm/internlm2-1_8b-reward, internlm2-7b-reward and internlm2-20b-reward
(https://huggingface.co/internlm); Cai et al., 2024, "InternLM2 Technical Report", arXiv 2403.17297.

Weights, with d the width, h heads of size s and g key-value heads: model.tok_embeddings.weight; in every layer
attention.wqkv.weight ((h + 2g) · s, d), which holds for each key-value head its h / g query heads, its key and its
value, one after the other; attention.wo.weight; feed_forward.w1 (gate), w3 (up) and w2 (down); attention_norm and
ffn_norm; model.norm.weight; v_head.weight (1, d). Config: reward_token_id, which is put at the end and read.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, LlamaConfig, LlamaModel, PreTrainedTokenizerFast
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import ConversionOps, WeightConverter, WeightRenaming

from prbench.backends.shared_prefix.batching import Tokens
from prbench.errors import UsageError
from prbench.reward_models.base import ModelSettings, failed
from prbench.reward_models.chat import CannotEncodeError, Chat
from prbench.reward_models.hf_models import HfModel, Scorer, load_hf_model, run
from prbench.schema import Json, RewardInput, Score

if TYPE_CHECKING:
    from prbench.backends.shared_prefix.prefixes import Pack

# The beginnings of the names of a head's weights, by family.
PREFIXES: Mapping[str, tuple[str, ...]] = {
    "armorm": ("regression_layer.", "reward_transform_matrix", "gating."),
    "grm": ("v_head.",),
    "internlm2": ("v_head.",),
    "mlp": ("score.",),
    "qrm": ("regression_layer.", "reward_transform_matrix", "gating."),
    "urm": ("score.", "weights."),
}
# What stands between the two turns, by the backbone's kind. The gate reads the first token of it.
BETWEEN_TURNS = {
    "llama": "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma2": "<end_of_turn>\n<start_of_turn>model\n",
}
# As transformers writes them; the first that is there is read.
_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def last_token(tokens: Tokens) -> tuple[int, ...]:
    """Read the hidden state at the last token."""
    return (len(tokens.ids) - 1,)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A decoder reward model taken apart, for engines that run the backbone in a way of their own."""

    loaded: HfModel
    head: Callable[[Any], Any]  # hidden states (inputs, places, width) -> scores (inputs), in float32
    # The places whose hidden states the head reads, counted from the first token of the input. Every input of one
    # model has the same number of them; `CannotEncodeError` where an input lacks one.
    read_at: Callable[[Tokens], tuple[int, ...]] = last_token
    end_id: int | None = None  # a token of its own that must end the input

    @property
    def backbone(self) -> Any:
        """Called with input_ids, attention_mask and position_ids, it gives `last_hidden_state`."""
        return self.loaded.model


def load_parts(adapter: str, source: str, settings: ModelSettings, device: str) -> Parts:
    """Load the decoder with transformers' own class for it, and the head of its family."""
    if adapter == "internlm2":  # transformers' loaders would ask for the family's own code
        AutoConfig.register("internlm2", InternLM2Config, exist_ok=True)
        AutoModel.register(InternLM2Config, InternLM2Backbone, exist_ok=True)
        AutoTokenizer.register(InternLM2Config, fast_tokenizer_class=PreTrainedTokenizerFast, exist_ok=True)
        register_checkpoint_conversion_mapping("internlm2", _INTERNLM2_NAMES, overwrite=True)
    loaded = load_hf_model(source, "AutoModel", replace(settings, trust_remote_code=False), device=device)
    width = int(loaded.model.config.get_text_config().hidden_size)
    weights = HeadWeights(source, settings.revision, PREFIXES[adapter])
    read_at, end_id = last_token, None
    head: nn.Module
    match adapter:
        case "armorm" | "qrm":
            head = _gated_head(source, loaded.model.config, weights, width, quantiles=adapter == "qrm")
            marks = loaded.tokenizer(BETWEEN_TURNS[loaded.model.config.model_type], add_special_tokens=False)
            read_at = partial(_last_and_prompt_end, tuple(marks["input_ids"]))
        case "urm":
            head = UrmHead(weights, width)
        case "internlm2":
            end_id = _reward_token(source, loaded)
            head = LastTokenHead(build_linear(weights.take("v_head.weight", 1, width)))
        case "grm" if weights.find("v_head.summary.weight") is not None:
            linear = weights.take("v_head.summary.weight", 1, width)
            head = LastTokenHead(build_linear(linear, weights.find("v_head.summary.bias")))
        case _:  # a small network, of GRM or of the Qwen and INF models
            prefix = "v_head.summary." if adapter == "grm" else "score."
            head = LastTokenHead(build_stack(weights, prefix, width, nn.ReLU, outputs=1))
    # The head stays in float32: it costs next to nothing.
    return Parts(loaded=loaded, head=head.to(loaded.device).eval(), read_at=read_at, end_id=end_id)


def _reward_token(source: str, loaded: HfModel) -> int:
    """Return the token that ends an input of InternLM2-Reward."""
    config = loaded.model.config
    if not isinstance(config, InternLM2Config) or getattr(config, "bias", False):
        raise UsageError(f"{source} is not an InternLM2 model without biases, which this adapter reads.")
    token = getattr(config, "reward_token_id", None)
    if not isinstance(token, int) or not 0 <= token < loaded.vocabulary:
        raise UsageError(f"{source}: its config.json has no usable reward_token_id, at which the score is read.")
    return token


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


class UrmHead(nn.Module):
    """score = Σ over attributes of weight · mean."""

    def __init__(self, weights: HeadWeights, width: int) -> None:
        super().__init__()
        self._means = build_linear(weights.take("score.weight", -1, width)[::2])
        self._weigh = build_stack(weights, "weights.fc.", width, nn.SELU, outputs=self._means.out_features)

    def forward(self, hidden: Tensor) -> Tensor:
        """Score hidden states (inputs, 1, width)."""
        last = hidden.float()[:, 0]
        weighed: Tensor = self._weigh(last) * self._means(last)
        return weighed.sum(-1)


class GatedHead(nn.Module):
    """score = Σ over objectives of gate · reward; gate = softmax(network(end of prompt) / temperature) · scale."""

    def __init__(
        self,
        weights: HeadWeights,
        width: int,
        *,
        objectives: int,
        quantiles: int,
        temperature: float,
        transformed: bool,  # by a saved matrix, before the gate
    ) -> None:
        super().__init__()
        self._temperature = temperature
        rewards = weights.take("regression_layer.weight", objectives * quantiles, width)
        # The quantiles of one objective stand side by side, and the mean of linear layers is a linear layer.
        self._rewards = nn.Parameter(rewards.reshape(objectives, quantiles, width).mean(1), requires_grad=False)
        transform = (
            weights.take("reward_transform_matrix", objectives, objectives) if transformed else torch.eye(objectives)
        )
        self._transform = nn.Parameter(transform, requires_grad=False)
        self._network = build_stack(weights, "gating.layers.", width, nn.ReLU, outputs=objectives)
        self._scale = nn.Parameter(weights.take("gating.logit_scale", 1), requires_grad=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Score hidden states (inputs, 2, width): at the last token, and at the end of the user's turn."""
        last, prompt = hidden.float().unbind(1)
        rewards = last @ self._rewards.T @ self._transform  # (inputs, objectives)
        gate = (self._network(prompt) / self._temperature).softmax(-1) * self._scale
        score: Tensor = (gate * rewards).sum(-1)
        return score


def _gated_head(source: str, config: Any, weights: HeadWeights, width: int, *, quantiles: bool) -> GatedHead:
    """Make a gated head; with `quantiles`, each objective is the mean of the quantiles that the config counts."""
    if config.model_type not in BETWEEN_TURNS:
        known = ", ".join(BETWEEN_TURNS)
        raise UsageError(f"{source} has a {config.model_type} backbone; gated heads are known on {known}.")
    for name in ("num_objectives", "num_quantiles") if quantiles else ("num_objectives",):
        if not isinstance(getattr(config, name, None), int):
            raise UsageError(f"{source}: its config.json has no {name}, which this adapter needs. Add the number.")
    # Some quantile models were published without the matrix; ArmoRM always has it.
    transformed = not quantiles or weights.find("reward_transform_matrix") is not None
    temperature = getattr(config, "gating_temperature", None)
    if temperature is None:  # the default of the class that was published
        temperature = 10.0 if transformed else 1.0 if config.model_type == "gemma2" else None
    if temperature is None:
        wrong = "its config.json has no gating_temperature, which this adapter needs. Add the number."
        raise UsageError(f"{source}: {wrong}")
    return GatedHead(
        weights,
        width,
        objectives=config.num_objectives,
        quantiles=config.num_quantiles if quantiles else 1,
        temperature=float(temperature),
        transformed=transformed,
    )


def _last_and_prompt_end(marks: tuple[int, ...], tokens: Tokens) -> tuple[int, ...]:
    for place in range(len(tokens.ids) - len(marks), -1, -1):
        if tokens.ids[place : place + len(marks)] == marks:
            return len(tokens.ids) - 1, place
    raise CannotEncodeError(
        "the marks between the user's and the assistant's turn are not in the input, and the gate of this model "
        "reads there; use the model's own chat template"
    )


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
            norm = nn.BatchNorm1d(width)
            norm.weight = nn.Parameter(weights.take(f"{name}.weight", width), requires_grad=False)
            norm.bias = nn.Parameter(weights.take(f"{name}.bias", width), requires_grad=False)
            norm.running_mean = weights.take(f"{name}.running_mean", width)
            norm.running_var = weights.take(f"{name}.running_var", width)
            layers.append(norm)
            continue
        is_last = index == indices[-1]
        weight = weights.take(f"{name}.weight", outputs if is_last else -1, width)
        layers.append(build_linear(weight, weights.find(f"{name}.bias")))
        if not is_last:
            layers.append(activation())
        width = weight.shape[0]
    return nn.Sequential(*layers)


class InternLM2Config(LlamaConfig):  # type: ignore[misc]  # transformers ships no types
    """Llama's config under InternLM2's name."""

    model_type = "internlm2"

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read the config, except for the attention kernel of the machine that it was saved on."""
        kept = {name: value for name, value in config_dict.items() if name != "attn_implementation"}
        return super().from_dict(kept, **kwargs)


class InternLM2Backbone(LlamaModel):  # type: ignore[misc]
    """Llama's decoder, loaded from InternLM2's weight names."""

    config_class = InternLM2Config


class SplitGroups(ConversionOps):  # type: ignore[misc]
    """Takes wqkv apart: per key-value head its query heads, its key, its value."""

    def convert(
        self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], **kwargs: Any
    ) -> dict[str, Any]:
        """Return the three projections under the names of `target_patterns`."""
        config = kwargs["config"]
        (found,) = input_dict.values()
        fused = found[0] if isinstance(found, list) else found
        groups = fused.unflatten(0, (config.num_key_value_heads, -1, config.head_dim))
        queries, keys, values = torch.split(groups, [groups.shape[1] - 2, 1, 1], dim=1)
        parts = [part.flatten(0, 2).contiguous() for part in (queries, keys, values)]
        return dict(zip(target_patterns, parts, strict=True))


_PROJECTIONS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
_INTERNLM2_NAMES = [
    WeightRenaming("tok_embeddings", "embed_tokens"),
    WeightRenaming(r"attention\.wo", "self_attn.o_proj"),
    WeightRenaming(r"feed_forward\.w1", "mlp.gate_proj"),
    WeightRenaming(r"feed_forward\.w3", "mlp.up_proj"),
    WeightRenaming(r"feed_forward\.w2", "mlp.down_proj"),
    WeightRenaming("attention_norm", "input_layernorm"),
    WeightRenaming("ffn_norm", "post_attention_layernorm"),
    WeightConverter(r"attention\.wqkv", _PROJECTIONS, operations=[SplitGroups()]),
]


class AdaptedReward:
    """A reward model of the hub, or of a folder, whose head is our own."""

    def __init__(
        self, source: str, settings: ModelSettings, adapter: str, *, device: str = "auto", bos: str = "one"
    ) -> None:
        self.name = source
        self.parts = parts = load_parts(adapter, source, settings, device)
        config = parts.backbone.config
        self._chat = Chat(parts.loaded.tokenizer, config, settings, bos=bos, may_pair=False, end_id=parts.end_id)
        self.identity: Mapping[str, Json] = {**parts.loaded.identity, "head": adapter, **self._chat.identity}
        self.template_hash = self._chat.template_hash
        self.fits = self._chat.fits
        self.window = self._chat.limit
        self.unknown_tokens = self._chat.unknown_tokens
        trial = self._chat.encode(RewardInput(question="one", response="two"))
        try:
            parts.read_at(trial)
        except CannotEncodeError as error:  # a chat template that leaves out what the head reads
            raise UsageError(f"{source}: {error}.") from error
        self._scorer = Scorer(
            settings, self._chat, config, backbone=parts.backbone, padded=self._forward, read=self._read_pack
        )
        self.note = self._scorer.note
        self.tokens = self._scorer.tokens

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        encoded = self._chat.try_encode_all(inputs)
        for number, tokens in enumerate(encoded):
            try:
                if isinstance(tokens, Tokens):
                    self.parts.read_at(tokens)
            except CannotEncodeError as error:
                encoded[number] = failed(str(error))
        return self._scorer.scores(encoded)

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
