"""What every export for another trainer needs: rows that fit, and a reward server that says who it is.

The server must be up: its model and template are written into the export, and every reply is held to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from prbench.backends.hf import from_pretrained, quiet_loading
from prbench.backends.llm.client import Message
from prbench.backends.policy import Prompt
from prbench.context import ContextMaker, Labels, fit_for, required_contexts
from prbench.context.labels import check_labels_shown
from prbench.downstream.ppo.settings import PpoSettings
from prbench.errors import DataError, UsageError
from prbench.reward_models import ModelSettings, load_ref, read_ref
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.server import PrbenchServerReward
from prbench.schema import Example, RewardInput, UserContext
from prbench.training.backbones import backbone_place

if TYPE_CHECKING:
    from prbench.downstream.ppo.rollout import PromptTokenizer

MEASURED_EXAMPLES = 256  # whose two responses say how the reward is scattered
SMALLEST_SPREAD = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedReward:
    """The reward model behind the server, and how its scores are scattered."""

    url: str
    loaded: LoadedModel
    model: PrbenchServerReward
    center: float = 0.0
    spread: float = 1.0
    measured: int = 0  # scores that say so


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPrompt:
    """One prompt as another trainer gets it."""

    example: Example
    turns: tuple[Message, ...]
    tokens: int
    policy_context: UserContext
    reward_context: UserContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedExport:
    """All that an export is written from."""

    served: ServedReward
    policy: str  # its folder or hub id
    tokenizer: "PromptTokenizer"
    train: list[ExportedPrompt]
    held_out: list[ExportedPrompt]

    @property
    def longest_prompt(self) -> int:
        """The tokens of the longest prompt."""
        return max(prompt.tokens for prompt in (*self.train, *self.held_out))


def prepare_export(
    folder: Path,
    *,
    data: Sequence[Example],
    validation: Sequence[Example],
    settings: PpoSettings,
    server: str,
    labels: Labels | None = None,
    validation_labels: Labels | None = None,
) -> PreparedExport:
    """Check rows and server, and return the prompts with the posts that fit."""
    from prbench.downstream.ppo.training import contexts_of

    check_rows(folder, data, validation, settings)
    for known, rows in ((labels, data), (validation_labels, validation)):
        if known is not None:
            check_labels_shown(known, rows)
    served = ask_server(server, settings)
    policy = backbone_place(settings.policy)
    tokenizer = load_tokenizer(policy, settings.policy)
    train, held_out = (
        make_prompts(rows, tokenizer, contexts_of(settings, None, known), served.loaded, settings.max_new_tokens)
        for rows, known in ((data, labels), (validation, validation_labels))
    )
    if settings.whiten_rewards:
        served = with_moments(served, train, settings.max_failed)
    return PreparedExport(served=served, policy=policy, tokenizer=tokenizer, train=train, held_out=held_out)


def check_rows(folder: Path, data: Sequence[Example], validation: Sequence[Example], settings: PpoSettings) -> None:
    """Refuse what no trainer could use, before anybody is asked anything."""
    for name in ("context", "context_of_reward"):
        if getattr(settings, name) == "oracle":
            raise UsageError(
                "The oracle context shows the rubric, which no exported file may hold. Use --context profile."
            )
    if len(data) < settings.rollout_batch:
        raise DataError(
            f"There are {len(data)} training examples, and one step asks {settings.rollout_batch}. "
            "Give more, or lower --rollout-batch."
        )
    if not validation:
        raise DataError("There are no validation examples. Give some that are not trained on.")
    ids = {example.id for example in data}
    asked = {(example.user.id, example.question) for example in data}
    for example in validation:
        if example.id in ids or (example.user.id, example.question) in asked:
            raise DataError(f"Example {example.id} is trained on and validated with. Split the data by user.")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder}: exists already. Choose another folder, or remove this one.")


def make_prompts(
    examples: Sequence[Example],
    tokenizer: "PromptTokenizer",
    contexts: tuple[ContextMaker, ContextMaker],
    loaded: LoadedModel,
    max_new_tokens: int,
) -> list[ExportedPrompt]:
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
            ExportedPrompt(
                example=example,
                turns=tokenizer.turns(prompt),  # which chat templates lay out to exactly the tokens of `ids`
                tokens=len(tokenizer.ids(prompt)),
                policy_context=policy_context,
                reward_context=reward_context,
            )
        )
    return prompts


def ask_server(server: str, settings: PpoSettings) -> ServedReward:
    url = server.rstrip("/")
    asked = read_ref(settings.reward)
    is_server = asked.spec.kind == "server"
    if is_server and asked.spec.target.rstrip("/") != url:
        raise UsageError(f"--model is {settings.reward}, but the server to export for is {url}. Correct one of them.")
    if asked.view.noise or asked.view.fail:
        raise UsageError(
            f"{settings.reward}: the trainer asks the server itself. Give noise= and fail= to `prbench serve`."
        )
    # The spec of a server may say ?expect=HASH.
    loaded = load_ref(asked if is_server else read_ref(f"server:{url}"), ModelSettings(seed=settings.seed))
    model = loaded.model
    if not isinstance(model, PrbenchServerReward):
        raise UsageError(f"{url} is not a `prbench serve`, and only its replies say which model they are of.")
    spec = model.name.rpartition("#")[0]
    if not is_server and settings.reward not in (spec, model.name):
        raise UsageError(f"{url} serves {spec}, but --model is {settings.reward}. Correct one of them.")
    return ServedReward(url=url, loaded=loaded, model=model)


def with_moments(served: ServedReward, train: Sequence[ExportedPrompt], max_failed: float) -> ServedReward:
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
