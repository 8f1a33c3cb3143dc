"""One annotation project on disk: its items, who has which, and every answer that was ever saved."""

import json
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from prbench.errors import UsageError
from prbench.people.annotate.assignment import assign, side_of_chosen, viewing_order
from prbench.people.annotate.database import GUARDS, Database
from prbench.people.annotate.people import OWNER_HASH, People, hash_token, insert_annotator, make_token, now
from prbench.people.annotate.records import (
    ABOUT,
    AssignedItem,
    ItemAnswer,
    Mode,
    Project,
    ProjectItem,
    ResponseSide,
    SavedAnswer,
    SaveResult,
    Status,
)
from prbench.schema import Aspect, Example, Json, RatedExample

DEFAULT_URL = "http://127.0.0.1:8100"
LONGEST_SITTING = 3600.0  # seconds that one save may add


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a new project is to be."""

    mode: Mode
    annotators: Sequence[str]
    overlap: int = 2
    items: int | None = None  # `None`: all of the data
    seed: int = 0
    data: str = ""
    instructions: str = ""
    url: str = DEFAULT_URL


@dataclass(frozen=True, kw_only=True)
class Links:
    """The secrets of a new project: shown once, stored nowhere."""

    owner: str
    annotators: dict[str, str]


class GoneError(Exception):
    """The item is not on this annotator's list (any more)."""


def create(path: str | Path, examples: Iterable[Example | RatedExample], plan: Plan) -> Links:
    """Make a project for annotators and return the tokens of their links.

        plan = Plan(mode=Mode.VALIDATE, annotators=["ada", "ben"])
        links = create("study.db", prbench.load_dataset("pairs.jsonl"), plan)

    `Plan` is in `prbench.people.annotate.store`, `Mode` in `prbench.people.annotate.records`.
    """
    if plan.overlap < 1:
        raise UsageError(f"The overlap is {plan.overlap}. Give 1 or more annotators per item.")
    if len(set(plan.annotators)) < len(plan.annotators):
        raise UsageError("Two annotators have the same name. Give each a name of their own.")
    items = _choose(examples, plan)
    links = Links(owner=make_token(), annotators={name: make_token() for name in plan.annotators})
    database = Database.make(Path(path))
    facts = {
        "id": secrets.token_hex(4),
        "mode": plan.mode.value,
        "seed": str(plan.seed),
        "overlap": str(plan.overlap),
        "data": plan.data,
        "created_at": now(),
        "instructions": plan.instructions,
        "url": plan.url,
        OWNER_HASH: hash_token(links.owner),
    }
    try:
        with database.transaction() as connection:
            connection.executemany("INSERT INTO project VALUES (?, ?)", facts.items())
            connection.executemany(
                "INSERT INTO items VALUES (?, ?, ?, ?)",
                [
                    (item["id"], number, item["user_id"], json.dumps(item["content"]))
                    for number, item in enumerate(items, 1)
                ],
            )
            for name, token in links.annotators.items():
                insert_annotator(connection, name, token)
            _assign_items(connection)
    except BaseException:
        database.close()
        database.path.unlink()
        raise
    database.close()
    return links


