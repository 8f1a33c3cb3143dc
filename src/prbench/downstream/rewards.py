"""What trainers of other people take: a reward model as a function, and the rows to ask a policy with.

    rows = prbench.prompt_rows("lab", split="train", limit=200)
    reward = prbench.reward_function("head:lab-user", context="profile", posts=10)
    reward(prompts=[row["prompt"] for row in rows], completions=["…"] * len(rows), question=…, profile=…)

Users are rendered, cut to the model's window and scored by the code of `prbench.evaluate`, so that a policy is paid
what an evaluation measures.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from prbench.backends.llm.servers import as_dicts
from prbench.backends.policy import Prompt, messages_of
from prbench.context import ContextMaker, required_contexts
from prbench.data import Rows, open_data, select_rows
from prbench.data.rows import made_user_id
from prbench.errors import DataError, UsageError
from prbench.evaluation import EvalSettings, Model, Shown, as_loaded, context_maker
from prbench.evaluation.score import PendingItem, prepare, score_rows
from prbench.reward_models import LoadedModel, model_settings, require_scores
from prbench.reward_models.base import user_row
from prbench.schema import ContextKind, Example, Json, Post, Probe, RatedExample, User, UserContext

Trainer = Literal["trl", "verl", "openrlhf"]
SOURCE = "prbench"  # verl's name for where a row comes from


def reward_function(
    model: Model,
    context: str = "profile",
    *,
    posts: int = 10,
    rank: str = "recent",
    planner: str = "",
    seed: int = 0,
    batch_size: int | None = None,
    max_length: int | None = None,
    dtype: str = "auto",
) -> "RewardFunction":
    """Return a reward model as the function that trainers call: TRL's `GRPOTrainer(reward_funcs=…)` and others.

        reward = prbench.reward_function("head:lab-user")
        reward(prompts=["How do I save?"], completions=["Count coins."], profile=[[{"text": "I am thrifty."}]])

    `context` and the options after it are those of `evaluate`, and so are the scores. A failed score is `None`, which
    trainers leave out.
    """
    shown = Shown.of(model, context)
    if shown.labels is not None:
        raise UsageError(f"{model}: a reward function is shown no labeled pairs. Leave labels and shots out.")
    if shown.context == "oracle":
        raise UsageError(f"{model}: trainers pass no rubrics. Use none, profile or plan as context.")
    loaded = as_loaded(model, model_settings(seed, batch_size, max_length, dtype))
    return RewardFunction(loaded, _maker(shown.context, posts, rank, planner, seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One user with one question, and the completions of a call for them."""

    question: str
    user: User
    places: list[int] = field(default_factory=list)
    responses: list[str] = field(default_factory=list)


