"""One build from beginning to end: a folder, its models, its stages, and what it hands on; or what it would take.

Posts become pairs in stages: draw, rank, rubric, then rounds of generate, verify and parity. Three models by role,
each behind cache and meter: nothing is paid twice, and no limit is passed. Every run goes through all stages again,
and the cache answers what was answered before: so a killed build needs no state of its own, and resumes to the same
files. The same replies give the same bytes, and what varies is in `timing.json`.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from prbench import judging
from prbench.backends.llm import LLM, CachedLLM, ChatRequest, load_llm
from prbench.backends.llm.asking import Asker, Task, Used, Value
from prbench.backends.llm.fake import fake_from_target
from prbench.backends.llm.spending import Forecast, Ledger, MeteredLLM, Price, estimate
from prbench.construction.build import questions, responses
from prbench.construction.build.publish import check_may_publish, publish, run_audit
from prbench.construction.build.records import (
    CHOSEN,
    REJECTED,
    SIDES,
    BuildItem,
    DraftResponse,
    DroppedItem,
    PairDraft,
    Row,
    in_order,
)
from prbench.construction.build.settings import (
    AUDIT,
    DATASET,
    PAIRS,
    REJECTS,
    REPLIES,
    STAGE_FILES,
    BuildSettings,
    BuildStage,
    ClientOptions,
    PublishSettings,
)
from prbench.construction.build.sources import POSTS, SourceItems, read_items
from prbench.construction.check import MINILM, duplicates
from prbench.construction.privacy.pseudonyms import Pseudonyms, find_pseudonyms, load_pseudonyms
from prbench.data import is_named, texts
from prbench.data.rows import as_row
from prbench.errors import UsageError
from prbench.prompts import load_template
from prbench.runs import MANIFEST, SUMMARY, TIMING, Layout, RunConfig, RunStore
from prbench.runs.files import BUILD, read_json
from prbench.schema import BROKEN, NOTHING, Aspect, Json, Progress, StepProgress

FORMAT = 1
GENERATOR, JUDGE, QUALITY_JUDGE = ROLES = ("generator", "judge", "quality_judge")
ROLE_OF_STAGE: Mapping[BuildStage, str] = {
    BuildStage.DRAW: GENERATOR,
    BuildStage.RUBRIC: GENERATOR,
    BuildStage.GENERATE: GENERATOR,
    BuildStage.VERIFY: JUDGE,
    BuildStage.PARITY: QUALITY_JUDGE,
}
# Not the key of the pseudonyms: a fresh build of the same people keeps their names.
LAYOUT = Layout(
    kind=BUILD,
    made=(SUMMARY, PAIRS, REJECTS, AUDIT, *STAGE_FILES.values(), DATASET),
    early=(TIMING, REPLIES, f"{REPLIES}-wal", f"{REPLIES}-shm"),
    what="build",
)
# What a forecast has in place of what is still to be written.
_NOBODY = Pseudonyms(b"a dry run keeps no names")  # ids of the right length, for a folder that has no key yet
_QUESTION = "What would you advise somebody in my place to look at first, and what to do then?"
_NARRATIVE = " ".join(["I have thought about this for some time and should like to do it in my own way."] * 5)
_ASPECT = Aspect(
    aspect="advice that fits the way I live",
    evidence="I should like to do it in my own way.",
    reason="They say that they want to do it in their own way and not as others do.",
)
REPLY_TOKENS = {BuildStage.DRAW: 600, BuildStage.RUBRIC: 900, BuildStage.VERIFY: 300, BuildStage.PARITY: 200}
TOKENS_PER_WORD = 3  # of a response: twice the usual, so that a good one is never truncated
ROUNDS = (BuildStage.GENERATE, BuildStage.VERIFY, BuildStage.PARITY)
PROMPTS = (
    questions.DRAW_TEMPLATE,
    questions.RUBRIC_TEMPLATE,
    *responses.TEMPLATES.values(),
    judging.ONE,
    judging.ALL,
    responses.QUALITY_TEMPLATE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What a build has come to."""

    folder: Path
    manifest: Mapping[str, Json]
    audit: Mapping[str, Json] | None = None  # None: the build has not come that far, or no pair survived
    dataset: Path | None = None

    @property
    def failed(self) -> int:
        """Items that broke because of a request; the same command tries them again."""
        return sum(stage["failed"] for stage in self.manifest["stages"].values())


