"""Train a small language model to plan: LoRA on the gold rubrics, in the form that plans are read from.

The prompt is the one that any planner is asked (`--context plan`), the reply the rubric of the row, one aspect per
line. The folder is an adapter that `--planner FOLDER` takes. Beside it lies the scorer of criteria, so that
`--model planner:FOLDER` turns the plan into a score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from prbench.backends.encoders import load_encoder
from prbench.context.plan import MOST_ASPECTS, plan_messages
from prbench.context.posts import Ask, rank_recent
from prbench.errors import DataError, UsageError
from prbench.reward_models.planner import SCORER
from prbench.runs.files import write_json
from prbench.runs.manifest import Keys
from prbench.schema import Aspect, ContextKind, Example, UserContext
from prbench.training.criteria import CriteriaConfig, train_criteria
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data
from prbench.training.folder import Progress, Trained, checkpoint_in
from prbench.training.writer import Layout, SftExample, WriterConfig, finetune, load_writer, planned_steps, tokens_of


@dataclass(frozen=True, kw_only=True)
class LmPlannerConfig(WriterConfig):
    """How to train a language model that plans."""

    encoder: str = "minilm"  # of the scorer
    criteria_epochs: int = 10

    KEYS: ClassVar[Keys] = WriterConfig.KEYS.plus(encoder="minilm", criteria_epochs=10)

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


def lessons_of(layout: Layout, examples: Sequence[Example], config: LmPlannerConfig, name: str) -> list[SftExample]:
    """Return a lesson for every row with posts and a rubric; one that cannot fit is refused."""
    lessons = []
    for example in examples:
        if not example.rubric or not example.user.profile:
            continue
        lesson = _lesson(layout, example, config)
        if lesson is None:
            raise DataError(
                f"{name}: example {example.id} does not fit {config.max_length} tokens even with one post. "
                "Raise max_length with --set, or leave the row out."
            )
        lessons.append(lesson)
    return lessons


def _lesson(layout: Layout, example: Example, config: LmPlannerConfig) -> SftExample | None:
    (posts,) = rank_recent([Ask(user=example.user, question=example.question)])
    profile = UserContext(kind=ContextKind.PROFILE, segments=tuple(post.text for post in posts[: config.posts]))
    return layout.lesson(
        lambda user: plan_messages(example.question, user.segments),
        profile,
        rubric_as_plan(example.rubric),
        least=1,
    )


def train_lm_planner(data: TrainingData, config: LmPlannerConfig, folder: Path, say: Progress) -> Trained:
    """Train an adapter into a folder that `--planner FOLDER` and `--model planner:FOLDER` take."""
    check_training_data(data, needs=(PROFILES, RUBRICS))
    backbone, layout = load_writer(config)
    rows = lessons_of(layout, data.train, config, data.name)
    held_out = lessons_of(layout, data.validation, config, data.name)
    if not held_out:
        raise DataError(f"{data.name}: no row of the validation split has posts and a rubric. Choose another split.")
    further, steps = config.criteria_epochs, planned_steps(config, len(rows))
    writer = finetune(backbone, rows, held_out, data, config, folder, lambda at, of, text: say(at, of + further, text))
    encoder = load_encoder(config.encoder)
    scorer, best = train_criteria(
        data,
        encoder,
        CriteriaConfig(epochs=config.criteria_epochs, seed=config.seed),
        checkpoint_in(folder, config, data, "checkpoint_criteria.pt"),
        lambda done, total, text: say(steps + done, steps + total, text),
    )
    scorer.save(folder)
    write_json(folder / SCORER, {"encoder": config.encoder})
    writer.keep(folder)
    facts = {
        "backbone": config.backbone,
        "encoder": dict(encoder.identity),
        "rows": len(rows),
        "tokens_per_epoch": tokens_of(rows),
        "posts_dropped": layout.posts_dropped,
        **writer.facts,
        "criteria_accuracy_with_gold_rubrics": round(best.accuracy, 4),
    }
    return Trained(spec=f"planner:{folder}", facts=facts)
