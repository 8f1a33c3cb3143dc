"""An export that verl runs: prompts, a reward that asks `prbench serve`, a whole configuration, and a launcher.

    export_verl(Path("run"), data=train, validation=held_out, settings=settings, server="http://host:8000")

The files under `verl_files/` are copied as they are and need no prbench where they run. What decides the run (the
settings, the served model with its template, the data) is written into `config.yaml` and `export.json`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from prbench.backends.hf import from_pretrained, quiet_loading
from prbench.backends.llm.client import Message
from prbench.backends.llm.servers import as_dicts
from prbench.backends.policy import Prompt, answer_template
from prbench.context import ContextMaker, Labels, fit_for, required_contexts
from prbench.context.labels import check_labels_shown
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.verl_config import (
    CONFIG,
    PATIENCE_SECONDS,
    SOURCE,
    TRAIN,
    VALIDATION,
    ServedReward,
    make_config,
    write_config,
)
from prbench.errors import DataError, UsageError
from prbench.reward_models import ModelSettings, load_ref, read_ref
from prbench.reward_models.base import LoadedModel, user_row
from prbench.reward_models.server import PrbenchServerReward
from prbench.runs.files import replacing, write_json
from prbench.schema import Example, Json, RewardInput, UserContext
from prbench.training.backbones import backbone_place

if TYPE_CHECKING:
    from prbench.downstream.ppo.rollout import PromptTokenizer

VERL = "0.9.1"  # the release whose code the export is tested with
EXPORT, README = "export.json", "README.md"
COPIED = ("reward.py", "sampler.py", "preflight.py", "launch.sh")
MEASURED_EXAMPLES = 256  # whose two responses say how the reward is scattered
SMALLEST_SPREAD = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlPrompt:
    """One prompt as verl gets it."""

    example: Example
    turns: tuple[Message, ...]
    tokens: int
    policy_context: UserContext
    reward_context: UserContext


def export_verl(
    folder: Path,
    *,
    data: Sequence[Example],
    validation: Sequence[Example],
    settings: PpoSettings,
    server: str,
    labels: Labels | None = None,
    validation_labels: Labels | None = None,
) -> list[Path]:
    """Write a folder that verl runs, and return its files. It appears when it is complete.

    The reward server must be up: its model and template are written into the export, and every reply is held to them.
    Labeled pairs, of the users of either file, are shown to the reward model, never to the policy.
    """
    from prbench.downstream.ppo.training import contexts_of

    _check_settings(settings)
    _check_data(data, validation, settings)
    for known, rows in ((labels, data), (validation_labels, validation)):
        if known is not None:
            check_labels_shown(known, rows)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder}: exists already. Choose another folder, or remove this one.")
    served = _ask_server(server, settings)
    policy = backbone_place(settings.policy)
    tokenizer = load_tokenizer(policy, settings.policy)
    train, held_out = (
        make_prompts(rows, tokenizer, contexts_of(settings, None, known), served.loaded, settings.max_new_tokens)
        for rows, known in ((data, labels), (validation, validation_labels))
    )
    if settings.whiten_rewards:
        served = _with_moments(served, train, settings.max_failed)
    longest = max(prompt.tokens for prompt in (*train, *held_out))
    config = make_config(settings, served, policy, train_rows=len(train), longest_prompt=longest)

    with replacing(folder) as building:
        building.mkdir()
        _write_prompts(train, building / TRAIN)
        _write_prompts(held_out, building / VALIDATION)
        write_config(config, building / CONFIG)
        for name in COPIED:
            (building / name).write_bytes(files("prbench.downstream.ppo").joinpath("verl_files", name).read_bytes())
        (building / "launch.sh").chmod(0o755)
        facts = _facts(settings, served, policy, train, held_out, config, labels.shots if labels else 0)
        facts["files"] = {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(building.iterdir())}
        write_json(building / EXPORT, facts)
        (building / README).write_text(make_readme(settings, facts), encoding="utf-8")
    return sorted(folder.iterdir())


def make_prompts(
    examples: Sequence[Example],
    tokenizer: "PromptTokenizer",
    contexts: tuple[ContextMaker, ContextMaker],
    loaded: LoadedModel,
    max_new_tokens: int,
) -> list[VerlPrompt]:
    """Return one prompt per example, with the posts that fit; a question that does not fit without any is an error.

    `contexts` make what the policy and what the reward model see. The latter leaves room for the longest answer, so
    that no answer is too long to be scored.
    """
    of_policy, of_reward = (required_contexts(maker, examples) for maker in contexts)
    longest = "word " * (2 * max_new_tokens)  # another tokenizer may need more tokens for the same answer
    prompts = []
    for example, for_policy, for_reward in zip(examples, of_policy, of_reward, strict=True):
        policy_context = tokenizer.fit(example, for_policy, max_new_tokens)
        reward_context = fit_for(loaded, for_reward, question=example.question, responses=[longest])
        if reward_context.problem:
            raise DataError(
                f"Example {example.id}: the question and {max_new_tokens} tokens of an answer exceed the reward "
                "model's window. Use a smaller --max-new-tokens, or leave the row out."
            )
        prompt = Prompt(id=example.id, question=example.question, context=policy_context.text)
        prompts.append(
            VerlPrompt(
                example=example,
                turns=tokenizer.turns(prompt),  # which verl lays out to exactly the tokens of `ids`
                tokens=len(tokenizer.ids(prompt)),
                policy_context=policy_context,
                reward_context=reward_context,
            )
        )
    return prompts


def _check_settings(settings: PpoSettings) -> None:
    for name in ("context", "context_of_reward"):
        if getattr(settings, name) == "oracle":
            raise UsageError(
                "The oracle context shows the rubric, which no exported file may hold. Use --context profile."
            )
    if settings.rollout_batch % settings.minibatches:
        raise UsageError(
            f"--rollout-batch {settings.rollout_batch} is no multiple of minibatches={settings.minibatches}, and verl "
            "would fill the last one up. Change one of them."
        )


def _check_data(data: Sequence[Example], validation: Sequence[Example], settings: PpoSettings) -> None:
    if len(data) < settings.rollout_batch:
        raise DataError(
            f"There are {len(data)} training examples, and verl asks {settings.rollout_batch} in one step. "
            "Give more, or lower --rollout-batch."
        )
    if not validation:
        raise DataError("There are no validation examples. Give some that are not trained on.")
    ids = {example.id for example in data}
    asked = {(example.user.id, example.question) for example in data}
    for example in validation:
        if example.id in ids or (example.user.id, example.question) in asked:
            raise DataError(f"Example {example.id} is trained on and validated with. Split the data by user.")


def _ask_server(server: str, settings: PpoSettings) -> ServedReward:
    url = server.rstrip("/")
    asked = read_ref(settings.reward)
    is_server = asked.spec.kind == "server"
    if is_server and asked.spec.target.rstrip("/") != url:
        raise UsageError(f"--model is {settings.reward}, but the server to export for is {url}. Correct one of them.")
    if asked.view.noise or asked.view.fail:
        raise UsageError(f"{settings.reward}: verl asks the server itself. Give noise= and fail= to `prbench serve`.")
    # The spec of a server may say ?expect=HASH.
    loaded = load_ref(asked if is_server else read_ref(f"server:{url}"), ModelSettings(seed=settings.seed))
    model = loaded.model
    if not isinstance(model, PrbenchServerReward):
        raise UsageError(f"{url} is not a `prbench serve`, and only its replies say which model they are of.")
    spec = model.name.rpartition("#")[0]
    if not is_server and settings.reward not in (spec, model.name):
        raise UsageError(f"{url} serves {spec}, but --model is {settings.reward}. Correct one of them.")
    return ServedReward(url=url, loaded=loaded, model=model)


def _with_moments(served: ServedReward, train: Sequence[VerlPrompt], max_failed: float) -> ServedReward:
    """Measure mean and spread of the reward on responses to the training questions, good and bad ones together."""
    inputs = [
        RewardInput(question=each.example.question, user=each.reward_context, response=response)
        for each in train[:MEASURED_EXAMPLES]
        for response in (each.example.chosen, each.example.rejected)
    ]
    values = [score.value for score in served.model.score(inputs) if score.value is not None]
    if len(values) < max(2, len(inputs) * (1 - max_failed)):
        raise UsageError(f"{served.url} gave {len(values)} scores for {len(inputs)} responses. Mend it first.")
    spread = pstdev(values)
    if spread < SMALLEST_SPREAD:
        raise UsageError(
            f"{served.url} gives all of {len(values)} training responses the same score, so there is nothing to learn."
        )
    return replace(served, center=fmean(values), spread=spread, measured=len(values))


def load_tokenizer(policy: str, name: str) -> "PromptTokenizer":
    """Load a policy's tokenizer, not its weights."""
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise UsageError("The export needs transformers. Install it with: pip install 'prbench[hf]'") from error
    from prbench.downstream.ppo.rollout import PromptTokenizer

    try:
        with quiet_loading():
            tokenizer, config = from_pretrained("AutoTokenizer", policy), from_pretrained("AutoConfig", policy)
    except (OSError, ValueError) as error:
        fact = " ".join(str(error).split())[:300].rstrip(".")
        raise UsageError(f"--policy {name} cannot be loaded: {fact}. Give smollm2, a folder or a hub id.") from error
    return PromptTokenizer(tokenizer, config, name)