def build(
    settings: BuildSettings,
    out: Path | str,
    *,
    publishing: PublishSettings | None = None,
    last: BuildStage = BuildStage.PUBLISH,
    limit: int | None = None,
    options: ClientOptions | None = None,
    models: Mapping[str, LLM] = NOTHING,
    audit_encoder: str = MINILM,
    fresh: bool = False,
    progress: StepProgress = lambda step: None,
    note: Callable[[str], None] = lambda line: None,
) -> BuildResult:
    """Build pairs in a folder; the same call again continues where the last one ended.

        settings = BuildSettings(data="posts.jsonl", generator=big, judge=other, quality_judge=other)
        built = build(settings, "my_set", publishing=PublishSettings(private=True))

    `big` and `other` are specs of chat models, such as `openai:NAME@URL`. `models` are clients from Python by role
    (generator, judge, quality_judge), instead of those that the specs name.
    """
    started = time.monotonic()
    folder = Path(out)
    options = options or ClientOptions()
    publishing = publishing or PublishSettings()
    if last.reaches(BuildStage.PUBLISH):
        check_may_publish(publishing)  # before anything is paid for
    _check_output_apart(settings.data, folder)
    with RunStore(folder, LAYOUT) as store:
        names = load_pseudonyms(folder) if settings.pseudonyms else None
        source = read_items(settings, names, limit)
        clients = make_clients(settings, options, models)
        if fresh:
            store.wipe()  # not before all that can be wrong with the command has been looked at
        opened = Models(clients, folder, options)
        try:
            store.begin(RunConfig(config=config_of(settings, source, names), data={"source": settings.data}))
            pipeline = Pipeline(
                settings=settings,
                models=opened.by_stage,
                store=store,
                items=source.items,
                progress=progress,
                note=note,
            )
            pipeline.run(last, draws=source.kind == POSTS)
            manifest = _write_results(store, settings, source, opened, pipeline)
        finally:
            # Also when a limit ends the build: what was spent is worth knowing.
            seconds = round(time.monotonic() - started, 3)
            store.write_json(TIMING, {"seconds": seconds, "spent": opened.ledger.as_dict()})
            opened.close()
        audit = dataset = None
        if pipeline.pairs and last.reaches(BuildStage.AUDIT):
            progress("audit")
            audit = run_audit(folder, audit_encoder)
        if pipeline.pairs and last.reaches(BuildStage.PUBLISH):
            progress("publish")
            dataset = publish(folder, publishing)
    return BuildResult(folder=folder, manifest=manifest, audit=audit, dataset=dataset)


def _check_output_apart(data: str, out: Path) -> None:
    """Refuse to read what the build itself writes: the rows would be overwritten, or change with every run."""
    if is_named(data):
        return
    source, folder = Path(data).resolve(), out.resolve()
    made = [folder / name for name in (MANIFEST, *LAYOUT.made, *LAYOUT.early)]
    if source == folder or any(source == path or path in source.parents for path in made):
        raise UsageError(f"--data {data}: that is where this build writes. Use another --out, or copy the data away.")


def make_clients(settings: BuildSettings, options: ClientOptions, given: Mapping[str, LLM]) -> dict[str, LLM]:
    """Return the client of each role. `given` are clients from Python; the others are made from their specs."""
    specs: dict[str, str] = {role: getattr(settings, role) for role in ROLES if role not in given}
    loaded = {
        spec: load_llm(
            spec, concurrency=options.concurrency, timeout_seconds=options.timeout_seconds, retries=options.retries
        )
        for spec in dict.fromkeys(specs.values())
    }
    return {role: given[role] if role in given else loaded[specs[role]] for role in ROLES}


class Models:
    """The models by role. One spec in several roles is one client, with its one limit of requests at a time."""

    def __init__(self, clients: Mapping[str, LLM], folder: Path, options: ClientOptions) -> None:
        self.price = options.price
        self.ledger = Ledger(options.limits, dict.fromkeys(ROLES, options.price) if options.price else {})
        self.by_role = {
            role: CachedLLM(MeteredLLM(llm, self.ledger, role), folder / REPLIES) for role, llm in clients.items()
        }
        self.by_stage = {stage: self.by_role[role] for stage, role in ROLE_OF_STAGE.items()}

    def close(self) -> None:
        for llm in self.by_role.values():
            llm.close()


def config_of(settings: BuildSettings, source: SourceItems, names: Pseudonyms | None) -> dict[str, Json]:
    """Return all that changes what a build makes, as its manifest has it."""
    return {
        "format": FORMAT,
        "settings": settings.to_config(),
        "data": {"hash": source.hash, "kind": source.kind},
        "pseudonyms": names.fingerprint if names else None,
        "redaction": source.redaction or None,
        "prompts": prompt_hashes(),
    }


