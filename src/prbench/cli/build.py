"""`prbench build`: make verified preference pairs from posts, from questions with narratives, or from the lab."""

from dataclasses import dataclass
from typing import Annotated

import typer

from prbench.cli import options
from prbench.construction.build import BuildResult, BuildSettings, BuildStage, ClientOptions, PublishSettings
from prbench.construction.build import build as build_pairs
from prbench.construction.build.run import StageForecast, forecast
from prbench.construction.build.settings import DEFAULT_WORDS
from prbench.construction.check import MINILM
from prbench.lab import LAB

PUBLISHING = "Publishing"


@dataclass(frozen=True, kw_only=True)
class WriterOptions:
    """Which LLMs write and judge, and how they reply."""

    generator: Annotated[str, options.flag("LLM that draws rubrics and writes responses.", options.MODEL)]
    judge: options.Judge
    quality_judge: Annotated[str, options.flag("LLM that rates quality without knowing the user.", options.MODEL)]
    temperature: options.Temperature = 0.7
    reply_tokens: Annotated[
        int | None,
        options.flag(
            "Most tokens of a reply; models that think aloud need more than the default.", options.MODEL, min=1
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """What pairs are made of: rows with questions, posts by user, or the lab."""

    data: options.Data = LAB
    subset: options.Subset = None
    split: options.Split = None
    users: options.Users = None
    questions_per_user: Annotated[
        int, options.flag("Questions drawn from each user's posts.", options.DATA, min=1)
    ] = 1
    redact: Annotated[bool, options.flag("Mask names, addresses and links.", options.DATA, "--redact")] = False
    pseudonyms: Annotated[bool, options.flag("Give people, posts and rows other ids.", options.DATA)] = True


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """How a pair is made."""

    aspects: Annotated[int, options.flag("Aspects per rubric, where the rows have none.", min=1)] = 3
    words: Annotated[int, options.flag("About so many words in a response.", min=20)] = DEFAULT_WORDS
    retries: Annotated[int, options.flag("How often a response is written again.", min=0)] = 3
    batched_verification: Annotated[
        bool, options.flag("Ask about all aspects of a response in one request.", None, "--batched-verification")
    ] = False


@dataclass(frozen=True, kw_only=True)
class CostOptions(options.LimitOptions):
    """How to ask servers, and what it may cost."""

    concurrency: Annotated[int, options.flag("Requests at a time.", options.COST, min=1)] = 8
    request_retries: Annotated[int, options.flag("Further tries of a request that fails.", options.COST, min=0)] = 4
    timeout: Annotated[float, options.flag("Seconds to wait for a reply.", options.COST)] = 120.0

    def settings(self) -> ClientOptions:
        """Return how to ask."""
        return ClientOptions(
            concurrency=self.concurrency,
            timeout_seconds=self.timeout,
            retries=self.request_retries,
            limits=self.limits(),
            price=self.price(),
        )


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """What the published folder says of itself."""

    license: Annotated[str, options.flag("Of the dataset, e.g. cc-by-4.0.", PUBLISHING)] = ""
    consent: Annotated[str, options.flag("How the people agreed, in a sentence.", PUBLISHING)] = ""
    private: Annotated[bool, options.flag("Not to be handed on: no license needed.", PUBLISHING, "--private")] = False
    title: options.Title = ""
    date: Annotated[str, options.flag("Date on the card; default: none.", PUBLISHING)] = ""
    split_by_user: Annotated[str, options.flag("Shares of users, e.g. `train=0.8,test=0.2`.", PUBLISHING)] = ""


def build(
    out: options.Out,
    writers: WriterOptions,
    rows: RowOptions,
    posts: Annotated[options.PostOptions, options.Defaults(rank="bm25")],
    pairs: PairOptions,
    cost: CostOptions,
    card: CardOptions,
    limit: options.Limit = None,
    stage: Annotated[
        BuildStage, options.flag("Last stage to run; the same command goes on later.", case_sensitive=False)
    ] = BuildStage.PUBLISH,
    audit_encoder: options.AuditEncoder = MINILM,
    max_failed: options.MaxFailed = 0.5,
    dry_run: options.DryRun = False,
    seed: options.Seed = 0,
    fresh: options.Fresh = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Build preference pairs: both responses are good, and only `chosen` serves what this user looks for.

    The same command again continues where it was interrupted; what a model has answered is never asked again.

    Example: `prbench build --data posts.jsonl --out mine --generator SPEC --judge SPEC --quality-judge SPEC --private`
    """
    settings = BuildSettings(**vars(writers), **vars(rows), **vars(posts), **vars(pairs), seed=seed)
    means = cost.settings()
    if dry_run:
        _print_forecast(forecast(settings, out, stage, limit=limit, options=means), json=json)
        return
    with options.progress_of_steps(quiet=json) as progress_of:
        built = build_pairs(
            settings,
            out,
            publishing=PublishSettings(**vars(card)),
            last=stage,
            limit=limit,
            options=means,
            audit_encoder=audit_encoder,
            fresh=fresh,
            progress=progress_of,
            note=lambda line: options.notes.print(line, soft_wrap=True),
        )
    _report(built, stage, json=json)
    if built.failed > max_failed * max(1, built.manifest["data"]["rows"]) or _is_empty(built, stage):
        raise typer.Exit(1)


def _is_empty(built: BuildResult, stage: BuildStage) -> bool:
    return stage.reaches(BuildStage.PARITY) and not built.manifest["pairs"]


def _report(built: BuildResult, stage: BuildStage, *, json: bool) -> None:
    if json:
        dataset = str(built.dataset) if built.dataset else None
        options.print_json({**built.manifest, "audit": built.audit, "dataset": dataset})
        return
    say = options.out_console.print
    rows = built.manifest["data"]["rows"]
    count = f"{rows} item{'' if rows == 1 else 's'}"
    if stage.reaches(BuildStage.PARITY):
        say(f"{built.manifest['pairs']} pairs of {built.manifest['users']} users, from {count}")
    if built.failed:
        say(f"{built.failed} items broke because of failed requests; the same command tries them again")
    if _is_empty(built, stage):
        say(f"no pair survived: see {built.folder / 'rejects.jsonl'}", soft_wrap=True)
    if built.dataset:
        say(f"dataset: {built.dataset}", soft_wrap=True)


def _print_forecast(stages: list[StageForecast], *, json: bool) -> None:
    if json:
        options.print_json([each.as_json() for each in stages])
        return
    columns = ("stage", "requests", "answered before", "prompt tokens", "reply tokens up to", "cost up to", "times")
    rows = []
    for each in stages:
        once = each.once
        cost = "no price" if once.cost_at_most is None else f"${once.cost_at_most:.4f}"
        numbers = (once.requests, once.cached, once.prompt_tokens, once.completion_tokens_at_most)
        rows.append((each.stage.value, *map(str, numbers), cost, f"1 to {each.times_at_most}"))
    options.print_table(columns, rows)
    known = [each.once.cost_at_most for each in stages if each.once.cost_at_most is not None]
    cost = f", ${sum(known):.4f} at most" if known else ""
    requests = sum(each.once.requests for each in stages)
    options.out_console.print(f"{requests} requests{cost}, if nothing has to be asked again; nothing was sent")
