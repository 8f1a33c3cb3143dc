"""`prbench ppo`: train a policy by a reward model, and measure what its users get."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table

from prbench.backends.trackers import active_trackers, figures_of, tracking
from prbench.cli import options
from prbench.context import Labels
from prbench.data import DataSettings, open_data
from prbench.downstream.ppo.settings import PpoSettings, read_settings
from prbench.errors import DataError, UsageError
from prbench.metrics.number_format import NumberFormat
from prbench.pages.shell import origin_of, write_page
from prbench.registry import TRAINERS
from prbench.reward_models import ModelSettings, read_ref
from prbench.schema import Example, Json

if TYPE_CHECKING:
    from prbench.downstream.ppo.loop import StepCallback

LEARNING, HELD_OUT = "Learning", "Held-out users"
# Flags that are settings: `--set` takes them as well. Only those that are typed count, so that `--set` can have them.
_SETTINGS = (
    *("algorithm", "context", "posts", "rank", "planner", "reward_context", "dtype", "seed", "steps", "rollout_batch"),
    *("max_new_tokens", "learning_rate", "kl_coefficient", "kl_budget", "lora_rank", "max_failed", "checkpoint_every"),
)
_SHOWN_ROWS = 12
GOLD = NumberFormat(3)
_COLUMNS = ("step", "reward", "gold", "kl", "entropy", "length", "clip_fraction", "failure_rate", "tokens_per_second")

app = options.new_app("ppo", invoke_without_command=True)


@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """What learns, from which rewards, and how; `--set` has the further settings."""

    policy: options.PolicyIfAny = None
    model: options.RewardModelIfAny = None
    context: options.ContextKind = PpoSettings.context
    posts: options.Posts = PpoSettings.posts
    rank: options.Rank = PpoSettings.rank
    planner: options.Planner = PpoSettings.planner
    reward_context: Annotated[
        str, options.flag("What the reward model is told, if not the same as the policy.", options.CONTEXT)
    ] = PpoSettings.reward_context
    algorithm: Annotated[str, options.flag("`ppo`, or `grpo` and `rloo` by TRL.", LEARNING)] = PpoSettings.algorithm
    steps: Annotated[int, options.flag("Updates.", LEARNING, min=1)] = PpoSettings.steps
    rollout_batch: Annotated[int, options.flag("Answers per step.", LEARNING, min=1)] = PpoSettings.rollout_batch
    max_new_tokens: options.MaxNewTokens = PpoSettings.max_new_tokens
    learning_rate: Annotated[float, options.flag("Of the policy.", LEARNING, min=0)] = PpoSettings.learning_rate
    kl_coefficient: Annotated[
        float, options.flag("Price of a nat of distance from the reference.", LEARNING, min=0)
    ] = PpoSettings.kl_coefficient
    kl_budget: Annotated[float | None, options.flag("Nats per answer at which the run ends.", LEARNING, min=0)] = (
        PpoSettings.kl_budget
    )
    lora_rank: Annotated[int, options.flag("Train an adapter of this rank; 0: all weights.", LEARNING, min=0)] = (
        PpoSettings.lora_rank
    )
    checkpoint_every: Annotated[int, options.flag("Steps between policies that are kept.", LEARNING, min=1)] = (
        PpoSettings.checkpoint_every
    )
    max_failed: options.MaxFailed = PpoSettings.max_failed
    settings: options.Settings = field(default_factory=list)
    dtype: options.Dtype = PpoSettings.dtype
    seed: options.Seed = PpoSettings.seed

    def read(self, context: typer.Context) -> PpoSettings:
        """Return how to learn."""
        if self.policy is None or self.model is None:
            missing = "a policy with --policy" if self.policy is None else "what rewards its answers with --model"
            raise UsageError(f"Name {missing}.")
        return read_settings(
            self.settings, policy=self.policy, reward=self.model, **options.typed(context, *_SETTINGS)
        )


@dataclass(frozen=True, kw_only=True)
class HeldOutOptions:
    """On whom to measure the policies that were kept."""

    eval_split: Annotated[
        str, options.flag("Then measure every policy that was kept on this split, by gold.", HELD_OUT)
    ] = ""
    eval_limit: Annotated[int | None, options.flag("First N questions only.", HELD_OUT, min=1)] = None


def _learned_rows(data: options.DataOptions, held_out: HeldOutOptions) -> tuple[DataSettings, DataSettings]:
    """Return the rows to learn from, and those of other users."""
    from prbench.training.data import split_to_learn

    if held_out.eval_split and held_out.eval_split == (data.split or "train"):
        raise UsageError(
            f"--eval-split {held_out.eval_split}: the policy learns from that split. Hold other users out."
        )
    which = data.which()
    return (
        replace(which, split=split_to_learn(data.data, data.split)),
        replace(which, split=held_out.eval_split, limit=held_out.eval_limit),
    )


def ppo(
    ctx: typer.Context,
    learning: LearningOptions,
    data: options.DataOptions,
    labels: options.LabelOptions,
    held_out: HeldOutOptions,
    eval_samples: Annotated[int, options.flag("Answers per question.", HELD_OUT, min=1)] = 4,
    judge: options.Judge = "",
    out: options.OutIfAny = None,
    fresh: options.Fresh = False,
    log_to: options.LogTo = [],  # noqa: B006
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Train a policy by a reward model's scores of its answers, and measure it by gold where that is known.

    The same command again continues where it was interrupted, and comes to the same weights.

    Example: `prbench ppo --policy smollm2 --model control:gold --steps 50 --out runs/ppo-gold`
    """
    if ctx.invoked_subcommand is not None:
        return
    options.check_trackers(log_to)
    settings = learning.read(ctx)
    which, others = _learned_rows(data, held_out)
    if out is None:
        raise UsageError("Name a folder for the run with --out.")
    given = labels.open(which)
    with tracking(log_to, f"ppo {out.name}", {"data": data.data, **settings.to_config()}):
        _train(settings, which, others, out, labels=given, judge=judge, samples=eval_samples, fresh=fresh, json=json)


