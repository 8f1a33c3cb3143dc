"""The build from posts to pairs: draw, rank, rubric, then rounds of generate, verify and parity.

Every run goes through all stages again, and the cache answers what was answered before. So a killed build needs no
state of its own, and resumes to the same files. What went into each stage and what became of it is counted; the same
replies give the same bytes, and what varies is in `timing.json`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prbench import judging
from prbench.backends.llm import LLM
from prbench.backends.llm.asking import Asker, Used
from prbench.backends.llm.fake import fake_from_target
from prbench.backends.llm.spending import Price
from prbench.construction.build import parity, questions, responses
from prbench.construction.build.records import BuildItem, CheckedDraft, DroppedItem, PairDraft, Row, in_order
from prbench.construction.build.settings import STAGE_FILES, BuildSettings, BuildStage
from prbench.construction.check import duplicates
from prbench.data import texts
from prbench.prompts import load_template
from prbench.runs import RunStore
from prbench.schema import BROKEN, Json, Progress, StepProgress

REPLY_TOKENS = {BuildStage.DRAW: 600, BuildStage.RUBRIC: 900, BuildStage.VERIFY: 300, BuildStage.PARITY: 200}
TOKENS_PER_WORD = 3  # of a response: twice the usual, so that a good one is never truncated
ROUNDS = (BuildStage.GENERATE, BuildStage.VERIFY, BuildStage.PARITY)
PROMPTS = (
    questions.DRAW_TEMPLATE,
    questions.RUBRIC_TEMPLATE,
    *responses.TEMPLATES.values(),
    judging.ONE,
    judging.ALL,
    parity.TEMPLATE,
)


@dataclass(slots=True)
class StageCount:
    """What went into a stage and what became of it: `entered` = `passed` + dropped."""

    entered: int = 0
    dropped: list[DroppedItem] = field(default_factory=list)
    rounds: list[dict[str, Json]] = field(default_factory=list)  # drafts in and out, round by round
    used: Used = field(default_factory=Used)

    @property
    def passed(self) -> int:
        """How many came through."""
        return self.entered - len(self.dropped)

    def reasons(self) -> dict[str, int]:
        """Return how many were rejected for which reason; requests that failed are no reason to reject."""
        counts = Counter(each.reason for each in self.dropped if each.reason not in BROKEN)
        return dict(sorted(counts.items()))

    @property
    def failed(self) -> int:
        """How many broke because of a request, and may come through when the command runs again."""
        return sum(each.reason in BROKEN for each in self.dropped)

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

    def line(self, stage: BuildStage) -> str:
        """Return one line for people."""
        lost = [f"{count} {reason.replace('_', ' ')}" for reason, count in self.reasons().items()]
        lost += [f"{self.failed} failed requests"] if self.failed else []
        share = f"{self.passed / self.entered:.0%}" if self.entered else "-"
        said = f"{stage.value:<9} {self.entered:>5} in {self.passed:>5} out {share:>5}"
        return f"{said}  {', '.join(lost)}" if lost else said


def thresholds() -> dict[str, Json]:
    """Return every number that decides what passes."""
    return {
        "draw.least_words_of_a_post": questions.LEAST_POST_WORDS,
        "draw.most_words_of_a_question": questions.MOST_QUESTION_WORDS,
        "draw.least_words_of_a_narrative": questions.LEAST_NARRATIVE_WORDS,
        "quote.least_words": texts.LEAST_QUOTED_WORDS,
        "generate.least_words": responses.LEAST_WORDS,
        "generate.kept_share": responses.KEPT_SHARE,
        "verify.chosen_least": responses.CHOSEN_LEAST,
        "verify.chosen_mean": responses.CHOSEN_MEAN,
        "verify.rejected_most": responses.REJECTED_MOST,
        "parity.length_ratio": parity.LENGTH_RATIO,
        "parity.quality_margin": parity.QUALITY_MARGIN,
        "parity.least_quality": parity.LEAST_QUALITY,
        "parity.alike": duplicates.ALIKE,
        "parity.style_margins": {name: list(both) for name, both in parity.STYLE_MARGINS.items()},
    }


def prompt_hashes() -> dict[str, str]:
    """Return the hash of every prompt that a build may use."""
    return {name: load_template(name).hash for name in PROMPTS}


class Pipeline:
    """Takes items through the stages of one build, and writes each stage's file.

    `counts` and `pairs` are what came of it so far.
    """

    def __init__(
        self,
        settings: BuildSettings,
        models: Mapping[BuildStage, LLM],
        store: RunStore,
        *,
        progress: StepProgress = lambda step: None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._settings = settings
        self._models = models
        self._store = store
        self._progress = progress
        self._note = note
        self._items: Sequence[BuildItem] = ()
        self.counts: dict[BuildStage, StageCount] = {}
        self.pairs: list[PairDraft] = []

    @property
    def dropped(self) -> list[DroppedItem]:
        """All items that were dropped, stage by stage."""
        return [each for count in self.counts.values() for each in count.dropped]

    def run(self, items: Sequence[BuildItem], last: BuildStage, *, draws: bool) -> None:
        """Run all stages up to the last one; `draws` where the items have no questions yet."""
        self._items = items
        left = list(items)
        if draws:
            count = self.counts[BuildStage.DRAW] = StageCount(entered=len(left))
            left, count.dropped, rows = questions.draw_questions(left, self._asker(BuildStage.DRAW))
            self._finish(BuildStage.DRAW, rows)
        if last.reaches(BuildStage.RANK):
            self.counts[BuildStage.RANK] = StageCount(entered=len(left))
            left, rows = questions.rank_posts(left, self._settings)
            self._finish(BuildStage.RANK, rows)
        if last.reaches(BuildStage.RUBRIC):
            count = self.counts[BuildStage.RUBRIC] = StageCount(entered=len(left))
            asker = self._asker(BuildStage.RUBRIC)
            left, count.dropped, rows = questions.find_rubrics(left, asker, self._settings.aspects)
            self._finish(BuildStage.RUBRIC, rows)
        if last.reaches(BuildStage.GENERATE):
            self._write_pairs(left, last)

    def _asker(self, stage: BuildStage) -> Asker:
        def begin(label: str) -> Progress | None:
            # The progress bar has the yield so far.
            made = f" · {len(self.pairs)} of {len(self._items)} pairs" if self.pairs else ""
            return self._progress(label + made)

        return make_asker(stage, self._settings, self._models[stage], self.counts[stage].used, begin)

    def _finish(self, stage: BuildStage, rows: Sequence[Row]) -> None:
        self._store.write_lines(STAGE_FILES[stage], in_order(rows, self._items))
        self._note(self.counts[stage].line(stage))

    def _write_pairs(self, items: Sequence[BuildItem], last: BuildStage) -> None:
        """Go round until every item has a pair that passes, or its retries are spent."""
        stages = [stage for stage in ROUNDS if last.reaches(stage)]
        self.counts |= {stage: StageCount() for stage in stages}
        askers = {stage: self._asker(stage) for stage in stages}
        rows: dict[BuildStage, list[Row]] = {stage: [] for stage in stages}
        dropped: dict[BuildStage, list[DroppedItem]] = {stage: [] for stage in stages}
        drafts = [PairDraft(item=item) for item in items]
        while drafts:
            again: list[PairDraft] = []
            for stage in stages:
                checked, new = self._check(stage, drafts, askers[stage])
                rows[stage] += new
                self._store.write_lines(STAGE_FILES[stage], in_order(rows[stage], self._items))
                drafts = [each.draft for each in checked if not each.faults]
                self.counts[stage].rounds.append({"in": len(checked), "out": len(drafts)})
                for each in checked:
                    if each.faults and not each.has_failed and each.draft.round < self._settings.retries:
                        again.append(each.for_next_round())
                    elif each.faults:
                        dropped[stage].append(each.as_dropped(stage))
            self.pairs += drafts
            drafts = again
        self._settle(dropped, len(items))

    def _check(
        self, stage: BuildStage, drafts: Sequence[PairDraft], asker: Asker
    ) -> tuple[list[CheckedDraft], list[Row]]:
        """Take drafts through one stage of one round."""
        match stage:
            case BuildStage.GENERATE:
                return responses.write_responses(drafts, asker, self._settings.words)
            case BuildStage.VERIFY:
                return responses.verify_responses(drafts, asker, batched=self._settings.batched_verification)
            case _:
                return parity.compare(drafts, asker, self._settings.words)

    def _settle(self, dropped: Mapping[BuildStage, list[DroppedItem]], entered: int) -> None:
        """Count each item once, at the stage where it was dropped in its last round; repeats go last of all."""
        place = {item.id: number for number, item in enumerate(self._items)}
        self.pairs.sort(key=lambda draft: place[draft.item.id])
        if BuildStage.PARITY in dropped:
            self.pairs, repeats = parity.drop_repeats(self.pairs)
            dropped[BuildStage.PARITY].extend(repeats)
        for stage, items in dropped.items():
            count = self.counts[stage]
            count.entered = entered
            count.dropped = sorted(items, key=lambda each: place[each.item.id])
            entered = count.passed
            self._note(count.line(stage))


def make_asker(
    stage: BuildStage,
    settings: BuildSettings,
    llm: LLM | None = None,
    used: Used | None = None,
    progress: StepProgress = lambda step: None,
) -> Asker:
    """Return how a stage asks its model; without a model it can only say what it would ask.

    A reply may be long enough for the answer, and leaves nothing for thinking aloud.
    """
    words = TOKENS_PER_WORD * settings.words + 100
    writes = stage in (BuildStage.DRAW, BuildStage.RUBRIC, BuildStage.GENERATE)
    return Asker(
        llm=llm or fake_from_target("nothing"),
        stage=stage,
        seed=settings.seed,
        max_tokens=settings.reply_tokens or REPLY_TOKENS.get(stage, words),
        is_capped=settings.reply_tokens is not None,
        temperature=settings.temperature if writes else 0.0,
        tries=1 if stage is BuildStage.GENERATE else settings.retries + 1,
        used=used or Used(),
        on_step=progress,
    )
