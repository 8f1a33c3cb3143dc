"""`prbench build`: make verified preference pairs from posts, from questions with narratives, or from the lab."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from prbench.backends.llm.spending import Limits, Price
from prbench.cli import options
from prbench.construction.build import BuildResult, BuildSettings, BuildStage, ClientOptions, PublishSettings
from prbench.construction.build import build as build_pairs
from prbench.construction.build.run import StageForecast, forecast
from prbench.construction.build.settings import DEFAULT_WORDS
from prbench.construction.check import MINILM
from prbench.errors import UsageError
from prbench.lab import LAB

MODELS, CARE, HANDING_ON = "Models", "Cost and care", "Publishing"


def build(
    out: Annotated[Path, typer.Option(help="Folder of the build.", rich_help_panel=options.OUTPUT)],
    generator: Annotated[
        str, typer.Option(help="LLM that draws rubrics and writes responses.", rich_help_panel=MODELS)
    ],
    judge: Annotated[str, typer.Option(help="LLM that finds aspects in responses.", rich_help_panel=MODELS)],
    quality_judge: Annotated[
        str, typer.Option(help="LLM that rates quality without knowing the user.", rich_help_panel=MODELS)
    ],
    data: Annotated[
        str,
        typer.Option(help="Rows with questions, posts by user, or `lab`.", rich_help_panel=options.DATA),
    ] = LAB,
    subset: options.Subset = None,
    split: options.Split = None,
    limit: Annotated[
        int | None, typer.Option(help="Take only the first N rows or users.", min=1, rich_help_panel=options.DATA)
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="Users of the lab; default: 20.", min=1, rich_help_panel=options.DATA)
    ] = None,
    questions_per_user: Annotated[
        int, typer.Option(help="Questions drawn from each user's posts.", min=1, rich_help_panel=options.DATA)
    ] = 1,
    redact: Annotated[
        bool, typer.Option("--redact", help="Mask names, addresses and links.", rich_help_panel=options.DATA)
    ] = False,
    pseudonyms: Annotated[
        bool, typer.Option(help="Give people, posts and rows other ids.", rich_help_panel=options.DATA)
    ] = True,
    stage: Annotated[
        BuildStage, typer.Option(help="Last stage to run; the same command goes on later.", case_sensitive=False)
    ] = BuildStage.PUBLISH,
    posts: options.Posts = 10,
    rank: options.Rank = "bm25",
    encoder: options.EncoderName = "minilm",
    aspects: Annotated[int, typer.Option(help="Aspects per rubric, where the rows have none.", min=1)] = 3,
    words: Annotated[int, typer.Option(help="About so many words in a response.", min=20)] = DEFAULT_WORDS,
    retries: Annotated[int, typer.Option(help="How often a response is written again.", min=0)] = 3,
    batched_verification: Annotated[
        bool, typer.Option("--batched-verification", help="Ask about all aspects of a response in one request.")
    ] = False,
    temperature: Annotated[
        float, typer.Option(help="Of the generator; judges have 0.", min=0, rich_help_panel=MODELS)
    ] = 0.7,
    reply_tokens: Annotated[
        int | None,
        typer.Option(
            help="Most tokens of a reply; models that think aloud need more than the default.",
            min=1,
            rich_help_panel=MODELS,
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.", min=1, rich_help_panel=CARE)] = 8,
    request_retries: Annotated[
        int, typer.Option(help="Further tries of a request that fails.", min=0, rich_help_panel=CARE)
    ] = 4,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for a reply.", rich_help_panel=CARE)] = 120.0,
    max_requests: Annotated[int | None, typer.Option(help="Stop before request N + 1.", rich_help_panel=CARE)] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Stop before so many tokens are passed.", rich_help_panel=CARE)
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Stop before so many US dollars are passed.", rich_help_panel=CARE)
    ] = None,
    price_input: Annotated[
        float | None, typer.Option(help="US dollars per million prompt tokens.", rich_help_panel=CARE)
    ] = None,
    price_output: Annotated[
        float | None, typer.Option(help="US dollars per million tokens of replies.", rich_help_panel=CARE)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only estimate what it would take.", rich_help_panel=CARE)
    ] = False,
    max_failed: options.MaxFailed = 0.5,
    audit_encoder: Annotated[
        str,
        typer.Option(help="For the audit's checks by meaning; `none` skips them.", rich_help_panel=HANDING_ON),
    ] = MINILM,
    licence: Annotated[str, typer.Option(help="Of the dataset, e.g. cc-by-4.0.", rich_help_panel=HANDING_ON)] = "",
    consent: Annotated[
        str, typer.Option(help="How the people agreed, in a sentence.", rich_help_panel=HANDING_ON)
    ] = "",
    private: Annotated[
        bool, typer.Option("--private", help="Not to be handed on: no licence needed.", rich_help_panel=HANDING_ON)
    ] = False,
    title: Annotated[str, typer.Option(help="Title of the dataset's card.", rich_help_panel=HANDING_ON)] = "",
    date: Annotated[str, typer.Option(help="Date on the card; default: none.", rich_help_panel=HANDING_ON)] = "",
    split_by_user: Annotated[
        str, typer.Option(help="Shares of users, e.g. `train=0.8,test=0.2`.", rich_help_panel=HANDING_ON)
    ] = "",
    seed: options.Seed = 0,
    fresh: options.Fresh = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Build preference pairs: both responses are good, and only `chosen` serves what this user looks for.

    The same command again continues where it was interrupted; what a model has answered is never asked again.

    Example: `prbench build --data posts.jsonl --out mine --generator SPEC --judge SPEC --quality-judge SPEC --private`
    """
    settings = BuildSettings(
        data=data,
        generator=generator,
        judge=judge,
        quality_judge=quality_judge,
        subset=subset,
        split=split,
        users=users,
        questions_per_user=questions_per_user,
        posts=posts,
        rank=rank,
        encoder=encoder,
        aspects=aspects,
        words=words,
        retries=retries,
        batched_verification=batched_verification,
        reply_tokens=reply_tokens,
        temperature=temperature,
        seed=seed,
        redact=redact,
        pseudonyms=pseudonyms,
    )
    means = ClientOptions(
        concurrency=concurrency,
        timeout_seconds=timeout,
        retries=request_retries,
        limits=Limits(max_requests=max_requests, max_tokens=max_tokens, max_cost=max_cost),
        price=_price(price_input, price_output),
    )
    if dry_run:
        _print_forecast(forecast(settings, out, stage, limit=limit, options=means), json=json)
        return
    publishing = PublishSettings(
        title=title, licence=licence, consent=consent, private=private, date=date, split_by_user=split_by_user
    )
    with options.progress_of_steps(quiet=json) as watch:
        built = build_pairs(
            settings,
            out,
            publishing=publishing,
            last=stage,
            limit=limit,
            options=means,
            audit_encoder=audit_encoder,
            fresh=fresh,
            progress=watch,
            note=lambda line: options.notes.print(line, soft_wrap=True),
        )
    _report(built, stage, json=json)
    if built.failed > max_failed * max(1, built.manifest["data"]["rows"]) or _is_empty(built, stage):
        raise typer.Exit(1)


