"""From examples to rollouts with rewards: prompts, samples, texts, what a reward model gives, what the policy gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from prbench.backends.generation import Generated, Sampler, Sampling
from prbench.backends.llm.client import Message, system_in_first_user_turn, takes_system_turn, without_control_tokens
from prbench.backends.llm.servers import as_dicts
from prbench.backends.policy import Prompt, messages_of
from prbench.context import ContextMaker, PromptWindow, fit_for, required_contexts
from prbench.errors import DataError, PrbenchError, UsageError
from prbench.evaluation.score import PreparedItem, score_rows
from prbench.reward_models import ModelSettings, load_ref, read_ref, require_scores
from prbench.reward_models.base import LoadedModel
from prbench.schema import Example, Json, Probe, Problem, Score, UserContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCandidate:
    """One answer to be scored. A reward model sees question, user and response."""

    example: Example
    user: UserContext  # what a reward model may know of the user
    response: str


class Reward(Protocol):
    """Scores answers; a score without a value is a failure."""

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes the scores; goes into the run's id."""
        ...

    def score(self, candidates: Sequence[RewardCandidate]) -> list[Score]:
        """Return one score per candidate, in the same order."""
        ...


class ModelReward:
    """A reward model, in this process or behind `server:URL`. `control:gold` is the lab's truth, a ceiling."""

    def __init__(self, loaded: LoadedModel) -> None:
        require_scores(loaded, "PPO")
        self._loaded = loaded
        self.identity: Mapping[str, Json] = {
            "spec": loaded.spec,
            "model": dict(loaded.identity),
            "template_hash": loaded.template_hash,
        }

    def score(self, candidates: Sequence[RewardCandidate]) -> list[Score]:
        """Return one score per candidate. Where a prompt is too long, posts are dropped and the answer never is."""
        prepared = [
            PreparedItem(example=each.example, probe=Probe.OWN, user=each.user, responses=(each.response,))
            for each in candidates
        ]
        return [score for row in score_rows(prepared, self._loaded) for score in row.scores]


