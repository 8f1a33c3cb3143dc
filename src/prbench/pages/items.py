"""Single items for the page's browser: question, profile, both responses, and every model's verdict."""

from dataclasses import dataclass, field
from hashlib import sha256

from prbench.data import ExampleStore
from prbench.pages.board import Board
from prbench.schema import Example, Json, Probe, Row

MOST_ITEMS = 200
MOST_POSTS = 30
LONGEST_TEXT = 2000  # characters of one text on the page


@dataclass
class Items:
    """What the item browser shows."""

    note: str = "The data of these runs could not be opened, so single items cannot be shown."
    sets: list[str] = field(default_factory=list)
    models: list[dict[str, Json]] = field(default_factory=list)
    users: list[dict[str, Json]] = field(default_factory=list)
    items: list[dict[str, Json]] = field(default_factory=list)

    def as_json(self) -> dict[str, Json]:
        """Return the content of the page's data block."""
        return {"note": self.note, "sets": self.sets, "models": self.models, "users": self.users, "items": self.items}

    def add(self, board: Board, store: ExampleStore, *, most: int = MOST_ITEMS) -> None:
        """Add the items of one board: all of them, or a fixed sample where there are many."""
        place = len(self.sets)
        self.sets.append(board.data)
        first = len(self.models)
        for offset, line in enumerate(board.lines):
            self.models.append({"index": first + offset, "set": place, "name": line.run.name})
        verdicts = _verdicts(board, first)
        people: dict[str, Json] = {}
        self.users.append(people)
        # A fixed pseudo-random choice, so that a report of the same runs is the same page.
        ranked = sorted(range(len(store)), key=lambda position: sha256(str(position).encode()).digest())
        for position in sorted(ranked[:most]):
            example = store[position]
            if isinstance(example, Example) and example.id in verdicts:
                # A name for what this row knows of the user: two rows of one person may hold different posts.
                profile = "\n".join(f"{post.id}:{len(post.text)}" for post in example.user.profile)
                key = f"{example.user.id}/{sha256(profile.encode('utf-8', 'replace')).hexdigest()[:8]}"
                posts = [post.text for post in reversed(example.user.profile)]  # newest first
                shown = [_short(text) for text in posts[:MOST_POSTS]]
                people[key] = {"posts": shown, "more": max(0, len(posts) - MOST_POSTS)}
                self.items.append(
                    {
                        "set": place,
                        "id": example.id,
                        "category": example.category,
                        "user": example.user.id,
                        "question": _short(example.question),
                        "chosen": _short(example.chosen),
                        "rejected": _short(example.rejected),
                        "verdicts": verdicts[example.id],
                        "profile": key,
                    }
                )
        count = sum(item["set"] == place for item in self.items)
        note = f"{board.data}: {count} of {len(store)} items" + (
            "." if count == len(store) else ", a fixed random sample."
        )
        self.note = note if place == 0 else f"{self.note} {note}"


def _verdicts(board: Board, first: int) -> dict[str, dict[str, Json]]:
    found: dict[str, dict[str, Json]] = {}
    for offset, line in enumerate(board.lines):
        for row in line.run.rows:
            if isinstance(row, Row) and row.probe is Probe.OWN:
                found.setdefault(row.id, {})[str(first + offset)] = {
                    "verdict": row.verdict.value,
                    "reason": row.problem.value,
                    "chosen": row.score_chosen,
                    "rejected": row.score_rejected,
                }
    return found


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} … ({len(text):,} characters)"
