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

from prbench.backends.llm.client import Message
from prbench.backends.llm.server_facts import as_dicts
from prbench.backends.llm.turns import system_in_first_user_turn, without_control_tokens
from prbench.backends.policy import Prompt, answer_template, messages_of
from prbench.backends.pretrained import from_pretrained
from prbench.backends.quiet_loading import quiet_loading
from prbench.context import ContextMaker, Labels, fit_for, required_contexts
from prbench.context.labels import check_labels_shown
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.verl_config import CONFIG, SOURCE, TRAIN, VALIDATION, Served, make_config, write_config
from prbench.downstream.ppo.verl_readme import README, make_readme
from prbench.errors import DataError, UsageError
from prbench.reward_models import ModelSettings, load_ref, read_ref
from prbench.reward_models.base import Loaded
from prbench.reward_models.inputs import user_row
from prbench.reward_models.server import PrbenchServerReward
from prbench.runs.files import replacing, write_json
from prbench.schema import Example, Json, RewardInput, UserContext
from prbench.training.backbones import backbone_place

if TYPE_CHECKING:
    from prbench.downstream.ppo.rollout import PromptTokenizer

VERL = "0.9.1"  # the release whose code the export is tested with
EXPORT = "export.json"
COPIED = ("reward.py", "sampler.py", "preflight.py", "launch.sh")
MEASURED_EXAMPLES = 256  # whose two responses say how the reward is scattered
SMALLEST_SPREAD = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A policy's tokenizer, and how prompts are laid out with it."""

    tokenizer: Any
    prompts: "PromptTokenizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One prompt as verl gets it."""

    example: Example
    turns: tuple[Message, ...]
    tokens: int
    shown: UserContext  # what the policy is told of the user
    told: UserContext  # what the reward model is told


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
    Labelled pairs, of the users of either file, are shown to the reward model, never to the policy.
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
    asked = load_asked(policy, settings.policy)
    train, held_out = (
        make_questions(rows, asked, contexts_of(settings, None, known), served.loaded, settings.max_new_tokens)
        for rows, known in ((data, labels), (validation, validation_labels))
    )
    if settings.whiten_rewards:
        served = _with_moments(served, train, settings.max_failed)
    config = make_config(settings, served, policy, train_rows=len(train), longest_prompt=_longest((*train, *held_out)))

    with replacing(folder) as building:
        building.mkdir()
        _write_questions(train, building / TRAIN)
        _write_questions(held_out, building / VALIDATION)
        write_config(config, building / CONFIG)
        for name in COPIED:
            (building / name).write_bytes(files("prbench.downstream.ppo").joinpath("verl_files", name).read_bytes())
        (building / "launch.sh").chmod(0o755)
        facts = _facts(settings, served, policy, train, held_out, config, labels.shots if labels else 0)
        facts["files"] = {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(building.iterdir())}
        write_json(building / EXPORT, facts)
        (building / README).write_text(make_readme(settings, facts), encoding="utf-8")
    return sorted(folder.iterdir())


def make_questions(
    examples: Sequence[Example],
    asked: Asked,
    contexts: tuple[ContextMaker, ContextMaker],
    loaded: Loaded,
    max_new_tokens: int,
) -> list[Question]:
    """Return one prompt per example, with the posts that fit; a question that does not fit without any is an error.

    `contexts` say what the policy and what the reward model are told. The latter leaves room for the longest answer,
    so that no answer is too long to be scored.
    """
    shown, told = (required_contexts(maker, examples) for maker in contexts)
    return [
        _question(example, for_policy, for_reward, asked, loaded, max_new_tokens)
        for example, for_policy, for_reward in zip(examples, shown, told, strict=True)
    ]


def _question(
    example: Example,
    for_policy: UserContext,
    for_reward: UserContext,
    asked: Asked,
    loaded: Loaded,
    max_new_tokens: int,
) -> Question:
    shown = asked.prompts.fit(example, for_policy, max_new_tokens)
    longest = "word " * (2 * max_new_tokens)  # another tokenizer may need more tokens for the same answer
    told = fit_for(loaded, for_reward, question=example.question, responses=[longest])
    if told.problem:
        raise DataError(
            f"Example {example.id}: the question and {max_new_tokens} tokens of an answer exceed the reward model's "
            "window. Use a smaller --max-new-tokens, or leave the row out."
        )
    prompt = Prompt(id=example.id, question=example.question, context=shown.text)
    tokens = asked.prompts.ids(prompt)
    return Question(
        example=example,
        turns=_turns(prompt, tokens, asked.tokenizer),
        tokens=len(tokens),
        shown=shown,
        told=told,
    )


