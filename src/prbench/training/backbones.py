"""Backbones: the pretrained models that training starts from, adapters on them, and how transformers' trainer runs.

A GGUF file is dequantized once, into a folder that every Hugging Face loader takes. Adapters name that folder as their
base, except for the packaged one, which is called `smollm2` on every machine.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from prbench.backends.hf import (
    SMOLLM2,
    dequantized,
    from_pretrained,
    is_adapter,
    load_causal,
    one_line_errors,
    quiet_loading,
    smollm2_folder,
)
from prbench.backends.trackers import active_trackers
from prbench.errors import UsageError
from prbench.runs.files import write_json
from prbench.schema import Json
from prbench.training.data import TrainingData
from prbench.training.folder import TRAINER, Config, MethodConfig, ProgressCallback, checkpoint_in

LANGUAGE_MODEL, CLASSIFIER = "AutoModelForCausalLM", "AutoModelForSequenceClassification"
# A score head is new in every backbone; nothing else may start at random.
_NEW_HEADS = ("score.", "classifier.", "pre_classifier.", "pooler.")
_MANY = 4  # missing weights that an error names
_STATE = "trainer_state.json"  # what transformers writes last into a checkpoint
_WEIGHTS = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "config.json",
    "generation_config.json",
    "model*.safetensors*",
)


class BackboneConfig(MethodConfig):
    """Base of the settings of a method that trains a backbone."""

    batch_size: int
    accumulate: int

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        super().__post_init__()
        if self.batch_size % self.accumulate:
            raise UsageError(f"accumulate={self.accumulate} does not divide batch_size={self.batch_size}.")


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A pretrained model with its tokenizer."""

    place: str  # folder or hub id
    base: str  # what an adapter names as its base: the place, or `smollm2`
    model: Any
    tokenizer: Any


def load_backbone(name: str, auto_class: str, *, seed: int = 0, dtype: str = "float32") -> Backbone:
    """Load `smollm2`, a folder, a GGUF file or a hub id; a classifier gets one logit, drawn by the seed."""
    import torch

    place = backbone_place(name)
    if auto_class == CLASSIFIER and is_adapter(place):
        raise UsageError(f"--backbone {name}: is an adapter; a classifier starts from a whole model. Name its base.")
    options: dict[str, Any] = {"num_labels": 1} if auto_class == CLASSIFIER else {}
    with one_line_errors(f"--backbone {name}"), quiet_loading():
        tokenizer = from_pretrained("AutoTokenizer", place)
        if auto_class == LANGUAGE_MODEL and is_adapter(place):
            return Backbone(place=place, base=place, model=load_causal(place, dtype=dtype), tokenizer=tokenizer)
        torch.manual_seed(seed)
        model, report = from_pretrained(auto_class, place, dtype=dtype, output_loading_info=True, **options)
    missing = {key for key in report["missing_keys"] if not key.startswith(_NEW_HEADS)}
    missing |= {key for key in report["missing_keys"] if auto_class != CLASSIFIER}
    if missing:
        named = ", ".join(sorted(missing)[:_MANY])
        raise UsageError(f"{name}: lacks {named}, which would start at random. Give a backbone that is complete.")
    return Backbone(place=place, base=name if name == SMOLLM2 else place, model=model, tokenizer=tokenizer)


def backbone_place(name: str) -> str:
    """Return the folder or hub id to load from; a GGUF file is dequantized into the cache first."""
    if not name.strip():
        raise UsageError("--backbone is empty. Give smollm2, a folder or a hub id (org/name).")
    if name == SMOLLM2:
        return str(smollm2_folder())
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return str(dequantized(path))
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if (path / "config.json").is_file() or not files:
            return str(path.resolve())
        if len(files) > 1:
            raise UsageError(f"{name}: holds {len(files)} GGUF files. Name one of them, e.g. {files[0]}.")
        return str(dequantized(files[0]))
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise UsageError(f"--backbone {name}: there is no such folder. Give smollm2, a folder or a hub id (org/name).")
    return name


def name_base(folder: Path, backbone: Backbone) -> None:
    """Let the adapter in a folder, if there is one, name its base so that it is found on any machine."""
    path = folder / "adapter_config.json"
    if path.is_file():
        described = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, {**described, "base_model_name_or_path": backbone.base})


def check_packages(*names: str) -> None:
    """Refuse to start without what training needs."""
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise UsageError(
                f"Training a backbone needs {error.name}. Install: pip install 'prbench[train]'"
            ) from error


def lora_config(config: Config, task_type: str, **options: Any) -> Any:
    """Return the settings of an adapter on all linear layers."""
    from peft import LoraConfig

    return LoraConfig(
        task_type=task_type,
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear",
        **options,
    )


