"""`prbench eval`: ask one reward model about every pair."""

from dataclasses import replace
from pathlib import Path

import typer

from prbench.cli import options
from prbench.context import KINDS, RANKS
from prbench.data import DataSettings, open_data
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, Run, Shown, as_loaded, evaluate_store
from prbench.evaluation.engines import EngineSettings, open_engine
from prbench.lab import LAB
from prbench.pages.board import print_summary
from prbench.reward_models import ModelSettings
from prbench.schema import BROKEN, Probe


def evaluate(
    model: options.Models,
    data: options.Data = LAB,
    subset: options.Subset = None,
    split: options.Split = None,
    revision: options.Revision = None,
    limit: options.Limit = None,
    skip_bad_rows: options.SkipBadRows = 0,
    context: options.ContextKind = "profile",
    posts: options.Posts = 10,
    rank: options.Rank = "recent",
    encoder: options.EncoderName = "minilm",
    planner: options.Planner = "",
    labels: options.Labels = "",
    shots: options.Shots = None,
    probes: options.Probes = "own,none,swap",
    orders: options.Orders = "both",
    group_by: options.GroupBy = [],  # noqa: B006
    seed: options.Seed = 0,
    batch_size: options.BatchSize = "auto",
    share_prefixes: options.SharePrefixes = True,
    compile: options.Compile = False,  # noqa: A002
    max_length: options.MaxLength = None,
    dtype: options.Dtype = "auto",
    chat_template: options.ChatTemplate = None,
    trust_remote_code: options.TrustRemoteCode = False,
    engine: options.EngineName = "local",
    workers: options.Workers = None,
    worker_gpus: options.WorkerGpus = None,
    ray_address: options.RayAddress = None,
    max_failed: options.MaxFailed = 0.5,
    out: options.Out = Path("runs"),
    fresh: options.Fresh = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Score every pair of a dataset with one reward model, with and without the user.

    The same command again continues where it was interrupted; finished items are never computed twice.

    Example: `prbench eval --model control:overlap --data pairs.jsonl --context profile`
    """
    how = EvalSettings(
        context=options.one_of("--context", context, KINDS),
        posts=posts,
        rank=options.one_of("--rank", rank, RANKS),
        planner=planner,
        encoder=encoder,
        probes=parse_probes(probes),
        orders=options.one_of("--orders", orders, ("both", "one")),
        seed=seed,
    )
    which = DataSettings(
        source=data, subset=subset, split=split, revision=revision, limit=limit, skip_bad_rows=skip_bad_rows
    )
    settings = ModelSettings(
        batch_size=options.parse_batch_size(batch_size),
        max_length=max_length,
        dtype=options.one_of("--dtype", dtype, ("auto", "float32", "bfloat16", "float16")),
        chat_template=_existing("--chat-template", chat_template),
        trust_remote_code=trust_remote_code,
        share_prefixes=share_prefixes,
        compile=compile,
        seed=seed,
        cache=out / "cache" / "llm.sqlite",
    )
    where = EngineSettings(name=engine, workers=workers, worker_gpus=worker_gpus, address=ray_address)
    given = options.open_labels_of(which, labels, shots)
    shown = {spec: Shown.of(spec, how.context, given) for spec in model}
    runs = []
    with open_data(which) as store, open_engine(where) as opened:
        for line in store.bad_rows:
            options.notes.print(f"skipped: {line}", soft_wrap=True)
        for spec in model:
            loaded = as_loaded(spec, settings, opened)
            if loaded.note:
                options.notes.print(f"{spec}: {loaded.note}", soft_wrap=True)
            with options.progress_bar(spec, quiet=json) as progress:
                runs.append(
                    evaluate_store(
                        store,
                        loaded,
                        replace(how, context=shown[spec].context),
                        which,
                        group_by=group_by,
                        out=out,
                        fresh=fresh,
                        command=options.command_line(),
                        progress=progress,
                        engine=opened,
                        labels=shown[spec].open_labels(which),
                    )
                )
    if json:
        options.print_json(runs[0].summary if len(runs) == 1 else [run.summary for run in runs])
    else:
        for run in runs:
            print_summary(run.summary, run.folder, options.out_console)
    if any(failed_share(run) > max_failed for run in runs):
        raise typer.Exit(1)


def _existing(option: str, path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise UsageError(f"{option} {path}: there is no such file.")
    return path


def parse_probes(text: str) -> tuple[Probe, ...]:
    """Return the probes named in a comma-separated list; `own` must be among them."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        options.one_of("--probes", name, tuple(Probe))
    if Probe.OWN not in names:
        raise UsageError(f"--probes {text}: `own` is missing, and every figure is compared with it. Add it.")
    return tuple(probe for probe in Probe if probe in names)


def failed_share(run: Run) -> float:
    """Return the share of items whose request failed, which another try may mend."""
    own = run.rows(probe=Probe.OWN)
    return sum(row.problem in BROKEN for row in own) / len(own)
