"""What `bt` and `bt-profile` share: a backbone with a score head, trained on pairs by TRL's RewardTrainer.

Texts are laid out by the code that lays them out for `classifier:`, so that a trained model reads what it was taught
on. The loss is Bradley and Terry's, -log sigmoid(score(chosen) - score(rejected) - margin).
"""

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from prbench.backends.hf import pad_token, quiet_loading
from prbench.backends.shared_prefix.batching import Tokens
from prbench.context import Ask, ContextMaker, fit_for
from prbench.errors import DataError, UsageError
from prbench.reward_models.base import ModelSettings
from prbench.reward_models.chat import Chat
from prbench.runs.manifest import Keys
from prbench.schema import Example, Json
from prbench.training.backbones import CLASSIFIER, Backbone, load_backbone, name_base
from prbench.training.data import TrainingData
from prbench.training.folder import TRAINER, Progress, Trained, checkpoint_in
from prbench.training.inputs import inputs_of
from prbench.training.trainer_state import last_state

if TYPE_CHECKING:
    from prbench.training.trl_trainer import PairTrainer, TokenPair

_WEIGHTS = ("adapter_config.json", "adapter_model.safetensors", "config.json", "model*.safetensors*")
DTYPES = ("float32", "bfloat16", "float16")
_HEADS = ("score", "classifier")  # where classifiers keep their last layers


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """How to train a backbone on pairs. The defaults suit LoRA on a model of 100 million to 8 billion weights."""

    backbone: str = "smollm2"  # or a folder, a GGUF file, a hub id
    max_length: int = 1280  # tokens of posts, question and response; posts beyond it are dropped, as in scoring
    lora_rank: int = 16  # 0: all weights are trained
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    learning_rate: float = 2e-4  # with lora_rank=0, a tenth of it or less
    weight_decay: float = 0.01
    warmup: float = 0.05  # share of the steps; cosine decay follows
    epochs: int = 3
    batch_size: int = 32  # pairs in one step of the optimiser
    accumulate: int = 4  # passes that one step is cut into, to save memory; 1 is faster where there is enough
    evaluations: int = 2  # in each epoch, on held-out users; a checkpoint is written at each
    patience: int = 3  # evaluations without a better one after which it stops
    margin: float = 0.0  # by how much chosen must win
    gradient_checkpointing: bool = False
    dtype: str = "float32"  # of the backbone's weights; on a GPU, passes run in bfloat16 in any case
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        backbone="smollm2",
        max_length=1280,
        lora_rank=16,
        lora_alpha=32,
        lora_dropout=0.05,
        learning_rate=2e-4,
        weight_decay=0.01,
        warmup=0.05,
        epochs=3,
        batch_size=32,
        accumulate=4,
        evaluations=2,
        patience=3,
        margin=0.0,
        gradient_checkpointing=False,
        dtype="float32",
        seed=0,
    )

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """Pairs as token ids, and how many posts the window did not hold."""

    pairs: "list[TokenPair]"
    posts_dropped: int

    @property
    def tokens(self) -> int:
        """Tokens of all pairs, both responses."""
        return sum(pair.tokens for pair in self.pairs)


def train_backbone(
    data: TrainingData,
    config: BackboneConfig,
    folder: Path,
    say: Progress,
    *,
    train: Sequence[Example],
    maker: ContextMaker,
    facts: dict[str, Json],
) -> Trained:
    """Train on `train` (the rows of `data`, augmented or not) and leave a folder that `classifier:` takes."""
    _check(config)
    backbone = load_backbone(config.backbone, CLASSIFIER, seed=config.seed, dtype=config.dtype)
    chat = chat_for(backbone, config)
    rows = render_pairs(train, chat, maker, data.name, margin=config.margin)
    held_out = render_pairs(data.validation, chat, maker, data.name)
    # The small file says whether the checkpoints beside it are of this training: `--fresh` removes it.
    begun = checkpoint_in(folder, config, data)
    checkpoints = folder.resolve() / TRAINER
    if begun.load() is None:
        shutil.rmtree(checkpoints, ignore_errors=True)
        begun.save({})
    started = time.monotonic()
    trainer = make_trainer(backbone, config, rows, held_out, checkpoints, say)
    state = _run(trainer, config, checkpoints)
    _keep_best(folder, state, backbone, config.max_length)
    return Trained(
        spec=f"classifier:{folder}",
        context=maker.kind,
        facts={**facts, **_facts(trainer, config, rows, state, time.monotonic() - started)},
    )


