"""Train a backbone on the lab with and without users, and measure it on the lab's test users.

    python benchmarks/train_backbones.py --backbone smollm2 --models models --out results/train/backbones.json
    python benchmarks/train_backbones.py --tiny --models /tmp/rehearsal --out /tmp/rehearsal.json

`bt` and `bt-profile`, LoRA, all rows of `train`, three seeds; early stopping on `validation`; `test` is asked once per
model by the ordinary evaluation, with whole profiles. The result is written after every model, and a second call does
what is left, so that a machine that is lent by the minute can be used. Everything comes from local files. Settings are
chosen on another deal of the lab (`--deal 1`), never on the default's `test`. On a GPU with 80 GB or more,
`--set accumulate=1` is faster. `--tiny` rehearses everything with a small random model on few rows, on a CPU in about
half a minute.
"""

import argparse
import json
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from prbench.evaluation import DataSettings, evaluate
from prbench.lab import DEFAULT_SIZES, SEED, LabSize, make_split
from prbench.schema import Example
from prbench.train.card import held_out_figures, write_card
from prbench.train.data import TrainingData, make_training_data
from prbench.train.folder import Config, Trained
from prbench.train.methods import load_method, make_config, train
from prbench.walk import EvalSettings

METHODS = ("bt", "bt-profile")
GROUPS = ("level", "informative_posts", "majority")
POSTS = 30  # whole profiles
PACKAGES = ("prbench", "torch", "transformers", "trl", "peft", "accelerate", "datasets")
TINY_SIZES = {"train": LabSize(users=24, pairs=64), "validation": LabSize(users=16, pairs=16)}
TINY_SIZES |= {"test": LabSize(users=16, pairs=32)}
TINY = ("epochs=1", "batch_size=16", "max_length=1280", "lora_rank=4", "evaluations=1")
Figures = dict[str, Any]


@dataclass(frozen=True)
class Lab:
    """Rows to train on, and rows to be asked about once."""

    data: TrainingData
    test: list[Example]


def main() -> None:
    """Train and measure what the result file does not have yet."""
    asked = _arguments()
    lab = _make_lab(TINY_SIZES if asked.tiny else DEFAULT_SIZES, asked.deal)
    backbone = str(_tiny_backbone(asked.models / "backbone", lab)) if asked.tiny else asked.backbone
    record = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else _head(asked)
    for seed in asked.seeds:
        for name in asked.methods:
            settings = [*(TINY if asked.tiny else ()), *asked.set, *(asked.profile_set if name != "bt" else ())]
            config = make_config(load_method(name), settings, backbone=backbone, seed=seed)
            if any(run["method"] == name and run["config"] == asdict(config) for run in record["runs"]):
                continue
            record["runs"].append(_train_and_measure(name, config, lab, asked.models))
            record["means"] = _means(record["runs"])
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["means"], indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="smollm2", help="smollm2, a folder, or a GGUF file")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="setting of both methods")
    parser.add_argument("--profile-set", action="append", default=[], metavar="NAME=VALUE", help="of bt-profile")
    parser.add_argument("--deal", type=int, default=0, help="another deal of the lab's texts, with other people")
    parser.add_argument("--models", type=Path, required=True, help="folder for the trained models")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def _make_lab(sizes: dict[str, LabSize], deal: int) -> Lab:
    train, validation, test = (
        list(make_split(split, sizes[split], seed=SEED + deal, deal=deal)) for split in ("train", "validation", "test")
    )
    return Lab(data=make_training_data(train, validation, name="lab"), test=test)


def _train_and_measure(name: str, config: Config, lab: Lab, models: Path) -> Figures:
    folder = models / f"{name}-{config.seed}-{_short_hash(config)}"
    started = time.monotonic()

    def say(done: int, total: int, text: str) -> None:
        if done == total or done % max(1, total // 20) == 0:
            print(f"{folder.name}: {done}/{total} {text} {time.monotonic() - started:.0f} s", flush=True)

    trained = train(load_method(name), lab.data, config, folder, say)
    validation = held_out_figures(_ask(lab.data.validation, trained, config)["summary"])
    write_card(folder, name, config, lab.data, trained, validation)
    asked = _ask(lab.test, trained, config)
    figures = held_out_figures(asked["summary"])
    print(f"{folder.name}: test {100 * figures['accuracy']['value']:.1f}", flush=True)
    return {
        "method": name,
        "command": shlex.join(["python", "benchmarks/train_backbones.py", *sys.argv[1:]]),
        "config": asdict(config),
        "facts": dict(trained.facts),
        "validation": validation,
        "test": {**figures, "groups": asked["summary"]["groups"]},
        "test_seconds": round(asked["seconds"], 1),
    }


def _ask(rows: Sequence[Example], trained: Trained, config: Config) -> Figures:
    """Evaluate as `prbench eval` does, with whole profiles."""
    posts, rank = getattr(config, "posts", POSTS), getattr(config, "rank", "recent")
    how = EvalSettings(context=trained.context, posts=posts, rank=rank, seed=config.seed)
    started = time.monotonic()
    run = evaluate(rows, trained.spec, settings=how, group_by=GROUPS, which=DataSettings())
    return {"summary": run.summary, "seconds": time.monotonic() - started}


def _means(runs: Sequence[Figures]) -> Figures:
    """Mean, least and most over the seeds of each method and setting."""
    by_setting: dict[str, list[Figures]] = {}
    for run in runs:
        usual = asdict(make_config(load_method(run["method"]), [], backbone=run["config"]["backbone"]))
        changed = [f"{key}={value}" for key, value in run["config"].items() if key != "seed" and value != usual[key]]
        by_setting.setdefault(" ".join([run["method"], *changed]), []).append(run)
    return {name: {"seeds": len(some), **_mean(some)} for name, some in by_setting.items()}


def _mean(runs: Sequence[Figures]) -> Figures:
    found = {}
    for name in ("accuracy", "macro_user_accuracy", "worst_decile_accuracy", "minority_accuracy", "swap"):
        values = [(run["test"][name] or {}).get("gap", run["test"][name]) for run in runs]
        if all(values):
            points = [100 * each["value"] for each in values]
            found[name] = {"mean": fmean(points), "least": min(points), "most": max(points)}
    return found


def _head(asked: argparse.Namespace) -> Figures:
    import torch

    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "deal": asked.deal,
        "runs": [],
    }


def _short_hash(config: Config) -> str:
    from hashlib import sha256

    return sha256(json.dumps(asdict(config), sort_keys=True).encode()).hexdigest()[:8]


def _tiny_backbone(folder: Path, lab: Lab) -> Path:
    """Save a random Llama of two layers over the lab's words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        return folder
    rows = [*lab.data.train, *lab.data.validation, *lab.test]
    texts = {text for row in rows for text in (row.question, row.chosen, row.rejected)}
    texts |= {post.text for row in rows for post in row.user.profile} | {"one two three four five six and"}
    special = ["<unk>", "<s>", "</s>"]
    words = special + sorted({word for text in texts for word in text.split()})
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    names = dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"vocab_size": len(words), "max_position_embeddings": 2048}
    torch.manual_seed(0)
    config = LlamaConfig(bos_token_id=1, eos_token_id=2, pad_token_id=None, **shape)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
