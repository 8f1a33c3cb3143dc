"""Method `sft`: a policy that writes answers like those of the data, for Best-of-N and PPO to start from.

The prompt is the one that every policy is asked (`prbench.policies.prompt`), the reply an answer of the row. With
`answers=chosen` the policy sees what each user chose, and learns a little of whom it writes for; with `answers=both`
it learns how answers are written, and nothing about users. The folder is a policy for `prbench bon --policy hf:DIR`
and `prbench ppo --policy DIR`; it scores nothing, so there is no reward model to name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prbench.context.choose import Ask, rank_recent
from prbench.context.render import render
from prbench.errors import DataError, UsageError
from prbench.policies.base import Prompt
from prbench.policies.prompt import messages_of
from prbench.schema import Example
from prbench.train.data import TrainingData, check_training_data
from prbench.train.folder import Progress, Trained
from prbench.train.writer import Layout, Lesson, WriterConfig, load_writer, teach, tokens_of

ANSWERS = ("chosen", "both")


@dataclass(frozen=True, kw_only=True)
class SftConfig(WriterConfig):
    """How to train a policy."""

    answers: str = "chosen"  # or both: what is learned says nothing about users
    epochs: int = 2

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        super().__post_init__()
        if self.answers not in ANSWERS:
            raise UsageError(f"--set answers={self.answers}: unknown. Use one of: {', '.join(ANSWERS)}.")


def train_sft(data: TrainingData, config: SftConfig, folder: Path, say: Progress) -> Trained:
    """Train a policy into a folder that `--policy` takes."""
    check_training_data(data)
    backbone, layout = load_writer(config)
    rows = lessons_of(layout, data.train, config, data.name)
    held_out = lessons_of(layout, data.validation, config, data.name)
    writer = teach(backbone, rows, held_out, data, config, folder, say)
    writer.keep(folder)
    facts = {
        "backbone": config.backbone,
        "rows": len(rows),
        "tokens_per_epoch": tokens_of(rows),
        "posts_dropped": layout.posts_dropped,
        **writer.facts,
    }
    return Trained(spec=f"hf:{folder}", context="profile" if config.posts else "none", is_policy=True, facts=facts)


def lessons_of(layout: Layout, examples: Sequence[Example], config: SftConfig, name: str) -> list[Lesson]:
    """Return a lesson for every answer to learn; one that does not fit even without posts is refused."""
    lessons = []
    for example in examples:
        for answer in (example.chosen,) if config.answers == "chosen" else (example.chosen, example.rejected):
            lesson = _lesson(layout, example, answer, config.posts)
            if lesson is None:
                raise DataError(
                    f"{name}: example {example.id} does not fit {config.max_length} tokens even without posts. "
                    "Raise max_length with --set, or leave the row out."
                )
            lessons.append(lesson)
    return lessons


def _lesson(layout: Layout, example: Example, answer: str, most: int) -> Lesson | None:
    (posts,) = rank_recent([Ask(user=example.user, question=example.question)])
    texts = [post.text for post in posts[:most]]

    def prompt(used: int) -> Prompt:
        return Prompt(id=example.id, question=example.question, context=render("profile", texts[:used]))

    return layout.lesson(lambda used: messages_of(prompt(used)), len(texts), answer, least=0)