def _write_results(
    store: RunStore, settings: BuildSettings, source: SourceItems, models: Models, pipeline: "Pipeline"
) -> dict[str, Json]:
    """Write the pairs, the rejects and the summary."""
    for (_, before), (stage, after) in pairwise(pipeline.counts.items()):
        assert after.entered == before.passed, f"{stage.value}: {after.entered} in after {before.passed} out"
    store.write_lines(PAIRS, (as_row(draft.to_example()) for draft in pipeline.pairs))
    store.write_lines(REJECTS, (each.as_row() for count in pipeline.counts.values() for each in count.dropped))
    names = {role: llm.name for role, llm in models.by_role.items()}
    path = store.folder / SUMMARY
    old = read_json(path, "build") if path.exists() else {}
    manifest: dict[str, Json] = {
        "format": FORMAT,
        "settings": asdict(settings),
        "seed": settings.seed,
        "data": {"hash": source.hash, "kind": source.kind, "rows": len(source.items), "masked": dict(source.masked)},
        "redaction": source.redaction or None,
        "models": names,
        "prompts": prompt_hashes(),
        "thresholds": thresholds(),
        "pairs": len(pipeline.pairs),
        "users": len({draft.item.user.id for draft in pipeline.pairs}),
        "stages": {
            stage.value: count.as_json(names.get(ROLE_OF_STAGE.get(stage, "")), models.price)
            for stage, count in pipeline.counts.items()
        },
        # How many items of forgotten people the last summary counted; no other file does.
        **({"forgotten": old["forgotten"]} if "forgotten" in old else {}),
    }
    store.finish(manifest)
    return manifest


@dataclass(slots=True)
class StageCount:
    """What went into a stage and what became of it: `entered` = `passed` + dropped."""

    entered: int = 0
    dropped: list[DroppedItem] = field(default_factory=list)
    rounds: list[dict[str, Json]] = field(default_factory=list)  # drafts in and out, round by round
    used: Used = field(default_factory=Used)

    @property
    def passed(self) -> int:
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
        "parity.length_ratio": responses.LENGTH_RATIO,
        "parity.quality_margin": responses.QUALITY_MARGIN,
        "parity.least_quality": responses.LEAST_QUALITY,
        "parity.alike": duplicates.ALIKE,
        "parity.style_margins": {name: list(both) for name, both in responses.STYLE_MARGINS.items()},
    }


def prompt_hashes() -> dict[str, str]:
    return {name: load_template(name).hash for name in PROMPTS}


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """Takes items through the stages of one build, and writes each stage's file."""

    settings: BuildSettings
    models: Mapping[BuildStage, LLM]
    store: RunStore
    items: Sequence[BuildItem]
    progress: StepProgress
    note: Callable[[str], None]
    counts: dict[BuildStage, StageCount] = field(default_factory=dict)  # what came of the items so far
    pairs: list[PairDraft] = field(default_factory=list)

    def run(self, last: BuildStage, *, draws: bool) -> None:
        """Run all stages up to the last one; `draws` where the items have no questions yet."""
        left = list(self.items)
        if draws:
            count = self.counts[BuildStage.DRAW] = StageCount(entered=len(left))
            left, count.dropped, rows = questions.draw_questions(left, self._asker(BuildStage.DRAW))
            self._finish(BuildStage.DRAW, rows)
        if last.reaches(BuildStage.RANK):
            self.counts[BuildStage.RANK] = StageCount(entered=len(left))
            left, rows = questions.rank_posts(left, self.settings)
            self._finish(BuildStage.RANK, rows)
        if last.reaches(BuildStage.RUBRIC):
            count = self.counts[BuildStage.RUBRIC] = StageCount(entered=len(left))
            asker = self._asker(BuildStage.RUBRIC)
            left, count.dropped, rows = questions.find_rubrics(left, asker, self.settings.aspects)
            self._finish(BuildStage.RUBRIC, rows)
        if last.reaches(BuildStage.GENERATE):
            self._write_pairs(left, last)

    def _asker(self, stage: BuildStage) -> Asker:
        def begin(label: str) -> Progress | None:
            # The progress bar has the yield so far.
            made = f" · {len(self.pairs)} of {len(self.items)} pairs" if self.pairs else ""
            return self.progress(label + made)

        return make_asker(stage, self.settings, self.models[stage], self.counts[stage].used, begin)

    def _finish(self, stage: BuildStage, rows: Sequence[Row]) -> None:
        self.store.write_lines(STAGE_FILES[stage], in_order(rows, self.items))
        self.note(self.counts[stage].line(stage))

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
                match stage:
                    case BuildStage.GENERATE:
                        checked, new = responses.write_responses(drafts, askers[stage], self.settings.words)
                    case BuildStage.VERIFY:
                        is_batched = self.settings.batched_verification
                        checked, new = responses.verify_responses(drafts, askers[stage], batched=is_batched)
                    case _:
                        checked, new = responses.compare_responses(drafts, askers[stage], self.settings.words)
                rows[stage] += new
                self.store.write_lines(STAGE_FILES[stage], in_order(rows[stage], self.items))
                drafts = [each.draft for each in checked if not each.faults]
                self.counts[stage].rounds.append({"in": len(checked), "out": len(drafts)})
                for each in checked:
                    if each.faults and not each.has_failed and each.draft.round < self.settings.retries:
                        again.append(each.for_next_round())
                    elif each.faults:
                        dropped[stage].append(each.as_dropped(stage))
            self.pairs += drafts
            drafts = again
        self._settle(dropped, len(items))

    def _settle(self, dropped: Mapping[BuildStage, list[DroppedItem]], entered: int) -> None:
        """Count each item once, at the stage where it was dropped in its last round; repeats go last of all."""
        place = {item.id: number for number, item in enumerate(self.items)}
        self.pairs.sort(key=lambda draft: place[draft.item.id])
        if BuildStage.PARITY in dropped:
            self.pairs, repeats = responses.drop_repeats(self.pairs)
            dropped[BuildStage.PARITY].extend(repeats)
        for stage, items in dropped.items():
            count = self.counts[stage]
            count.entered = entered
            count.dropped = sorted(items, key=lambda each: place[each.item.id])
            entered = count.passed
            self.note(count.line(stage))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StageForecast:
    """What one stage would take."""

    stage: BuildStage
    once: Forecast  # where nothing has to be asked again
    times_at_most: int  # so often may each request come, in rounds and because of replies that cannot be read

    def as_json(self) -> dict[str, Json]:
        return {"stage": self.stage.value, **self.once.as_dict(), "times_at_most": self.times_at_most}


