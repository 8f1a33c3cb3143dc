"""`prbench bon`: sample answers, let every reward model pick, and see what the user gets."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from prbench.backends.policy import MAX_TOKENS, TEMPERATURE, TOP_P, Policy
from prbench.cli import options
from prbench.context import KINDS
from prbench.downstream.best_of_n.pool_file import PoolFile
from prbench.downstream.best_of_n.run import BonRun, BonSettings, best_of_n
from prbench.downstream.policies import ChatPolicy, load_policy
from prbench.errors import UsageError
from prbench.lab import LAB
from prbench.metrics.number_format import PERCENT
from prbench.pages.best_of_n import VALUE, notes_of, render
from prbench.pages.board import most_frequent
from prbench.pages.shell import origin_of, write_page
from prbench.reward_models.base import AUTO, ModelSettings
from prbench.schema import Json

PAGE = "bon.html"


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """What writes the answers, and how many."""

    policy: options.Policy = LAB
    n: Annotated[int, options.flag("Answers per question.", options.ANSWERS, "--n", min=1)] = 64
    temperature: options.Temperature = TEMPERATURE
    top_p: Annotated[
        float, options.flag("Of an hf: policy: sample from this share of likely tokens.", options.ANSWERS)
    ] = TOP_P
    max_new_tokens: options.MaxNewTokens = MAX_TOKENS
    policy_context: Annotated[
        str,
        options.flag(
            "What the policy is told of the user: `none`, `profile`, `plan`, or, as a ceiling, `oracle`.",
            options.ANSWERS,
        ),
    ] = "none"


def bon(
    ctx: typer.Context,
    sampling: SamplingOptions,
    data: options.SourceOptions,
    context: options.ContextOptions,
    labels: options.LabelOptions,
    running: options.ModelOptions,
    cost: options.LimitOptions,
    model: options.RewardModels = [],  # noqa: B006
    pool: Annotated[
        Path | None,
        options.flag(
            "Answers that were sampled elsewhere: a JSONL or Parquet file with `question`, `answers`, and `gold`.",
            options.ANSWERS,
        ),
    ] = None,
    judge: options.Judge = "",
    users: options.Users = None,
    limit: options.Limit = None,
    group_by: options.GroupBy = [],  # noqa: B006
    seed: options.Seed = 0,
    max_failed: options.MaxFailed = 0.5,
    out: options.Out = Path("runs/bon"),
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Best-of-N: what does a user get when a reward model picks the best of n answers, for every n up to N?

    The pool is sampled and graded once, and kept: the same command again, or one with other models, uses it.
    `SPEC?context=none` shows one of the models no user. With `--pool` nothing is sampled; where the file has scores of
    reward models, these are used if no `--model` is named.

    Example: `prbench bon --policy lab --model head:lab-user --model head:lab-average?context=none --posts 30 --n 64`
    """
    for name, count in (("--users", users), ("--limit", limit)):
        if count == 1:
            raise UsageError(f"{name} 1: an interval needs more than one. Give 2 or more.")
    recorded = None if pool is None else _read_pool(pool, ctx)
    settings = BonSettings(
        n=sampling.n if recorded is None else recorded.n,
        users=users,
        limit=limit,
        policy_context=options.one_of("--policy-context", sampling.policy_context, KINDS),
        context=context.settings(seed=seed),
    )
    model_settings = running.settings(seed=seed, cache=out / "cache" / "llm.sqlite")
    which = data.which()
    given = labels.open(which)
    with cost.applied() as ledger, options.progress_of_steps(quiet=json) as progress_of:
        policy: Policy = recorded.policy() if recorded else _load_policy(sampling, model_settings)
        if ledger is not None and isinstance(policy, ChatPolicy) and model_settings.cache:
            policy = policy.kept_in(model_settings.cache)
        run = best_of_n(
            data.data if recorded is None else recorded,
            policy,
            model or ([] if recorded is None else recorded.specs),
            settings,
            out=out,
            which=which,
            judge=judge,
            model_settings=model_settings,
            labels=given,
            group_by=group_by,
            command=options.command_line(),
            progress_of=progress_of,
        )
    for note in run.notes:
        options.notes.print(note, style="yellow", soft_wrap=True)
    options.print_spent(ledger)
    page = run.folder / PAGE
    write_page(render(run.summary, origin_of([run.folder], options.command_line())), page)
    if json:
        options.print_json(run.summary)
    else:
        _print(run, page)
    if _left_out(run.summary) > max_failed:
        raise typer.Exit(1)


def _load_policy(sampling: SamplingOptions, settings: ModelSettings) -> Policy:
    return load_policy(
        sampling.policy,
        temperature=sampling.temperature,
        max_tokens=sampling.max_new_tokens or MAX_TOKENS,
        top_p=sampling.top_p,
        batch_size=None if settings.batch_size == AUTO else settings.batch_size,
        dtype=settings.dtype,
    )


def _read_pool(pool: Path, context: typer.Context) -> PoolFile:
    """Read the answers; options that say what to sample, and for which rows, mean nothing beside them."""
    for record, what in ((SamplingOptions, "policy, --n and the like"), (options.SourceOptions, "data")):
        if options.typed(context, *(each.name for each in fields(record))):  # a default, too, where it was typed
            raise UsageError(f"--pool {pool}: holds the questions and their answers. Leave out --{what}.")
    return PoolFile.read(pool)


def _left_out(summary: Mapping[str, Json]) -> float:
    """Return the largest share of questions that a model has no figures about."""
    asked = summary["questions"] + sum(summary["left_out"].values())
    return 1.0 - int(min(figures["questions"] for figures in summary["models"].values())) / int(asked)


def _print(run: BonRun, page: Path) -> None:
    summary, n = run.summary, str(run.summary["n"])
    title = f"Best of {n}: {summary['policy']}, {summary['questions']} questions of {summary['users']} users"
    table = Table(title=title, caption="value: by the truth; headroom: share of the oracle's gain over one answer")
    table.add_column("picked by", overflow="fold")
    for name in ("value", "captured headroom, %", "drop by swap"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, figures in summary["models"].items():
        swap = figures["swap"]
        table.add_row(
            name,
            VALUE.value(figures["value_at"][n]),
            PERCENT.estimate(figures["captured_headroom"]),
            VALUE.estimate(swap and swap["drop"]),
        )
    options.out_console.print(table)
    for note in notes_of(summary):
        options.out_console.print(note, style="yellow", soft_wrap=True)
    for name, details in run.failures.items():
        if why := most_frequent(details):
            options.out_console.print(
                f"{name}: {len(details)} without a result, {why}", style="yellow", soft_wrap=True
            )
    options.out_console.print(f"written to {run.folder} ({page.name} is the page)", soft_wrap=True)