class Store:
    """An open project; the threads of one server share it."""

    def __init__(self, path: str | Path) -> None:
        self.database = Database(Path(path))
        self.people = People(self.database)
        facts = {row["key"]: row["value"] for row in self.database.rows("SELECT * FROM project")}
        if "id" not in facts:
            self.database.close()
            raise UsageError(f"{path}: was never finished when it was made. Delete it, and create it again.")
        self.project = Project.model_validate(facts)

    def close(self) -> None:
        self.database.close()

    def invite(self, name: str) -> str:
        """Add an annotator, give them their share, and return their token."""
        token = make_token()
        with self.database.transaction() as connection:
            insert_annotator(connection, name, token)
            _assign_items(connection)
        return token

    def pause(self, annotator_id: int) -> None:
        """Close an annotator's link for the time being; what they have stays theirs."""
        with self.database.transaction() as connection:
            connection.execute("UPDATE annotators SET is_paused = 1 WHERE id = ?", (annotator_id,))

    def reopen(self, annotator_id: int) -> None:
        """Open a link again, and give its annotator a share of what was passed on meanwhile."""
        with self.database.transaction() as connection:
            connection.execute("UPDATE annotators SET is_paused = 0 WHERE id = ?", (annotator_id,))
            _assign_items(connection)

    def release(self, annotator_id: int) -> int:
        """Give what a paused annotator has not begun to the others; return how many items that were."""
        with self.database.transaction() as connection:
            begun = "SELECT item FROM events WHERE annotator = :who"
            gone = connection.execute(
                f"DELETE FROM assignments WHERE annotator = :who AND NOT is_opened AND item NOT IN ({begun})",
                {"who": annotator_id},
            ).rowcount
            _assign_items(connection)
        return gone

    def items(self) -> list[ProjectItem]:
        return [_item(row) for row in self.database.rows("SELECT * FROM items ORDER BY number")]

    def item(self, number: int) -> ProjectItem | None:
        """Return the item at a place of the owner's list, counted from 1."""
        rows = self.database.rows("SELECT * FROM items ORDER BY number LIMIT 1 OFFSET ?", number - 1)
        return _item(rows[0]) if rows and number > 0 else None

    def planned(self) -> dict[int, list[str]]:
        """Return the items of every annotator, in their order."""
        found: dict[int, list[str]] = {}
        for row in self.database.rows("SELECT annotator, item FROM assignments ORDER BY annotator, position"):
            found.setdefault(row["annotator"], []).append(row["item"])
        return found

    def positions(self, annotator_id: int) -> list[tuple[int, Status, bool]]:
        """Return the place, the status and the flag of each item of one annotator, in their order."""
        rows = self.database.rows(
            "SELECT position, status, answer FROM assignments LEFT JOIN answers USING (annotator, item) "
            "WHERE annotator = ? ORDER BY position",
            annotator_id,
        )
        return [
            (row[0], Status(row[1] or Status.OPEN), row[2] is not None and json.loads(row[2])["is_flagged"])
            for row in rows
        ]

    def task(self, annotator_id: int, position: int) -> AssignedItem:
        """Return one item for one annotator; from then on it stays theirs."""
        with self.database.transaction() as connection:
            task = _task(connection, annotator_id, position)
            connection.execute(
                "UPDATE assignments SET is_opened = 1 WHERE annotator = ? AND position = ?", (annotator_id, position)
            )
        return task

    def save(
        self,
        annotator_id: int,
        position: int,
        answer: ItemAnswer,
        action: Status,
        *,
        seen: int,
        tab: str,
        seconds: float,
    ) -> SaveResult:
        """Add an answer to the log; what another tab saved since `seen` is replaced, kept and told.

        A draft that completes an item leaves it as it was; an edited item stays done while nothing is missing.
        """
        with self.database.transaction() as connection:
            task = _task(connection, annotator_id, position)
            before = task.saved
            is_complete = not answer.missing(self.project.mode)
            was_done = before is not None and before.status is Status.DONE
            status = Status.DONE if action is Status.DRAFT and was_done and is_complete else action
            replaced = before if before is not None and before.version != seen and before.tab != tab else None
            if before is not None and (before.answer, before.status) == (answer, status):
                return SaveResult(saved=before)
            total = (before.seconds if before else 0.0) + min(max(seconds, 0.0), LONGEST_SITTING)
            saved = _append(connection, annotator_id, task.item.id, task.side, status, answer, total, now(), tab)
        return SaveResult(saved=saved, replaced=replaced)

    def about(self, annotator_id: int) -> SavedAnswer | None:
        """Return what a collecting annotator wrote about themselves."""
        rows = self.database.rows("SELECT * FROM answers WHERE annotator = ? AND item = ?", annotator_id, ABOUT)
        return _saved(rows[0]) if rows else None

    def save_about(self, annotator_id: int, posts: tuple[str, ...], *, seen: int, tab: str) -> SaveResult:
        """Keep an annotator's posts, in the same way as an answer."""
        with self.database.transaction() as connection:
            before = _latest(connection, annotator_id, ABOUT)
            if before is not None and before.answer.posts == posts:
                return SaveResult(saved=before)
            replaced = before if before is not None and before.version != seen and before.tab != tab else None
            answer = ItemAnswer(posts=posts)
            saved = _append(connection, annotator_id, ABOUT, ResponseSide.LEFT, Status.DONE, answer, 0.0, now(), tab)
        return SaveResult(saved=saved, replaced=replaced)

    def import_answer(
        self, name: str, item_id: str, side: ResponseSide, answer: ItemAnswer, when: tuple[float, str]
    ) -> bool:
        """Add an answer from a file, unless it is here already or there is a newer one; tell whether it was added."""
        seconds, saved_at = when
        with self.database.transaction() as connection:
            who = connection.execute("SELECT id FROM annotators WHERE name = ?", (name,)).fetchone()
            annotator = who[0] if who else insert_annotator(connection, name, make_token())
            if who is None:  # somebody who answered elsewhere: nobody has their link, so they get no new items
                connection.execute("UPDATE annotators SET is_paused = 1 WHERE id = ?", (annotator,))
            if before := _latest(connection, annotator, item_id):
                is_same = (before.answer, before.status, before.side) == (answer, Status.DONE, side)
                if is_same or before.saved_at > saved_at:
                    return False
            if item_id != ABOUT:
                if not connection.execute("SELECT 1 FROM items WHERE id = ?", (item_id,)).fetchone():
                    raise UsageError(
                        f"The project has no item {item_id!r}. Import into a project made from the same data."
                    )
                held = "SELECT 1 FROM assignments WHERE annotator = ? AND item = ?"
                if connection.execute(held, (annotator, item_id)).fetchone() is None:
                    # A side that is there stays: a page may be open that shows it.
                    _assign(connection, annotator, item_id, side)
            _append(connection, annotator, item_id, side, Status.DONE, answer, seconds, saved_at, "import")
        return True

    def answers(self, item_id: str | None = None) -> list[SavedAnswer]:
        """Return the answers that count, of one item or of all, by item and annotator."""
        clause, values = ("", []) if item_id is None else ("AND items.id = ?", [item_id])
        query = f"SELECT answers.* FROM answers JOIN items ON items.id = item {clause} ORDER BY number, annotator"
        return [_saved(row) for row in self.database.rows(query, *values)]


