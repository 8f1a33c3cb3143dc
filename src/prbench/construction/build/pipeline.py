"""The build from posts to pairs: draw, rank, rubric, then rounds of generate, verify and parity.

Every run goes through all stages again, and the cache answers what was answered before. So a killed build needs no
state of its own, and resumes to the same files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prbench.backends.llm import LLM
from prbench.backends.llm.asking import Asker, Used
from prbench.backends.llm.fake import fake_from_target
from prbench.construction.build import draw, generate, parity, rubric, verify
from prbench.construction.build.draft import Checked, PairDraft
from prbench.construction.build.folder import BuildFolder
from prbench.construction.build.item import DroppedItem, Item
from prbench.construction.build.manifest import StageCount
from prbench.construction.build.models import Models
from prbench.construction.build.rank import rank
from prbench.construction.build.rows import Row, in_order
from prbench.construction.build.settings import BuildSettings, Stage
from prbench.schema import Progress

REPLY_TOKENS = {Stage.DRAW: 600, Stage.RUBRIC: 900, Stage.VERIFY: 300, Stage.PARITY: 200}
TOKENS_PER_WORD = 3  # of a response: twice the usual, so that a good one is never cut
ROUNDS = (Stage.GENERATE, Stage.VERIFY, Stage.PARITY)

Watch = Callable[[str], Progress | None]  # told the name of every long step; may return what hears of its progress


@dataclass(slots=True)
class Outcome:
    """What a build has made so far."""

    counts: dict[Stage, StageCount] = field(default_factory=dict)
    pairs: list[PairDraft] = field(default_factory=list)

    def losses(self) -> list[DroppedItem]:
        """Return all losses, stage by stage."""
        return [loss for count in self.counts.values() for loss in count.losses]


class Pipeline:
    """Takes items through the stages of one build, and writes each stage's file."""

    def __init__(
        self,
        settings: BuildSettings,
        models: Models,
        folder: BuildFolder,
        *,
        watch: Watch = lambda label: None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._settings = settings
        self._models = models
        self._folder = folder
        self._watch = watch
        self._note = note
        self._items: list[Item] = []
        self._made = 0
        self.outcome = Outcome()

    def run(self, items: Sequence[Item], last: Stage, *, draws: bool) -> Outcome:
        """Run all stages up to the last one; `draws` where the items have no questions yet."""
        self._items = list(items)
        found = self._draw(items) if draws else list(items)
        if last.reaches(Stage.RANK):
            found = self._rank(found)
        if last.reaches(Stage.RUBRIC):
            found = self._rubric(found)
        if last.reaches(Stage.GENERATE):
            self._write_pairs(found, last)
        return self.outcome

    def _asker(self, stage: Stage) -> Asker:
        return make_asker(stage, self._settings, self._models.of(stage), self._count(stage).used, self._begin)

    def _begin(self, label: str) -> Progress | None:
        """Begin a step on the progress bar, with the yield so far."""
        made = f" · {self._made} of {len(self._items)} pairs" if self._made else ""
        return self._watch(label + made)

    def _draw(self, items: Sequence[Item]) -> list[Item]:
        count = self._count(Stage.DRAW, entered=len(items))
        done, count.losses, rows = draw.draw(items, self._asker(Stage.DRAW))
        self._finish(Stage.DRAW, rows)
        return done

    def _rank(self, items: Sequence[Item]) -> list[Item]:
        self._count(Stage.RANK, entered=len(items))
        done, rows = rank(items, self._settings)
        self._finish(Stage.RANK, rows)
        return done

    def _rubric(self, items: Sequence[Item]) -> list[Item]:
        count = self._count(Stage.RUBRIC, entered=len(items))
        done, count.losses, rows = rubric.find_rubrics(items, self._asker(Stage.RUBRIC), self._settings.aspects)
        self._finish(Stage.RUBRIC, rows)
        return done

    def _write_pairs(self, items: Sequence[Item], last: Stage) -> None:
        """Go round until every item has a pair that passes, or its retries are spent."""
        stages = [stage for stage in ROUNDS if last.reaches(stage)]
        askers = {stage: self._asker(stage) for stage in stages}
        rows: dict[Stage, list[Row]] = {stage: [] for stage in stages}
        lost: dict[Stage, list[DroppedItem]] = {stage: [] for stage in stages}
        passed: list[PairDraft] = []
        drafts = [PairDraft(item=item) for item in items]
        while drafts:
            again: list[PairDraft] = []
            for stage in stages:
                checked, new = self._check(stage, drafts, askers[stage])
                rows[stage] += new
                self._folder.write_stage(stage, in_order(rows[stage], self._items))
                drafts = [each.draft for each in checked if not each.faults]
                self._count(stage).rounds.append({"in": len(checked), "out": len(drafts)})
                for each in checked:
                    if each.faults and not each.has_failed and each.draft.round < self._settings.retries:
                        again.append(each.for_next_round())
                    elif each.faults:
                        lost[stage].append(each.as_loss(stage))
            passed += drafts
            self._made = len(passed)
            drafts = again
        self._settle(passed, lost, len(items))

    def _check(self, stage: Stage, drafts: Sequence[PairDraft], asker: Asker) -> tuple[list[Checked], list[Row]]:
        """Take drafts through one stage of one round."""
        match stage:
            case Stage.GENERATE:
                return generate.write(drafts, asker, self._settings.words)
            case Stage.VERIFY:
                return verify.verify(drafts, asker, batched=self._settings.batched_verification)
            case _:
                return parity.compare(drafts, asker, self._settings.words)

    def _settle(self, passed: Sequence[PairDraft], lost: dict[Stage, list[DroppedItem]], entered: int) -> None:
        """Count each item once, at the stage where it was lost in its last round; repeats go last of all."""
        place = {item.id: number for number, item in enumerate(self._items)}
        pairs = sorted(passed, key=lambda draft: place[draft.item.id])
        if Stage.PARITY in lost:
            pairs, repeats = parity.drop_repeats(pairs)
            lost[Stage.PARITY] += repeats
        for stage, losses in lost.items():
            count = self._count(stage)
            count.entered = entered
            count.losses = sorted(losses, key=lambda loss: place[loss.item.id])
            entered = count.passed
            self._note(count.line(stage))
        self.outcome.pairs = pairs

    def _count(self, stage: Stage, entered: int | None = None) -> StageCount:
        count = self.outcome.counts.setdefault(stage, StageCount())
        if entered is not None:
            count.entered = entered
        return count

    def _finish(self, stage: Stage, rows: list[Row]) -> None:
        self._folder.write_stage(stage, in_order(rows, self._items))
        self._note(self._count(stage).line(stage))


def make_asker(
    stage: Stage,
    settings: BuildSettings,
    llm: LLM | None = None,
    used: Used | None = None,
    watch: Watch = lambda label: None,
) -> Asker:
    """Return how a stage asks its model; without a model it can only say what it would ask."""
    writes = stage in (Stage.DRAW, Stage.RUBRIC, Stage.GENERATE)
    return Asker(
        llm=llm or fake_from_target("nothing"),
        stage=stage,
        seed=settings.seed,
        max_tokens=settings.reply_tokens or most_tokens(stage, settings),
        is_capped=settings.reply_tokens is not None,
        temperature=settings.temperature if writes else 0.0,
        tries=1 if stage is Stage.GENERATE else settings.retries + 1,
        used=used or Used(),
        watch=watch,
    )


def most_tokens(stage: Stage, settings: BuildSettings) -> int:
    """Return the most tokens that a reply of a stage may have: enough for the answer, none for thinking aloud."""
    if stage is Stage.GENERATE:
        return TOKENS_PER_WORD * settings.words + 100
    return REPLY_TOKENS[stage]
