"""From examples to answers with rewards: prompts, samples, texts, scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from prbench.backends.generation import Generated, Sampler, Sampling
from prbench.backends.llm.server_facts import as_dicts
from prbench.backends.llm.turns import system_in_first_user_turn, takes_system_turn, without_control_tokens
from prbench.backends.policy import Prompt, messages_of
from prbench.context import ContextMaker, PromptWindow, fit_for, required_contexts
from prbench.downstream.ppo.rewards import Candidate, Reward
from prbench.errors import DataError, UsageError
from prbench.schema import Example, Score, UserContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question of one user, as the policy is asked it."""

    example: Example
    asked: Prompt
    prompt: tuple[int, ...]  # as tokens
    user: UserContext  # for the reward model
    posts_dropped: int  # that did not fit the policy's window


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the policy wrote, and what the reward model made of it."""

    task: Task
    made: Generated
    text: str
    score: Score | None  # none where the answer is empty, and nobody was asked

    @property
    def was_cut_off(self) -> bool:
        """Tell whether it ran into the limit of its length."""
        return self.made.finish == "length"


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

    def turns(self, prompt: Prompt) -> list[dict[str, str]]:
        """Return the prompt's chat messages, whose text cannot be taken for a control token."""
        turns = without_control_tokens(messages_of(prompt), self._tokenizer.all_special_tokens)
        return as_dicts(turns if self._has_system_role else system_in_first_user_turn(turns))

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the prompt's tokens: made inside the template call, which alone says where BOS stands."""
        turns = self.turns(prompt)
        found = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
        ids = tuple(found["input_ids"])
        start = self._tokenizer.bos_token_id
        if start is not None and ids[:2] == (start, start):
            raise UsageError(f"--policy {self._name}: the chat template yields two BOS tokens. Remove one from it.")
        return ids

    def fit(self, example: Example, user: UserContext, max_new_tokens: int) -> UserContext:
        """Return what the policy is told of the user beside the question and the longest answer."""

        def count_tokens(part: UserContext) -> int:
            return len(self.ids(Prompt(id=example.id, question=example.question, context=part.text)))

        window = PromptWindow(count_tokens=count_tokens, limit=self.window)
        shown = fit_for(window, user, question=example.question, reserve_tokens=max_new_tokens)
        if shown.problem:
            raise DataError(
                f"Example {example.id}: the question and {max_new_tokens} tokens of an answer exceed the policy's "
                "window. Use a smaller --max-new-tokens, or leave the row out."
            )
        return shown

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
) -> list[Task]:
    """Return one task per example. Posts that do not fit the policy's window are dropped from the end, and counted."""
    shown, told = (required_contexts(maker, examples) for maker in (context, reward_context))
    return [
        _task(example, for_policy, for_reward, tokenizer, max_new_tokens)
        for example, for_policy, for_reward in zip(examples, shown, told, strict=True)
    ]


def _task(
    example: Example,
    for_policy: UserContext,
    for_reward: UserContext,
    tokenizer: PromptTokenizer,
    max_new_tokens: int,
) -> Task:
    shown = tokenizer.fit(example, for_policy, max_new_tokens)
    asked = Prompt(id=example.id, question=example.question, context=shown.text)
    return Task(
        example=example, asked=asked, prompt=tokenizer.ids(asked), user=for_reward, posts_dropped=shown.dropped
    )


def tasks_of_step(count: int, step: int, batch: int, *, seed: int) -> list[int]:
    """Return which tasks a step (from 0) asks: every task once per pass, each pass in an order of its own."""
    places = range(step * batch, (step + 1) * batch)
    orders: dict[int, list[int]] = {}
    for turn in {place // count for place in places}:
        orders[turn] = sorted(range(count), key=lambda task: sha256(f"{seed}/{turn}/{task}".encode()).digest())
    return [orders[place // count][place % count] for place in places]


def sample_seed(*parts: object) -> int:
    """Return a seed that hangs on these parts alone."""
    return int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest()[:8], "big")


def answer_tasks(
    tasks: Sequence[Task],
    sampler: Sampler,
    tokenizer: PromptTokenizer,
    how: Sampling,
    *,
    seeds: Sequence[int],
    batch_size: int,
    reward: Reward | None,
) -> list[Answer]:
    """Let the policy answer, and score what is not empty."""
    made = sampler.generate([task.prompt for task in tasks], how, seeds=seeds, batch_size=batch_size)
    texts = [tokenizer.text(each.ids) for each in made]
    scores = score_texts(tasks, texts, reward)
    return [
        Answer(task=task, made=each, text=text, score=score)
        for task, each, text, score in zip(tasks, made, texts, scores, strict=True)
    ]


def score_texts(tasks: Sequence[Task], texts: Sequence[str], reward: Reward | None) -> list[Score | None]:
    """Return a score for every text that is not empty."""
    said = [place for place, text in enumerate(texts) if text]
    scores: list[Score | None] = [None] * len(texts)
    if reward is not None and said:
        asked = [
            Candidate(example=tasks[place].example, user=tasks[place].user, response=texts[place]) for place in said
        ]
        for place, score in zip(said, reward.score(asked), strict=True):
            scores[place] = score
    return scores
