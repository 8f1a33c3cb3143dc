"""Which items a person should label next: where the runs are unsure or disagree, spread over users and slices.

The rule does not know which response is the chosen one: exchange the two in any rows, and it names the same items. So
nothing is fitted to labels, even where there are some: a run's unit is the mean size of its own margins. The items are
written best first, and never over a file that is something else.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from prbench.data.export import write_jsonl
from prbench.data.source import read_file
from prbench.errors import DataError, UsageError
from prbench.insight.diagnose.slices import Field
from prbench.metrics.calibration import win_probability
from prbench.metrics.estimate import FloatArray
from prbench.metrics.personal import margin
from prbench.schema import Example, Row, Verdict

MARK = "label_next"  # in `meta` of every row: its rank, and of how many; by it the file is known again
TRUST = 0.75  # how far a bare verdict, one without scores, is believed


@dataclass(frozen=True, kw_only=True)
class LabelCandidate:
    """An item worth a label."""

    place: int  # among all items
    id: str
    user_id: str
    category: str
    confidence: float  # of the runs' mean opinion in the response it favors: 0.5 is no idea
    disagreement: float  # bits that the runs' opinions are apart: 0 for one run, or for runs of one mind
    value: float  # bits that a label of this item is expected to bring: see `information`


def most_informative(
    runs: Sequence[Sequence[Row]], count: int, *, spread: Sequence[Field] = ()
) -> list[LabelCandidate]:
    """Return the items to label, best first.

    They are taken by their value, at most one per user and at most a slice's share of `count` in every slice of
    `spread`; when nothing more fits, both limits are raised and it goes round again. Equal values are ordered by a
    hash of the id.
    """
    opinions = np.stack([probabilities(rows) for rows in runs])
    values, apart = information(opinions)
    mean = opinions.mean(axis=0)
    items = [
        LabelCandidate(
            place=place,
            id=row.id,
            user_id=row.user_id,
            category=row.category,
            confidence=float(max(mean[place], 1 - mean[place])),
            disagreement=float(apart[place]),
            value=float(values[place]),
        )
        for place, row in enumerate(runs[0])
    ]
    items.sort(key=lambda item: (-round(item.value, 9), sha256(item.id.encode()).digest()))
    return _spread_out(items, min(count, len(items)), spread)


def probabilities(rows: Sequence[Row]) -> FloatArray:
    """Return for every item the run's probability that the chosen response wins: sigmoid(margin / T).

    T is half the mean size of a margin. A verdict without scores counts `TRUST`; a tie and an unreadable verdict are
    one half. Labels play no part: exchange the responses of an item, and p becomes 1 - p.
    """
    margins = [margin(row) for row in rows]
    sizes = np.abs(np.array([value for value in margins if value is not None]))
    scale = float(sizes.mean()) / 2 if sizes.any() else 1.0
    sides = {Verdict.CHOSEN: TRUST, Verdict.REJECTED: 1 - TRUST}
    return np.array(
        [
            sides.get(row.verdict, 0.5) if value is None else float(win_probability(np.array(value), scale))
            for row, value in zip(rows, margins, strict=True)
        ]
    )


def information(opinions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return for every item what a label is worth, and how far the runs are apart; both in bits.

    With H the entropy of a coin, the runs' disagreement is H(mean p) - mean H(p) (Houlsby et al. 2011): what a label
    would say about which run is right. One run cannot disagree, so there its own doubt H(p) is the value. Several
    runs are valued by the disagreement, plus a tenth of the doubt that they share: doubt that all share may be
    nobody's fault, as with a user who has hardly posted. docs/how-to/diagnose.md says how little this
    was seen to matter.
    """
    mean = opinions.mean(axis=0)
    doubt = _entropy(mean)
    if len(opinions) == 1:
        return doubt, np.zeros_like(doubt)
    apart = np.maximum(doubt - np.mean([_entropy(each) for each in opinions], axis=0), 0.0)
    return apart + 0.1 * (doubt - apart), apart


def _entropy(p: FloatArray) -> FloatArray:
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    bits: FloatArray = -(inside * np.log2(inside) + (1 - inside) * np.log2(1 - inside))
    return bits


def _spread_out(ranked: Sequence[LabelCandidate], count: int, spread: Sequence[Field]) -> list[LabelCandidate]:
    shares = [Counter(value for each in field.values for value in each) for field in spread]
    total = len(ranked)
    users: Counter[str] = Counter()
    filled: list[Counter[str]] = [Counter() for _ in spread]
    taken: list[LabelCandidate] = []
    left, limit = list(ranked), 1
    while len(taken) < count:
        waiting = []
        for item in left:
            slices = [(number, value) for number, field in enumerate(spread) for value in field.values[item.place]]
            has_room = all(
                filled[number][value] < limit * math.ceil(count * shares[number][value] / total)
                for number, value in slices
            )
            if len(taken) < count and users[item.user_id] < limit and has_room:
                taken.append(item)
                users[item.user_id] += 1
                for number, value in slices:
                    filled[number][value] += 1
            else:
                waiting.append(item)
        left, limit = waiting, limit + 1
    return taken


def write_label_file(rows: Sequence[Example], path: Path) -> None:
    """Write the rows in their order, each with the mark that makes the file ours."""
    write_jsonl(
        (
            replace(row, meta={**row.meta, MARK: {"rank": rank, "of": len(rows)}})
            for rank, row in enumerate(rows, start=1)
        ),
        path,
    )


def check_label_file(path: Path, sources: Iterable[str]) -> None:
    """Stop unless `path` is free, or is a label file that none of the `sources` of the runs' data needs."""
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(f"--label-file {path}: is not a file. Name a file, e.g. {path / 'label_next.jsonl'}.")
    if any(path.resolve().is_relative_to(Path(source).expanduser().resolve()) for source in sources):
        raise UsageError(f"--label-file {path}: holds data of these runs. Choose another name.")
    if not _is_label_file(path):
        raise UsageError(
            f"--label-file {path}: exists already, and --label-next did not write it. Choose another name, or move "
            "the file away."
        )


def _is_label_file(path: Path) -> bool:
    """True if every row has its mark, in order and complete: rows taken from a label file are no label file."""
    rank, mark = 0, None
    try:
        for rank, row in enumerate(read_file(path), start=1):
            meta = row.value.get("meta") if isinstance(row.value, dict) else None
            mark = meta.get(MARK) if isinstance(meta, dict) else None
            if not isinstance(mark, dict) or mark.get("rank") != rank:
                return False
    except DataError:  # damaged, or of another kind
        return False
    return mark is not None and mark.get("of") == rank