def forget(path: str | Path, user_id: str) -> int:
    """Remove a user's items with all answers to them, or an annotator who is that user; return the events removed.

    Afterwards the file is compacted, so that nothing of the user is left in it.
    """
    store = Store(path)
    try:
        with store.database.transaction() as connection:  # nobody else sees the log without its guards
            for name in GUARDS:
                connection.execute(f"DROP TRIGGER {name}")
            removed = connection.execute(
                "DELETE FROM events WHERE item IN (SELECT id FROM items WHERE user_id = :user) "
                "OR annotator IN (SELECT id FROM annotators WHERE name = :user)",
                {"user": user_id},
            ).rowcount
            connection.execute("DELETE FROM items WHERE user_id = ?", (user_id,))
            connection.execute("DELETE FROM annotators WHERE name = ?", (user_id,))
            for guard in GUARDS.values():
                connection.execute(guard)
        store.database.compact()
    finally:
        store.close()
    return removed


def _choose(examples: Iterable[Example | RatedExample], plan: Plan) -> list[dict[str, Json]]:
    """Take the items that the seed's coins name; more rows never change the order of the others."""
    if plan.items is not None and plan.items < 1:
        raise UsageError(f"The number of items is {plan.items}. Give 1 or more, or leave it out.")
    found = []
    for example in examples:
        if isinstance(example, RatedExample):
            raise UsageError("The data has rated responses, and annotators compare pairs. Give pairs.")
        if plan.mode is Mode.VALIDATE and not example.rubric:
            raise UsageError(
                f"Pair {example.id!r} has no rubric to validate against. Add rubric_aspects, or use --mode collect."
            )
        content = {
            "question": example.question,
            "category": example.category,
            "rubric": [asdict(aspect) for aspect in example.rubric] if plan.mode is Mode.VALIDATE else [],
            "chosen": example.chosen,
            "rejected": example.rejected,
        }
        found.append({"id": example.id, "user_id": example.user.id, "content": content})
    found.sort(key=lambda item: sha256(f"{plan.seed}:{item['id']}".encode()).digest())
    if plan.items is not None and plan.items > len(found):
        raise UsageError(f"There are {len(found)} pairs, fewer than --items {plan.items}. Give a smaller number.")
    if not found:
        raise UsageError("The data has no pairs. Check --data, --subset and --split.")
    return found[: plan.items]


