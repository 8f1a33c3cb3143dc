"""Train a language model to plan on the lab, and measure its plans and the scores that come of them.

    python experiments/train_lm_planner.py --backbone smollm2 --models models --out results/lm_planner/figures.json
    python experiments/train_lm_planner.py --tiny --models scratch/rehearsal --out scratch/rehearsal.json

LoRA on the gold rubrics of `train`, early stopping on `validation`; then, by the lab's own truth, precision and recall
of the plans on `test`, and the accuracy of `planner:FOLDER` there. The result is written after every seed, and a
second call does what is left. Everything comes from local files; on a GPU it runs in bfloat16. `--rows` takes only the
first rows to measure on: a plan is written token by token. `--tiny` rehearses everything with a small random model on
few rows, on a CPU in some minutes.
"""

import argparse
import json
import platform
import shlex
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prbench.context.plan import plan_messages
from prbench.data import DataSettings, open_examples
from prbench.evaluation import EvalSettings, evaluate
from prbench.insight.planner_evaluation import PlannerSettings, measure_planner
from prbench.lab import DEFAULT_SIZES, SEED, LabSize, make_split
from prbench.schema import Example
from prbench.training.data import TrainingData, make_training_data
from prbench.training.folder import held_out_figures, write_card
from prbench.training.lm_planner import rubric_as_plan
from prbench.training.methods import load_method, make_config, run_method

METHOD = "lm-planner"
GROUPS = ("level", "informative_posts", "majority")
PACKAGES = ("prbench", "torch", "transformers", "peft", "accelerate", "datasets")
TINY_SIZES = {"train": LabSize(users=24, pairs=48), "validation": LabSize(users=16, pairs=16)}
TINY_SIZES |= {"test": LabSize(users=16, pairs=16)}
TINY = ("epochs=2", "batch_size=8", "max_length=2000", "lora_rank=8", "learning_rate=0.01", "criteria_epochs=2")
Figures = dict[str, Any]


def main() -> None:
    """Train and measure the seeds that the result file does not have yet."""
    asked = _arguments()
    sizes = TINY_SIZES if asked.tiny else DEFAULT_SIZES
    train_rows, validation, test = (
        list(make_split(split, sizes[split], seed=SEED + asked.deal, assignment=asked.deal))
        for split in ("train", "validation", "test")
    )
    data = make_training_data(train_rows, validation, name="lab")
    backbone = str(_tiny_backbone(asked.models / "backbone", data)) if asked.tiny else asked.backbone
    record = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else _head(asked)
    for seed in asked.seeds:
        settings = [*(TINY if asked.tiny else ()), *asked.set]
        config = make_config(load_method(METHOD), settings, backbone=backbone, seed=seed)
        if any(run["config"] == asdict(config) for run in record["runs"]):
            continue
        record["runs"].append(_train_and_measure(config, data, test[: asked.rows], asked))
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="smollm2", help="smollm2, a folder, or a GGUF file")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--rows", type=int, default=None, help="rows of `test`; default: all")
    parser.add_argument("--deal", type=int, default=0, help="another deal of the lab's texts, with other people")
    parser.add_argument("--models", type=Path, required=True, help="folder for the trained models")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def _train_and_measure(config: Any, data: TrainingData, test: list[Example], asked: argparse.Namespace) -> Figures:
    folder = asked.models / f"{METHOD}-{config.seed}"
    started = time.monotonic()

    def say(done: int, total: int, text: str) -> None:
        if done == total or done % max(1, total // 20) == 0:
            print(f"{folder.name}: {done}/{total} {text} {time.monotonic() - started:.0f} s", flush=True)

    trained = run_method(load_method(METHOD), data, config, folder, say)
    plans = _plans(folder, config, test)
    figures, groups = _figures(trained.spec, config, test)
    validation, _ = _figures(trained.spec, config, list(data.validation)[: asked.rows])
    write_card(folder, METHOD, config, data, trained, validation)
    print(f"{folder.name}: test {100 * figures['accuracy']['value']:.1f}", flush=True)
    return {
        "command": shlex.join(["python", "experiments/train_lm_planner.py", *sys.argv[1:]]),
        "config": asdict(config),
        "facts": dict(trained.facts),
        "validation": validation,
        "plans": plans,
        "test": {**figures, "groups": groups},
        "seconds": round(time.monotonic() - started, 1),
    }


def _plans(folder: Path, config: Any, test: list[Example]) -> Figures:
    """Precision and recall by the lab's truth, as `prbench eval-planner` measures them."""
    rows = folder.parent / f"{folder.name}-test.jsonl"
    _write(rows, test)
    settings = PlannerSettings(planner=str(folder), posts=config.posts, seed=config.seed)
    summary = measure_planner(settings, DataSettings(source=str(rows)), folder.parent / f"{folder.name}-plans")
    return {name: summary[name] for name in ("examples", "users", "planned", "aspects_per_plan", "lab")}


def _figures(spec: str, config: Any, test: list[Example]) -> tuple[Figures, Figures]:
    how = EvalSettings(context="profile", posts=config.posts, seed=config.seed)
    summary = evaluate(test, spec, settings=how, group_by=GROUPS, which=DataSettings()).summary
    return held_out_figures(summary), summary["groups"]


def _write(path: Path, examples: list[Example]) -> None:
    from prbench.data.rows import as_row

    path.write_text("".join(json.dumps(as_row(example)) + "\n" for example in examples), encoding="utf-8")
    with open_examples(str(path)) as store:
        assert len(store) == len(examples)


def _head(asked: argparse.Namespace) -> Figures:
    import torch

    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "deal": asked.deal,
        "rows": asked.rows,
        "runs": [],
    }


def _tiny_backbone(folder: Path, data: TrainingData) -> Path:
    """Save a random Llama of two layers over bytes, so that it can write any text."""
    import torch
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        return folder
    texts = [rubric_as_plan(row.rubric) for row in data.train]
    texts += [post.text for row in data.train for post in row.user.profile]
    texts += [message.content for message in plan_messages("What now?", ["One post."])]
    special = ["<s>", "</s>"]
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=alphabet)
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.chat_template = (
        "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    fast.save_pretrained(folder)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"vocab_size": len(fast), "max_position_embeddings": 4096}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(bos_token_id=0, eos_token_id=1, pad_token_id=None, **shape)).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
