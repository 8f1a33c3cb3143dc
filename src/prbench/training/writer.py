"""What methods share that teach a language model to write: lessons, the trainer, what is kept of it.

A lesson is a prompt with the reply to learn; the loss is the cross-entropy of the reply's tokens alone.
"""

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from prbench.backends.hf import quiet_loading
from prbench.backends.llm.client import Message, system_in_first_user_turn, takes_system_turn, without_control_tokens
from prbench.backends.llm.servers import as_dicts
from prbench.context import PromptWindow, fit_for
from prbench.errors import RunError, UsageError
from prbench.runs.manifest import Keys
from prbench.schema import Json, UserContext
from prbench.training.backbones import LANGUAGE_MODEL, Backbone, load_backbone, load_learning_adapter, name_base
from prbench.training.data import TrainingData
from prbench.training.folder import TRAINER, Progress, checkpoint_in
from prbench.training.reply_batches import IGNORED, Collator, knows_reply_loss
from prbench.training.trainer_state import last_state

_WEIGHTS = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "config.json",
    "generation_config.json",
    "model*.safetensors*",
)


@dataclass(frozen=True, kw_only=True)
class WriterConfig:
    """How to train a language model. The defaults suit models of 100 million to 8 billion weights."""

    backbone: str = "smollm2"  # or a folder, a GGUF file, a hub id
    posts: int = 30  # of each profile, the newest
    max_length: int = 2048  # tokens of prompt and reply; posts beyond it are dropped
    lora_rank: int = 16  # 0: all weights are trained
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    learning_rate: float = 2e-4  # with lora_rank=0, a tenth of it or less
    weight_decay: float = 0.01
    warmup: float = 0.05  # share of the steps; cosine decay follows
    epochs: int = 3
    batch_size: int = 16  # rows in one step of the optimiser
    accumulate: int = 1  # passes that one step is cut into, to save memory
    patience: int = 2  # epochs without a lower held-out loss after which it stops
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

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        for name in ("max_length", "epochs", "batch_size", "accumulate", "patience"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)} trains nothing. Give a whole number above 0.")
        if self.posts < 0:
            raise UsageError(f"posts={self.posts}: give a whole number that is not negative.")
        if self.lora_rank < 0 or self.learning_rate <= 0:
            raise UsageError("lora_rank must be 0 or more, learning_rate above 0.")
        if self.batch_size % self.accumulate:
            raise UsageError(f"accumulate={self.accumulate} does not divide batch_size={self.batch_size}.")