def _price(price_input: float | None, price_output: float | None) -> Price | None:
    if (price_input is None) != (price_output is None):
        raise UsageError("Give --price-input and --price-output together, or neither.")
    return None if price_input is None or price_output is None else Price(price_input, price_output)


def _is_empty(built: BuildResult, stage: BuildStage) -> bool:
    return stage.reaches(BuildStage.PARITY) and not built.manifest["pairs"]


def _report(built: BuildResult, stage: BuildStage, *, json: bool) -> None:
    if json:
        dataset = str(built.dataset) if built.dataset else None
        options.print_json({**built.manifest, "audit": built.audit, "dataset": dataset})
        return
    say = options.out_console.print
    if stage.reaches(BuildStage.PARITY):
        say(f"{built.manifest['pairs']} pairs of {built.manifest['users']} users, from {_rows(built.manifest)}")
    if built.failed:
        say(f"{built.failed} items broke because of failed requests; the same command tries them again")
    if _is_empty(built, stage):
        say(f"no pair survived: see {built.folder / 'rejects.jsonl'}", soft_wrap=True)
    if built.dataset:
        say(f"dataset: {built.dataset}", soft_wrap=True)


def _rows(manifest: Mapping[str, Any]) -> str:
    rows = manifest["data"]["rows"]
    return f"{rows} item{'' if rows == 1 else 's'}"


def _print_forecast(stages: list[StageForecast], *, json: bool) -> None:
    if json:
        options.print_json([each.as_json() for each in stages])
        return
    columns = ("stage", "requests", "answered before", "prompt tokens", "reply tokens up to", "cost up to", "times")
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for each in stages:
        once = each.once
        cost = "no price" if once.cost_at_most is None else f"${once.cost_at_most:.4f}"
        numbers = (once.requests, once.cached, once.prompt_tokens, once.completion_tokens_at_most)
        table.add_row(each.stage.value, *map(str, numbers), cost, f"1 to {each.times_at_most}")
    options.out_console.print(table)
    known = [each.once.cost_at_most for each in stages if each.once.cost_at_most is not None]
    cost = f", ${sum(known):.4f} at most" if known else ""
    requests = sum(each.once.requests for each in stages)
    options.out_console.print(f"{requests} requests{cost}, if nothing has to be asked again; nothing was sent")
