"""What methods share that fine-tune a language model: prompts and replies as tokens, the trainer, what is kept of it.

The loss is the cross-entropy of the replies' tokens alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from prbench.backends.hf import (
    base_named_by,
    from_pretrained,
    is_adapter,
    load_adapter,
    one_line_errors,
    quiet_loading,
)
from prbench.backends.llm.client import Message, system_in_first_user_turn, takes_system_turn, without_control_tokens
from prbench.backends.llm.servers import as_dicts
from prbench.context import PromptWindow, fit_for
from prbench.errors import DataError, RunError, UsageError
from prbench.runs import Keys
from prbench.schema import Json, UserContext
from prbench.specs import Count, Positive, Whole
from prbench.training.backbones import (
    LANGUAGE_MODEL,
    Backbone,
    BackboneConfig,
    EarlyStopping,
    backbone_place,
    check_packages,
    count_weights,
    device_facts,
    load_backbone,
    lora_config,
    run_trainer,
    start_trainer_folder,
    trainer_arguments,
)
from prbench.training.data import TrainingData
from prbench.training.folder import ProgressCallback


@dataclass(frozen=True, kw_only=True)
class LmConfig(BackboneConfig):
    """How to train a language model. The defaults suit models of 100 million to 8 billion weights."""

    backbone: str = "smollm2"  # or a folder, a GGUF file, a hub id
    posts: Whole = 30  # of each profile, the newest
    max_length: Count = 2048  # tokens of prompt and reply; posts beyond it are dropped
    lora_rank: Whole = 16  # 0: all weights are trained
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    learning_rate: Positive = 2e-4  # with lora_rank=0, a tenth of it or less
    weight_decay: float = 0.01
    warmup: float = 0.05  # share of the steps; cosine decay follows
    epochs: Count = 3
    batch_size: Count = 16  # rows in one step of the optimizer
    accumulate: Count = 1  # passes that one step is cut into, to save memory
    patience: Count = 2  # epochs without a lower held-out loss after which it stops
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        backbone="smollm2",
        posts=30,
        max_length=2048,
        lora_rank=16,
        lora_alpha=32,
        lora_dropout=0.05,
        learning_rate=2e-4,
        weight_decay=0.01,
        warmup=0.05,
        epochs=3,
        batch_size=16,
        accumulate=1,
        patience=2,
        seed=0,
    )

    @property
    def stopping(self) -> EarlyStopping:
        """When training ends, by the loss on held-out users."""
        return EarlyStopping("eval_loss", min, self.patience, lambda loss: f"held-out loss {loss:.3f}")


@dataclass(frozen=True, kw_only=True)
class SftExample:
    """One prompt with the reply to learn, as tokens."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]


