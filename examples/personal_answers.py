"""A taskset for verifiers: questions of users, and a reward model that knows who asks as the reward.

pip install verifiers prbench, then, from this folder:
vf-eval --env.taskset.id personal_answers --env.taskset.task.reward_model head:lab-user --model MODEL
"""

# mypy: disable-error-code="misc, untyped-decorator"
import asyncio
from collections.abc import Iterable
from functools import cache
from typing import Any

import verifiers.v1 as vf

import prbench

__all__ = ["PersonalTaskset"]


class PersonalData(vf.TaskData):
    """A question, and the posts of the user who asks it."""

    question: str
    user_id: str
    profile: list[dict[str, str]]


class PersonalTaskConfig(vf.TaskConfig):
    """What rewards an answer, and what it is told of the user."""

    reward_model: str = "head:lab-user"
    context: str = "profile"
    posts: int = 10


class PersonalTask(vf.Task[PersonalData, vf.State, PersonalTaskConfig]):
    """Rewards an answer by what it is worth to this user."""

    @vf.reward
    async def worth_to_user(self, trace: vf.Trace) -> float:
        """Return the score; without one there is no reward, and the rollout says why."""
        reward = loaded(self.config.reward_model, self.config.context, self.config.posts)
        data = self.data
        (score,) = await asyncio.to_thread(
            reward,
            prompts=[data.question],
            completions=[trace.last_reply],
            question=[data.question],
            profile=[data.profile],
            user_id=[data.user_id],
        )
        if score is None:
            raise ValueError(f"{self.config.reward_model} gave no score for the answer to {data.id}.")
        return float(score)


class PersonalConfig(vf.TasksetConfig):
    """Which questions."""

    data: str = "lab"
    split: str = "train"
    limit: int | None = None
    policy_context: str = "none"  # or profile: what the policy is told of the user
    task: PersonalTaskConfig = PersonalTaskConfig()


class PersonalTaskset(vf.Taskset[PersonalTask, PersonalConfig]):
    """The questions of a dataset, each for its own user."""

    def load(self) -> Iterable[PersonalTask]:
        rows = prbench.prompt_rows(
            self.config.data,
            split=self.config.split,
            limit=self.config.limit,
            policy_context=self.config.policy_context,
        )
        for row in rows:
            system, asked = row["prompt"]
            data = PersonalData(
                id=row["id"],
                system_prompt=system["content"],
                prompt=asked["content"],
                question=row["question"],
                user_id=row["user_id"],
                profile=row["profile"],
            )
            yield PersonalTask(data, self.config.task)


@cache
def loaded(model: str, context: str, posts: int) -> Any:
    """Return the reward model, loaded once."""
    return prbench.reward_function(model, context, posts=posts)
