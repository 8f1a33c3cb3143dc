"""From runs to a board: lines with intervals, rank groups, floors and ceilings, and what the set can resolve."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prbench.evaluation.summary import FinishedRun
from prbench.metrics.compare import rank_board
from prbench.schema import Json, Probe, Row

MISSING = "–"
NOTHING_YET = {"value": 0.0}
FLOOR, CEILING, RANKED = "floor", "ceiling", "ranked"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One run on the board."""

    run: FinishedRun
    role: str  # floor (a control), ceiling (saw the gold rubric), or ranked
    group: int | None  # runs that cannot be told apart share it; ceilings have none

    @property
    def summary(self) -> Mapping[str, Json]:
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


def make_boards(runs: Sequence[FinishedRun]) -> list[Board]:
    """Return one board per dataset, in the order in which the datasets first appear."""
    by_data: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        kind = "ratings" if run.summary["ratings"] is not None else "pairs"
        by_data.setdefault((run.summary["data"]["hash"], kind), []).append(run)
    make = {"pairs": _pairs_board, "ratings": _ratings_board}
    return [make[kind](group) for (_, kind), group in by_data.items()]


def _pairs_board(runs: Sequence[FinishedRun]) -> Board:
    by_id = {run.folder.name: run for run in runs}
    contenders = {name: _own(run) for name, run in by_id.items() if not _is_ceiling(run)}
    ranked = rank_board(contenders) if contenders else None
    lines = [
        Line(run=by_id[standing.name], role=_role(by_id[standing.name]), group=standing.group)
        for standing in (ranked.standings if ranked else ())
    ]
    ceilings = sorted((run for run in runs if _is_ceiling(run)), key=lambda run: run.name)
    lines += [Line(run=run, role=CEILING, group=None) for run in ceilings]
    data = runs[0].summary["data"]
    n = runs[0].summary["n_items"]
    return Board(
        kind="pairs",
        data=visible(data["name"]),
        n=n,
        users=data["users"],
        resolution=_resolution(ranked.resolution if ranked else None, n),
        lines=tuple(lines),
    )


def _ratings_board(runs: Sequence[FinishedRun]) -> Board:
    """Return the runs by alignment. They are not put into rank groups: the differences are not tested here."""
    ranked = sorted(runs, key=lambda run: (-((run.summary["ratings"]["alignment"] or NOTHING_YET)["value"]), run.name))
    data = runs[0].summary["data"]
    return Board(
        kind="ratings",
        data=visible(data["name"]),
        n=runs[0].summary["n_items"],
        users=data["users"],
        resolution="Read alignment beside its floor: guessing the other users' mean rating each time.",
        lines=tuple(Line(run=run, role=_role(run), group=None) for run in ranked),
    )


def _is_ceiling(run: FinishedRun) -> bool:
    return bool(run.summary["context"] == "oracle")


def _role(run: FinishedRun) -> str:
    return FLOOR if run.summary["kind"] == "control" else RANKED


def _own(run: FinishedRun) -> list[Row]:
    return [row for row in run.rows if isinstance(row, Row) and row.probe is Probe.OWN]


def _resolution(smallest: float | None, n: int) -> str:
    if smallest is None:
        return f"Resolution: {n} pairs cannot show any difference (80 % power)."
    return f"Resolution: with {n} pairs, differences under {100 * smallest:.1f} points cannot be shown (80 % power)."


def print_boards(boards: Sequence[Board], console: Console) -> None:
    """Print the boards as tables."""
    for board in boards:
        unit = "pairs" if board.kind == "pairs" else "ratings"
        console.print(f"\n{board.data}: {board.n} {unit} of {board.users} users", style="bold")
        console.print(_table(board))
        console.print(board.resolution, style="dim")
        if board.kind == "pairs":
            console.print(LEGEND, style="dim")


LEGEND = (
    "Runs with the same # cannot be told apart (paired bootstrap over users, Holm). gain: accuracy with minus without "
    "the profile. swap gap: own minus another user's profile. *: the interval excludes 0. Controls are floors; oracle "
    "runs saw the gold rubric: a ceiling, not ranked."
)


@dataclass(frozen=True)
class Figure:
    """One column of the printed board."""

    name: str
    text: Callable[[Mapping[str, Json]], str]
    always: bool = True
    dull: str = ""  # what it says when there is nothing to see; a column of nothing else is left out

    def is_news(self, summary: Mapping[str, Json]) -> bool:
        """True where this run has something to say in this column."""
        return self.text(summary) not in (self.dull, MISSING)


FIGURES = (
    Figure("accuracy", lambda summary: percent(summary["accuracy"], interval=True)),
    Figure("gain", lambda summary: starred(summary["personalization_gain"])),
    Figure("swap gap", lambda summary: starred((summary["swap"] or {}).get("gap"))),
    Figure("minority", lambda summary: percent(summary["minority_accuracy"])),
    Figure("ties", lambda summary: percent(summary["tie_rate"]), always=False, dull="0.0"),
    Figure("coverage", lambda summary: percent(summary["coverage"]), always=False, dull="100.0"),
)


