"""Train a small language model to plan: LoRA on the gold rubrics, in the form that plans are read from.

The prompt is the one that any planner is asked (`--context plan`), the reply the rubric of the row, one aspect per
line; the loss is the cross-entropy of the reply's tokens alone. The folder is an adapter that `--planner FOLDER`
takes. Beside it lies the scorer of criteria, so that `--model planner:FOLDER` turns the plan into a score.
"""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prbench.context.choose import Ask, rank_recent
from prbench.context.plan import MOST_ASPECTS, plan_messages
from prbench.context.render import longest
from prbench.encoders import load_encoder
from prbench.errors import DataError, UsageError
from prbench.llm.client import Message
from prbench.llm.server_facts import as_dicts
from prbench.llm.turns import system_in_first_user_turn, without_control_tokens
from prbench.quiet_loading import quiet_loading
from prbench.reward_models.planner import SCORER
from prbench.schema import Aspect, Example, Json
from prbench.train.backbones import LANGUAGE_MODEL, Backbone, load_backbone, name_base
from prbench.train.criteria import CriteriaConfig, train_criteria
from prbench.train.data import PROFILES, RUBRICS, TrainingData, check_training_data
from prbench.train.folder import TRAINER, Progress, Trained, checkpoint_in
from prbench.train.trainer_state import last_state

IGNORED = -100  # label of a token that is no part of the reply
_PROBE = "a system text that no template contains"


@dataclass(frozen=True, kw_only=True)
class LmPlannerConfig:
    """How to train a language model that plans. The defaults suit models of 100 million to 8 billion weights."""

    backbone: str = "smollm2"  # or a folder, a GGUF file, a hub id
    posts: int = 30  # of each profile, the newest
    max_length: int = 2048  # tokens of prompt and reply; posts beyond it are dropped
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    learning_rate: float = 2e-4
    weight_decay: float = 0.01
    warmup: float = 0.05  # share of the steps; cosine decay follows
    epochs: int = 3
    batch_size: int = 16  # rows in one step of the optimiser
    accumulate: int = 1  # passes that one step is cut into, to save memory
    patience: int = 2  # epochs without a lower held-out loss after which it stops
    encoder: str = "minilm"  # of the scorer
    criteria_epochs: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        for name in ("posts", "max_length", "lora_rank", "epochs", "batch_size", "accumulate", "patience"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)} trains nothing. Give a whole number above 0.")
        if self.batch_size % self.accumulate:
            raise UsageError(f"accumulate={self.accumulate} does not divide batch_size={self.batch_size}.")


@dataclass(frozen=True, kw_only=True)
class Lesson:
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


def rubric_as_plan(rubric: Sequence[Aspect]) -> str:
    """Return a rubric in the form that plans are read from, one aspect per line."""
    lines = []
    for one in rubric[:MOST_ASPECTS]:
        aspect, reason = (" ".join(text.split()) for text in (one.aspect, one.reason))
        # A colon ends the aspect's name where plans are read.
        name = aspect.replace(": ", ", ")
        lines.append(f"- {name}: {reason}" if reason else f"- {name}")
    return "\n".join(lines)


