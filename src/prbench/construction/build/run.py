"""One build from beginning to end: a folder, its models, its stages, and what it hands on; or what it would take.

Three models by role, each behind cache and meter: nothing is paid twice, and no limit is passed.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from prbench.backends.llm import LLM, CachedLLM, ChatRequest, load_llm
from prbench.backends.llm.asking import Task, Value
from prbench.backends.llm.spending import Forecast, Ledger, MeteredLLM, estimate
from prbench.construction.build import parity, questions, responses
from prbench.construction.build.pipeline import Pipeline, make_asker, prompt_hashes, thresholds
from prbench.construction.build.publish import check_may_publish, publish, run_audit
from prbench.construction.build.records import CHOSEN, REJECTED, SIDES, BuildItem, DraftResponse, PairDraft
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
from prbench.construction.check import MINILM
from prbench.construction.privacy import Pseudonyms, find_pseudonyms, load_pseudonyms
from prbench.data import is_named
from prbench.data.rows import to_row
from prbench.errors import UsageError
from prbench.runs import MANIFEST, SUMMARY, TIMING, Layout, RunConfig, RunStore
from prbench.runs.files import BUILD, read_json
from prbench.schema import NOTHING, Aspect, Json, StepProgress

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
    if last.reaches(BuildStage.PUBLISH):
        check_may_publish(publishing or PublishSettings())  # before anything is paid for
    folder = Path(out)
    if not is_named(settings.data):
        _check_output_apart(settings.data, folder)
    with RunStore(folder, LAYOUT) as store:
        names = load_pseudonyms(folder) if settings.pseudonyms else None
        source = read_items(settings, names, limit)
        options = options or ClientOptions()
        clients = make_clients(settings, options, models)
        if fresh:
            store.wipe()  # not before all that can be wrong with the command has been looked at
        opened = Models(clients, folder, options)
        try:
            store.begin(RunConfig(config=config_of(settings, source, names), data={"source": settings.data}))
            pipeline = Pipeline(settings, opened.by_stage, store, progress=progress, note=note)
            pipeline.run(source.items, last, draws=source.kind == POSTS)
            manifest = _write_results(store, settings, source, opened, pipeline)
        finally:
            # Also when a limit ends the build: what was spent is worth knowing.
            spent = opened.ledger.as_dict()
            store.write_json(TIMING, {"seconds": round(time.monotonic() - started, 3), "spent": spent})
            opened.close()
        audit = dataset = None
        if pipeline.pairs and last.reaches(BuildStage.AUDIT):
            progress("audit")
            audit = run_audit(folder, encoder=audit_encoder)
        if pipeline.pairs and last.reaches(BuildStage.PUBLISH):
            progress("publish")
            dataset = publish(folder, publishing or PublishSettings())
    return BuildResult(folder=folder, manifest=manifest, audit=audit, dataset=dataset)


def _check_output_apart(data: str, out: Path) -> None:
    """Refuse to read what the build itself writes: the rows would be overwritten, or change with every run."""
    source, folder = Path(data).resolve(), out.resolve()
    made = [folder / name for name in (MANIFEST, *LAYOUT.made, *LAYOUT.early)]
    if source == folder or any(source == path or path in source.parents for path in made):
        raise UsageError(f"--data {data}: that is where this build writes. Use another --out, or copy the data away.")


def make_clients(settings: BuildSettings, options: ClientOptions, given: Mapping[str, LLM]) -> dict[str, LLM]:
    """Return the client of each role. `given` are clients from Python; the others are made from their specs."""
    by_spec: dict[str, LLM] = {}
    clients: dict[str, LLM] = {}
    for role in ROLES:
        spec = str(getattr(settings, role))
        if role not in given and spec not in by_spec:
            by_spec[spec] = load_llm(
                spec,
                concurrency=options.concurrency,
                timeout_seconds=options.timeout_seconds,
                retries=options.retries,
            )
        clients[role] = given.get(role) or by_spec[spec]
    return clients


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
        """Close the cache."""
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
    store: RunStore, settings: BuildSettings, source: SourceItems, models: Models, pipeline: Pipeline
) -> dict[str, Json]:
    """Write the pairs, the rejects and the summary."""
    for (_, before), (stage, after) in pairwise(pipeline.counts.items()):
        assert after.entered == before.passed, f"{stage.value}: {after.entered} in after {before.passed} out"
    store.write_lines(PAIRS, (to_row(draft.to_example()) for draft in pipeline.pairs))
    store.write_lines(REJECTS, (each.as_row() for each in pipeline.dropped))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StageForecast:
    """What one stage would take."""

    stage: BuildStage
    once: Forecast  # where nothing has to be asked again
    times_at_most: int  # so often may each request come, in rounds and because of replies that cannot be read

    def as_json(self) -> dict[str, Json]:
        """Return it as `--json` prints it."""
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
        ask(BuildStage.PARITY, (parity.rating_task(full, chosen_first=first) for first in (True, False)))
    return found
