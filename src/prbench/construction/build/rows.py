"""Lines of the stage files: what every one of them begins with."""

from prbench.construction.build.item import Item
from prbench.schema import Json

Row = dict[str, Json]


def stage_row(item: Item, round_: int, **content: Json) -> Row:
    """Return one line of a stage file."""
    return {"id": item.id, "user_id": item.user.id, "round": round_, **content}


def in_order(rows: list[Row], items: list[Item]) -> list[Row]:
    """Return the rows by item, then by round."""
    place = {item.id: number for number, item in enumerate(items)}
    return sorted(rows, key=lambda row: (place[row["id"]], row["round"]))
