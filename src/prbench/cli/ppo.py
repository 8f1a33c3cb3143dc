"""`prbench ppo`: train a policy by a reward model, and measure what its users get."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table

from prbench.cli import options
from prbench.context import Labels
from prbench.data import DataSettings, open_data
from prbench.errors import DataError, UsageError
from prbench.lab import LAB
from prbench.pages.shell import render_page, write_page
from prbench.registry import TRAINERS
from prbench.reward_models import ModelSettings, read_ref
from prbench.schema import Example, Json

if TYPE_CHECKING:
    from prbench.downstream.ppo.loop import StepCallback
    from prbench.downstream.ppo.settings import PpoSettings

LEARNING, HELD_OUT, EXPORT = "Learning", "Held-out users", "Other engines"
# Flags that are settings: `--set` takes them as well, and their defaults stand in `PpoSettings`.
_SETTINGS = (
    *("algorithm", "context", "posts", "rank", "planner", "reward_context", "dtype", "seed", "steps", "rollout_batch"),
    *("max_new_tokens", "learning_rate", "kl_coefficient", "kl_budget", "lora_rank", "max_failed", "checkpoint_every"),
)
_SHOWN_ROWS = 12
_COLUMNS = ("step", "reward", "gold", "kl", "entropy", "length", "clip_fraction", "failure_rate", "tokens_per_second")


def ppo(
    ctx: typer.Context,
    policy: Annotated[
        str | None,
        typer.Option(help="What learns: a folder, `smollm2` or a hub id.", rich_help_panel=options.MODEL),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="What pays: any reward model, e.g. `server:URL`, or `control:gold` (the lab's truth; `?noise=0.5`).",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    data: options.Data = LAB,
    subset: options.Subset = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split whose questions are asked.",
            show_default="train in the lab, else all rows",
            rich_help_panel=options.DATA,
        ),
    ] = None,
    revision: options.Revision = None,
    limit: options.Limit = None,
    context: options.ContextKind = "profile",
    posts: options.Posts = 10,
    rank: options.Rank = "recent",
    planner: options.Planner = "",
    reward_context: Annotated[
        str,
        typer.Option(
            help="What the reward model is told, if not the same as the policy.", rich_help_panel=options.CONTEXT
        ),
    ] = "",
    labels: options.Labels = "",
    shots: options.Shots = None,
    judge: Annotated[
        str,
        typer.Option(help="Tells the gold of answers: `lab` for rows that the lab wrote; default: the data's own."),
    ] = "",
    algorithm: Annotated[
        str, typer.Option(help="`ppo`, or `grpo` and `rloo` by TRL.", rich_help_panel=LEARNING)
    ] = "ppo",
    steps: Annotated[int | None, typer.Option(help="Updates.", min=1, rich_help_panel=LEARNING)] = None,
    rollout_batch: Annotated[
        int | None, typer.Option(help="Answers per step.", min=1, rich_help_panel=LEARNING)
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Of an answer.", min=1, rich_help_panel=LEARNING)] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the policy.", min=0, rich_help_panel=LEARNING)
    ] = None,
    kl_coefficient: Annotated[
        float | None,
        typer.Option(help="Price of a nat of distance from the reference.", min=0, rich_help_panel=LEARNING),
    ] = None,
    kl_budget: Annotated[
        float | None, typer.Option(help="Nats per answer at which the run ends.", min=0, rich_help_panel=LEARNING)
    ] = None,
    lora_rank: Annotated[
        int | None,
        typer.Option(help="Train an adapter of this rank; 0: all weights.", min=0, rich_help_panel=LEARNING),
    ] = None,
    max_failed: Annotated[
        float | None,
        typer.Option(help="Exit with 1 when more of a step's rewards failed.", min=0, max=1, rich_help_panel=LEARNING),
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps between policies that are kept.", min=1, rich_help_panel=LEARNING)
    ] = None,
    settings: Annotated[
        list[str], typer.Option("--set", help="Any further setting, as name=value.", rich_help_panel=LEARNING)
    ] = [],  # noqa: B006
    dtype: Annotated[
        str, typer.Option(help="`auto`, `float32` or `bfloat16`.", rich_help_panel=options.MODEL)
    ] = "auto",
    eval_split: Annotated[
        str,
        typer.Option(help="Then measure every policy that was kept on this split, by gold.", rich_help_panel=HELD_OUT),
    ] = "",
    eval_samples: Annotated[int, typer.Option(help="Answers per question.", min=1, rich_help_panel=HELD_OUT)] = 4,
    eval_limit: Annotated[
        int | None, typer.Option(help="First N questions only.", min=1, rich_help_panel=HELD_OUT)
    ] = None,
    compare: Annotated[
        list[Path], typer.Option(help="Compare evaluated runs instead; repeat it.", rich_help_panel=HELD_OUT)
    ] = [],  # noqa: B006
    at_kl: Annotated[
        float | None, typer.Option(help="With --compare: the distance at which.", min=0, rich_help_panel=HELD_OUT)
    ] = None,
    export: Annotated[
        tuple[str, Path] | None,
        typer.Option(help="Write files for another trainer instead: `verl DIR`.", rich_help_panel=EXPORT),
    ] = None,
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of this run.", rich_help_panel=options.OUTPUT)] = None,
    fresh: options.Fresh = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Train a policy by a reward model's scores of its answers, and measure it by gold where that is known.

    The same command again continues where it was interrupted, and comes to the same weights.

    Example: `prbench ppo --policy smollm2 --model control:gold --steps 50 --out runs/ppo-gold`
    """
    if compare:
        _compare(compare, at_kl, seed, json=json)
        return
    if policy is None or model is None:
        raise UsageError(f"Name {'a policy with --policy' if policy is None else 'what pays with --model'}.")
    from prbench.downstream.ppo.settings import read_settings
    from prbench.training.data import split_to_learn

    wanted = read_settings(settings, policy=policy, reward=model, **options.typed(ctx, *_SETTINGS))
    if eval_split and eval_split == (split or "train"):
        raise UsageError(f"--eval-split {eval_split}: the policy learns from that split. Hold other users out.")
    split = split_to_learn(data, split)
    which = DataSettings(source=data, subset=subset, split=split, revision=revision, limit=limit)
    held_out = DataSettings(source=data, subset=subset, split=eval_split, revision=revision, limit=eval_limit)
    if export is not None:
        _export(export, which, held_out, wanted, labels, shots)
        return
    if out is None:
        raise UsageError("Name a folder for the run with --out.")
    given_labels = options.open_labels_of(which, labels, shots)
    _train(
        wanted, which, held_out, out, labels=given_labels, judge=judge, samples=eval_samples, fresh=fresh, json=json
    )


