"""How each group and each user is served by the runs of a board, as tables: on its page, and as files beside it."""

from collections.abc import Iterator, Mapping, Sequence

from prbench.metrics.groups import figures_of, group_table, user_table
from prbench.metrics.number_format import MISSING, p_text
from prbench.pages.board import GROUP_FIGURES, Board, Line
from prbench.schema import Json

Table = tuple[tuple[str, ...], list[list[Json]]]
RUN_COLUMNS = ("data", "model", "context", "run_id")
USER_COLUMNS = ("user", "n", "accuracy", "gain", "swap_gap", "alignment", "spearman", "kendall")
GROUP_COLUMNS = (
    *("field", "figure", "group", "users", "n", "value", "low", "high", "place"),
    *("gap", "gap_low", "gap_high", "p_value"),
)


def users_of_boards(boards: Sequence[Board]) -> Table:
    """Return one line per run and user."""
    rows = [
        [*_run(board, line), *(user.get(name) for name in USER_COLUMNS)]
        for board in boards
        for line in board.lines
        for user in user_table(line.run.rows)
    ]
    return (*RUN_COLUMNS, *USER_COLUMNS), rows


def groups_of_boards(boards: Sequence[Board]) -> Table:
    """Return one line per run, field, figure and group; none where the runs were not grouped."""
    rows = [
        [*_run(board, line), *(group[name] for name in GROUP_COLUMNS)]
        for board in boards
        for line in board.lines
        for group in group_table(line.summary["groups"] or {})
    ]
    return (*RUN_COLUMNS, *GROUP_COLUMNS), rows


def _run(board: Board, line: Line) -> list[Json]:
    return [board.data, line.run.model, line.summary["context"], line.summary["run_id"]]


def tables_of_groups(board: Board) -> Iterator[tuple[str, Table, Table]]:
    """Yield each field that the runs were grouped by, with a table of the gaps and one of the groups."""
    grouped = [(line.run.name, line.summary["groups"] or {}) for line in board.lines]
    for field in dict.fromkeys(name for _, groups in grouped for name in groups):
        runs = [(run, groups[field]) for run, groups in grouped if field in groups]
        yield field, _gaps(runs), _groups(runs)


def _gaps(runs: Sequence[tuple[str, Json]]) -> Table:
    rows: list[list[Json]] = []
    for run, found in runs:
        for name, figure in figures_of(found).items():
            label, form = GROUP_FIGURES[name]
            ends = (figure["worst"], figure["best"])
            cells = [cell for each in ends for cell in (_named(each), _n(figure["groups"], each))]
            rows.append([run, label, *cells, form.estimate(figure["gap"]), p_text(figure["p_value"])])
    return ("run", "figure", "worst group", "its n", "best group", "its n", "gap", "p"), rows


def _groups(runs: Sequence[tuple[str, Json]]) -> Table:
    named = dict.fromkeys(name for _, found in runs for name in figures_of(found))
    rows: list[list[Json]] = []
    for run, found in runs:
        figures = figures_of(found)
        for group, users in found["users"].items():
            cells = (figures[name]["groups"].get(group) if name in figures else None for name in named)
            texts = (GROUP_FIGURES[name][1].estimate(cell) for name, cell in zip(named, cells, strict=True))
            rows.append([run, _named(group), users, *texts])
    return ("run", "group", "users", *(GROUP_FIGURES[name][0] for name in named)), rows


def _named(group: str | None) -> str:
    return MISSING if group is None else group or "(none)"


def _n(groups: Mapping[str, Json], group: str | None) -> Json:
    return "" if group is None else groups[group]["n"]