def trainer_arguments(config: Config, folder: Path, steps: int) -> dict[str, Any]:
    """Return what every trainer is told, given the number of its steps; on a GPU it runs in bfloat16."""
    import torch

    has_gpu = torch.cuda.is_available()
    if torch.cuda.device_count() > 1:
        raise UsageError("More than one GPU is visible, and training uses one. Set CUDA_VISIBLE_DEVICES=0.")
    return {
        "output_dir": str(folder),
        "num_train_epochs": config.epochs,
        "per_device_train_batch_size": config.batch_size // config.accumulate,
        "per_device_eval_batch_size": config.batch_size // config.accumulate,
        "gradient_accumulation_steps": config.accumulate,
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "lr_scheduler_type": "cosine",
        "warmup_steps": round(config.warmup * steps),
        "bf16": has_gpu,
        "use_cpu": not has_gpu,
        "seed": config.seed,
        "save_total_limit": 2,  # the best and the last; with 1, the last would go at the end
        "remove_unused_columns": False,
        "logging_strategy": "no",
        "disable_tqdm": True,
        **active_trackers().trainer_arguments(),
    }


@dataclass(frozen=True)
class EarlyStopping:
    """Which figure of a trainer's log decides, and after how many evaluations without a better one training ends."""

    metric: str  # as the log calls it
    best: Callable[[Sequence[float]], float]  # max or min
    patience: int
    text: Callable[[float], str]  # how progress shows the figure

    def history(self, state: dict[str, Json]) -> list[float]:
        """Return the figure at each evaluation of a trainer's state, oldest first."""
        return [entry[self.metric] for entry in state["log_history"] if self.metric in entry]

    def is_over(self, history: Sequence[float]) -> bool:
        """Tell whether the best evaluation is `patience` evaluations ago. It needs no state beside the log."""
        return bool(history) and len(history) - 1 - history.index(self.best(history)) >= self.patience

    def callback(self, progress: ProgressCallback, evaluate_at: Sequence[int] = ()) -> Any:
        """Return what reports progress and stops a trainer; it evaluates and saves at given steps, if any."""
        from transformers import TrainerCallback

        stopping = self

        def report(state: Any) -> list[float]:
            history = stopping.history({"log_history": state.log_history})
            progress(state.global_step, state.max_steps, stopping.text(history[-1]) if history else "")
            return history

        class Reporter(TrainerCallback):  # type: ignore[misc]  # transformers' types are partial
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
                if state.global_step in evaluate_at:
                    control.should_evaluate = control.should_save = True
                report(state)
                return control

            def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
                control.should_training_stop = stopping.is_over(report(state)) or control.should_training_stop
                return control

        return Reporter()


def start_trainer_folder(folder: Path, config: Config, data: TrainingData) -> Path:
    """Return where a trainer keeps its checkpoints, without those of another training."""
    # The small file says whether the checkpoints beside it are of this training: `--fresh` removes it.
    begun = checkpoint_in(folder, config, data)
    checkpoints = folder.resolve() / TRAINER
    if begun.load() is None:
        shutil.rmtree(checkpoints, ignore_errors=True)
        begun.save({})
    return checkpoints


def run_trainer(trainer: Any, checkpoints: Path, epochs: int, stopping: EarlyStopping) -> dict[str, Json]:
    """Train to the end, from the last whole checkpoint if there is one, and return the trainer's state."""
    state, last = last_state(checkpoints)
    # A training that had stopped or ended is not resumed.
    if state is None or (state["epoch"] < epochs and not stopping.is_over(stopping.history(state))):
        with quiet_loading():  # saving has bars, too
            trainer.train(resume_from_checkpoint=str(last) if last else None)
        state, _ = last_state(checkpoints)
    if state is None:
        raise AssertionError("the trainer left no checkpoint")
    return state


def last_state(folder: Path) -> tuple[dict[str, Json] | None, Path | None]:
    """Return the state and the folder of the last checkpoint that was written whole; remove those that were not."""
    found: dict[int, tuple[dict[str, Json], Path]] = {}
    for checkpoint in folder.glob("checkpoint-*"):
        try:
            state = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            shutil.rmtree(checkpoint)
        else:
            found[state["global_step"]] = (state, checkpoint)
    return found[max(found)] if found else (None, None)


def keep_checkpoint(folder: Path, step: int, backbone: Backbone) -> None:
    """Move the weights of a step, and the tokenizer, to where models are read; the other checkpoints go."""
    for pattern in _WEIGHTS:
        for path in (folder / TRAINER / f"checkpoint-{step}").glob(pattern):
            shutil.copyfile(path, folder / path.name)
    name_base(folder, backbone)
    backbone.tokenizer.save_pretrained(folder)
    shutil.rmtree(folder / TRAINER)


def count_weights(model: Any) -> tuple[int, int]:
    """Return how many numbers a model has, and how many of them are trained."""
    weights = list(model.parameters())
    return sum(each.numel() for each in weights), sum(each.numel() for each in weights if each.requires_grad)


def device_facts(trainer: Any) -> dict[str, Json]:
    """Return where a trainer ran, for the card."""
    import torch

    if not torch.cuda.is_available():
        return {"device": str(trainer.args.device.type)}
    peak = round(torch.cuda.max_memory_allocated() / 2**20)
    return {"device": torch.cuda.get_device_name(), "peak_gpu_memory_mib": peak}
