"""The settings of a PPO run. All of them are part of its id."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from prbench.context import KINDS, RANKS
from prbench.errors import UsageError
from prbench.registry import POLICIES
from prbench.reward_models.view import context_of
from prbench.runs import Keyed, Keys
from prbench.schema import Json
from prbench.specs import (
    Count,
    NotNegative,
    Part,
    Positive,
    Whole,
    bind,
    check_fields,
    kind_of,
    parse_settings,
    parse_spec,
)

ALGORITHMS = ("ppo", "grpo", "rloo")
DTYPES = ("auto", "float32", "bfloat16")
TRUNCATED = ("penalize", "score", "mask")


@dataclass(frozen=True, kw_only=True)
class PpoSettings(Keyed):
    """How a policy learns. Policy and reward have no default; the others suit models of 100 M to 1 B weights."""

    policy: str  # smollm2, a folder or a hub id
    reward: str  # a reward model's spec
    algorithm: str = "ppo"
    # What the policy sees of the user, and what the reward model sees; "" is the same as the policy.
    context: str = "profile"
    posts: Count = 10
    rank: str = "recent"
    planner: str = ""  # for `plan`
    reward_context: str = ""
    # Rollouts
    rollout_batch: Count = 256  # prompts per step
    max_new_tokens: Count = 128
    temperature: Positive = 1.0
    generation_batch: Count = 256  # rows that are sampled together; changes no sample on a CPU
    truncated: str = "penalize"  # or score, or mask: what becomes of a truncated answer
    truncation_penalty: NotNegative = 1.0  # in standard deviations of the reward so far
    max_failed: Part = 0.2  # stop where more than this share of a step's rewards failed
    # Objective
    steps: Count = 100
    epochs: Count = 2  # over each batch of rollouts
    minibatches: Count = 4  # optimizer steps per epoch
    microbatch: Count = 32  # rows in one forward pass
    learning_rate: NotNegative = 1e-6
    value_learning_rate: NotNegative = 1e-4  # of the value head alone
    warmup_steps: Whole = 0
    weight_decay: NotNegative = 0.0
    max_grad_norm: NotNegative = 1.0
    clip: NotNegative = 0.2
    value_clip: NotNegative = 0.2
    value_coefficient: NotNegative = 0.1
    value_moves_policy: bool = False  # whether errors of the value head also change the layers below it
    entropy_coefficient: float = 0.0
    gamma: Part = 1.0
    lam: Part = 0.95
    kl_coefficient: NotNegative = 0.05  # per nat, in units of the (whitened) reward
    kl_loss_coefficient: NotNegative = 0.0  # per nat of a token's own distance, as a term of the loss
    kl_budget: float | None = None  # nats per answer; a policy beyond it is rolled back and the run ends
    whiten_rewards: bool = True  # by running moments
    whiten_advantages: bool = True
    group_size: Count = 8  # answers per prompt, for grpo and rloo
    # Model
    lora_rank: Whole = 0  # 0: all weights are trained
    lora_alpha: int = 32
    dtype: str = "auto"  # of forward passes; auto: bfloat16 on a GPU, else float32
    seed: Whole = 0
    gold_every: Whole = 1  # steps between measures of gold, where it is known; 0: none before the end
    checkpoint_every: Count = 10  # steps between checkpoints, and policies that are kept

    KEYS: ClassVar[Keys] = Keys(
        "policy",
        "reward",
        algorithm="ppo",
        context="profile",
        posts=10,
        rank="recent",
        planner="",
        reward_context="",
        rollout_batch=256,
        max_new_tokens=128,
        temperature=1.0,
        generation_batch=256,
        truncated="penalize",
        truncation_penalty=1.0,
        max_failed=0.2,
        steps=100,
        epochs=2,
        minibatches=4,
        microbatch=32,
        learning_rate=1e-6,
        value_learning_rate=1e-4,
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        clip=0.2,
        value_clip=0.2,
        value_coefficient=0.1,
        value_moves_policy=False,
        entropy_coefficient=0.0,
        gamma=1.0,
        lam=0.95,
        kl_coefficient=0.05,
        kl_loss_coefficient=0.0,
        kl_budget=None,
        whiten_rewards=True,
        whiten_advantages=True,
        group_size=8,
        lora_rank=0,
        lora_alpha=32,
        dtype="auto",
        seed=0,
        gold_every=1,
        checkpoint_every=10,
    )

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        check_fields(self)
        for flag, value, known in (
            ("--algorithm", self.algorithm, ALGORITHMS),
            ("--context", self.context, KINDS),
            ("--reward-context", self.reward_context or self.context, KINDS),
            ("--rank", self.rank, RANKS),
            ("--dtype", self.dtype, DTYPES),
            ("--set truncated", self.truncated, TRUNCATED),
        ):
            if value not in known:
                raise UsageError(f"{flag} {value}: use one of {', '.join(known)}.")
        if self.minibatches > self.rollout_batch:
            raise UsageError(f"minibatches={self.minibatches}: give no more than rollout_batch={self.rollout_batch}.")

    @property
    def context_of_reward(self) -> str:
        """What the reward model sees of the user."""
        return context_of(self.reward, self.reward_context or self.context)


def read_settings(texts: Sequence[str], *, policy: str, reward: str, **given: Json) -> PpoSettings:
    """Return the settings of `name=value` texts and of `given` ones; the rest have their defaults.

    The policy is `smollm2`, a folder or a hub id, with `hf:` or without.
    """
    if kind_of(policy) in POLICIES.names:
        spec = parse_spec(policy, POLICIES)
        if spec.kind != "hf" or spec.options:
            raise UsageError(
                f"--policy {policy}: what learns is a language model in this process. Give hf:FOLDER_OR_ID."
            )
        policy = spec.target
    named = {"policy": policy, "reward": reward, **given}
    return bind(PpoSettings, parse_settings(texts, where="--set"), where="--set", given=named)