class SftTokenizer:
    """Lays prompts and replies out with a backbone's tokenizer, exactly as the model will be asked."""

    def __init__(self, tokenizer: Any, config: LmConfig) -> None:
        if not tokenizer.chat_template:
            raise UsageError(f"--backbone {config.backbone}: has no chat template. Use an instruction-tuned model.")
        self._tokenizer = tokenizer
        self._max_length = config.max_length
        self._has_system_role = takes_system_turn(tokenizer)
        self.posts_dropped = 0

    def example(
        self,
        ask: Callable[[UserContext], Sequence[Message]],
        user: UserContext,
        reply: str,
        *,
        least: int,
        where: str,
    ) -> SftExample:
        """Return the example with as many of the user's posts as fit; `ask` words the prompt for those.

        Refused where not even `least` posts fit, which is none or one.
        """
        (message,) = without_control_tokens([Message("assistant", reply)], self._tokenizer.all_special_tokens)
        ids = self._tokenizer(message.content, add_special_tokens=False)["input_ids"]
        answer = (*ids, self._tokenizer.eos_token_id)
        window = PromptWindow(count_tokens=lambda part: len(self.prompt(ask(part))), limit=self._max_length)
        shown = fit_for(window, user, question="", reserve_tokens=len(answer))
        if shown.problem or shown.used < least:
            even = "even with one post" if least else "even without posts"
            raise DataError(
                f"{where} does not fit {self._max_length} tokens {even}. "
                "Raise max_length with --set, or leave the row out."
            )
        self.posts_dropped += shown.dropped
        return SftExample(prompt=tuple(self.prompt(ask(shown))), reply=answer)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens that `hf:` will give the model for these messages."""
        turns = without_control_tokens(messages, self._tokenizer.all_special_tokens)
        if not self._has_system_role:
            turns = system_in_first_user_turn(turns)
        found = self._tokenizer.apply_chat_template(as_dicts(turns), add_generation_prompt=True, return_dict=True)
        return list(found["input_ids"])


def load_lm(config: LmConfig) -> tuple[Backbone, SftTokenizer]:
    """Load the backbone, and what lays texts out for it; where it is an adapter, that adapter learns on."""
    check_packages("peft", "trl")
    place = backbone_place(config.backbone)
    if not config.lora_rank or not is_adapter(place):
        backbone = load_backbone(config.backbone, LANGUAGE_MODEL, seed=config.seed)
        return backbone, SftTokenizer(backbone.tokenizer, config)
    with one_line_errors(f"--backbone {config.backbone}"), quiet_loading():
        tokenizer = from_pretrained("AutoTokenizer", place)
        model = load_adapter(place, learns=True, dtype="float32")
    lora = model.peft_config["default"]
    if lora.peft_type != "LORA" or lora.task_type != "CAUSAL_LM":
        raise UsageError(
            f"--backbone {config.backbone}: is no LoRA adapter of a language model, and no other adapter learns on. "
            "Give another backbone."
        )
    own = {"lora_rank": lora.r, "lora_alpha": lora.lora_alpha, "lora_dropout": lora.lora_dropout}
    differing = [f"--set {name}={value:g}" for name, value in own.items() if getattr(config, name) != value]
    if differing:
        raise UsageError(f"{config.backbone} is an adapter, and learns on as it is. Give {' '.join(differing)}.")
    backbone = Backbone(place=place, base=base_named_by(place), model=model, tokenizer=tokenizer)
    return backbone, SftTokenizer(tokenizer, config)


def finetune(
    backbone: Backbone,
    rows: Sequence[SftExample],
    held_out: Sequence[SftExample],
    data: TrainingData,
    config: LmConfig,
    folder: Path,
    progress: ProgressCallback,
) -> dict[str, Json]:
    """Train to the end, from the last whole checkpoint if there is one of this training, and return facts for a card.

    `folder` holds the checkpoints until `keep_checkpoint` moves the weights of one to where they are read.
    """
    checkpoints = start_trainer_folder(folder, config, data)
    trainer = make_trainer(backbone, config, rows, held_out, checkpoints, progress)
    state = run_trainer(trainer, checkpoints, config.epochs, config.stopping)
    if state["best_global_step"] is None or not math.isfinite(state["best_metric"]):
        raise RunError(f"The held-out loss is no number. Lower learning_rate, now {config.learning_rate}.")
    weights, weights_trained = count_weights(trainer.model)
    return {
        "parameters": weights,
        "parameters_trained": weights_trained,
        "steps": state["global_step"],
        "best_step": state["best_global_step"],
        "validation_loss": round(state["best_metric"], 4),
        "validation_history": [round(each, 4) for each in config.stopping.history(state)],
        **device_facts(trainer),
    }


def planned_steps(config: LmConfig, rows: int) -> int:
    """Return how many steps the optimizer takes, if nothing stops it early."""
    return config.epochs * math.ceil(rows / config.batch_size)


def make_trainer(
    backbone: Backbone,
    config: LmConfig,
    rows: Sequence[SftExample],
    held_out: Sequence[SftExample],
    folder: Path,
    progress: ProgressCallback,
) -> Any:
    """Return transformers' trainer, ready to run; adapters may be put in. On a GPU it runs in bfloat16."""
    import torch
    from datasets import Dataset, disable_progress_bars
    from peft import PeftModel, get_peft_model
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    from prbench.training.trainers import ReplyCollator, ReplyTrainer, as_row, knows_reply_loss

    model, tokenizer = backbone.model, backbone.tokenizer
    pad_id = int(tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id)
    arguments = TrainingArguments(
        **trainer_arguments(config, folder, planned_steps(config, len(rows))),
        eval_strategy="epoch",
        save_strategy="epoch",
        metric_for_best_model="loss",
        greater_is_better=False,
        prediction_loss_only=True,
    )
    disable_progress_bars()
    torch.manual_seed(config.seed)
    kind = ReplyTrainer if knows_reply_loss(model, pad_id) else Trainer
    if config.lora_rank and not isinstance(model, PeftModel):
        model = get_peft_model(model, lora_config(config, "CAUSAL_LM"))
    trainer = kind(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list([as_row(each.prompt, each.reply) for each in rows]),
        eval_dataset=Dataset.from_list([as_row(each.prompt, each.reply) for each in held_out]),
        data_collator=ReplyCollator(pad_id),
        callbacks=[config.stopping.callback(progress)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def count_tokens(rows: Sequence[SftExample]) -> int:
    """Return the tokens of all prompts and replies."""
    return sum(len(each.prompt) + len(each.reply) for each in rows)
