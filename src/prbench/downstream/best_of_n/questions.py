"""Which questions are answered: one for every question and user, as many as were asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prbench.data import ExampleStore
from prbench.errors import UsageError
from prbench.runs import RowKey
from prbench.schema import Example, RatedExample, User

FEWEST_USERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of one user. Of several rows that ask the same, the first one stands for all."""

    example: Example
    donor: User | None  # whose profile stands in for the user's under the swap probe

    @property
    def id(self) -> str:
        """The id of its row."""
        return self.example.id


def select_questions(
    store: ExampleStore, *, users: int | None = None, limit: int | None = None, seed: int = 0
) -> list[Question]:
    """Return the questions of the first `users` users, and of those the first `limit`, in the order of the rows."""
    if store.kind == "rated":
        raise UsageError(f"{store.name}: Best-of-N needs questions with a rubric, and rated rows have none.")
    found: list[Question] = []
    people: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for position in range(len(store)):
        example = _pair(store[position])
        key = (example.user.id, example.question)
        if key in seen or (example.user.id not in people and len(people) == users):
            continue
        people.add(example.user.id)
        seen.add(key)
        found.append(Question(example=example, donor=store.donor(position, seed)))
        if len(found) == limit:
            break
    if len({question.example.user.id for question in found}) < FEWEST_USERS:
        raise UsageError("Intervals are over users, and these questions have one. Take at least 2 users.")
    return found


def group_of(question: Question, field: str) -> str | None:
    """Return the group of a question by a field: its category, its split or anything plain in its `meta`."""
    example = question.example
    facts = {**example.meta, "category": example.category, "split": example.split}
    value = facts.get(field)
    return str(value) if isinstance(value, str | bool | int | float) and value != "" else None


def check_groups(questions: Sequence[Question], group_by: Sequence[str]) -> None:
    """Stop before the work if no question has such a field."""
    for field in group_by:
        if all(group_of(question, field) is None for question in questions):
            known = ", ".join(["category", *sorted(questions[0].example.meta)])
            raise UsageError(f"--group-by {field}: no row has such a field. Known here: {known}.")


def place_in(questions: Sequence[Question]) -> Callable[[RowKey], int | None]:
    """Return what says where rows of a question stand; others have no place."""
    places = {question.id: place for place, question in enumerate(questions)}
    return lambda key: places.get(str(key[0]))


def _pair(example: Example | RatedExample) -> Example:
    assert isinstance(example, Example), "a store holds either pairs or rated rows"
    return example