RATING_FIGURES = (
    Figure("alignment", lambda summary: percent(summary["ratings"]["alignment"], interval=True)),
    Figure("floor", lambda summary: percent(summary["ratings"]["floor"])),
    Figure("gain", lambda summary: starred((summary["ratings"]["gain"] or {}).get("alignment"))),
    Figure("swap gap", lambda summary: starred((summary["ratings"]["swap_gap"] or {}).get("alignment"))),
    Figure("Spearman", lambda summary: plain(summary["ratings"]["spearman"])),
    Figure("Kendall", lambda summary: plain(summary["ratings"]["kendall"])),
    Figure("coverage", lambda summary: percent(summary["coverage"]), always=False, dull="100.0"),
)


def _table(board: Board) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right")
    table.add_column("model", overflow="fold", min_width=16)
    table.add_column("context")
    shown = [
        column for column in FIGURES if column.always or any(column.is_news(line.summary) for line in board.lines)
    ]
    for column in shown:
        table.add_column(column.name, justify="right", no_wrap=True)
    for line in board.lines:
        summary = line.summary
        style = {FLOOR: "dim", CEILING: "italic", RANKED: ""}[line.role]
        table.add_row(
            "" if line.group is None else str(line.group),
            visible(line.run.model),
            summary["context"],
            *(column.text(summary) for column in shown),
            style=style,
        )
    return table


def visible(text: str) -> str:
    """Return a text with control characters made visible, so that a name cannot steer the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def plain(estimate: Mapping[str, float] | None) -> str:
    """Return a correlation with two digits."""
    return MISSING if estimate is None else f"{estimate['value']:.2f}"


def starred(estimate: Mapping[str, float] | None) -> str:
    """Return a difference in points, with a star where its interval excludes 0."""
    if estimate is None:
        return MISSING
    star = "*" if estimate["low"] > 0 or estimate["high"] < 0 else " "
    return f"{100 * estimate['value']:+.1f}{star}"


def percent(estimate: Mapping[str, float] | None, *, interval: bool = False, sign: bool = False) -> str:
    """Return an estimate in percent (or points), with its interval where asked for."""
    if estimate is None:
        return MISSING
    form = "{:+.1f}" if sign else "{:.1f}"
    value, low, high = (form.format(100 * estimate[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]" if interval else value


def print_summary(summary: Mapping[str, Json], folder: Path | None, console: Console) -> None:
    """Print one run's figures, and where its rows are."""
    if summary["ratings"] is not None:
        _print_ratings(summary, console)
    else:
        _print_pairs(summary, console)
    for reason, count in (summary["unreadable"] or {}).items():
        console.print(f"  unreadable: {count} items, {reason}", style="yellow")
    if summary["truncated_items"]:
        console.print(
            f"  {summary['dropped_posts']} posts of {summary['truncated_items']} items did not fit the window",
            style="yellow",
        )
    if folder:
        console.print(f"  rows: {folder}", style="dim", soft_wrap=True)


def _print_pairs(summary: Mapping[str, Json], console: Console) -> None:
    swap = summary["swap"] or {}
    facts = {
        "accuracy": percent(summary["accuracy"], interval=True),
        "by user": percent(summary["macro_user_accuracy"], interval=True),
        "gain": percent(summary["personalization_gain"], interval=True, sign=True),
        "swap gap": percent(swap.get("gap"), interval=True, sign=True),
        "minority": percent(summary["minority_accuracy"], interval=True),
        "majority": percent(summary["majority_accuracy"], interval=True),
        "coverage": percent(summary["coverage"]),
        "ties": percent(summary["tie_rate"]),
    }
    if summary["order"]:
        facts["position bias"] = percent(summary["order"]["position_bias"], interval=True, sign=True)
    _print_facts(summary, facts, console)
    for name, group in (summary["groups"] or {}).items():
        best, worst, gap = visible(group["best"]), visible(group["worst"]), percent(group["gap"], interval=True)
        console.print(f"  by {name}: best {best}, worst {worst}, gap {gap}")
        for value, estimate in group["groups"].items():
            console.print(f"    {visible(value) or '(none)'}: {percent(estimate, interval=True)} (n {estimate['n']})")


def _print_ratings(summary: Mapping[str, Json], console: Console) -> None:
    ratings = summary["ratings"]
    facts = {name: percent(ratings[name], interval=True) for name in ("alignment", "floor")}
    facts |= {name: plain(ratings[name]) for name in ("spearman", "kendall")}
    for name in ("gain", "swap_gap"):
        contrast = (ratings[name] or {}).get("alignment")
        facts[name.replace("_", " ")] = percent(contrast, interval=True, sign=True)
    facts["coverage"] = percent(summary["coverage"])
    _print_facts(summary, facts, console)


def _print_facts(summary: Mapping[str, Json], facts: Mapping[str, str], console: Console) -> None:
    head = f"{visible(summary['model'])} · {summary['context']} · {summary['n_items']} items"
    console.print(head, style="bold")
    for name, text in facts.items():
        console.print(f"  {name:<14}{text}")