class Lessons:
    """Lays rows out with a backbone's tokenizer, exactly as the planner will be asked."""

    def __init__(self, tokenizer: Any, config: LmPlannerConfig) -> None:
        if not tokenizer.chat_template:
            raise UsageError(f"--backbone {config.backbone}: has no chat template. Use an instruction-tuned model.")
        self._tokenizer = tokenizer
        self._config = config
        self._has_system_role = _takes_system_turn(tokenizer)
        self.posts_dropped = 0

    def of(self, examples: Sequence[Example], name: str) -> list[Lesson]:
        """Return a lesson for every row with posts and a rubric; one that cannot fit is refused."""
        lessons = []
        for example in examples:
            if not example.rubric or not example.user.profile:
                continue
            lesson = self._lesson(example)
            if lesson is None:
                raise DataError(
                    f"{name}: example {example.id} does not fit {self._config.max_length} tokens even with one post. "
                    "Raise max_length with --set, or leave the row out."
                )
            lessons.append(lesson)
        return lessons

    def _lesson(self, example: Example) -> Lesson | None:
        (posts,) = rank_recent([Ask(user=example.user, question=example.question)])
        texts = [post.text for post in posts[: self._config.posts]]
        reply = self._reply(example)

        def prompt(used: int) -> list[int]:
            return self.prompt(plan_messages(example.question, texts[:used]))

        used = longest(len(texts), lambda used: len(prompt(used)) + len(reply) <= self._config.max_length)
        if not used:
            return None
        self.posts_dropped += len(texts) - used
        return Lesson(prompt=tuple(prompt(used)), reply=reply)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens that `hf:` will give the model for these messages."""
        turns = without_control_tokens(messages, self._tokenizer.all_special_tokens)
        if not self._has_system_role:
            turns = system_in_first_user_turn(turns)
        found = self._tokenizer.apply_chat_template(as_dicts(turns), add_generation_prompt=True, return_dict=True)
        return list(found["input_ids"])

    def _reply(self, example: Example) -> tuple[int, ...]:
        (message,) = without_control_tokens(
            [Message("assistant", rubric_as_plan(example.rubric))], self._tokenizer.all_special_tokens
        )
        ids = self._tokenizer(message.content, add_special_tokens=False)["input_ids"]
        return (*ids, self._tokenizer.eos_token_id)


def train_lm_planner(data: TrainingData, config: LmPlannerConfig, folder: Path, say: Progress) -> Trained:
    """Train an adapter into a folder that `--planner FOLDER` and `--model planner:FOLDER` take."""
    _refuse_missing_packages()
    check_training_data(data, needs=(PROFILES, RUBRICS))
    backbone = load_backbone(config.backbone, LANGUAGE_MODEL, seed=config.seed)
    lessons = Lessons(backbone.tokenizer, config)
    rows, held_out = lessons.of(data.train, data.name), lessons.of(data.validation, data.name)
    if not held_out:
        raise DataError(f"{data.name}: no row of the validation split has posts and a rubric. Choose another split.")
    # The small file says whether the checkpoints beside it are of this training: `--fresh` removes it.
    begun = checkpoint_in(folder, config, data)
    checkpoints = folder.resolve() / TRAINER
    if begun.load() is None:
        shutil.rmtree(checkpoints, ignore_errors=True)
        begun.save({})
    steps = config.epochs * math.ceil(len(rows) / config.batch_size)
    trainer = make_trainer(backbone, config, rows, held_out, checkpoints, _shown(say, config.criteria_epochs))
    state = _run(trainer, config, checkpoints)
    scorer, best = train_criteria(
        data,
        load_encoder(config.encoder),
        CriteriaConfig(epochs=config.criteria_epochs, seed=config.seed),
        checkpoint_in(folder, config, data, "checkpoint_criteria.pt"),
        lambda done, total, text: say(steps + done, steps + total, text),
    )
    scorer.save(folder)
    (folder / SCORER).write_text(json.dumps({"encoder": config.encoder}) + "\n", encoding="utf-8")
    _keep_best(folder, state, backbone)
    facts = {
        **_facts(trainer, config, rows, state, lessons.posts_dropped),
        "criteria_accuracy_with_gold_rubrics": round(best.accuracy, 4),
    }
    return Trained(spec=f"planner:{folder}", facts=facts)


def make_trainer(
    backbone: Backbone,
    config: LmPlannerConfig,
    rows: Sequence[Lesson],
    held_out: Sequence[Lesson],
    folder: Path,
    say: Progress,
) -> Any:
    """Return transformers' trainer, ready to run; adapters are put into the backbone. On a GPU it runs in bfloat16."""
    import torch
    from datasets import Dataset, disable_progress_bars
    from peft import LoraConfig, get_peft_model
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    has_gpu = torch.cuda.is_available()
    if torch.cuda.device_count() > 1:
        raise UsageError("More than one GPU is visible, and training uses one. Set CUDA_VISIBLE_DEVICES=0.")
    disable_progress_bars()
    torch.manual_seed(config.seed)
    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear",
    )
    steps = config.epochs * math.ceil(len(rows) / config.batch_size)
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
    trainer = Trainer(
        model=get_peft_model(backbone.model, lora),
        args=arguments,
        train_dataset=Dataset.from_list([lesson.row for lesson in rows]),
        eval_dataset=Dataset.from_list([lesson.row for lesson in held_out]),
        data_collator=Collator(_pad_id(backbone.tokenizer)),
        callbacks=[_watch(config.patience, say)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


@dataclass(frozen=True)
class Collator:
    """Pads on the right; padding is neither read nor learned."""

    pad_id: int

    def __call__(self, rows: Sequence[dict[str, list[int]]]) -> dict[str, Any]:
        """Return one batch."""
        import torch

        width = max(len(row["input_ids"]) for row in rows)

        def padded(name: str, value: int) -> Any:
            return torch.tensor([[*row[name], *[value] * (width - len(row[name]))] for row in rows])

        lengths = [len(row["input_ids"]) for row in rows]
        mask = torch.tensor([[1] * length + [0] * (width - length) for length in lengths])
        return {
            "input_ids": padded("input_ids", self.pad_id),
            "attention_mask": mask,
            "labels": padded("labels", IGNORED),
        }


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


def _shown(say: Progress, further: int) -> Progress:
    """Count the epochs of the scorer, which follow, among the steps."""
    return lambda done, total, text: say(done, total + further, text)


def _run(trainer: Any, config: LmPlannerConfig, folder: Path) -> dict[str, Json]:
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
    return state


def _keep_best(folder: Path, state: dict[str, Json], backbone: Backbone) -> None:
    """Move the adapter of the best epoch, and the tokenizer, to where `--planner` reads them."""
    best = folder / TRAINER / f"checkpoint-{state['best_global_step']}"
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copyfile(best / name, folder / name)
    name_base(folder, backbone)
    backbone.tokenizer.save_pretrained(folder)
    shutil.rmtree(folder / TRAINER)


def _facts(
    trainer: Any, config: LmPlannerConfig, rows: Sequence[Lesson], state: dict[str, Json], posts_dropped: int
) -> dict[str, Json]:
    import torch

    weights = list(trainer.model.parameters())
    facts: dict[str, Json] = {
        "backbone": config.backbone,
        "parameters": sum(weight.numel() for weight in weights),
        "parameters_trained": sum(weight.numel() for weight in weights if weight.requires_grad),
        "rows": len(rows),
        "tokens_per_epoch": sum(len(lesson.prompt) + len(lesson.reply) for lesson in rows),
        "posts_dropped": posts_dropped,
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


def _takes_system_turn(tokenizer: Any) -> bool:
    """Tell whether the template takes a system turn: some refuse it, some drop its text without a word."""
    from jinja2 import TemplateError

    turns = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "Hello"}]
    try:
        return _PROBE in tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    except TemplateError:
        return False


def _pad_id(tokenizer: Any) -> int:
    return int(tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id)


def _refuse_missing_packages() -> None:
    try:
        import datasets  # noqa: F401
        import peft  # noqa: F401
    except ImportError as error:
        raise UsageError(f"Training a backbone needs {error.name}. Install: pip install 'prbench[train]'") from error
