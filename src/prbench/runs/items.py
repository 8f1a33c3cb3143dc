"""The values behind a figure, item by item, of every kind of run that has some."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import NamedTuple

from prbench.errors import RunError
from prbench.runs.files import not_a_row, read_lines
from prbench.runs.find import StoredRun
from prbench.runs.names import BON, EVAL, EVALUATION_ROWS, ITEMS, PPO
from prbench.schema import POINTS, Json, Probe, Row

_SIDES: Mapping[str, tuple[bool | None, ...]] = {
    "gold": (True, False, None),
    "gold_majority": (True,),
    "gold_minority": (False,),
}

_BON_ROW = {"id": str, "user_id": str, "model": str, "values": dict}
_POLICY_ROW: Mapping[str, type | tuple[type, ...]] = {
    "id": str,
    "user_id": str,
    "step": int,
    "gold": (int, float),
    "majority": (bool, NoneType),
}


class ItemValue(NamedTuple):
    """What one item contributes to a mean, and whose item it is."""

    item: str
    user: str
    value: float


def item_values(run: StoredRun, figure: str, of: str | int = "") -> list[ItemValue]:
    """Return the values whose mean a figure is; none where it is no mean of items. A damaged row is an error.

    `of` says which part of the run: the model of a Best-of-N, or how many updates were behind a policy of PPO.
    """
    match run.kind:
        case kind if kind == EVAL and figure in _POINTS:
            rows = [row for row in run.rows if isinstance(row, Row)]
            return list(_POINTS[figure](rows))
        case kind if kind == BON and figure.startswith("value_at."):
            return list(_best_of(run, figure.removeprefix("value_at."), str(of)))
        case kind if kind == PPO and figure in _SIDES:
            return [
                ItemValue(row["id"], row["user_id"], float(row["gold"]))
                for row in _lines(run, EVALUATION_ROWS, _POLICY_ROW)
                if row["step"] == of and row.get("majority") in _SIDES[figure]
            ]
    return []


def _lines(run: StoredRun, name: str, types: Mapping[str, type | tuple[type, ...]]) -> Iterator[dict[str, Json]]:
    """Yield the rows of a file; a row without one of these types is damaged."""
    for number, (_, _, row) in enumerate(read_lines(run.folder / name), start=1):
        if not all(isinstance(row.get(key), wanted) for key, wanted in types.items()):
            raise not_a_row(run.folder / name, number)
        yield row


def _best_of(run: StoredRun, n: str, model: str) -> Iterator[ItemValue]:
    for row in _lines(run, ITEMS, _BON_ROW):
        if row["model"] == model and n in row["values"]:
            value = row["values"][n]
            if not isinstance(value, int | float):
                raise RunError(f"{run.folder / ITEMS}: the value of {row['id']} is no number. Restore the file.")
            yield ItemValue(row["id"], row["user_id"], value)


def _own_points(rows: Iterable[Row]) -> Iterator[ItemValue]:
    return (ItemValue(row.id, row.user_id, POINTS[row.verdict]) for row in rows if row.probe is Probe.OWN)


def _side_points(rows: Sequence[Row], *, majority: bool) -> Iterator[ItemValue]:
    return _own_points(row for row in rows if row.groups.get("majority") is majority)


def _swap_points(rows: Sequence[Row]) -> Iterator[ItemValue]:
    swapped = {row.id: POINTS[row.verdict] for row in rows if row.probe is Probe.SWAP}
    return (ItemValue(item, user, own - swapped[item]) for item, user, own in _own_points(rows) if item in swapped)


_POINTS: Mapping[str, Callable[[Sequence[Row]], Iterator[ItemValue]]] = {
    "accuracy": _own_points,
    "swap.gap": _swap_points,
    "minority_accuracy": lambda rows: _side_points(rows, majority=False),
    "majority_accuracy": lambda rows: _side_points(rows, majority=True),
}