def _train(
    settings: "PpoSettings",
    which: DataSettings,
    held_out: DataSettings,
    out: Path,
    *,
    labels: Labels | None,
    judge: str,
    samples: int,
    fresh: bool,
    json: bool,
) -> None:
    from prbench.downstream.ppo.evaluate import HeldOutSettings, evaluate_run
    from prbench.downstream.ppo.training import gold_judge, gold_of_data, train_policy
    from prbench.pages.ppo import PAGE, TEMPLATE, page_of_run

    examples, of_data = read_pairs(which)
    gold, note = (gold_judge(judge, examples), "") if judge else gold_of_data(of_data, examples)
    if note:
        options.notes.print(f"note: {note}", style="yellow", soft_wrap=True)
    strangers = _read_held_out(held_out, examples) if held_out.split else []
    with _live_table(settings, quiet=json) as on_step:
        summary = train_policy(
            examples,
            settings,
            out,
            model_settings=ModelSettings(seed=settings.seed),
            labels=labels,
            judge=gold,
            which=which,
            command=options.command_line(),
            fresh=fresh,
            on_step=on_step,
        )
    measured = None
    if strangers:
        how = HeldOutSettings(samples=samples, seed=settings.seed, split=held_out.split or "")
        with options.progress_bar("held-out users", quiet=json) as progress:
            measured = evaluate_run(out, strangers, how, progress)
    page = out / PAGE
    write_page(render_page(TEMPLATE, page=page_of_run(out, summary, measured)), page)
    if json:
        options.print_json({"out": str(out), "summary": summary, "evaluation": measured, "page": str(page)})
        return
    _show(summary, measured, page)


def _read_held_out(held_out: DataSettings, learned_from: Sequence[Example]) -> list[Example]:
    """Return rows that can be measured, of users whom the policy does not learn from."""
    from prbench.downstream.ppo.evaluate import check_gold_known, check_users_disjoint

    rows, _ = read_pairs(held_out)
    check_gold_known(rows)
    check_users_disjoint(learned_from, rows)
    return rows