def chat_for(backbone: Backbone, config: BackboneConfig) -> Chat:
    """Return what lays out texts, as `ClassifierReward` makes it."""
    settings = ModelSettings(max_length=config.max_length)
    return Chat(backbone.tokenizer, backbone.model.config, settings, may_pair=True)


def render_pairs(
    examples: Sequence[Example], chat: Chat, maker: ContextMaker, name: str, *, margin: float = 0.0
) -> Rendered:
    """Lay out every pair as the walk of an evaluation does; posts that do not fit are dropped from the end.

    A pair that does not fit even without posts, or cannot be encoded, is refused: TRL would drop it without a word.
    """
    from prbench.training.trl_trainer import TokenPair

    contexts = maker.contexts([Ask(user=example.user, question=example.question) for example in examples])
    pairs, refused, dropped = [], [], 0
    for example, told in zip(examples, contexts, strict=True):
        user = fit_for(chat, told, question=example.question, responses=(example.chosen, example.rejected))
        encoded = [] if user.problem else chat.try_encode_all(inputs_of(example, user))
        tokens = [each for each in encoded if isinstance(each, Tokens)]
        if len(tokens) < 2:
            refused.append(example.id)
            continue
        chosen, rejected = tokens
        dropped += user.dropped
        pairs.append(TokenPair(chosen=chosen, rejected=rejected, margin=margin))
    if refused:
        raise DataError(
            f"{name}: {len(refused)} of {len(examples)} pairs, {refused[0]} first, do not fit {chat.limit} tokens "
            "even without posts, or hold no valid text. Raise max_length with --set, or leave those rows out."
        )
    return Rendered(pairs=pairs, posts_dropped=dropped)