def _write_prompts(prompts: Sequence[VerlPrompt], path: Path) -> None:
    """Write the columns that verl's `RLHFDataset` and reward manager read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.string()
    schema = pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct(
                {"index": pa.int64(), "id": text, "user_id": text, "question": text, "user": text}
            ),
        }
    )
    rows = [
        {
            "data_source": SOURCE,
            "prompt": as_dicts(prompt.turns),
            "ability": prompt.example.category,
            # There is no right answer to compare with: this is the id, by which rows are joined.
            "reward_model": {"style": "model", "ground_truth": prompt.example.id},
            "extra_info": {
                "index": number,
                "id": prompt.example.id,
                "user_id": prompt.example.user.id,
                "question": prompt.example.question,
                "user": json.dumps(user_row(prompt.reward_context), ensure_ascii=False),
            },
        }
        for number, prompt in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _facts(
    settings: PpoSettings,
    served: ServedReward,
    policy: str,
    train: Sequence[VerlPrompt],
    validation: Sequence[VerlPrompt],
    config: Mapping[str, Any],
    shots: int,
) -> dict[str, Json]:
    both = (*train, *validation)
    users = {each.example.user.id for each in train} & {each.example.user.id for each in validation}
    dropped = [(each.policy_context.dropped, each.reward_context.dropped) for each in both]
    return {
        "name": _run_name(settings, served, shots),
        "server": served.url,
        "model": served.model.name,
        "template_hash": served.loaded.template_hash,
        "policy": policy,
        "policy_template": answer_template().hash,
        "settings": asdict(settings),
        "labels": shots,
        "reward_moments": {"center": served.center, "spread": served.spread, "measured": served.measured},
        "train_rows": len(train),
        "validation_rows": len(validation),
        "users_in_both": len(users),
        "longest_prompt": max(each.tokens for each in both),
        "max_prompt_length": config["data"]["max_prompt_length"],
        "posts_dropped": {
            "policy": sum(of_policy for of_policy, _ in dropped),
            "reward": sum(of_reward for _, of_reward in dropped),
        },
        "prompts_with_posts_dropped": sum(any(each) for each in dropped),
        "versions": {"prbench": version("prbench"), "verl": VERL},
    }


def _run_name(settings: PpoSettings, served: ServedReward, shots: int) -> str:
    """Return the run's name without its hash: policy, reward model, contexts, labels, seed."""
    spec, _, digest = served.model.name.rpartition("#")
    policy = Path(settings.policy).name
    contexts = "-".join(dict.fromkeys((settings.context, settings.context_of_reward)))
    labels = (f"labels{shots}",) if shots else ()
    parts = (settings.algorithm, policy, spec, digest, contexts, *labels, f"seed{settings.seed}")
    return re.sub(r"[^A-Za-z0-9.-]+", "-", "_".join(parts).replace("_", "-")).strip("-.")


