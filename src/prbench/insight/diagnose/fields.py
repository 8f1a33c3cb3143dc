"""By what a set can be cut into slices: facts of rows, users and texts, whatever a dataset offers."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from prbench.errors import UsageError
from prbench.insight.diagnose.material import Material
from prbench.metrics.personal import DOSE_EDGES
from prbench.schema import Example, Json, Row, Verdict

MOST_VALUES = 40  # of a field that is taken without being asked for: beyond that it names things, such as pairs
MOST_NUMBERS = 8  # different numbers that stay as they are; more are put into quarters
LONGEST_VALUE = 60  # characters of one member of a list that may name a slice
MINORITY = "minority"  # the field that says on which side the chosen response is, and so tells the label
IN_MINORITY = {True: "no", False: "yes"}  # by whether the pair is known to side with the majority

Values = Sequence[tuple[str, ...]]  # per item the slices it is in: none, one, or several


@dataclass(frozen=True, kw_only=True)
class Field:
    """One way to cut the items into slices."""

    name: str
    values: Values
    order: tuple[str, ...]  # the slices as they are shown
    by_outcome: bool = False  # made of a run's own verdicts, so that a difference follows from how it was made


def find_fields(material: Material, wanted: Sequence[str] = ()) -> list[Field]:
    """Return the fields to cut by: those that were asked for, else all that have at least two sensible values."""
    found = {field.name: field for field in _all_fields(material)}
    for name in wanted:
        if name not in found:
            known = ", ".join(f"'{one}'" if " " in one else one for one in found) or "none"
            raise UsageError(f"--by {name}: the items have no such field. Known here: {known}.")
    if wanted:
        return [found[name] for name in dict.fromkeys(wanted)]
    return [field for field in found.values() if 1 < len(field.order) <= MOST_VALUES]


def _all_fields(material: Material) -> Iterable[Field]:
    rows = material.items
    yield _by_word("category", [row.category for row in rows])
    yield from _of_meta(rows)
    yield from _of_lists(rows, material.examples)
    yield from _minority(material)
    seen = _by_dose("posts seen", [row.posts_used for row in rows])
    yield seen
    if material.examples:
        examples = [material.examples[row.id] for row in rows]
        posts = _by_dose("posts", [len(one.user.profile) for one in examples])
        if posts.values != seen.values:
            yield posts
        yield _by_number("words of the question", [len(one.question.split()) for one in examples])


def _of_meta(rows: Sequence[Row]) -> Iterable[Field]:
    """Yield the plain facts that the rows carry; `majority` has a field of its own."""
    names = sorted({name for row in rows for name in row.groups} - {"majority", "category"})
    for name in names:
        facts = [row.groups.get(name) for row in rows]
        numbers = [fact for fact in facts if _is_number(fact)]
        if numbers and len(numbers) == sum(fact is not None for fact in facts):
            yield _by_number(name, facts)
        else:
            yield _by_word(name, [None if fact is None else str(fact) for fact in facts])


def _of_lists(rows: Sequence[Row], examples: Mapping[str, Example]) -> Iterable[Field]:
    """Yield facts that are lists of short words, so that an item is in several slices; `gold` gives its traits."""
    if not examples:
        return
    metas = [examples[row.id].meta for row in rows]
    for name in sorted({name for meta in metas for name, value in meta.items() if _is_list_of_words(value)}):
        facts: list[Json] = [meta.get(name) for meta in metas]
        words = [tuple(sorted(set(fact))) if _is_list_of_words(fact) else () for fact in facts]
        yield _field(name, words, sorted)
    traits = [_traits(meta.get("gold")) for meta in metas]
    if any(traits):
        yield _field("trait", traits, sorted)


def _traits(gold: Json) -> tuple[str, ...]:
    """Return the traits in which the two responses differ, on either side."""
    if not isinstance(gold, dict):
        return ()
    sides = [side for side in gold.values() if _is_list_of_words(side)]
    return tuple(sorted({trait for side in sides for trait in side}))


def _minority(material: Material) -> Iterable[Field]:
    """Yield who sides with the minority: as the data says, else where the first run is wrong without a profile.

    The second is a slice by outcome: a pair that is hard without a profile is mostly hard with one, minority or not.
    """
    facts = [row.groups.get("majority") for row in material.items]
    if any(isinstance(fact, bool) for fact in facts):
        yield _by_word(MINORITY, [IN_MINORITY[fact] if isinstance(fact, bool) else None for fact in facts])
        return
    alone, own = material.alone[0], material.items
    # Where the profile never changes the verdict, right and wrong follow from how the slices were made.
    if not alone or all(alone[row.id].verdict is row.verdict for row in own if row.id in alone):
        return
    sides = {Verdict.CHOSEN: IN_MINORITY[True], Verdict.REJECTED: IN_MINORITY[False]}
    found = _by_word(MINORITY, [sides.get(alone[row.id].verdict) if row.id in alone else None for row in own])
    yield replace(found, by_outcome=True)


def _by_word(name: str, values: Sequence[str | None]) -> Field:
    return _field(name, [() if value is None else (value or "(none)",) for value in values], sorted)


def _by_dose(name: str, counts: Sequence[int]) -> Field:
    """Cut a number of posts at the edges that the dose-response figures have."""
    if len(set(counts)) <= MOST_NUMBERS:
        return _by_number(name, counts)
    ends = [*(edge - 1 for edge in DOSE_EDGES[1:]), None]
    labels = [f"{low}+" if high is None else _span(low, high) for low, high in zip(DOSE_EDGES, ends, strict=True)]
    places = np.searchsorted(DOSE_EDGES, counts, side="right") - 1
    return _field(name, [(labels[place],) for place in places.tolist()], lambda _: labels)


def _by_number(name: str, numbers: Sequence[Json]) -> Field:
    """Keep few different numbers as they are, and put more into quarters of the items."""
    known = sorted({number for number in numbers if number is not None})
    if len(known) <= MOST_NUMBERS:
        labels = {number: f"{number:g}" for number in known}
    else:
        labels = _quarters(known, Counter(number for number in numbers if number is not None))
    order = list(dict.fromkeys(labels[number] for number in known))
    return _field(name, [() if number is None else (labels[number],) for number in numbers], lambda _: order)


def _quarters(known: Sequence[float], counts: Counter[float]) -> dict[float, str]:
    """Return the label of each number: four parts with about as many items each; equal numbers stay together."""
    total, before = sum(counts.values()), 0
    part_of: dict[float, int] = {}
    for number in known:
        part_of[number] = min(3, math.floor(4 * (before + counts[number] / 2) / total))
        before += counts[number]
    parts = [[number for number in known if part_of[number] == part] for part in range(4)]
    return {number: _span(part[0], part[-1]) for part in parts for number in part}


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def _field(name: str, values: Values, arrange: Callable[[Iterable[str]], Sequence[str]]) -> Field:
    found = {value for each in values for value in each}
    return Field(name=name, values=values, order=tuple(value for value in arrange(found) if value in found))


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of_words(value: Json) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) and len(one) <= LONGEST_VALUE for one in value)
