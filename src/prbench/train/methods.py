"""The methods by name: the only place that knows them all, and `--set name=value` for any of them."""

import dataclasses
import math
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import get_type_hints

from prbench.errors import UsageError
from prbench.schema import Json
from prbench.train.data import TrainingData
from prbench.train.folder import Config, Progress, Trained, claimed, silent

# What `--method` takes, in the order of the documentation. `_CODE` says where each is.
METHODS: Mapping[str, str] = MappingProxyType(
    {
        "bt": "a fine-tuned backbone that knows no users: the bar for all others",
        "bt-profile": "a fine-tuned backbone that reads the user's posts before the question",
        "planner": "foresees from the posts which aspects a user looks for, then scores responses against them",
        "summary": "sums a user up in a few statements, which may be edited, and scores responses by them",
        "lm-planner": "a language model that learns to write such aspects down (LoRA), with the same scorer",
        "rubric-chain": "samples rubrics from the posts, scores responses against each, and averages",
        "head": "a small head on frozen embeddings: question, posts and sentences of the response",
        "encoder": "the same head and the encoder under it, trained together (on a GPU)",
        "match": "what a response touches of the things that a user's posts speak for and against",
        "blend": "weighs several trained models against each other on held-out users",
        "fewshot": "adapts to a user from 5 to 30 labelled pairs, starting from the population",
        "sft": "no reward model: a policy that writes answers like those of the data, to sample from",
    }
)
# Where the code of each is: a module of this package, its settings, its function.
_CODE: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "bt": ("bt", "BtConfig", "train_bt"),
        "bt-profile": ("bt_profile", "BtProfileConfig", "train_bt_profile"),
        "planner": ("planner", "PlannerConfig", "train_planner"),
        "summary": ("summaries", "SummaryConfig", "train_summary"),
        "lm-planner": ("lm_planner", "LmPlannerConfig", "train_lm_planner"),
        "rubric-chain": ("rubric_chain", "RubricChainConfig", "train_rubric_chain"),
        "head": ("head", "HeadConfig", "train_head"),
        "encoder": ("encoder", "EncoderConfig", "train_encoder"),
        "match": ("match", "MatchConfig", "train_match"),
        "blend": ("blend", "BlendConfig", "train_blend"),
        "fewshot": ("fewshot", "FewshotConfig", "train_fewshot"),
        "sft": ("sft", "SftConfig", "train_sft"),
    }
)
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SEEDS = 2**63  # how many numpy and torch both take


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to train."""

    name: str
    config: type[Config]  # a frozen dataclass of plain values
    train: Callable[[TrainingData, Config, Path, Progress], Trained]


def load_method(name: str) -> Method:
    """Return the method of that name; what it needs is imported only now."""
    if name not in METHODS:
        raise UsageError(f"--method {name}: unknown. Use one of: {', '.join(METHODS)}.")
    module, config, function = _CODE[name]
    code = import_module(f"prbench.train.{module}")
    return Method(name=name, config=getattr(code, config), train=getattr(code, function))


def train(
    method: Method, data: TrainingData, config: Config, folder: Path, say: Progress = silent, *, fresh: bool = False
) -> Trained:
    """Train into a folder; the same call goes on where it was interrupted, and a finished one is only read back."""
    with claimed(folder, method.name, config, data, fresh=fresh) as claim:
        if claim.done is not None:
            return claim.done
        started = time.monotonic()
        trained = method.train(data, config, claim.place, say)
        facts: dict[str, Json] = {
            "train_pairs": len(data.train),
            "train_users": len({example.user.id for example in data.train}),
            "validation_pairs": len(data.validation),
            "validation_users": len({example.user.id for example in data.validation}),
            **trained.facts,
            "seconds": round(time.monotonic() - started, 2),
            "peak_memory_mib": _peak_memory_mib(),
        }
        return claim.finish(dataclasses.replace(trained, facts=facts))


def make_config(method: Method, settings: Sequence[str], **given: Json) -> Config:
    """Return the method's defaults with `name=value` settings put in, and `given` ones, which win."""
    known = {field.name: field for field in dataclasses.fields(method.config)}
    hints = get_type_hints(method.config)
    changes: dict[str, Json] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in known:
            raise UsageError(f"--set {setting}: {_unknown(method, name, bool(equals))}")
        if name in changes:
            raise UsageError(f"--set {setting}: {name} is given twice.")
        changes[name] = _parse(setting, hints[name], value)
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"--{name} {value}: method {method.name} has no {name}. {_settings(method)}")
        changes[name] = value
    if not 0 <= changes.get("seed", 0) < _SEEDS:
        raise UsageError(f"seed={changes['seed']}: not a seed. Give a whole number from 0 to {_SEEDS - 1}.")
    return method.config(**changes)


def _unknown(method: Method, name: str, has_value: bool) -> str:
    if not has_value:
        return f"write name=value. {_settings(method)}"
    near = get_close_matches(name, [field.name for field in dataclasses.fields(method.config)], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"method {method.name} has no such setting. {_settings(method)}{hint}"


def _settings(method: Method) -> str:
    listed = ", ".join(f"{field.name}={_shown(field)}" for field in dataclasses.fields(method.config))
    return f"Settings with their defaults: {listed}."


def _shown(field: "dataclasses.Field[Json]") -> Json:
    return "(required)" if field.default is dataclasses.MISSING else field.default


def _parse(setting: str, kind: type, value: str) -> Json:
    """Read a value as the field's type; an empty one stands for nothing where the field may be empty."""
    if kind is bool:
        if value.lower() not in _TRUTH:
            raise UsageError(f"--set {setting}: neither true nor false.")
        return _TRUTH[value.lower()]
    if kind is int or kind is float:
        try:
            number: float = kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise UsageError(f"--set {setting}: not {what}.") from None
        if kind is float and not math.isfinite(number):
            raise UsageError(f"--set {setting}: not a finite number.")
        return number
    return value


def _peak_memory_mib() -> int:
    """The most memory that this process has held, in MiB; Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