def make_readme(settings: PpoSettings, facts: Mapping[str, Any]) -> str:
    """Return the text that explains an export, from what `export.json` says of it."""
    from jinja2 import Environment, StrictUndefined

    dropped, moments = facts["posts_dropped"], facts["reward_moments"]
    shared = f" {facts['users_in_both']} users stand in both files." if facts["users_in_both"] else ""
    prompts = f"All posts fit.{shared}"
    if facts["prompts_with_posts_dropped"]:
        prompts = (
            f"In {facts['prompts_with_posts_dropped']} prompts the last posts did not fit a window: "
            f"{dropped['policy']} posts are not shown to the policy, {dropped['reward']} not to the reward model."
            f"{shared}"
        )
    scale = "PPO maximizes the model's raw score."
    if moments["measured"]:
        scale = (
            f"PPO maximizes (raw score - {moments['center']:.6g}) / {moments['spread']:.6g}: mean and standard "
            f"deviation of {moments['measured']} scores of responses to the training questions, measured at the "
            "export. So `algorithm.kl_ctrl.kl_coef` is in units of the reward's own spread. The raw score is logged "
            "beside it."
        )
    template = files("prbench.downstream.ppo").joinpath("verl_files", README).read_text(encoding="utf-8")
    words = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # Markdown
    return words.from_string(template).render(
        **{key: facts[key] for key in facts if key not in ("settings", "files")},
        reward=facts["model"].rpartition("#")[0],
        version=facts["versions"]["prbench"],
        verl_version=facts["versions"]["verl"],
        max_failed=f"{settings.max_failed:.0%}",
        patience=f"{PATIENCE_SECONDS:g}",
        prompts=prompts,
        moments=scale,
        differences=_differences(settings),
    )


def _differences(settings: PpoSettings) -> list[str]:
    """Return what verl does otherwise than our own loop, under these settings."""
    lines = [
        "The critic is a model of its own, and not a head on the policy: `value_learning_rate` "
        f"({settings.value_learning_rate:g}) moves all of its weights, and `value_coefficient` has no part in it. "
        "Where it is unsteady, lower `critic.optim.lr`.",
        "Sampling depends on vLLM's batches, so equal seeds give like runs and not equal ones.",
        "Each pass leaves out the rows that do not fill a step; the order changes with every pass.",
        "An empty answer is sent to the reward model like any other.",
    ]
    if settings.algorithm != "ppo":
        lines[0] = f"`{settings.algorithm}` needs no critic."
    if settings.truncated != "score":
        lines.append(
            f"A truncated answer is scored as it stands (`truncated={settings.truncated}` has no counterpart)."
        )
    if settings.kl_budget is not None:
        lines.append(
            f"There is no KL budget: verl would not stop at {settings.kl_budget:g} nats. Watch "
            "`actor/reward_kl_penalty`, which is per token."
        )
    if settings.whiten_rewards:
        lines.append("Rewards are scaled by moments that were measured once, not by running ones.")
    if not settings.whiten_advantages and settings.algorithm == "ppo":
        lines.append("Advantages are whitened all the same; verl always does.")
    return lines
