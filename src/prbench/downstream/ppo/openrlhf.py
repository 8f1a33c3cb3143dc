"""An export that OpenRLHF runs: prompts, a reward function that asks `prbench serve`, and a launcher.

    export_openrlhf(Path("run"), data=train, validation=held_out, settings=settings, server="http://host:8000")

OpenRLHF hands a reward the decoded answer and one text, the label of the row: it says who asks what, and which tokens
end an answer. `reward.py` is copied as it is and needs no prbench where it runs.
"""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from prbench.backends.llm.servers import as_dicts
from prbench.context import Labels
from prbench.downstream.ppo.exporting import ExportedPrompt, PreparedExport, prepare_export
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.rewards import openrlhf_row
from prbench.errors import DataError, UsageError
from prbench.runs.files import replacing, write_json
from prbench.schema import Example, Json

OPENRLHF = "0.11.2"  # the release whose code the export is tested with
TRAIN, VALIDATION, EXPORT, REWARD, LAUNCH = "train.jsonl", "validation.jsonl", "export.json", "reward.py", "launch.sh"
PATIENCE_SECONDS = 300.0
ESTIMATORS = {"ppo": "gae", "grpo": "group_norm", "rloo": "rloo"}
PICTURE = "<image>"  # what OpenRLHF takes for a picture wherever it stands in a message
# What OpenRLHF has no place for; a value that somebody chose is refused.
NO_COUNTERPART = (
    *("max_failed", "truncation_penalty", "kl_budget", "kl_loss_coefficient", "value_coefficient"),
    *("value_moves_policy", "whiten_advantages"),
)
UNCLIPPED = ("-1000000", "1000000")  # OpenRLHF would cut rewards at 10
LAUNCHER = """\
#!/usr/bin/env bash
# Starts this export's run: ./launch.sh [flags of OpenRLHF, which win over those below]
# PYTHON names the interpreter that has OpenRLHF; PRBENCH_SERVER_URL and PRBENCH_SERVER_TOKEN say where and how to ask.
# Start the reward server first: prbench serve --model {model}
set -euo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
python="${{PYTHON:-python3}}"
"$python" "$here/reward.py"  # ends the start here if the server serves another model, or none
exec "$python" -m openrlhf.cli.train_ppo_ray \\
{flags} \\
  "$@"
"""


def export_openrlhf(
    folder: Path,
    *,
    data: Sequence[Example],
    validation: Sequence[Example],
    settings: PpoSettings,
    server: str,
    labels: Labels | None = None,
    validation_labels: Labels | None = None,
) -> list[Path]:
    """Write a folder that OpenRLHF runs, and return its files. It appears when it is complete.

    The reward server must be up: its model and template are written into the export, and every reply is held to them.
    """
    defaults = {field.name: field.default for field in fields(PpoSettings)}
    if chosen := [name for name in NO_COUNTERPART if getattr(settings, name) != defaults[name]]:
        raise UsageError(f"--set {chosen[0]}: OpenRLHF has nothing like it. Leave it out.")
    if settings.truncated == "mask" or settings.dtype == "float32":
        raise UsageError("OpenRLHF trains in bfloat16 and masks no answers. Leave out truncated=mask and float32.")
    given = prepare_export(
        folder,
        data=data,
        validation=validation,
        settings=settings,
        server=server,
        labels=labels,
        validation_labels=validation_labels,
    )
    with replacing(folder) as building:
        building.mkdir()
        for name, prompts in ((TRAIN, given.train), (VALIDATION, given.held_out)):
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows_of(prompts, given.tokenizer.controls)]
            (building / name).write_text("".join(lines), encoding="utf-8")
        reward = files("prbench.downstream.ppo").joinpath("openrlhf_files", REWARD).read_bytes()
        (building / REWARD).write_bytes(reward)
        (building / LAUNCH).write_text(_launcher(settings, given), encoding="utf-8")
        (building / LAUNCH).chmod(0o755)
        facts = _facts(settings, given, labels.shots if labels else 0)
        facts["files"] = {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(building.iterdir())}
        write_json(building / EXPORT, facts)
    return sorted(folder.iterdir())