class RewardFunction:
    """Scores completions; `None` where the model could not tell, which trainers leave out."""

    def __init__(self, loaded: LoadedModel, maker: ContextMaker) -> None:
        require_scores(loaded, "a reward function")
        self._loaded, self._maker = loaded, maker
        self.__name__ = loaded.spec  # trainers name their columns after it

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        question: Sequence[str] | None = None,
        profile: Sequence[Sequence[Mapping[str, Json]] | None] | None = None,
        user_id: Sequence[str | None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return one score per completion.

        Prompts and completions are texts, or lists of messages as chat templates take them. The columns `question`
        (else the user's last message of the prompt), `profile` (posts with a `text` each, oldest first) and `user_id`
        are those of `prompt_rows`; other columns of the trainer's rows are not looked at. A row whose `profile` is
        null is somebody else's, and an answer without text is none: they have no score. Completions of one call for
        the same user and question are shown the same posts, as the responses to one item are in an evaluation.
        """
        if profile is None and self._maker.kind is not ContextKind.NONE:
            raise UsageError(
                f"{self.__name__}: the rows have no column `profile`, which context={self._maker.kind.value} needs. "
                "Take them from prbench.prompt_rows, or say context='none'."
            )
        texts = [_said(each, f"{self.__name__}: completion {place}") for place, each in enumerate(completions)]
        questions = (
            [_asked(each, f"{self.__name__}: prompt {place}") for place, each in enumerate(prompts)]
            if question is None
            else list(question)
        )
        profiles: Sequence[Any] = [()] * len(texts) if profile is None else profile
        names = [None] * len(texts) if user_id is None else user_id
        if not len(questions) == len(profiles) == len(names) == len(texts):
            raise UsageError(
                f"{self.__name__}: {len(questions)} questions, {len(profiles)} profiles, {len(names)} user ids and "
                f"{len(texts)} completions do not belong together. Give one of each per completion."
            )
        items: dict[tuple[object, ...], _Item] = {}
        for place, (asked, posts, name, text) in enumerate(zip(questions, profiles, names, texts, strict=True)):
            if asked is None or posts is None or text is None or not text.strip():
                continue
            profile_of = tuple(_post(number, post) for number, post in enumerate(posts))
            user = User(id=name or made_user_id(profile_of, place), profile=profile_of)
            key = (asked, user.id, *((post.id, post.text) for post in profile_of))
            item = items.setdefault(key, _Item(question=asked, user=user))
            item.places.append(place)
            item.responses.append(text)
        return self._scores(list(items.values()), len(texts))

    def _scores(self, items: Sequence[_Item], count: int) -> list[float | None]:
        """Return the scores by place, as an evaluation scores the responses to an item."""
        pending = []
        for number, item in enumerate(items):
            # Its own response and rating are read by nobody here: what is scored is `responses`.
            example = RatedExample(
                id=str(number), user=item.user, question=item.question, response=item.responses[0], rating=0.0
            )
            responses = tuple(item.responses)
            pending.append(PendingItem(example=example, probe=Probe.OWN, user=item.user, responses=responses))
        values: list[float | None] = [None] * count
        rows = score_rows(prepare(pending, self._maker, self._loaded), self._loaded)
        for item, row in zip(items, rows, strict=True):
            for place, score in zip(item.places, row.scores, strict=True):
                values[place] = score.value
        return values


def prompt_rows(
    data: Rows,
    trainer: Trainer = "trl",
    *,
    policy_context: str = "none",
    context: str | None = None,
    posts: int = 10,
    rank: str = "recent",
    planner: str = "",
    plain: bool = False,
    ends: Sequence[str] = (),
    subset: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> list[dict[str, Json]]:
    """Return the rows with which a trainer asks its policy, in the columns that the trainer and its reward read.

        rows = prbench.prompt_rows("lab", split="train", limit=200)
        datasets.Dataset.from_list(rows)  # for trl.GRPOTrainer, with reward_funcs=prbench.reward_function(…)

    `policy_context` is what the policy is told of the user; with `plain`, prompts are texts and not messages. Rows for
    TRL hold the whole profile, and `reward_function` says what the reward model is told of it. Rows for verl and
    OpenRLHF hold what `prbench serve` is to be told, which `context` says (profile). OpenRLHF decodes answers with the
    tokens that end them: `ends` are those of its policy, as text. No row holds a rubric, a narrative, or one of the
    two answers.
    """
    if trainer not in ROWS:
        raise UsageError(f"trainer={trainer!r} is not known. Use one of: {', '.join(ROWS)}.")
    if trainer == "trl" and context is not None:
        raise UsageError(f"context={context!r}: for TRL, give it to reward_function, which renders the users.")
    if ends and trainer != "openrlhf":
        raise UsageError("ends: only OpenRLHF's answers hold their end tokens. Leave it out.")
    if "oracle" in (policy_context, context):
        raise UsageError("The oracle context shows the rubric, which no row may hold. Use none, profile or plan.")
    which = select_rows(data, subset=subset, split=split, limit=limit)
    with open_data(which, None if which.source else data) as store:
        examples = [row for row in store if isinstance(row, Example)]
        if len(examples) < len(store):
            raise DataError(f"{store.name}: holds rated responses, and prompts are made of pairs. Give pairs.")
    told = required_contexts(_maker(policy_context, posts, rank, planner, seed), examples)
    known: Sequence[UserContext] = told
    if trainer != "trl":
        known = required_contexts(_maker(context or "profile", posts, rank, planner, seed), examples)
    rows = []
    for number, (example, of_policy, of_reward) in enumerate(zip(examples, told, known, strict=True)):
        asked = Prompt(id=example.id, question=example.question, context=of_policy.text)
        turns = messages_of(asked)
        prompt = "\n\n".join(turn.content for turn in turns) if plain else as_dicts(turns)
        rows.append(ROWS[trainer](number, example, prompt, of_reward, tuple(ends)))
    return rows


def trl_row(
    number: int, example: Example, prompt: Json, known: UserContext, ends: Sequence[str] = ()
) -> dict[str, Json]:
    """Return a row for TRL, which hands every column but the prompt to the reward function."""
    profile = [{"id": post.id, "category": post.category, "text": post.text} for post in example.user.profile]
    return {
        "prompt": prompt,
        "id": example.id,
        "user_id": example.user.id,
        "question": example.question,
        "profile": profile,
    }


def verl_row(
    number: int, example: Example, prompt: Json, known: UserContext, ends: Sequence[str] = ()
) -> dict[str, Json]:
    """Return a row as verl's `RLHFDataset` and reward managers read it; `extra_info` says who asks what."""
    return {
        "data_source": SOURCE,
        "prompt": prompt,
        "ability": example.category,
        # There is no right answer to compare with: this is the id, by which rows are joined.
        "reward_model": {"style": "model", "ground_truth": example.id},
        "extra_info": {
            "index": number,
            "id": example.id,
            "user_id": example.user.id,
            "question": example.question,
            "user": json.dumps(user_row(known)["user"], ensure_ascii=False),
        },
    }


def openrlhf_row(
    number: int, example: Example, prompt: Json, known: UserContext, ends: Sequence[str] = ()
) -> dict[str, Json]:
    """Return a row for OpenRLHF, which hands the reward one text beside the answer: the label says who asks what."""
    label = {"id": example.id, "question": example.question, **user_row(known), "ends": list(ends)}
    return {
        "prompt": prompt,
        "label": json.dumps(label, ensure_ascii=False),
        "id": example.id,
        "user_id": example.user.id,
    }


# A trainer with rows of its own form: one function, one row.
ROWS = {"trl": trl_row, "verl": verl_row, "openrlhf": openrlhf_row}


def _maker(kind: str, posts: int, rank: str, planner: str, seed: int) -> ContextMaker:
    return context_maker(EvalSettings(context=kind, posts=posts, rank=rank, planner=planner, seed=seed), None)


def _post(number: int, post: Mapping[str, Json]) -> Post:
    if not isinstance(post, Mapping) or not isinstance(post.get("text"), str):
        raise UsageError(f"profile: post {number} has no text. A post is a mapping with the key 'text'.")
    return Post(id=str(post.get("id", number)), text=post["text"], category=str(post.get("category") or ""))


def _asked(prompt: Any, place: str) -> str | None:
    """Return what a prompt asks: of messages the user's last one, which the beginning of an answer may follow."""
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        of_user = [each for each in prompt if isinstance(each, Mapping) and each.get("role") == "user"]
        prompt = of_user[-1:] or prompt
    return _said(prompt, place)


def _said(messages: Any, place: str) -> str | None:
    """Return a text, or what the last of some messages says: `None` where that is no text, as of a call of a tool."""
    if messages is None or isinstance(messages, str):
        return messages
    if isinstance(messages, Sequence):
        last = messages[-1] if messages else {}
        content = last.get("content") if isinstance(last, Mapping) else last
        if isinstance(last, Mapping) and (content is None or isinstance(content, str)):
            return content
        if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
            parts = [part.get("text") if part.get("type") == "text" else None for part in content]
            texts = [text for text in parts if isinstance(text, str)]
            return "".join(texts) if len(texts) == len(parts) else None  # models that see pictures take others
    raise UsageError(
        f'{place} is {str(messages)[:80]!r}. Give a text, or messages {{"role": …, "content": …}}, whose content is a '
        'text or a list of {"type": "text", "text": …}.'
    )