def forecast(
    settings: BuildSettings,
    out: Path,
    last: BuildStage,
    *,
    limit: int | None = None,
    options: ClientOptions | None = None,
) -> list[StageForecast]:
    """Return what each stage would take. Nothing is sent, and nothing is written."""
    options = options or ClientOptions()
    names = (find_pseudonyms(out) or _NOBODY) if settings.pseudonyms else None
    source = read_items(settings, names, limit)
    requests = _requests(settings, source.items, source.kind == POSTS)
    kept = (out / REPLIES).exists()
    models = Models(make_clients(settings, options, NOTHING), out, options) if kept else None
    try:
        return [
            StageForecast(
                stage=stage,
                once=estimate(some, models.by_stage[stage] if models else None, options.price),
                times_at_most=(settings.retries + 1) ** (2 if stage in (BuildStage.VERIFY, BuildStage.PARITY) else 1),
            )
            for stage, some in requests.items()
            if last.reaches(stage)
        ]
    finally:
        if models:
            models.close()


def _requests(settings: BuildSettings, items: Sequence[BuildItem], draws: bool) -> dict[BuildStage, list[ChatRequest]]:
    """Return the requests of one clean pass, stage by stage."""
    found: dict[BuildStage, list[ChatRequest]] = {}

    def ask(stage: BuildStage, tasks: Iterable[Task[Value]]) -> None:
        asker = make_asker(stage, settings)
        found.setdefault(stage, []).extend(asker.request(task, 0, "") for task in tasks)

    if draws:
        items = [item for item in items if item.held_out]
        ask(BuildStage.DRAW, map(questions.draw_task, items))
        items = [replace(item, question=_QUESTION, narrative=_NARRATIVE) for item in items]
    items, _ = questions.rank_posts(items, settings)
    ask(BuildStage.RUBRIC, (questions.rubric_task(item, settings.aspects) for item in items if not item.rubric))
    stand_in = tuple(replace(_ASPECT, aspect=f"{_ASPECT.aspect} {n}") for n in range(settings.aspects))
    side = DraftResponse(text=" ".join(["sentence"] * settings.words))
    for item in items:
        empty = PairDraft(item=replace(item, rubric=item.rubric or stand_in))
        half, full = replace(empty, chosen=side), replace(empty, chosen=side, rejected=side)
        both = (
            responses.response_task(empty, CHOSEN, settings.words),
            responses.response_task(half, REJECTED, settings.words),
        )
        ask(BuildStage.GENERATE, both)
        for name in SIDES:
            ask(BuildStage.VERIFY, responses.verdict_tasks(full, name, batched=settings.batched_verification))
        ask(BuildStage.PARITY, (responses.rating_task(full, chosen_first=first) for first in (True, False)))
    return found