def _assign_items(connection: sqlite3.Connection) -> None:
    """Give every item its people, as far as there are any."""
    facts = connection.execute("SELECT key, value FROM project WHERE key IN ('seed', 'overlap')")
    counts = {key: int(value) for key, value in facts}
    seed = counts["seed"]
    items = [row[0] for row in connection.execute("SELECT id FROM items ORDER BY number")]
    people = [row[0] for row in connection.execute("SELECT id FROM annotators WHERE NOT is_paused ORDER BY id")]
    given = {(row[0], row[1]) for row in connection.execute("SELECT item, annotator FROM assignments")}
    started = {
        (row[0], row[1])
        for row in connection.execute(
            "SELECT item, annotator FROM assignments WHERE is_opened UNION "
            "SELECT item, annotator FROM assignments JOIN events USING (item, annotator)"
        )
    }
    # What paused people hold stays with them, too, until it is released.
    paused = {pair for pair in given if pair[1] not in people}
    assigned = assign(items, people, counts["overlap"], seed=seed, given=given, started=started | paused)
    connection.executemany("DELETE FROM assignments WHERE item = ? AND annotator = ?", sorted(given - assigned))
    new = assigned - given
    for person in sorted({pair[1] for pair in new}):
        for item in viewing_order({pair[0] for pair in new if pair[1] == person}, person, seed=seed):
            _assign(connection, person, item, side_of_chosen(item, person, seed=seed))


def _assign(connection: sqlite3.Connection, annotator: int, item: str, side: ResponseSide) -> None:
    connection.execute(
        "INSERT INTO assignments (annotator, item, position, side) VALUES "
        "(:who, :item, (SELECT coalesce(max(position), 0) + 1 FROM assignments WHERE annotator = :who), :side)",
        {"who": annotator, "item": item, "side": side.value},
    )


def _append(
    connection: sqlite3.Connection,
    annotator: int,
    item: str,
    side: ResponseSide,
    status: Status,
    answer: ItemAnswer,
    seconds: float,
    saved_at: str,
    tab: str,
) -> SavedAnswer:
    said = json.dumps(answer.model_dump(mode="json"))  # by json, which escapes half a surrogate pair
    values = (annotator, item, side.value, status.value, said, seconds, saved_at, tab)
    row = connection.execute(
        "INSERT INTO events (annotator, item, side, status, answer, seconds, saved_at, tab) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
        values,
    ).fetchone()
    return _saved(row)


def _task(connection: sqlite3.Connection, annotator_id: int, position: int) -> AssignedItem:
    row = connection.execute(
        "SELECT items.*, side, position FROM assignments JOIN items ON items.id = item "
        "WHERE annotator = ? AND position = ?",
        (annotator_id, position),
    ).fetchone()
    if row is None:
        raise GoneError
    saved = _latest(connection, annotator_id, row["id"])
    return AssignedItem(position=row["position"], item=_item(row), side=ResponseSide(row["side"]), saved=saved)


def _latest(connection: sqlite3.Connection, annotator: int, item: str) -> SavedAnswer | None:
    query = "SELECT * FROM events WHERE annotator = ? AND item = ? ORDER BY id DESC LIMIT 1"
    row = connection.execute(query, (annotator, item)).fetchone()
    return None if row is None else _saved(row)


def _item(row: sqlite3.Row) -> ProjectItem:
    content = json.loads(row["content"])
    rubric = tuple(Aspect(**aspect) for aspect in content.pop("rubric"))
    return ProjectItem(id=row["id"], user_id=row["user_id"], rubric=rubric, **content)


def _saved(row: sqlite3.Row) -> SavedAnswer:
    return SavedAnswer(
        version=row["id"],
        item=row["item"],
        annotator=row["annotator"],
        side=ResponseSide(row["side"]),
        status=Status(row["status"]),
        answer=ItemAnswer.model_validate(json.loads(row["answer"]), strict=False),
        seconds=row["seconds"],
        saved_at=row["saved_at"],
        tab=row["tab"],
    )
