"""A small annotation project in which two people have answered, each item in another way."""

from pathlib import Path
from typing import Any

from tests.conftest import make_row

from prbench.data import open_examples
from prbench.people.annotate.records import ItemAnswer, Mode, Ratings, Reason, Status
from prbench.people.annotate.store import Plan, Store, create
from prbench.schema import Verdict

CHOICES = (Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE)
NOTE = 'Ünïcode, "quotes", <b>tags</b>,\nand a new line'


def new_study(path: Path, mode: Mode, annotators: list[str], **plan: Any) -> Store:
    """Return a project of eight pairs in which nobody has answered."""
    rows = open_examples([make_row(number) for number in range(8)])
    create(path, rows, Plan(mode=mode, annotators=annotators, data="pairs.jsonl", overlap=1, **plan))
    return Store(path)


def answered_study(path: Path, mode: Mode) -> Store:
    """Return a project where ada and ben have answered six of eight items; two nobody has."""
    store = new_study(path, mode, ["ada", "ben"])
    for person in store.people.all():
        if mode is Mode.COLLECT:
            store.save_about(
                person.id, ("I grow beans.", f"{person.name} writes\nin two lines :: often"), seen=0, tab="t"
            )
        for position, _, _ in list(store.positions(person.id))[:3]:
            note = NOTE if position % 2 else ""
            choice = CHOICES[(person.id + position) % 3]
            if mode is Mode.COLLECT:
                why = (Reason(aspect="thrift :: really", reason="money"), Reason(aspect="calm"))
                answer = ItemAnswer(choice=choice, note=note, why=why if position % 2 else ())
            else:
                rated = [Ratings(correctness=1 + (position + n) % 5, relevance=5, helpfulness=1 + n) for n in (0, 1)]
                answer = ItemAnswer(
                    choice=choice, chosen=rated[0], rejected=rated[1], note=note, is_flagged=position == 2
                )
            store.save(person.id, position, answer, Status.DONE, seen=0, tab="t", seconds=position / 4)
    return store
