"""Sequence classifiers: one forward pass per input, one number out.

Published models whose heads differ are known by their config: decoders with a head of ours in `decoders`, and PairRM,
which compares, in `pairrm`. No code of a checkpoint is run for them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, get_args

from prbench.backends.shared_prefix.batching import Tokens
from prbench.errors import UsageError
from prbench.reward_models.base import HfOptions, LoadedModel, ModelSettings, as_loaded
from prbench.reward_models.chat import Chat
from prbench.reward_models.hf_models import Scorer, inner_model, load_hf_model, run
from prbench.schema import Json, RewardInput, Score
from prbench.specs import Spec, option

if TYPE_CHECKING:
    from prbench.backends.shared_prefix.prefixes import Pack

AdapterName = Literal["armorm", "grm", "internlm2", "mlp", "pairrm", "qrm", "urm"]
ADAPTERS: tuple[str, ...] = get_args(AdapterName)
# By the class that the checkpoint was saved from: `architectures`, or the last part of an `auto_map` entry.
BY_CLASS: Mapping[str, str] = {
    "DebertaV2PairRM": "pairrm",
    "GRewardModel": "grm",
    "Gemma2ForQuantileSequenceClassification": "qrm",
    "INFORMForSequenceClassification": "mlp",
    "InternLM2ForRewardModel": "internlm2",
    "LlamaForRewardModelWithGating": "armorm",
    "LlamaForRewardModelWithGating3": "qrm",
    "LlamaForRewardModelWithGating31": "qrm",
    "LlamaForSequenceClassificationWithNormal_Weights": "urm",
    "Qwen2ForRewardModel": "mlp",
}
# Hub ids, in lower case, of models whose config may name another class.
BY_HUB_ID: Mapping[str, str] = {
    "infly/inf-orm-llama3.1-70b": "mlp",
    "llm-blender/pairrm-hf": "pairrm",
    "nicolinho/qrm-gemma-2-27b": "qrm",
    "nicolinho/qrm-llama3-8b": "qrm",
    "nicolinho/qrm-llama3.1-8b": "qrm",
    "nicolinho/qrm-llama3.1-8b-v2": "qrm",
    "ray2333/grm-gemma-2b-sftreg": "grm",
    "ray2333/grm-gemma2-2b-sftreg": "grm",
    "ray2333/grm-llama3-8b-sftreg": "grm",
    "ray2333/grm-llama3.2-3b-sftreg": "grm",
}
LOADERS = {"classifier": "AutoModelForSequenceClassification", "auto": "AutoModel"}


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(HfOptions):
    """Options of classifiers."""

    logit: str | None = option(None, "which logit is the reward: an index, or a label's name")
    head: Literal["logit", "log_odds", "score"] = option("logit", "log_odds of two logits, or the model's own score")
    loader: Literal["classifier", "auto"] = option("classifier", "auto: AutoModel, for models with code of their own")
    adapter: Literal["auto", "none"] | AdapterName = option("auto", "which family's head it has")


def load(spec: Spec, options: ClassifierOptions, settings: ModelSettings) -> LoadedModel:
    """Return `classifier:ID_OR_FOLDER`."""
    if options.head != "logit" and options.logit is not None:
        raise UsageError(f"{spec.text}: head={options.head} and logit exclude each other. Give one of them.")
    rules = [name for name in ("logit", "head", "loader") if name in spec.options]
    if options.adapter in ADAPTERS and rules:
        raise UsageError(
            f"{spec.text}: {rules[0]} is for plain classifiers, and adapter={options.adapter} has its own rule."
        )
    adapter: str = options.adapter
    if adapter == "auto":  # the one that the model's config asks for
        adapter = "none" if rules else choose_adapter(spec.target, settings.revision)
    if adapter == "none":
        return as_loaded(spec, ClassifierReward(spec.target, settings, options))
    if adapter == "pairrm":
        from prbench.reward_models.pairrm import PairRm

        return as_loaded(spec, PairRm(spec.target, settings, device=options.device))
    from prbench.reward_models.decoders import AdaptedReward

    return as_loaded(spec, AdaptedReward(spec.target, settings, adapter, device=options.device, bos=options.bos))


def choose_adapter(source: str, revision: str | None = None) -> str:
    """Return the adapter for a hub id or a folder; `none` where a plain classifier will do."""
    known = BY_HUB_ID.get(source.lower())
    if known and not Path(source).expanduser().is_dir():
        return known
    config = _config(source, revision)
    mapped = [reference for reference in (config.get("auto_map") or {}).values() if isinstance(reference, str)]
    classes = [*(config.get("architectures") or ()), *(reference.rpartition(".")[2] for reference in mapped)]
    found = next((BY_CLASS[name] for name in classes if name in BY_CLASS), "none")
    # Quantile models were also published under the class name of the model that they extend.
    return "qrm" if found == "armorm" and "num_quantiles" in config else found


def _config(source: str, revision: str | None) -> Mapping[str, Any]:
    """Return config.json, or nothing where it cannot be had: the plain loader then says what is wrong, in one line."""
    path: str | Path = Path(source).expanduser() / "config.json"
    try:
        if not Path(source).expanduser().is_dir():
            from huggingface_hub import hf_hub_download, try_to_load_from_cache

            # What is at hand will do: a new revision of a model is not a model of another class.
            cached = try_to_load_from_cache(source, "config.json", revision=revision)
            path = cached if isinstance(cached, str) else hf_hub_download(source, "config.json", revision=revision)
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, ImportError):
        return {}
    return config if isinstance(config, dict) else {}


class ClassifierReward:
    """A reward model of the Hugging Face hub, or of a folder.

    A head with one logit gives its value. More logits need a rule: `logit` (an index, or a label's name), or `head`:
    `log_odds` (of two logits: the second less the first) or `score` (the `score` that the model's own code computes).
    """

    def __init__(self, source: str, settings: ModelSettings, options: ClassifierOptions) -> None:
        self._loaded = load_hf_model(source, LOADERS[options.loader], settings, device=options.device)
        self.name = source
        pad_id = self._loaded.model.config.get_text_config().pad_token_id
        # The pad token that the model was trained with, where it has one that its vocabulary holds.
        self._pad_id: int | None = pad_id if pad_id is not None and 0 <= pad_id < self._loaded.vocabulary else None
        self._chat = Chat(
            self._loaded.tokenizer,
            self._loaded.model.config,
            settings,
            bos=options.bos,
            may_pair=True,
            mark_response=bool(settings.keep_prefixes),  # the part before it is what is kept
            end_id=getattr(self._loaded.model, "reward_token_id", None),
        )
        trial = [self._chat.encode(RewardInput(question="one", response="two"))]
        output = self._output(trial, _unused_id(trial))
        self._read, rule = _read_head(source, self._loaded.model.config, output, options)
        self.identity: Mapping[str, Json] = {**self._loaded.identity, "head": rule, **self._chat.identity}
        self.template_hash = self._chat.template_hash
        self.fits = self._chat.fits
        self.window = self._chat.limit
        self.unknown_tokens = self._chat.unknown_tokens
        inner = inner_model(self._loaded.model)
        # Of decoders whose score is a layer on the hidden state of one token.
        reads_states = options.head != "score" and hasattr(inner, "score") and self._chat.layout != "pair"
        self._scorer = Scorer(
            settings,
            self._chat,
            self._loaded.model.config,
            backbone=getattr(inner, inner.base_model_prefix, None) if reads_states else None,
            padded=self._forward,
            read=self._read_pack,
            read_at=self._read_at,
        )
        self.note = self._scorer.note
        self.tokens = self._scorer.tokens

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        return self._scorer.scores(self._chat.try_encode_all(inputs))

    def _read_pack(self, hidden: Any, pack: "Pack") -> list[float]:
        read = [places.of(self._read_at(each)) for places, each in zip(pack.places(), pack.members, strict=True)]
        logits = inner_model(self._loaded.model).score(hidden[read])
        values: list[float] = self._read(SimpleNamespace(logits=logits)).float().tolist()
        return values

    def _read_at(self, each: Tokens) -> int:
        """Return the token that the score is read at: the last that is no padding by its id, as transformers does."""
        return next((place for place in reversed(range(len(each.ids))) if each.ids[place] != self._pad_id), 0)

    def _forward(self, batch: Sequence[Tokens]) -> list[float]:
        pad_id = self._pad_id if self._pad_id is not None else _unused_id(batch)
        if len(batch) > 1 and pad_id >= self._loaded.vocabulary:
            return [value for each in batch for value in self._forward([each])]
        values: list[float] = self._read(self._output(batch, pad_id)).float().tolist()
        return values

    def _output(self, batch: Sequence[Tokens], pad_id: int) -> Any:
        """Run the model; a decoder reads its score at the last token that is not padding, known by its id alone.

        So the model must know the id that pads this batch. One without a pad token gets an id that none of the
        sequences contains: EOS, the usual stand-in, often ends them, and the score would be read one token early.
        """
        config = self._loaded.model.config.get_text_config()
        saved, config.pad_token_id = config.pad_token_id, pad_id
        try:
            return run(self._loaded, batch, pad_id)
        finally:
            config.pad_token_id = saved


def _unused_id(batch: Sequence[Tokens]) -> int:
    used = {token for each in batch for token in each.ids}
    return next(candidate for candidate in range(len(used) + 1) if candidate not in used)


def _read_head(source: str, config: Any, output: Any, options: ClassifierOptions) -> tuple[Callable[[Any], Any], str]:
    """Return how to read one number per row off the model's output, and the rule's name for the run's record."""
    logit = options.logit
    if options.head == "score":
        if getattr(output, "score", None) is None or output.score.numel() != 1:
            raise UsageError(
                f"{source}: its output has no score of its own, so ?head=score reads nothing. Leave it out."
            )
        return lambda output: output.score.reshape(-1), "score"
    if getattr(output, "logits", None) is None or output.logits.ndim > 2:
        raise UsageError(f"{source} does not give logits for a whole text, so it is not a sequence classifier.")
    count = output.logits.numel()
    # Configs name labels even where a custom head has fewer.
    labels = {int(index): str(name) for index, name in (config.id2label or {}).items() if int(index) < count}
    listed = ", ".join(f"{index} = {name}" for index, name in sorted(labels.items()))
    if options.head == "log_odds":
        if count != 2:
            raise UsageError(f"{source} has {count} logits, and head=log_odds needs two. Use logit=INDEX.")
        return lambda output: output.logits[:, 1] - output.logits[:, 0], "log_odds"
    if logit is not None:
        by_name = {name: index for index, name in labels.items()}
        index = by_name.get(logit, int(logit) if logit.isdecimal() else count)
        if index >= count:
            raise UsageError(f"{source} has no logit {logit!r}. It has: {listed}.")
        return lambda output: output.logits[:, index], f"logit {index}"
    if count > 1:
        raise UsageError(
            f"{source} has {count} logits ({listed}), and which of them is the reward is not known. Say it in the "
            f"spec, in quotes: 'classifier:{source}?logit={count - 1}' (an index or a name)"
            f"{', ?head=log_odds (the second less the first)' if count == 2 else ''}, or ?head=score if its own code "
            "computes one."
        )
    return lambda output: output.logits.reshape(-1), "logit"
