"""`prbench bon`: sample answers, let every reward model pick, and see what the user gets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from prbench.backends.policy import MAX_TOKENS, TEMPERATURE, TOP_P
from prbench.cli import options
from prbench.context import KINDS, RANKS
from prbench.data import DataSettings
from prbench.downstream.best_of_n.run import BonRun, BonSettings, best_of_n
from prbench.downstream.policies import load_policy
from prbench.evaluation import EvalSettings
from prbench.lab import LAB
from prbench.pages.best_of_n import notes_of, number, page_of, percent
from prbench.pages.shell import render_page, write_page
from prbench.reward_models import ModelSettings
from prbench.reward_models.base import AUTO
from prbench.schema import Json

POLICY = "Policy"
PAGE = "bon.html"


def bon(
    model: Annotated[
        list[str],
        typer.Option(
            help="Reward model that picks; may be repeated. `SPEC?context=none` shows this one no user.",
            rich_help_panel=options.MODEL,
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(
            help="What writes the answers: `lab`, `hf:FOLDER_OR_ID`, `openai:NAME@URL`, `local:smollm2`.",
            rich_help_panel=POLICY,
        ),
    ] = "lab",
    n: Annotated[int, typer.Option("--n", help="Answers per question.", min=1, rich_help_panel=POLICY)] = 64,
    temperature: Annotated[float, typer.Option(help="Of the policy.", rich_help_panel=POLICY)] = TEMPERATURE,
    top_p: Annotated[
        float, typer.Option(help="Of an hf: policy: sample from this share of likely tokens.", rich_help_panel=POLICY)
    ] = TOP_P,
    max_tokens: Annotated[int, typer.Option(help="Of an answer.", min=1, rich_help_panel=POLICY)] = MAX_TOKENS,
    policy_context: Annotated[
        str,
        typer.Option(
            help="What the policy is told of the user: `none`, `profile`, `plan`, or, as a ceiling, `oracle`.",
            rich_help_panel=POLICY,
        ),
    ] = "none",
    judge: Annotated[
        str,
        typer.Option(help="LLM that grades by rubrics, or `lab` for rows that the lab wrote."),
    ] = "",
    data: options.Data = LAB,
    subset: options.Subset = None,
    split: options.Split = None,
    revision: options.Revision = None,
    users: Annotated[
        int | None, typer.Option(help="Take only the first N users.", min=2, rich_help_panel=options.DATA)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Take only the first N questions.", min=2, rich_help_panel=options.DATA)
    ] = None,
    context: options.ContextKind = "profile",
    posts: options.Posts = 10,
    rank: options.Rank = "recent",
    encoder: options.EncoderName = "minilm",
    planner: options.Planner = "",
    labels: options.Labels = "",
    shots: options.Shots = None,
    group_by: options.GroupBy = [],  # noqa: B006
    seed: options.Seed = 0,
    batch_size: options.BatchSize = "auto",
    max_length: options.MaxLength = None,
    dtype: options.Dtype = "auto",
    max_failed: options.MaxFailed = 0.5,
    out: options.Out = Path("runs/bon"),
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Best-of-N: what does a user get when a reward model picks the best of n answers, for every n up to N?

    The pool is sampled and graded once, and kept: the same command again, or one with other models, uses it.

    Example: `prbench bon --policy lab --model head:lab-user --model head:lab-average?context=none --posts 30 --n 64`
    """
    settings = BonSettings(
        n=n,
        users=users,
        limit=limit,
        policy_context=options.one_of("--policy-context", policy_context, KINDS),
        context=EvalSettings(
            context=options.one_of("--context", context, KINDS),
            posts=posts,
            rank=options.one_of("--rank", rank, RANKS),
            planner=planner,
            encoder=encoder,
            seed=seed,
        ),
    )
    rows_at_once = options.parse_batch_size(batch_size)
    dtype = options.one_of("--dtype", dtype, ("auto", "float32", "bfloat16", "float16"))
    which = DataSettings(source=data, subset=subset, split=split, revision=revision)
    given = options.open_labels_of(which, labels, shots)
    cache = out / "cache" / "llm.sqlite"
    with options.progress_of_steps(quiet=json) as progress_of:
        run = best_of_n(
            data,
            load_policy(
                policy,
                temperature=temperature,
                max_tokens=max_tokens,
                top_p=top_p,
                batch_size=None if rows_at_once == AUTO else rows_at_once,
                dtype=dtype,
            ),
            model,
            settings,
            out=out,
            which=which,
            judge=judge,
            model_settings=ModelSettings(
                batch_size=rows_at_once,
                max_length=max_length,
                dtype=dtype,
                seed=seed,
                cache=cache,
            ),
            labels=given,
            group_by=group_by,
            command=options.command_line(),
            progress_of=progress_of,
        )
    page = run.folder / PAGE
    write_page(render_page("best_of_n.html", page=page_of(run.summary)), page)
    if json:
        options.print_json(run.summary)
    else:
        _print(run, page)
    if _left_out(run.summary) > max_failed:
        raise typer.Exit(1)


def _left_out(summary: Mapping[str, Json]) -> float:
    """Return the largest share of questions that a model has no figures about."""
    asked = summary["questions"] + sum(summary["left_out"].values())
    return 1.0 - int(min(figures["questions"] for figures in summary["models"].values())) / int(asked)


def _print(run: BonRun, page: Path) -> None:
    summary, n = run.summary, str(run.summary["n"])
    title = f"Best of {n}: {summary['policy']}, {summary['questions']} questions of {summary['users']} users"
    table = Table(title=title, caption="value: by the truth; headroom: share of the oracle's gain over one answer")
    table.add_column("picks", overflow="fold")
    for name in ("value", "headroom, %", "drop by swap"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, figures in summary["models"].items():
        swap = figures["swap"]
        table.add_row(
            name,
            number(figures["value_at"][n], interval=False),
            percent(figures["captured_headroom"]),
            number(swap and swap["drop"]),
        )
    options.out_console.print(table)
    for note in notes_of(summary):
        options.out_console.print(note, style="yellow", soft_wrap=True)
    options.out_console.print(f"written to {run.folder} ({page.name} is the page)", soft_wrap=True)
