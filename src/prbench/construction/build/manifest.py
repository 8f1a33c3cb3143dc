"""What a build did, stage by stage. The same replies give the same bytes; what varies is in `timing.json`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prbench import judging
from prbench.backends.llm.asking import Used
from prbench.backends.llm.spending import Price
from prbench.construction.build import draw, generate, parity, rubric, verify
from prbench.construction.build.item import DroppedItem
from prbench.construction.build.settings import Stage
from prbench.construction.check import duplicates
from prbench.data import texts
from prbench.prompts import load_template
from prbench.schema import BROKEN, Json

FORMAT = 1
PROMPTS = (
    draw.TEMPLATE,
    rubric.TEMPLATE,
    *generate.TEMPLATES.values(),
    judging.ONE,
    judging.ALL,
    parity.TEMPLATE,
)


@dataclass(slots=True)
class StageCount:
    """What went into a stage and what became of it: `entered` = `passed` + losses."""

    entered: int = 0
    losses: list[DroppedItem] = field(default_factory=list)
    rounds: list[dict[str, Json]] = field(default_factory=list)  # drafts in and out, round by round
    used: Used = field(default_factory=Used)

    @property
    def passed(self) -> int:
        """How many came through."""
        return self.entered - len(self.losses)

    def reasons(self) -> dict[str, int]:
        """Return how many were rejected for which reason; requests that failed are no reason to reject."""
        counts = Counter(loss.reason for loss in self.losses if loss.reason not in BROKEN)
        return dict(sorted(counts.items()))

    @property
    def failed(self) -> int:
        """How many broke because of a request, and may come through when the command runs again."""
        return sum(loss.reason in BROKEN for loss in self.losses)

    def as_json(self, model: str | None, price: Price | None) -> dict[str, Json]:
        """Return the stage's part of the manifest."""
        used = self.used
        cost = price.of(used.prompt_tokens, used.completion_tokens) if price and model else None
        return {
            "in": self.entered,
            "out": self.passed,
            "rejected": self.reasons(),
            "failed": self.failed,
            "rounds": self.rounds,
            "model": model,
            "requests": used.requests,
            "prompt_tokens": used.prompt_tokens,
            "completion_tokens": used.completion_tokens,
            "cost": cost,
        }

    def line(self, stage: Stage) -> str:
        """Return one line for people."""
        lost = [f"{count} {reason.replace('_', ' ')}" for reason, count in self.reasons().items()]
        lost += [f"{self.failed} failed requests"] if self.failed else []
        share = f"{self.passed / self.entered:.0%}" if self.entered else "-"
        said = f"{stage.value:<9} {self.entered:>5} in {self.passed:>5} out {share:>5}"
        return f"{said}  {', '.join(lost)}" if lost else said


def thresholds() -> dict[str, Json]:
    """Return every number that decides what passes."""
    return {
        "draw.least_words_of_a_post": draw.LEAST_WORDS,
        "draw.most_words_of_a_question": draw.MOST_QUESTION_WORDS,
        "draw.least_words_of_a_narrative": draw.LEAST_NARRATIVE_WORDS,
        "quote.least_words": texts.LEAST_QUOTED_WORDS,
        "generate.least_words": generate.LEAST_WORDS,
        "generate.kept_share": generate.KEPT_SHARE,
        "verify.chosen_least": verify.CHOSEN_LEAST,
        "verify.chosen_mean": verify.CHOSEN_MEAN,
        "verify.rejected_most": verify.REJECTED_MOST,
        "parity.length_ratio": parity.LENGTH_RATIO,
        "parity.quality_margin": parity.QUALITY_MARGIN,
        "parity.least_quality": parity.LEAST_QUALITY,
        "parity.alike": duplicates.ALIKE,
        "parity.style_margins": {name: list(both) for name, both in parity.STYLE_MARGINS.items()},
    }


def prompt_hashes() -> dict[str, str]:
    """Return the hash of every prompt that a build may use."""
    return {name: load_template(name).hash for name in PROMPTS}


def stages_json(
    counts: Mapping[Stage, StageCount], models: Mapping[Stage, str], price: Price | None
) -> dict[str, Json]:
    """Return the counts of all stages that ran, in order."""
    return {stage.value: count.as_json(models.get(stage), price) for stage, count in counts.items()}


def add_up(counts: Mapping[Stage, StageCount]) -> Sequence[str]:
    """Return where the counts of one stage do not continue those of the one before; nothing, unless there is a bug."""
    wrong = []
    before: StageCount | None = None
    for stage, count in counts.items():
        if before and count.entered != before.passed:
            wrong.append(f"{stage.value}: {count.entered} in after {before.passed} out")
        before = count
    return wrong