def load_reward(spec: str, settings: ModelSettings) -> ModelReward:
    """Build what the command line names, e.g. `head:lab-user`, `server:URL`, `control:gold?noise=0.5`."""
    return ModelReward(load_ref(read_ref(spec), settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTask:
    """One question of one user, as the policy is asked it."""

    example: Example
    prompt: Prompt
    prompt_ids: tuple[int, ...]
    user: UserContext  # for the reward model
    posts_dropped: int  # that did not fit the policy's window


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """What the policy wrote, and what the reward model gave for it."""

    task: RolloutTask
    generated: Generated
    text: str
    score: Score | None  # none where the answer is empty, and nobody was asked

    @property
    def is_truncated(self) -> bool:
        """True if it ran into the limit of its length."""
        return self.generated.finish == "length"


class PromptTokenizer:
    """Lays prompts out with a policy's chat template, and reads answers back."""

    def __init__(self, tokenizer: Any, config: Any, name: str, generation_config: Any = None) -> None:
        if not tokenizer.chat_template:
            raise UsageError(f"--policy {name}: has no chat template. Use an instruction-tuned model.")
        self._tokenizer = tokenizer
        self._name = name
        self._has_system_role = takes_system_turn(tokenizer)
        self.window: int | None = getattr(config, "max_position_embeddings", None)
        configured = getattr(generation_config, "eos_token_id", None)
        listed = configured if isinstance(configured, list) else [configured]
        ends = dict.fromkeys([*listed, tokenizer.eos_token_id])
        self.ends: tuple[int, ...] = tuple(int(token) for token in ends if token is not None)
        if not self.ends:
            raise UsageError(f"--policy {name}: names no end token, so no answer would end. Use an instruction model.")
        self.pad: int = self.ends[0] if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)

    @property
    def controls(self) -> tuple[str, ...]:
        """The tokens that are no part of an answer's text, as texts."""
        return tuple(map(str, self._tokenizer.all_special_tokens))

    def turns(self, prompt: Prompt) -> tuple[Message, ...]:
        """Return the prompt's chat messages, whose text cannot be taken for a control token."""
        turns = without_control_tokens(messages_of(prompt), self._tokenizer.all_special_tokens)
        return turns if self._has_system_role else system_in_first_user_turn(turns)

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the prompt's tokens: made inside the template call, which alone says where BOS stands."""
        turns = as_dicts(self.turns(prompt))
        found = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
        ids = tuple(found["input_ids"])
        start = self._tokenizer.bos_token_id
        if start is not None and ids[:2] == (start, start):
            raise UsageError(f"--policy {self._name}: the chat template yields two BOS tokens. Remove one from it.")
        return ids

    def fit(self, example: Example, user: UserContext, max_new_tokens: int) -> UserContext:
        """Return what the policy sees of the user beside the question and the longest answer."""

        def count_tokens(part: UserContext) -> int:
            return len(self.ids(Prompt(id=example.id, question=example.question, context=part.text)))

        window = PromptWindow(count_tokens=count_tokens, limit=self.window)
        fitted = fit_for(window, user, question=example.question, reserve_tokens=max_new_tokens)
        if fitted.problem:
            raise DataError(
                f"Example {example.id}: the question and {max_new_tokens} tokens of an answer exceed the policy's "
                "window. Use a smaller --max-new-tokens, or leave the row out."
            )
        return fitted

    def text(self, ids: Sequence[int]) -> str:
        """Return an answer as people read it."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)).strip()


def make_tasks(
    examples: Sequence[Example],
    tokenizer: PromptTokenizer,
    context: ContextMaker,
    reward_context: ContextMaker,
    *,
    max_new_tokens: int,
) -> list[RolloutTask]:
    """Return one task per example. Posts that do not fit the policy's window are dropped from the end, and counted."""
    of_policy, of_reward = (required_contexts(maker, examples) for maker in (context, reward_context))
    tasks = []
    for example, for_policy, for_reward in zip(examples, of_policy, of_reward, strict=True):
        fitted = tokenizer.fit(example, for_policy, max_new_tokens)
        prompt = Prompt(id=example.id, question=example.question, context=fitted.text)
        ids = tokenizer.ids(prompt)
        tasks.append(
            RolloutTask(example=example, prompt=prompt, prompt_ids=ids, user=for_reward, posts_dropped=fitted.dropped)
        )
    return tasks


def tasks_of_step(count: int, step: int, batch: int, *, seed: int) -> list[int]:
    """Return which tasks a step (from 0) asks: every task once per pass, each pass in an order of its own."""
    places = range(step * batch, (step + 1) * batch)
    orders: dict[int, list[int]] = {}
    for turn in {place // count for place in places}:
        orders[turn] = sorted(range(count), key=lambda task: sha256(f"{seed}/{turn}/{task}".encode()).digest())
    return [orders[place // count][place % count] for place in places]


def sample_seed(*parts: object) -> int:
    """Return a seed that depends on these parts alone."""
    return int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest()[:8], "big")


def sample_rollouts(
    tasks: Sequence[RolloutTask],
    sampler: Sampler,
    tokenizer: PromptTokenizer,
    sampling: Sampling,
    *,
    seeds: Sequence[int],
    batch_size: int,
    reward: Reward | None,
) -> list[Rollout]:
    """Let the policy answer, and score what is not empty."""
    generated = sampler.generate([task.prompt_ids for task in tasks], sampling, seeds=seeds, batch_size=batch_size)
    texts = [tokenizer.text(each.ids) for each in generated]
    scores = score_texts(tasks, texts, reward)
    return [
        Rollout(task=task, generated=each, text=text, score=score)
        for task, each, text, score in zip(tasks, generated, texts, scores, strict=True)
    ]


def score_texts(tasks: Sequence[RolloutTask], texts: Sequence[str], reward: Reward | None) -> list[Score | None]:
    """Return a score for every text that is not empty."""
    scores: list[Score | None] = [None] * len(texts)
    places = [place for place, text in enumerate(texts) if text]
    if reward is not None and places:
        candidates = [
            RewardCandidate(example=tasks[place].example, user=tasks[place].user, response=texts[place])
            for place in places
        ]
        for place, score in zip(places, reward.score(candidates), strict=True):
            scores[place] = score
    return scores


class RewardsFailedError(PrbenchError):
    """Too many rewards failed for the step to mean anything."""

    exit_code = 1


def check_failure_rate(scores: Sequence[Score | None], step: int, *, most: float) -> None:
    """Stop the run where more than this share of the rewards that were asked for failed."""
    asked = [score for score in scores if score is not None]
    failed = [score for score in asked if score.value is None]
    if not failed or len(failed) <= most * len(asked):
        return
    last = failed[-1]
    reason = last.detail or (last.problem if last.problem is not Problem.NONE else "no score")
    raise RewardsFailedError(
        f"step {step}: {len(failed)} of {len(asked)} rewards failed ({len(failed) / len(asked):.0%}), more than "
        f"--max-failed {most:g} allows; the last: {reason}. Mend the reward model, and run the same command again."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMoments:
    """Mean and variance of all that was seen so far; batches are merged as Chan, Golub and LeVeque (1983) do."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared distances from the mean

    @property
    def deviation(self) -> float:
        """The standard deviation; 1 where nothing varied yet, so that one may always divide by it."""
        spread = (self.squares / self.count) ** 0.5 if self.count else 0.0
        return spread if spread > 1e-8 else 1.0

    def with_values(self, values: Sequence[float]) -> "RunningMoments":
        """Return the moments with a further batch in them."""
        if not values:
            return self
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        count = self.count + len(values)
        distance = mean - self.mean
        return RunningMoments(
            count=count,
            mean=self.mean + distance * len(values) / count,
            squares=self.squares + squares + distance**2 * self.count * len(values) / count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedRewards:
    """The rewards of the answers of one step; `None` masks an answer out."""

    rewards: tuple[float | None, ...]
    asked: int  # empty answers are not sent
    failed: int
    empty: int
    truncated: int
    moments: RunningMoments


def shape_rewards(
    scores: Sequence[Score | None],
    is_truncated: Sequence[bool],
    moments: RunningMoments,
    *,
    truncated: str,
    penalty: float,
    whiten: bool,
) -> ShapedRewards:
    """Return the rewards of a step; `None` among the scores is an empty answer, which was not asked about.

    - A failed score is no reward. Its answer is masked out of the batch, and counted.
    - An empty answer gets the lowest score that was read in its batch.
    - A truncated answer is scored as it stands and loses a penalty (`penalize`), or does not (`score`), or is masked
      out and counted apart (`mask`).
    """
    read = [score.value for score in scores if score is not None and score.value is not None]
    updated = moments.with_values(read)
    center, spread = (updated.mean, updated.deviation) if whiten else (0.0, 1.0)
    rewards: list[float | None] = []
    for score, cut in zip(scores, is_truncated, strict=True):
        value = min(read, default=None) if score is None else score.value
        if value is None or (cut and truncated == "mask"):
            rewards.append(None)
            continue
        reward = (value - center) / spread
        if cut and truncated == "penalize":
            reward -= penalty * (1.0 if whiten else updated.deviation)
        rewards.append(reward)
    return ShapedRewards(
        rewards=tuple(rewards),
        asked=sum(score is not None for score in scores),
        failed=sum(score is not None and score.value is None for score in scores),
        empty=sum(score is None for score in scores),
        truncated=sum(is_truncated),
        moments=updated,
    )