def _turns(prompt: Prompt, ids: Sequence[int], tokenizer: Any) -> tuple[Message, ...]:
    """Return the turns that verl lays out to exactly these tokens: control tokens in them are data, as everywhere."""
    from jinja2 import TemplateError

    safe = without_control_tokens(messages_of(prompt), tokenizer.all_special_tokens)
    for turns in (safe, system_in_first_user_turn(safe)):
        try:
            found = tokenizer.apply_chat_template(as_dicts(turns), add_generation_prompt=True, return_dict=True)
        except TemplateError:  # a template without a system role
            continue
        if tuple(found["input_ids"]) == tuple(ids):
            return turns
    raise DataError(f"Example {prompt.id}: the chat template does not give the tokens that the policy is asked with.")


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
    trained_on = {key for example in data for key in _keys(example)}
    for example in validation:
        if trained_on.intersection(_keys(example)):
            raise DataError(f"Example {example.id} is trained on and validated with. Split the data by user.")


def _keys(example: Example) -> tuple[tuple[str, ...], ...]:
    return (example.id,), (example.user.id, example.question)


def _ask_server(server: str, settings: PpoSettings) -> Served:
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
    return Served(url=url, loaded=loaded, model=model)


def _with_moments(served: Served, train: Sequence[Question], max_failed: float) -> Served:
    """Measure mean and spread of the reward on responses to the training questions, good and bad ones together."""
    inputs = [
        RewardInput(question=each.example.question, user=each.told, response=response)
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
    return replace(served, centre=fmean(values), spread=spread, measured=len(values))


def load_asked(policy: str, name: str) -> Asked:
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
    return Asked(tokenizer=tokenizer, prompts=PromptTokenizer(tokenizer, config, name))


def _write_questions(questions: Sequence[Question], path: Path) -> None:
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
    rows = [_row(number, question) for number, question in enumerate(questions)]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _row(number: int, question: Question) -> dict[str, Json]:
    """Return one row. There is no right answer to compare with: `ground_truth` is the id, by which rows are joined."""
    example = question.example
    return {
        "data_source": SOURCE,
        "prompt": as_dicts(question.turns),
        "ability": example.category,
        "reward_model": {"style": "model", "ground_truth": example.id},
        "extra_info": {
            "index": number,
            "id": example.id,
            "user_id": example.user.id,
            "question": example.question,
            "user": json.dumps(user_row(question.told), ensure_ascii=False),
        },
    }


def _facts(
    settings: PpoSettings,
    served: Served,
    policy: str,
    train: Sequence[Question],
    validation: Sequence[Question],
    config: Mapping[str, Any],
    shots: int,
) -> dict[str, Json]:
    both = (*train, *validation)
    users = {each.example.user.id for each in train} & {each.example.user.id for each in validation}
    return {
        "name": _name(settings, served, shots),
        "server": served.url,
        "model": served.model.name,
        "template_hash": served.loaded.template_hash,
        "policy": policy,
        "policy_template": answer_template().hash,
        "settings": asdict(settings),
        "labels": shots,
        "reward_moments": {"centre": served.centre, "spread": served.spread, "measured": served.measured},
        "train_rows": len(train),
        "validation_rows": len(validation),
        "users_in_both": len(users),
        "longest_prompt": _longest(both),
        "max_prompt_length": config["data"]["max_prompt_length"],
        "posts_dropped": {
            "policy": sum(each.shown.dropped for each in both),
            "reward": sum(each.told.dropped for each in both),
        },
        "prompts_with_posts_dropped": sum(bool(each.shown.dropped or each.told.dropped) for each in both),
        "versions": {"prbench": version("prbench"), "verl": VERL},
    }


def _longest(questions: Sequence[Question]) -> int:
    return max(each.tokens for each in questions)


def _name(settings: PpoSettings, served: Served, shots: int) -> str:
    """Return the run's name without its hash: policy, reward model, contexts, labels, seed."""
    spec, _, digest = served.model.name.rpartition("#")
    policy = Path(settings.policy).name
    contexts = "-".join(dict.fromkeys((settings.context, settings.context_of_reward)))
    labels = (f"labels{shots}",) if shots else ()
    parts = (settings.algorithm, policy, spec, digest, contexts, *labels, f"seed{settings.seed}")
    return re.sub(r"[^A-Za-z0-9.-]+", "-", "_".join(parts).replace("_", "-")).strip("-.")