def _compare(runs: Sequence[Path], kl: float | None, seed: int, *, json: bool) -> None:
    from prbench.downstream.ppo.evaluate import compare_at_kl
    from prbench.pages.ppo import policy_context

    if kl is None:
        raise UsageError(
            "--compare needs --at-kl NATS: policies are compared at the same distance from the reference."
        )
    found = compare_at_kl(runs, kl, seed=seed)
    if json:
        options.print_json(found)
        return
    table = Table("run", "told to policy / reward model", "updates", "KL", "gold", "difference from the first")
    for run in found["runs"]:
        table.add_row(
            run["run"],
            policy_context(run),
            str(run["step"]),
            f"{run['kl']:.2f}",
            _interval(run["gold"]),
            _interval(run["difference_from_first"]),
        )
    options.out_console.print(table)
    for warning in found["warnings"]:
        options.out_console.print(f"Warning: {warning}", soft_wrap=True)


def _export(
    export: tuple[str, Path],
    which: DataSettings,
    held_out: DataSettings,
    settings: "PpoSettings",
    labels: str,
    shots: int | None,
) -> None:
    engine, folder = export
    write = TRAINERS.find(engine, f"--export {engine} {folder}").loader()
    server = read_ref(settings.reward).spec
    if server.kind != "server":
        raise UsageError(
            f"--export {engine} needs a reward server: start `prbench serve`, and give --model server:URL."
        )
    from prbench.downstream.ppo.training import labels_for

    def labels_of(rows: DataSettings) -> Labels | None:
        return labels_for(settings.reward, settings, options.open_labels_of(rows, labels, shots), rows)

    held_out = held_out if held_out.split else DataSettings(source=which.source, split="validation")
    files = write(
        folder,
        data=read_pairs(which)[0],
        validation=read_pairs(held_out)[0],
        settings=settings,
        server=server.target,
        labels=labels_of(which),
        validation_labels=labels_of(held_out),
    )
    for path in files:
        options.out_console.print(str(path), soft_wrap=True)


def read_pairs(which: DataSettings) -> tuple[list[Example], str]:
    """Return the pairs of a split, and the judge that the data or its card names, if one is.

    Rated rows are refused, for nobody says what else their users would like.
    """
    with open_data(which) as store:
        rows, judge = list(store), store.named_judge
    if not all(isinstance(row, Example) for row in rows):
        raise DataError(f"{which.source}: holds rated responses, and PPO asks questions of pairs. Use another --data.")
    return [row for row in rows if isinstance(row, Example)], judge


@contextmanager
def _live_table(settings: "PpoSettings", *, quiet: bool) -> "Iterator[StepCallback]":
    """Show the last steps on a terminal; nothing where nobody watches."""
    from prbench.downstream.ppo.loop import no_callback

    if quiet or not options.notes.is_terminal:
        yield no_callback
        return
    rows: deque[Mapping[str, Json]] = deque(maxlen=_SHOWN_ROWS)
    with Live(_table(rows, settings), console=options.notes, transient=True, auto_refresh=False) as live:

        def show(row: dict[str, Json]) -> None:
            rows.append(row)
            live.update(_table(rows, settings), refresh=True)

        yield show


def _table(rows: Sequence[Mapping[str, Json]], settings: "PpoSettings") -> Table:
    table = Table(title=f"{settings.policy} by {settings.reward}, {settings.steps} steps")
    for name in _COLUMNS:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*["" if row.get(name) is None else f"{row[name]:.4g}" for name in _COLUMNS])
    return table


def _show(summary: Mapping[str, Json], measured: Mapping[str, Json] | None, page: Path) -> None:

    ended = "the KL budget was spent" if summary["ended"] == "kl_budget" else "done"
    options.out_console.print(f"{summary['updates']} updates, {ended}; weights {summary['weights']}")
    if "context" in summary:
        from prbench.pages.ppo import policy_context

        options.out_console.print(f"  told to policy / reward model: {policy_context(summary)}")
    for name, value in summary["last"].items():
        if value is not None:
            first = summary["first"].get(name)
            options.out_console.print(f"  {name:<10} {'?' if first is None else f'{first:.4g}'} → {value:.4g}")
    if summary["rewards_failed"]:
        options.out_console.print(f"  {summary['rewards_failed']} of {summary['rewards_asked']} rewards failed")
    for entry in (measured or {}).get("policies", []):
        options.out_console.print(
            f"  after {entry['step']} updates: KL {entry['kl']:.2f}, gold {_interval(entry['gold'])}, "
            f"majority {_interval(entry['gold_majority'])}, minority {_interval(entry['gold_minority'])}",
            soft_wrap=True,
        )
    options.out_console.print(str(page), soft_wrap=True)


def _interval(estimate: Mapping[str, float] | None) -> str:
    return "" if estimate is None else f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"
