"""Method `sft`: a policy that writes answers like those of the data, for Best-of-N and PPO to start from.

The prompt is the one that every policy is asked (`messages_of`), the reply an answer of the row. With
`answers=chosen` the policy sees what each user chose, and learns a little of whom it writes for; with `answers=both`
it learns how answers are written, and nothing about users. It is told the user's posts or, with `planner=DIR`, the
plan that a trained planner makes of them; with `rubric=true` the row's rubric; with `posts=0` nothing. With a policy
of ours as the backbone, its adapter learns on: one that learned to heed a rubric from `chosen` and then forgets to by
`both` is what a reward can teach to heed it again. The folder is a policy for
`prbench bon --policy hf:DIR` and `prbench ppo --policy DIR`; it scores nothing, so there is no reward model to name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from prbench.backends.llm.client import Message
from prbench.backends.policy import Prompt, messages_of
from prbench.context import ContextMaker, load_planner, make_context, required_contexts
from prbench.errors import UsageError
from prbench.runs import Keys
from prbench.schema import Example, UserContext
from prbench.specs import Count
from prbench.training.backbones import keep_checkpoint
from prbench.training.data import RUBRICS, TrainingData, check_training_data
from prbench.training.folder import ProgressCallback, Trained
from prbench.training.lm_trainer import LmConfig, SftExample, SftTokenizer, count_tokens, finetune, load_lm


@dataclass(frozen=True, kw_only=True)
class SftConfig(LmConfig):
    """How to train a policy."""

    answers: Literal["chosen", "both"] = "chosen"  # with both: what is learned says nothing about users
    epochs: Count = 2
    planner: str = ""  # a folder of --method planner, or a language model; its plan takes the place of the posts
    rubric: bool = False  # told what the user really looks for, as `--context oracle` tells it
    # Whose weights stay: of the epoch with the lowest held-out loss, or of the last. Where held-out answers share no
    # sentence with the others, as in the lab, that loss rises while answers are learned by heart.
    keep: Literal["best", "last"] = "best"

    KEYS: ClassVar[Keys] = LmConfig.KEYS.plus(answers="chosen", epochs=2, planner="", rubric=False, keep="best")

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        super().__post_init__()
        if self.planner and not self.posts:
            raise UsageError("--set planner needs posts to plan from. Give --set posts=30, or no planner.")
        if self.planner and self.rubric:
            raise UsageError("--set planner and --set rubric=true: the policy is told one of them. Leave one out.")

    @property
    def context(self) -> str:
        """What the policy is told of the user."""
        if self.rubric:
            return "oracle"
        return "plan" if self.planner else "profile" if self.posts else "none"


def train_sft(data: TrainingData, config: SftConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train a policy into a folder that `--policy` takes."""
    check_training_data(data, needs=(RUBRICS,) if config.rubric else ())
    backbone, tokenizer = load_lm(config)
    maker = context_of(config)
    rows = sft_examples(tokenizer, data.train, config, maker, data.name)
    held_out = sft_examples(tokenizer, data.validation, config, maker, data.name)
    found = finetune(backbone, rows, held_out, data, config, folder, progress)
    keep_checkpoint(folder, found["steps" if config.keep == "last" else "best_step"], backbone)
    facts = {
        "backbone": config.backbone,
        "rows": len(rows),
        "tokens_per_epoch": count_tokens(rows),
        "posts_dropped": tokenizer.posts_dropped,
        **found,
    }
    return Trained(spec=f"hf:{folder}", context=config.context, is_policy=True, facts=facts)


def sft_examples(
    tokenizer: SftTokenizer, examples: Sequence[Example], config: SftConfig, maker: ContextMaker, name: str
) -> list[SftExample]:
    """Return an example for every answer to learn; one that does not fit even without posts is refused."""
    found = []
    for row, user in zip(examples, required_contexts(maker, examples), strict=True):

        def ask(user: UserContext, row: Example = row) -> tuple[Message, ...]:
            return messages_of(Prompt(id=row.id, question=row.question, context=user.text))

        for answer in (row.chosen,) if config.answers == "chosen" else (row.chosen, row.rejected):
            found.append(tokenizer.example(ask, user, answer, least=0, where=f"{name}: example {row.id}"))
    return found


def context_of(config: SftConfig) -> ContextMaker:
    """Return what tells the policy of a user."""
    planner = load_planner(config.planner, seed=config.seed) if config.planner else None
    return make_context(config.context, posts=max(1, config.posts), planner=planner)
