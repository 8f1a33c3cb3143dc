"""From runs to a board: lines with intervals, rank groups, floors and ceilings, and what the set can resolve.

Every figure has one name, in the terminal, on pages and in CSV: see `METRICS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prbench.evaluation.summary import FinishedRun
from prbench.metrics.compare import rank_board
from prbench.metrics.number_format import MISSING, PERCENT, POINTS, NumberFormat
from prbench.schema import Json, Probe, Row

NOTHING_YET = {"value": 0.0}
FLOOR, CEILING, RANKED = "floor", "ceiling", "ranked"
PAIRS, RATINGS = "pairs", "ratings"  # the kinds of boards
Summary = Mapping[str, Json]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One run on the board."""

    run: FinishedRun
    role: str  # floor (a control), ceiling (saw the gold rubric), or ranked
    group: int | None  # runs that cannot be told apart share it; ceilings have none

    @property
    def summary(self) -> Summary:
        """The figures of the run."""
        return self.run.summary


@dataclass(frozen=True, kw_only=True)
class Board:
    """All runs on one dataset, best first; ceilings last."""

    kind: str  # pairs, or ratings
    data: str
    n: int
    users: int
    resolution: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure of a run: its name everywhere, what it says, and where a summary has it."""

    name: str
    help: str
    read: Callable[[Summary], Json]  # an estimate, a bare number, or `None`
    form: NumberFormat = PERCENT
    printed: bool = False  # on the board in the terminal
    starred: bool = False  # there: a star in place of the interval
    alone: bool = False  # there: without an interval
    dull: str = ""  # there: what it says when there is nothing to see; a column of nothing else is left out


def _of_swap(name: str) -> Callable[[Summary], Json]:
    return lambda summary: (summary["swap"] or {}).get(name)


def _of_order(name: str) -> Callable[[Summary], Json]:
    return lambda summary: (summary["order"] or {}).get(name)


def _of_ratings(name: str) -> Callable[[Summary], Json]:
    return lambda summary: summary["ratings"][name]


def _alignment_of(contrast: str) -> Callable[[Summary], Json]:
    return lambda summary: (summary["ratings"][contrast] or {}).get("alignment")


COVERAGE = Metric(
    name="coverage",
    help="Share of readable verdicts",
    read=lambda s: s["coverage"],
    printed=True,
    alone=True,
    dull="100.0",
)
METRICS: Mapping[str, Sequence[Metric]] = {
    PAIRS: (
        Metric(
            name="accuracy",
            help="Unreadable counts as wrong, a tie as one half",
            read=lambda s: s["accuracy"],
            printed=True,
        ),
        Metric(
            name="gain",
            help="Accuracy with the profile minus without, paired",
            read=lambda s: s["personalization_gain"],
            form=POINTS,
            printed=True,
            starred=True,
        ),
        Metric(
            name="swap gap",
            help="Accuracy with the own profile minus with another user's, paired",
            read=_of_swap("gap"),
            form=POINTS,
            printed=True,
            starred=True,
        ),
        Metric(
            name="minority",
            help="Accuracy where this user wants what most users do not want",
            read=lambda s: s["minority_accuracy"],
            printed=True,
            alone=True,
        ),
        Metric(
            name="majority",
            help="Accuracy where this user wants what most users want",
            read=lambda s: s["majority_accuracy"],
        ),
        Metric(name="by user", help="Mean over users of their accuracy", read=lambda s: s["macro_user_accuracy"]),
        Metric(
            name="worst decile",
            help="Mean accuracy of the tenth of users that are served worst",
            read=lambda s: s["worst_decile_accuracy"],
        ),
        Metric(name="ties", help="Share of ties", read=lambda s: s["tie_rate"], printed=True, alone=True, dull="0.0"),
        COVERAGE,
        Metric(
            name="consistent",
            help="Judges: share of pairs whose two orders name the same response",
            read=_of_order("consistent"),
        ),
        Metric(
            name="position bias",
            help="Judges: how much more often than chance the first response is picked",
            read=_of_order("position_bias"),
            form=POINTS,
        ),
        Metric(
            name="calibration error",
            help="How far confidence is from the share that is right, after one temperature",
            read=lambda s: (s["calibration"] or {}).get("ece"),
        ),
    ),
    RATINGS: (
        Metric(
            name="alignment",
            help="1 - |mapped score - rating|, mean over users",
            read=_of_ratings("alignment"),
            printed=True,
        ),
        Metric(
            name="floor", help="Guessing the others' mean rating", read=_of_ratings("floor"), printed=True, alone=True
        ),
        Metric(
            name="gain",
            help="Alignment with the profile minus without",
            read=_alignment_of("gain"),
            form=POINTS,
            printed=True,
            starred=True,
        ),
        Metric(
            name="swap gap",
            help="Alignment with the own profile minus with another user's",
            read=_alignment_of("swap_gap"),
            form=POINTS,
            printed=True,
            starred=True,
        ),
        Metric(
            name="Spearman",
            help="Of scores and ratings, mean over users",
            read=_of_ratings("spearman"),
            form=NumberFormat(2),
            printed=True,
            alone=True,
        ),
        Metric(
            name="Kendall",
            help="Of scores and ratings, mean over users",
            read=_of_ratings("kendall"),
            form=NumberFormat(2),
            printed=True,
            alone=True,
        ),
        COVERAGE,
    ),
}
LEGEND = (
    "Runs with the same # cannot be told apart (paired bootstrap over users, Holm). gain: accuracy with minus without "
    "the profile. swap gap: own minus another user's profile. Controls are floors; oracle runs saw the gold rubric: a "
    "ceiling, not ranked."
)
STAR = "*: the interval excludes 0."


def make_boards(runs: Sequence[FinishedRun]) -> list[Board]:
    """Return one board per dataset, in the order in which the datasets first appear."""
    by_data: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        kind = RATINGS if run.summary["ratings"] is not None else PAIRS
        by_data.setdefault((run.summary["data"]["hash"], kind), []).append(run)
    make = {PAIRS: _pairs_board, RATINGS: _ratings_board}
    return [make[kind](group) for (_, kind), group in by_data.items()]


def _pairs_board(runs: Sequence[FinishedRun]) -> Board:
    by_id = {run.folder.name: run for run in runs}
    contenders = {
        name: [row for row in run.rows if isinstance(row, Row) and row.probe is Probe.OWN]
        for name, run in by_id.items()
        if not _is_ceiling(run)
    }
    ranked = rank_board(contenders) if contenders else None
    lines = [
        Line(run=by_id[standing.name], role=_role(by_id[standing.name]), group=standing.group)
        for standing in (ranked.standings if ranked else ())
    ]
    ceilings = sorted((run for run in runs if _is_ceiling(run)), key=lambda run: run.name)
    lines += [Line(run=run, role=CEILING, group=None) for run in ceilings]
    return _board(
        PAIRS, runs[0], _resolution(ranked.resolution if ranked else None, runs[0].summary["n_items"]), lines
    )


def _ratings_board(runs: Sequence[FinishedRun]) -> Board:
    """Return the runs by alignment. They are not put into rank groups: the differences are not tested here."""
    ranked = sorted(runs, key=lambda run: (-((run.summary["ratings"]["alignment"] or NOTHING_YET)["value"]), run.name))
    note = "Compare alignment with its floor: guessing the other users' mean rating each time."
    return _board(RATINGS, runs[0], note, [Line(run=run, role=_role(run), group=None) for run in ranked])


def _board(kind: str, first: FinishedRun, resolution: str, lines: Sequence[Line]) -> Board:
    data = first.summary["data"]
    return Board(
        kind=kind,
        data=visible(data["name"]),
        n=first.summary["n_items"],
        users=data["users"],
        resolution=resolution,
        lines=tuple(lines),
    )


def _is_ceiling(run: FinishedRun) -> bool:
    return bool(run.summary["context"] == "oracle")


def _role(run: FinishedRun) -> str:
    return FLOOR if run.summary["kind"] == "control" else RANKED


def _resolution(smallest: float | None, n: int) -> str:
    if smallest is None:
        return f"Resolution: {n} pairs cannot show any difference (80 % power)."
    return f"Resolution: with {n} pairs, differences under {100 * smallest:.1f} points cannot be shown (80 % power)."


def board_table(boards: Sequence[Board]) -> tuple[tuple[str, ...], list[list[Json]]]:
    """Return one line per run, best first: every figure of the boards as its value, its interval and its n."""
    named = dict.fromkeys(metric.name for of_kind in METRICS.values() for metric in of_kind)
    heads = ("data", "kind", "items", "users", "rank_group", "role", "model", "context", "run_id")
    rows: list[list[Json]] = []
    for board in boards:
        of_kind = {metric.name: metric for metric in METRICS[board.kind]}
        for line in board.lines:
            facts = [board.data, board.kind, board.n, board.users, line.group, line.role, line.run.model]
            row = [*facts, line.summary["context"], line.summary["run_id"]]
            for name in named:
                found = of_kind[name].read(line.summary) if name in of_kind else None
                figure = found if isinstance(found, Mapping) else {"value": found}
                row += [figure.get(part) for part in ("value", "low", "high", "n")]
            rows.append(row)
    columns = [f"{name.lower().replace(' ', '_')}{part}" for name in named for part in ("", "_low", "_high", "_n")]
    return (*heads, *columns), rows


def print_boards(boards: Sequence[Board], console: Console) -> None:
    """Print the boards as tables."""
    for board in boards:
        console.print(f"\n{board.data}: {board.n} {board.kind} of {board.users} users", style="bold")
        console.print(_table(board))
        console.print(board.resolution, style="dim")
        if board.kind == PAIRS:
            console.print(f"{LEGEND} {STAR}", style="dim")


def _table(board: Board) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right")
    table.add_column("model", overflow="fold", min_width=16)
    table.add_column("context")
    shown = []
    for metric in (each for each in METRICS[board.kind] if each.printed):
        column = [_printed(metric, line.summary) for line in board.lines]
        if not (metric.dull and {metric.dull, MISSING}.issuperset(column)):
            table.add_column(metric.name, justify="right", no_wrap=True)
            shown.append(column)
    for place, line in enumerate(board.lines):
        table.add_row(
            "" if line.group is None else str(line.group),
            visible(line.run.model),
            line.summary["context"],
            *(column[place] for column in shown),
            style={FLOOR: "dim", CEILING: "italic", RANKED: ""}[line.role],
        )
    return table


def _printed(metric: Metric, summary: Summary) -> str:
    figure = metric.read(summary)
    if metric.starred:
        return metric.form.starred(figure)
    return metric.form.value(figure) if metric.alone else metric.form.estimate(figure)


def visible(text: str) -> str:
    """Return a text with control characters made visible, so that a name cannot steer the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def print_summary(summary: Summary, folder: Path | None, console: Console) -> None:
    """Print one run's figures, and where its rows are."""
    head = f"{visible(summary['model'])} · {summary['context']} · {summary['n_items']} items"
    console.print(head, style="bold")
    for metric in METRICS[PAIRS if summary["ratings"] is None else RATINGS]:
        figure = metric.read(summary)
        if isinstance(figure, float):
            console.print(f"  {metric.name:<18}{metric.form.number(figure)}")
        elif figure is not None or metric.printed:
            text = metric.form.value(figure) if metric.alone and metric.dull else metric.form.estimate(figure)
            console.print(f"  {metric.name:<18}{text}")
    for name, group in (summary["groups"] or {}).items():
        best, worst, gap = visible(group["best"]), visible(group["worst"]), PERCENT.estimate(group["gap"])
        console.print(f"  by {name}: best {best}, worst {worst}, gap {gap}")
        for value, estimate in group["groups"].items():
            console.print(f"    {visible(value) or '(none)'}: {PERCENT.estimate(estimate)} (n {estimate['n']})")
    for reason, count in (summary["unreadable"] or {}).items():
        console.print(f"  unreadable: {count} items, {reason}", style="yellow")
    if summary["truncated_items"]:
        console.print(
            f"  {summary['dropped_posts']} posts of {summary['truncated_items']} items did not fit the window",
            style="yellow",
        )
    if folder:
        console.print(f"  rows: {folder}", style="dim", soft_wrap=True)