def rows_of(prompts: Sequence[ExportedPrompt], ends: Sequence[str]) -> list[dict[str, Json]]:
    """Return the rows as OpenRLHF reads them."""
    for prompt in prompts:
        if any(PICTURE in turn.content for turn in prompt.turns):
            raise DataError(
                f"Example {prompt.example.id}: its prompt holds {PICTURE}, which OpenRLHF takes for a picture. "
                "Leave the row out."
            )
    return [
        openrlhf_row(number, prompt.example, as_dicts(prompt.turns), prompt.reward_context, ends)
        for number, prompt in enumerate(prompts)
    ]


def flags_of(settings: PpoSettings, policy: str, longest_prompt: int, rows: int) -> dict[str, tuple[str, ...]]:
    """Return what this run says to OpenRLHF; paths of the export's own files begin with `$here`.

    OpenRLHF counts passes over the rows, so the steps are rounded up to whole ones.
    """
    answers = 1 if settings.algorithm == "ppo" else settings.group_size
    given: dict[str, object] = {
        "actor.model_name_or_path": policy,
        "data.prompt_dataset": f"$here/{TRAIN}",
        "data.input_key": "prompt",
        "data.label_key": "label",
        "data.max_len": longest_prompt + settings.max_new_tokens,
        "eval.dataset": f"$here/{VALIDATION}",
        "eval.steps": settings.checkpoint_every,
        "eval.n_samples_per_prompt": 1,
        "rollout.max_new_tokens": settings.max_new_tokens,
        "rollout.batch_size": settings.rollout_batch,
        "rollout.n_samples_per_prompt": answers,
        "rollout.temperature": settings.temperature,
        "rollout.top_p": 1.0,
        "reward.remote_url": f"$here/{REWARD}",
        "algo.advantage.estimator": ESTIMATORS[settings.algorithm],
        "algo.advantage.gamma": settings.gamma,
        "algo.advantage.lambd": settings.lam,
        "algo.kl.init_coef": settings.kl_coefficient,
        "train.batch_size": settings.rollout_batch * answers // settings.minibatches,
        "train.num_episodes": math.ceil(settings.steps / (rows // settings.rollout_batch)),
        "train.max_epochs": settings.epochs,
        "train.seed": settings.seed,
        "actor.eps_clip": settings.clip,
        "actor.entropy_coef": settings.entropy_coefficient,
        "actor.adam.lr": settings.learning_rate,
        "actor.adam.weight_decay": settings.weight_decay,
        "actor.max_norm": settings.max_grad_norm,
        "critic.adam.lr": settings.value_learning_rate,
        "critic.value_clip": settings.value_clip,
        "ds.lora.rank": settings.lora_rank,
        "ds.lora.alpha": settings.lora_alpha,
        "ckpt.output_dir": "$here/policy",
        "ckpt.path": "$here/checkpoints",
        "ckpt.save_steps": settings.checkpoint_every,
    }
    flags = {f"--{name}": (str(value),) for name, value in given.items()}
    return {**flags, "--data.apply_chat_template": (), "--reward.clip_range": UNCLIPPED}


def _launcher(settings: PpoSettings, given: PreparedExport) -> str:
    def quoted(text: str) -> str:
        return f'"{text}"' if text.startswith("$here/") else shlex.quote(text)

    flags = flags_of(settings, given.policy, given.longest_prompt, len(given.train))
    lines = ["  " + " ".join((name, *map(quoted, values))) for name, values in flags.items()]
    return LAUNCHER.format(model=_spec(given), flags=" \\\n".join(lines))


def _spec(given: PreparedExport) -> str:
    return given.served.model.name.rpartition("#")[0]


def _facts(settings: PpoSettings, given: PreparedExport, shots: int) -> dict[str, Json]:
    served, both = given.served, (*given.train, *given.held_out)
    dropped: Mapping[str, int] = {
        "policy": sum(each.policy_context.dropped for each in both),
        "reward": sum(each.reward_context.dropped for each in both),
    }
    return {
        "server": served.url,
        "model": served.model.name,
        "template_hash": served.loaded.template_hash,
        "center": served.center,
        "spread": served.spread,
        "measured": served.measured,
        "patience_seconds": PATIENCE_SECONDS,
        "policy": given.policy,
        "settings": asdict(settings),
        "labels": shots,
        "train_rows": len(given.train),
        "validation_rows": len(given.held_out),
        "longest_prompt": given.longest_prompt,
        "posts_dropped": dict(dropped),
        "versions": {"prbench": version("prbench"), "openrlhf": OPENRLHF},
    }