app.callback()(options.with_records(ppo))


@options.add(app, "compare")
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs that were measured by --eval-split.")],
    at_kl: options.AtKl = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Compare runs at the same distance from their references: gold, with the difference from the first.

    Example: `prbench ppo compare runs/ppo-a runs/ppo-b --at-kl 4`
    """
    from prbench.downstream.ppo.evaluate import compare_at_kl
    from prbench.pages.ppo import policy_context

    if at_kl is None:
        raise UsageError("Name a distance with --at-kl NATS: policies are compared at the same one.")
    found = compare_at_kl(runs, at_kl)
    if json:
        options.print_json(found)
        return
    table = Table("run", "context of policy / reward model", "updates", "KL", "gold", "difference from the first")
    for run in found["runs"]:
        table.add_row(
            run["run"],
            policy_context(run),
            str(run["step"]),
            f"{run['kl']:.2f}",
            GOLD.estimate(run["gold"]),
            GOLD.estimate(run["difference_from_first"]),
        )
    options.out_console.print(table)
    for warning in found["warnings"]:
        options.out_console.print(f"Warning: {warning}", soft_wrap=True)


@options.add(app, "export")
def export(
    ctx: typer.Context,
    trainer: Annotated[str, typer.Argument(help=f"Which trainer: {', '.join(TRAINERS.names)}; or TRAINER:DIR.")],
    learning: LearningOptions,
    data: options.DataOptions,
    labels: options.LabelOptions,
    held_out: HeldOutOptions,
    folder: Annotated[Path | None, typer.Argument(help="Folder to write.", show_default=False)] = None,
    config: options.Config = None,
) -> None:
    """Write the files with which another trainer learns the same: prompts, reward, configuration and launcher.

    Example: `prbench ppo export verl run --policy org/policy --model server:URL --data pairs/`
    """
    from prbench.downstream.ppo.training import labels_for

    trainer, _, target = trainer.partition(":")
    if bool(target) == (folder is not None):
        raise UsageError(f"Name one folder to write: prbench ppo export {trainer} DIR.")
    settings = learning.read(ctx)
    which, others = _learned_rows(data, held_out)
    write = TRAINERS.find(trainer, f"ppo export {trainer}").loader()
    server = read_ref(settings.reward).spec
    if server.kind != "server":
        raise UsageError(
            f"ppo export {trainer} needs a reward server: start `prbench serve`, and give --model server:URL."
        )

    def labels_of(rows: DataSettings) -> Labels | None:
        return labels_for(settings.reward, settings, labels.open(rows), rows)

    others = others if others.split else replace(which, split="validation", limit=None)
    files = write(
        folder or Path(target),
        data=read_pairs(which)[0],
        validation=read_pairs(others)[0],
        settings=settings,
        server=server.target,
        labels=labels_of(which),
        validation_labels=labels_of(others),
    )
    for path in files:
        options.out_console.print(str(path), soft_wrap=True)


def _train(
    settings: PpoSettings,
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
    from prbench.pages.ppo import PAGE, render_run

    examples, of_data = read_pairs(which)
    gold, note = (gold_judge(judge, examples), "") if judge else gold_of_data(of_data, examples)
    if note:
        options.notes.print(f"note: {note}", style="yellow", soft_wrap=True)
    strangers = _read_held_out(held_out, examples) if held_out.split else []
    trackers = active_trackers()
    with _live_table(settings, quiet=json) as show_step:

        def on_step(row: dict[str, Json]) -> None:
            trackers.log({f"ppo/{name}": value for name, value in row.items() if name != "step"}, step=row["step"])
            show_step(row)

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
        for entry in measured["policies"]:
            trackers.log(figures_of({"held_out": entry}), step=entry["step"])
    page = out / PAGE
    write_page(render_run(out, summary, measured, origin_of([out], options.command_line())), page)
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
def _live_table(settings: PpoSettings, *, quiet: bool) -> "Iterator[StepCallback]":
    """Show the last steps on a terminal, or a line every half minute in a log."""
    if quiet:
        yield lambda row: None
        return
    if not options.notes.is_terminal:
        tell = options.progress_lines("ppo")
        known = ("reward", "gold", "kl")
        yield lambda row: tell(
            row["step"],
            settings.steps,
            ", ".join(f"{name} {row[name]:.4g}" for name in known if row.get(name) is not None),
        )
        return
    rows: deque[Mapping[str, Json]] = deque(maxlen=_SHOWN_ROWS)
    with Live(_table(rows, settings), console=options.notes, transient=True, auto_refresh=False) as live:

        def show(row: dict[str, Json]) -> None:
            rows.append(row)
            live.update(_table(rows, settings), refresh=True)

        yield show


def _table(rows: Sequence[Mapping[str, Json]], settings: PpoSettings) -> Table:
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

        options.out_console.print(f"  context of policy / reward model: {policy_context(summary)}")
    for name, value in summary["last"].items():
        if value is not None:
            first = summary["first"].get(name)
            options.out_console.print(f"  {name:<10} {'?' if first is None else f'{first:.4g}'} → {value:.4g}")
    if summary["rewards_failed"]:
        options.out_console.print(f"  {summary['rewards_failed']} of {summary['rewards_asked']} rewards failed")
    for entry in (measured or {}).get("policies", []):
        options.out_console.print(
            f"  after {entry['step']} updates: KL {entry['kl']:.2f}, gold {GOLD.estimate(entry['gold'])}, "
            f"majority {GOLD.estimate(entry['gold_majority'])}, minority {GOLD.estimate(entry['gold_minority'])}",
            soft_wrap=True,
        )
    options.out_console.print(str(page), soft_wrap=True)
