"""Train a small language model to plan: LoRA on the gold rubrics, in the form that plans are read from.

The prompt is the one that any planner is asked (`--context plan`), the reply the rubric of the row, one aspect per
line. The folder is an adapter that `--planner FOLDER` takes. Beside it lies the scorer of criteria, so that
`--model planner:FOLDER` turns the plan into a score.

With the small backbone that was measured it is far behind `planner`. It stays because it alone can name aspects that
no training rubric has, and takes backbones of any size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from prbench.backends.encoders import load_encoder
from prbench.backends.llm.client import Message
from prbench.context.plan import MOST_ASPECTS, plan_messages
from prbench.context.posts import Ask, rank_recent
from prbench.errors import DataError, UsageError
from prbench.reward_models.planner import SCORER
from prbench.runs import Keys
from prbench.runs.files import write_json
from prbench.schema import Aspect, ContextKind, Example, UserContext
from prbench.training.backbones import keep_checkpoint
from prbench.training.criteria import CriteriaConfig, train_criteria
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data
from prbench.training.folder import ProgressCallback, Trained, checkpoint_in
from prbench.training.lm_trainer import (
    LmConfig,
    SftExample,
    SftTokenizer,
    count_tokens,
    finetune,
    load_lm,
    planned_steps,
)


@dataclass(frozen=True, kw_only=True)
class LmPlannerConfig(LmConfig):
    """How to train a language model that plans."""

    encoder: str = "minilm"  # of the scorer
    criteria_epochs: int = 10

    KEYS: ClassVar[Keys] = LmConfig.KEYS.plus(encoder="minilm", criteria_epochs=10)

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        super().__post_init__()
        if self.posts < 1:
            raise UsageError(f"posts={self.posts}: there is nothing to plan from. Give a whole number above 0.")


def rubric_as_plan(rubric: Sequence[Aspect]) -> str:
    """Return a rubric in the form that plans are read from, one aspect per line."""
    lines = []
    for one in rubric[:MOST_ASPECTS]:
        aspect, reason = (" ".join(text.split()) for text in (one.aspect, one.reason))
        # A colon ends the aspect's name where plans are read.
        name = aspect.replace(": ", ", ")
        lines.append(f"- {name}: {reason}" if reason else f"- {name}")
    return "\n".join(lines)


def sft_examples(
    tokenizer: SftTokenizer, examples: Sequence[Example], config: LmPlannerConfig, name: str
) -> list[SftExample]:
    """Return an example to learn for every row with posts and a rubric; one that cannot fit is refused."""
    found = []
    for row in examples:
        if not row.rubric or not row.user.profile:
            continue
        (posts,) = rank_recent([Ask(user=row.user, question=row.question)])
        profile = UserContext(kind=ContextKind.PROFILE, segments=tuple(post.text for post in posts[: config.posts]))

        def ask(user: UserContext, question: str = row.question) -> tuple[Message, ...]:
            return tuple(plan_messages(question, user.segments))

        plan, where = rubric_as_plan(row.rubric), f"{name}: example {row.id}"
        found.append(tokenizer.example(ask, profile, plan, least=1, where=where))
    return found


def train_lm_planner(data: TrainingData, config: LmPlannerConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train an adapter into a folder that `--planner FOLDER` and `--model planner:FOLDER` take."""
    check_training_data(data, needs=(PROFILES, RUBRICS))
    backbone, tokenizer = load_lm(config)
    rows = sft_examples(tokenizer, data.train, config, data.name)
    held_out = sft_examples(tokenizer, data.validation, config, data.name)
    if not held_out:
        raise DataError(f"{data.name}: no row of the validation split has posts and a rubric. Choose another split.")
    further, steps = config.criteria_epochs, planned_steps(config, len(rows))
    found = finetune(
        backbone, rows, held_out, data, config, folder, lambda at, of, text: progress(at, of + further, text)
    )
    encoder = load_encoder(config.encoder)
    scorer, best = train_criteria(
        data,
        encoder,
        CriteriaConfig(epochs=config.criteria_epochs, seed=config.seed),
        checkpoint_in(folder, config, data, "checkpoint_criteria.pt"),
        lambda done, total, text: progress(steps + done, steps + total, text),
    )
    scorer.save(folder)
    write_json(folder / SCORER, {"encoder": config.encoder})
    keep_checkpoint(folder, found["best_step"], backbone)
    facts = {
        "backbone": config.backbone,
        "encoder": dict(encoder.identity),
        "rows": len(rows),
        "tokens_per_epoch": count_tokens(rows),
        "posts_dropped": tokenizer.posts_dropped,
        **found,
        "criteria_accuracy_with_gold_rubrics": round(best.accuracy, 4),
    }
    return Trained(spec=f"planner:{folder}", facts=facts)