def make_trainer(
    backbone: Backbone, config: BackboneConfig, rows: Rendered, held_out: Rendered, folder: Path, say: Progress
) -> "PairTrainer":
    """Return TRL's trainer, ready to run. It changes the backbone: adapters are put in, its pad token is set."""
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers.trainer_callback import PrinterCallback
    from trl import RewardConfig

    from prbench.training.trl_trainer import Collator, PairTrainer, Watch, as_columns, needs_mask

    has_gpu = torch.cuda.is_available()
    if torch.cuda.device_count() > 1:
        raise UsageError("More than one GPU is visible, and training uses one. Set CUDA_VISIBLE_DEVICES=0.")
    _set_pad(backbone, rows)
    disable_progress_bars()
    steps, pad_id = config.epochs * math.ceil(len(rows.pairs) / config.batch_size), backbone.tokenizer.pad_token_id
    arguments = RewardConfig(
        output_dir=str(folder),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size // config.accumulate,
        gradient_accumulation_steps=config.accumulate,
        per_device_eval_batch_size=max(1, config.batch_size // config.accumulate),
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        lr_scheduler_type="cosine",
        warmup_steps=round(config.warmup * steps),
        max_length=config.max_length,
        center_rewards_coefficient=None,
        disable_dropout=False,
        gradient_checkpointing=config.gradient_checkpointing,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        seed=config.seed,
        eval_strategy="steps",
        eval_steps=steps,
        save_strategy="steps",
        save_steps=steps,
        save_total_limit=2,  # the best and the last; with 1, the last would go at the end
        metric_for_best_model="accuracy",
        greater_is_better=True,
        remove_unused_columns=False,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = PairTrainer(
        held_out=held_out.pairs,
        lengths=[pair.tokens for pair in rows.pairs],
        model=backbone.model,
        args=arguments,
        processing_class=backbone.tokenizer,
        train_dataset=Dataset.from_dict(as_columns(rows.pairs)),
        eval_dataset=Dataset.from_dict(as_columns(held_out.pairs[:1])),  # `evaluate` has all of them
        data_collator=Collator(pad_id),
        peft_config=_lora(backbone.model, config),
        callbacks=[Watch(_when(steps, config.epochs * config.evaluations), config.patience, say)],
    )
    trainer.data_collator = Collator(pad_id, masked=needs_mask(trainer.model, pad_id))
    trainer.remove_callback(PrinterCallback)
    if len(trainer.train_dataset) != len(rows.pairs):
        raise AssertionError("TRL dropped rows that were found to fit")
    return trainer


def _check(config: BackboneConfig) -> None:
    try:
        import peft  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise UsageError(f"Training a backbone needs {error.name}. Install: pip install 'prbench[train]'") from error
    for name in ("batch_size", "accumulate", "epochs", "evaluations", "patience", "max_length"):
        if getattr(config, name) < 1:
            raise UsageError(f"--set {name}={getattr(config, name)}: give a whole number above 0.")
    if config.learning_rate <= 0 or config.lora_rank < 0 or min(config.weight_decay, config.margin) < 0:
        raise UsageError("learning_rate must be above 0; lora_rank, weight_decay and margin 0 or more.")
    if not (0 <= config.lora_dropout < 1 and 0 <= config.warmup < 1):
        raise UsageError("lora_dropout and warmup are shares. Give numbers from 0 to below 1.")
    if config.dtype not in DTYPES:
        raise UsageError(f"--set dtype={config.dtype}: unknown. Use one of: {', '.join(DTYPES)}.")
    if config.batch_size % config.accumulate:
        raise UsageError(f"--set accumulate={config.accumulate} does not divide batch_size={config.batch_size}.")


def _set_pad(backbone: Backbone, rows: Rendered) -> None:
    """Pad with the backbone's own pad token, by which scoring will find the end of a text, or with one that ends none.

    An adapter is scored over its base's config. Where that names no pad token, scoring reads the very last token; so
    must training, and a pad token that ends a text would hide it.
    """
    config, tokenizer = backbone.model.config.get_text_config(), backbone.tokenizer
    own = config.pad_token_id
    if own is not None and 0 <= own < config.vocab_size:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(own)
        return
    last = {tokens.ids[-1] for pair in rows.pairs for tokens in (pair.chosen, pair.rejected)}
    tokenizer.pad_token = pad_token(config, tokenizer, last)


def _lora(model: Any, config: BackboneConfig) -> Any:
    """Return the adapter's settings: all linear layers, and the whole score head; `None` where all is trained."""
    if not config.lora_rank:
        return None
    from peft import LoraConfig

    return LoraConfig(
        task_type="SEQ_CLS",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear",
        modules_to_save=[name for name in _HEADS if hasattr(model, name)],
    )


def _when(steps: int, evaluations: int) -> list[int]:
    """Return the steps after which to evaluate, the last step among them."""
    return sorted({max(1, round(steps * number / evaluations)) for number in range(1, evaluations + 1)})


def _run(trainer: "PairTrainer", config: BackboneConfig, folder: Path) -> dict[str, Json]:
    """Train to the end, from the last whole checkpoint if there is one, and return the trainer's state."""
    from prbench.training.trl_trainer import accuracies, is_over

    state, last = last_state(folder)
    # A training that had stopped early is not taken up again.
    if state is None or not is_over(accuracies(state["log_history"]), config.patience):
        with quiet_loading():  # saving has bars, too
            trainer.train(resume_from_checkpoint=str(last) if last else None)
        state, _ = last_state(folder)
    if state is None:
        raise AssertionError("the trainer left no checkpoint")
    return state


def _keep_best(folder: Path, state: dict[str, Json], backbone: Backbone, max_length: int) -> None:
    """Move the weights of the best evaluation, and the tokenizer, to where `classifier:` reads them."""
    best = folder / TRAINER / f"checkpoint-{state['best_global_step']}"
    for pattern in _WEIGHTS:
        for path in best.glob(pattern):
            shutil.copyfile(path, folder / path.name)
    name_base(folder, backbone)
    # The tokenizer carries the length, so that scoring drops the posts that training dropped.
    backbone.tokenizer.model_max_length = max_length
    backbone.tokenizer.save_pretrained(folder)
    shutil.rmtree(folder / TRAINER)


def _facts(
    trainer: "PairTrainer", config: BackboneConfig, rows: Rendered, state: dict[str, Json], seconds: float
) -> dict[str, Json]:
    import torch

    from prbench.training.trl_trainer import accuracies

    weights = list(trainer.model.parameters())
    facts: dict[str, Json] = {
        "backbone": config.backbone,
        "weights": sum(weight.numel() for weight in weights),
        "weights_trained": sum(weight.numel() for weight in weights if weight.requires_grad),
        "rows": len(rows.pairs),
        "tokens_per_epoch": rows.tokens,
        "posts_dropped": rows.posts_dropped,
        "steps": state["global_step"],
        "steps_planned": state["max_steps"],
        "best_step": state["best_global_step"],
        "validation_accuracy": round(state["best_metric"], 4),
        "validation_history": [round(each, 4) for each in accuracies(state["log_history"])],
        "training_seconds": round(seconds, 2),
        "device": str(trainer.args.device.type),
    }
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
        facts["peak_gpu_memory_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return facts
