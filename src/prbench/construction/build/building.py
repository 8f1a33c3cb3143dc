"""One build from beginning to end: a folder, its models, its stages, and what it hands on."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prbench.backends.llm import LLM
from prbench.construction.build.audit import run_audit
from prbench.construction.build.folder import PAIRS, REJECTS, BuildFolder, check_output_apart
from prbench.construction.build.item import loss_row
from prbench.construction.build.manifest import FORMAT, add_up, prompt_hashes, stages_json, thresholds
from prbench.construction.build.models import ROLE_OF_STAGE, ClientOptions, Models, make_clients
from prbench.construction.build.pairs import to_example
from prbench.construction.build.pipeline import Outcome, Pipeline, Watch
from prbench.construction.build.publish import check_may_publish, publish
from prbench.construction.build.settings import BuildSettings, PublishSettings, Stage
from prbench.construction.build.sources import POSTS, Items, read_items
from prbench.construction.check import MINILM
from prbench.construction.privacy import Pseudonyms, load_pseudonyms
from prbench.data import is_named
from prbench.data.rows import to_row
from prbench.runs import SUMMARY, TIMING, RunConfig
from prbench.runs.files import read_json
from prbench.schema import NOTHING, Json


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
    last: Stage = Stage.PUBLISH,
    limit: int | None = None,
    means: ClientOptions | None = None,
    models: Mapping[str, LLM] = NOTHING,
    audit_encoder: str = MINILM,
    fresh: bool = False,
    watch: Watch = lambda label: None,
    note: Callable[[str], None] = lambda line: None,
) -> BuildResult:
    """Build pairs in a folder; the same call again goes on where the last one ended.

    `models` are clients from Python by role (generator, judge, quality_judge), instead of those that the specs name.
    """
    started = time.monotonic()
    if last.reaches(Stage.PUBLISH):
        check_may_publish(publishing or PublishSettings())  # before anything is paid for
    if not is_named(settings.data):
        check_output_apart(settings.data, Path(out))
    with BuildFolder(Path(out)) as folder:
        names = load_pseudonyms(folder.path) if settings.pseudonyms else None
        source = read_items(settings, names, limit)
        means = means or ClientOptions()
        clients = make_clients(settings, means, models)
        if fresh:
            folder.wipe()  # not before all that can be wrong with the command has been looked at
        opened = Models(clients, folder.path, means)
        try:
            folder.claim(RunConfig(config=config_of(settings, source, names), data={"source": settings.data}))
            pipeline = Pipeline(settings, opened, folder, watch=watch, note=note)
            outcome = pipeline.run(source.items, last, draws=source.kind == POSTS)
            manifest = _write_results(folder, settings, source, opened, outcome)
        finally:
            # Also when a limit ends the build: what was spent is worth knowing.
            spent = opened.ledger.as_dict()
            folder.write_json(TIMING, {"seconds": round(time.monotonic() - started, 3), "spent": spent})
            opened.close()
        audit = dataset = None
        if outcome.pairs and last.reaches(Stage.AUDIT):
            watch("audit")
            audit = run_audit(folder.path, encoder=audit_encoder)
        if outcome.pairs and last.reaches(Stage.PUBLISH):
            watch("publish")
            dataset = publish(folder.path, publishing or PublishSettings())
    return BuildResult(folder=folder.path, manifest=manifest, audit=audit, dataset=dataset)


def config_of(settings: BuildSettings, source: Items, names: Pseudonyms | None) -> dict[str, Json]:
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
    folder: BuildFolder, settings: BuildSettings, source: Items, models: Models, outcome: Outcome
) -> dict[str, Json]:
    """Write the pairs, the losses and the manifest."""
    wrong = add_up(outcome.counts)
    assert not wrong, f"the stages do not add up: {wrong}"
    folder.write_lines(PAIRS, (to_row(to_example(draft)) for draft in outcome.pairs))
    folder.write_lines(REJECTS, map(loss_row, outcome.losses()))
    by_role = models.names()
    by_stage = {stage: by_role[role] for stage, role in ROLE_OF_STAGE.items()}
    manifest: dict[str, Json] = {
        "format": FORMAT,
        "settings": settings.as_json(),
        "seed": settings.seed,
        "data": {"hash": source.hash, "kind": source.kind, "rows": len(source.items), "masked": dict(source.masked)},
        "redaction": source.redaction or None,
        "models": by_role,
        "prompts": prompt_hashes(),
        "thresholds": thresholds(),
        "pairs": len(outcome.pairs),
        "users": len({draft.item.user.id for draft in outcome.pairs}),
        "stages": stages_json(outcome.counts, by_stage, models.price),
        **_forgotten(folder.path),
    }
    folder.finish(manifest)
    return manifest


def _forgotten(folder: Path) -> dict[str, Json]:
    """Carry over how many items of forgotten people the last summary counts; no other file does."""
    path = folder / SUMMARY
    old = read_json(path, "build") if path.exists() else {}
    return {"forgotten": old["forgotten"]} if "forgotten" in old else {}
