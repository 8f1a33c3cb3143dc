"""Boards and pages from finished runs."""

from collections.abc import Sequence
from pathlib import Path

from prbench.data import DataSettings, open_data
from prbench.errors import PrbenchError
from prbench.pages.board import Board
from prbench.pages.board_page import render
from prbench.pages.items import Items
from prbench.pages.shell import prepare_place, write_page


def write_report(boards: Sequence[Board], path: Path, *, command: str = "") -> None:
    """Write one self-contained page; the texts of items are read from the data again, if it is still the same."""
    items = Items()
    for board in boards:
        if board.kind == "pairs":
            _add_items(items, board)
    prepare_place(path, "board.html")
    write_page(render(boards, items, command=command), path)


def _add_items(items: Items, board: Board) -> None:
    manifest = board.lines[0].run.manifest
    which = DataSettings(**manifest["data"])
    if not which.source:
        return
    try:
        store = open_data(which)
    except PrbenchError:
        return  # moved or deleted since: the page says that items cannot be shown
    with store:
        if store.content_hash == manifest["config"]["data_hash"]:
            items.add(board, store)