@dataclass(frozen=True, kw_only=True)
class SftExample:
    """One prompt with the reply to learn, as tokens."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]

    @property
    def row(self) -> dict[str, list[int]]:
        """What the trainer takes: the loss is that of the reply alone."""
        return {
            "input_ids": [*self.prompt, *self.reply],
            "labels": [IGNORED] * len(self.prompt) + list(self.reply),
        }


class Layout:
    """Lays prompts and replies out with a backbone's tokenizer, exactly as the model will be asked."""

    def __init__(self, tokenizer: Any, config: WriterConfig) -> None:
        if not tokenizer.chat_template:
            raise UsageError(f"--backbone {config.backbone}: has no chat template. Use an instruction-tuned model.")
        self._tokenizer = tokenizer
        self._longest = config.max_length
        self._has_system_role = takes_system_turn(tokenizer)
        self.posts_dropped = 0

    def lesson(
        self, ask: Callable[[UserContext], Sequence[Message]], user: UserContext, reply: str, *, least: int
    ) -> SftExample | None:
        """Return the lesson with as many of the user's posts as fit; `ask` words the prompt for those.

        Nothing is returned where not even `least` posts fit.
        """
        answer = self._reply(reply)
        window = PromptWindow(count_tokens=lambda part: len(self.prompt(ask(part))), limit=self._longest)
        shown = fit_for(window, user, question="", reserve_tokens=len(answer))
        if shown.problem or shown.used < least:
            return None
        self.posts_dropped += shown.dropped
        return SftExample(prompt=tuple(self.prompt(ask(shown))), reply=answer)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens that `hf:` will give the model for these messages."""
        turns = without_control_tokens(messages, self._tokenizer.all_special_tokens)
        if not self._has_system_role:
            turns = system_in_first_user_turn(turns)
        found = self._tokenizer.apply_chat_template(as_dicts(turns), add_generation_prompt=True, return_dict=True)
        return list(found["input_ids"])

    def _reply(self, text: str) -> tuple[int, ...]:
        (message,) = without_control_tokens([Message("assistant", text)], self._tokenizer.all_special_tokens)
        ids = self._tokenizer(message.content, add_special_tokens=False)["input_ids"]
        return (*ids, self._tokenizer.eos_token_id)


@dataclass(frozen=True, kw_only=True)
class LmTrainer:
    """A language model that has been taught, and how that went."""

    trainer: Any
    state: dict[str, Json]
    backbone: Backbone
    steps: int  # planned

    def keep(self, folder: Path, *, last: bool = False) -> None:
        """Move the weights of the best epoch, or of the last, and the tokenizer, to where they are read."""
        step = self.state["global_step" if last else "best_global_step"]
        for pattern in _WEIGHTS:
            for path in (folder / TRAINER / f"checkpoint-{step}").glob(pattern):
                shutil.copyfile(path, folder / path.name)
        name_base(folder, self.backbone)
        self.backbone.tokenizer.save_pretrained(folder)
        shutil.rmtree(folder / TRAINER)

    @property
    def facts(self) -> dict[str, Json]:
        """What a card says of it."""
        return _facts(self.trainer, self.state)


def load_writer(config: WriterConfig) -> tuple[Backbone, Layout]:
    """Load the backbone, and what lays texts out for it; where it is an adapter, that adapter learns on."""
    check_packages()
    backbone = load_learning_adapter(config.backbone) if config.lora_rank else None
    if backbone is None:
        backbone = load_backbone(config.backbone, LANGUAGE_MODEL, seed=config.seed)
    else:
        _check_adapter(backbone.model.peft_config["default"], config)
    return backbone, Layout(backbone.tokenizer, config)


def _check_adapter(lora: Any, config: WriterConfig) -> None:
    """Refuse an adapter that cannot write, and settings that one which learns on would not follow."""
    if lora.peft_type != "LORA" or lora.task_type != "CAUSAL_LM":
        raise UsageError(
            f"--backbone {config.backbone}: is no LoRA adapter of a language model, and no other adapter learns on. "
            "Give another backbone."
        )
    own = {"lora_rank": lora.r, "lora_alpha": lora.lora_alpha, "lora_dropout": lora.lora_dropout}
    differing = [f"--set {name}={value:g}" for name, value in own.items() if getattr(config, name) != value]
    if differing:
        raise UsageError(f"{config.backbone} is an adapter, and learns on as it is. Give {' '.join(differing)}.")


def finetune(
    backbone: Backbone,
    lessons: Sequence[SftExample],
    held_out: Sequence[SftExample],
    data: TrainingData,
    config: WriterConfig,
    folder: Path,
    say: Progress,
) -> LmTrainer:
    """Train to the end, from the last whole checkpoint if there is one of this training."""
    # The small file says whether the checkpoints beside it are of this training: `--fresh` removes it.
    begun = checkpoint_in(folder, config, data)
    checkpoints = folder.resolve() / TRAINER
    if begun.load() is None:
        shutil.rmtree(checkpoints, ignore_errors=True)
        begun.save({})
    trainer = make_trainer(backbone, config, lessons, held_out, checkpoints, say)
    state = _run(trainer, config, checkpoints)
    return LmTrainer(trainer=trainer, state=state, backbone=backbone, steps=planned_steps(config, len(lessons)))


def planned_steps(config: WriterConfig, lessons: int) -> int:
    """Return how many steps the optimiser takes, if nothing stops it early."""
    return config.epochs * math.ceil(lessons / config.batch_size)


def make_trainer(
    backbone: Backbone,
    config: WriterConfig,
    rows: Sequence[SftExample],
    held_out: Sequence[SftExample],
    folder: Path,
    say: Progress,
) -> Any:
    """Return transformers' trainer, ready to run; adapters may be put in. On a GPU it runs in bfloat16."""
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    from prbench.training.reply_trainer import ReplyTrainer

    has_gpu = torch.cuda.is_available()
    if torch.cuda.device_count() > 1:
        raise UsageError("More than one GPU is visible, and training uses one. Set CUDA_VISIBLE_DEVICES=0.")
    disable_progress_bars()
    torch.manual_seed(config.seed)
    steps, pad_id = planned_steps(config, len(rows)), _pad_id(backbone.tokenizer)
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size // config.accumulate,
        per_device_eval_batch_size=config.batch_size // config.accumulate,
        gradient_accumulation_steps=config.accumulate,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        lr_scheduler_type="cosine",
        warmup_steps=round(config.warmup * steps),
        bf16=has_gpu,
        use_cpu=not has_gpu,
        seed=config.seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,  # the best and the last; with 1, the last would go at the end
        metric_for_best_model="loss",
        greater_is_better=False,
        remove_unused_columns=False,
        prediction_loss_only=True,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    kind = ReplyTrainer if knows_reply_loss(backbone.model, pad_id) else Trainer
    trainer = kind(
        model=_with_adapters(backbone.model, config),
        args=arguments,
        train_dataset=Dataset.from_list([lesson.row for lesson in rows]),
        eval_dataset=Dataset.from_list([lesson.row for lesson in held_out]),
        data_collator=Collator(pad_id),
        callbacks=[_watch(config.patience, say)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _with_adapters(model: Any, config: WriterConfig) -> Any:
    """Return the model with adapters in all linear layers, or as it is where all weights are trained."""
    from peft import LoraConfig, PeftModel, get_peft_model

    if not config.lora_rank or isinstance(model, PeftModel):
        return model

    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear",
    )
    return get_peft_model(model, lora)


def _watch(patience: int, say: Progress) -> Any:
    from transformers import TrainerCallback

    class Watch(TrainerCallback):  # type: ignore[misc]
        """Says how far training is, and stops when patience is out."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            say(state.global_step, state.max_steps, _said(state.log_history))
            return control

        def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            say(state.global_step, state.max_steps, _said(state.log_history))
            control.should_training_stop = is_over(_losses(state.log_history), patience)
            return control

    return Watch()


def _losses(log_history: Sequence[dict[str, Any]]) -> list[float]:
    return [entry["eval_loss"] for entry in log_history if "eval_loss" in entry]


def _said(log_history: Sequence[dict[str, Any]]) -> str:
    losses = _losses(log_history)
    return f"held-out loss {losses[-1]:.3f}" if losses else ""


def is_over(losses: Sequence[float], patience: int) -> bool:
    """Tell whether the lowest loss is `patience` evaluations ago."""
    return bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= patience


def _run(trainer: Any, config: WriterConfig, folder: Path) -> dict[str, Json]:
    """Train to the end, from the last whole checkpoint if there is one, and return the trainer's state."""
    state, last = last_state(folder)
    # A training that had stopped or ended is not taken up again.
    if state is None or (
        state["epoch"] < config.epochs and not is_over(_losses(state["log_history"]), config.patience)
    ):
        with quiet_loading():
            trainer.train(resume_from_checkpoint=str(last) if last else None)
        state, _ = last_state(folder)
    if state is None:
        raise AssertionError("the trainer left no checkpoint")
    if state["best_global_step"] is None or not math.isfinite(state["best_metric"]):
        raise RunError(f"The held-out loss is no number. Lower learning_rate, now {config.learning_rate}.")
    return state


def _facts(trainer: Any, state: dict[str, Json]) -> dict[str, Json]:
    import torch

    weights = list(trainer.model.parameters())
    facts: dict[str, Json] = {
        "parameters": sum(weight.numel() for weight in weights),
        "parameters_trained": sum(weight.numel() for weight in weights if weight.requires_grad),
        "steps": state["global_step"],
        "best_step": state["best_global_step"],
        "validation_loss": round(state["best_metric"], 4),
        "validation_history": [round(each, 4) for each in _losses(state["log_history"])],
        "device": str(trainer.args.device.type),
    }
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
        facts["peak_gpu_memory_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return facts


def tokens_of(lessons: Sequence[SftExample]) -> int:
    """Return the tokens of all prompts and replies."""
    return sum(len(lesson.prompt) + len(lesson.reply) for lesson in lessons)


def _pad_id(tokenizer: Any) -> int:
    return int(tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id)


def check_packages() -> None:
    """Refuse to start without what training needs."""
    try:
        import datasets  # noqa: F401
        import peft  # noqa: F401
    except ImportError as error:
        raise UsageError(f"Training a backbone needs {error.name}. Install: pip install 'prbench[train]'") from error
