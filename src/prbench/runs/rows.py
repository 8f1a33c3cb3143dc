"""Rows of an evaluation: as they stand in `items.jsonl`, and back."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from prbench.runs.files import ITEMS, not_a_row, read_lines
from prbench.schema import NOTHING, RETRIED, Json, Pick, Probe, Problem, RatedRow, Row, Verdict, crossed_fields

NO_ROW = (KeyError, TypeError, ValueError)  # what `from_record` makes of a damaged row
_PLAIN = frozenset({str, int, float, bool})  # types of the facts of a row
_NUMBERS = frozenset({int, float})
_SCORES = frozenset({int, float, type(None)})
_PICKS = frozenset(Pick)


def read_rows(folder: Path, *, groups: Sequence[str] | None = None, replies: bool = False) -> list[Row | RatedRow]:
    """Return the latest row of every item and probe, sorted.

    Raw replies are left on disk unless asked for; with `groups`, so are all other facts, which keeps many rows small.
    A group may cross several facts: `region,age`.
    """
    facts = None if groups is None else tuple(field for name in groups for field in crossed_fields(name))
    latest: dict[tuple[str, str], Row | RatedRow] = {}
    shared: dict[str, str] = {}
    path = folder / ITEMS
    for number, (_, _, record) in enumerate(read_lines(path), start=1):
        try:
            row = from_record(record, shared=shared, groups=facts, replies=replies)
        except NO_ROW:
            raise not_a_row(path, number) from None
        latest[(row.id, row.probe)] = row
    return [latest[key] for key in sorted(latest)]


def is_retried(record: Mapping[str, Json]) -> bool:
    """True for a row that the next run asks again."""
    return record["reason"] in RETRIED


def to_record(row: Row | RatedRow) -> dict[str, Json]:
    """Return a row as it stands in `items.jsonl`."""
    record: dict[str, Json] = {
        "id": row.id,
        "probe": row.probe.value,
        "user_id": row.user_id,
        "category": row.category,
        "question_hash": row.question_hash,
    }
    if isinstance(row, Row):
        record |= {
            "score_chosen": row.score_chosen,
            "score_rejected": row.score_rejected,
            "verdict": row.verdict.value,
        }
    else:
        record |= {"rating": row.rating, "score": row.score}
        record |= {"predicted": row.predicted, "alignment": row.alignment, "raw": row.raw}
    record |= {
        "reason": row.problem.value,
        "detail": row.detail,
        "posts_used": row.posts_used,
        "posts_dropped": row.posts_dropped,
        "groups": dict(row.groups),
    }
    if isinstance(row, Row) and row.orders:
        record["orders"] = [dict(order) for order in row.orders]
    if isinstance(row, Row) and row.replies:
        record["replies"] = dict(row.replies)
    return record


def from_record(
    record: Mapping[str, Json],
    *,
    shared: dict[str, str] | None = None,
    groups: Sequence[str] | None = None,
    replies: bool = True,
) -> Row | RatedRow:
    """Return the row of one line; `shared` keeps one copy of each repeated text; see `read_rows`.

    Nothing in it is of another type than its field says, so that whoever computes with it need not ask.
    """
    _check(record)
    share = {} if shared is None else shared
    names = ("id", "user_id", "category", "question_hash")
    item, user_id, category, question_hash = (share.setdefault(record[key], record[key]) for key in names)
    facts = (
        record["groups"]
        if groups is None
        else {name: record["groups"][name] for name in groups if name in record["groups"]}
    )
    if "rating" in record:
        return RatedRow(
            id=item,
            probe=Probe(record["probe"]),
            user_id=user_id,
            category=category,
            question_hash=question_hash,
            rating=record["rating"],
            score=record["score"],
            predicted=record["predicted"],
            alignment=record["alignment"],
            problem=Problem(record["reason"]),
            detail=record["detail"],
            raw=record["raw"] if replies else "",
            posts_used=record["posts_used"],
            posts_dropped=record["posts_dropped"],
            groups=facts or NOTHING,
        )
    orders = record.get("orders", ())
    for order in orders:  # one of a judge that nobody can read
        if type(order["order"]) is not str or order["pick"] not in _PICKS:
            raise TypeError("orders")
    return Row(
        id=item,
        probe=Probe(record["probe"]),
        user_id=user_id,
        category=category,
        question_hash=question_hash,
        verdict=Verdict(record["verdict"]),
        score_chosen=record["score_chosen"],
        score_rejected=record["score_rejected"],
        problem=Problem(record["reason"]),
        detail=record["detail"],
        orders=tuple(order if replies else {**order, "raw": ""} for order in orders),
        replies=record.get("replies", NOTHING) if replies else NOTHING,
        posts_used=record["posts_used"],
        posts_dropped=record["posts_dropped"],
        groups=facts or NOTHING,
    )


def _check(record: Mapping[str, Json]) -> None:
    """Refuse a value of another type. Written out, as it runs for every row that anybody reads."""
    if not (
        type(record["id"]) is str
        and type(record["user_id"]) is str
        and type(record["category"]) is str
        and type(record["question_hash"]) is str
        and type(record["detail"]) is str
        and type(record["posts_used"]) is int
        and type(record["posts_dropped"]) is int
        and type(record["groups"]) is dict
        and _PLAIN.issuperset(map(type, record["groups"].values()))
    ):
        raise TypeError("not of the type of its field")
    if "rating" in record:
        is_sound = (
            type(record["rating"]) in _NUMBERS
            and type(record["score"]) in _SCORES
            and type(record["predicted"]) in _SCORES
            and type(record["alignment"]) in _SCORES
            and type(record["raw"]) is str
        )
    else:
        is_sound = (
            type(record["score_chosen"]) in _SCORES
            and type(record["score_rejected"]) in _SCORES
            and type(record.get("orders", ())) in (list, tuple)
            and isinstance(record.get("replies", NOTHING), Mapping)
        )
    if not is_sound:
        raise TypeError("not of the type of its field")
