"""What another program computed and wrote down: scores and replies by item, read from a file and looked up.

    scores:FILE    a score for each response        (`load_scores`)
    replies:FILE   what a judge said of each pair   (`load_replies`)

A model of these kinds cannot be asked about anything that is not in its file: an item without a record has no score,
with a reason, and never a number. Two records that contradict each other are refused.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from prbench.errors import DataError, UsageError
from prbench.prompts.formats import OWN, open_format
from prbench.reward_models.base import LoadedModel, ModelSettings, Recorded, as_loaded
from prbench.reward_models.recorded_files import ReplyRecord, ScoreRecord, place_named, read_replies, read_scores
from prbench.schema import Comparison, Json, PairInput, Pick, Probe, Problem, RewardInput, Score
from prbench.specs import Spec, known_names, option

BOTH, ONE = "both", "one"
AUTO = "auto"  # the decision that stands beside a reply; where there is none, the reply in our own form
_SIDES = ("the chosen response", "the rejected response")


@dataclass(frozen=True, kw_only=True)
class ScoresOptions:
    """Options of recorded scores."""

    model: str | None = option(None, "whose scores, where the file holds those of several models")


@dataclass(frozen=True, kw_only=True)
class RepliesOptions(ScoresOptions):
    """Options of recorded replies."""

    format: str = option(AUTO, "how replies are read, e.g. `arena` (`prbench models --of replies`)")


def load_scores(spec: Spec, options: ScoresOptions, settings: ModelSettings) -> LoadedModel:
    """Return `scores:FILE`."""
    path = _file(spec)
    scores = _Index[ScoreRecord](path)
    for record in _of_model(read_scores(path), options.model, path):
        scores.add(record, (record.index if record.index is not None else record.text), record.value)
    return _loaded(spec, RecordedScores(scores), scores, {"model": options.model})


def load_replies(spec: Spec, options: RepliesOptions, settings: ModelSettings) -> LoadedModel:
    """Return `replies:FILE`."""
    form = OWN if options.format == AUTO else options.format
    read = open_format(form).require_pick(form)
    path = _file(spec)
    replies = _Index[ReplyRecord](path)
    for record in _of_model(read_replies(path), options.model, path):
        replies.add(record, record.first, (record.text, record.decision))
    both = any(len(found) > 1 for found in replies.records.values())
    identity = {"model": options.model, "format": options.format}
    model = RecordedReplies(replies, read, takes_decisions=options.format == AUTO)
    return _loaded(spec, model, replies, identity, orders=BOTH if both else ONE)


AnyRecord = TypeVar("AnyRecord", ScoreRecord, ReplyRecord)


@dataclass
class _Index(Generic[AnyRecord]):
    """The records of a file by item and probe, and then by response or order."""

    path: Path
    records: dict[tuple[str, Probe], dict[Json, AnyRecord]] = field(default_factory=dict)

    def add(self, record: AnyRecord, key: Json, said: Json) -> None:
        """Add a record; one that says something else than an earlier one of the same thing is refused."""
        first = self.records.setdefault((record.id, record.probe), {}).setdefault(key, record)
        said_first = first.value if isinstance(first, ScoreRecord) else (first.text, first.decision)
        if said_first != said:
            raise _contradiction(self.path, first, record)

    @property
    def probes(self) -> tuple[Probe, ...]:
        return tuple(probe for probe in Probe if any(probe is known for _, known in self.records))

    def of(self, item: str, probe: Probe, *, knows_nobody: bool) -> Mapping[Json, AnyRecord]:
        """The records of an item; a model that is shown no user in any probe has said what it says of nobody."""
        if knows_nobody and (found := self.records.get((item, Probe.NONE))):
            return found
        return self.records.get((item, probe), {})


def _contradiction(path: Path, one: AnyRecord, other: AnyRecord) -> DataError:
    what = "scores for the same response" if isinstance(one, ScoreRecord) else "replies for the same response"
    return DataError(
        f"{path}: line {one.line} and line {other.line} give different {what} to item {one.id!r} "
        f"({one.probe.value}). Keep one of them."
    )


def _file(spec: Spec) -> Path:
    path = Path(spec.target).expanduser()
    if not path.is_file():
        raise UsageError(f"{spec.text}: there is no file {path}. Check the path.")
    return path


def _of_model(records: Iterable[AnyRecord], model: str | None, path: Path) -> list[AnyRecord]:
    """The records of the model that is meant; of several, one must be named."""
    found = list(records)
    names = sorted({record.model for record in found if record.model})
    if model is None and len(names) > 1:
        listed = ", ".join(islice(names, 8)) + (", …" if len(names) > 8 else "")
        raise UsageError(f"{path}: holds records of {len(names)} models: {listed}. Name one: ?model={names[0]}.")
    if model is not None and model not in names:
        raise UsageError(f"{path}: holds no records of {model!r}. {known_names('models', model, names)}")
    if not found:
        raise DataError(f"{path}: holds no records. Check that this is the file you meant.")
    return [record for record in found if not model or record.model == model]


def _loaded(
    spec: Spec,
    model: "RecordedScores | RecordedReplies",
    index: _Index[AnyRecord],
    more: Mapping[str, Json],
    orders: str = "",
) -> LoadedModel:
    recorded = Recorded(ids=frozenset(item for item, _ in index.records), probes=index.probes, orders=orders)
    with index.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    identity = {
        "file": digest,
        "probes": [probe.value for probe in recorded.probes],
        **({"orders": orders} if orders else {}),
        **{name: value for name, value in more.items() if value is not None},
    }
    return replace(as_loaded(spec, model, items_per_step=256, identity=identity), recorded=recorded)


class RecordedScores:
    """Looks scores up. It is a reward model in name only: `score` has no item to look up."""

    def __init__(self, index: _Index[ScoreRecord]) -> None:
        self._index = index

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        raise _cannot_be_asked(self._index.path)

    def look_up(self, item: str, probe: Probe, responses: Sequence[str], *, knows_nobody: bool) -> list[Score]:
        """Return the score of each response to an item, by its text or its place."""
        records = self._index.of(item, probe, knows_nobody=knows_nobody)
        return [_score(records, place, text, len(responses)) for place, text in enumerate(responses)]


def _score(records: Mapping[Json, ScoreRecord], place: int, text: str, count: int) -> Score:
    by_text, by_place = records.get(text), records.get(place)
    record = by_text or by_place
    what = _SIDES[place] if count == 2 else f"response {place}"
    if record is None:
        return _not_recorded(f"no score of {what} was recorded" if records else "no score of this item was recorded")
    if by_text and by_place and by_text.value != by_place.value:
        lines = f"line {by_text.line} by its text, and line {by_place.line} by its place"
        return _not_recorded(f"{what} has two scores: {lines}")
    if record.index is not None and record.text not in (None, text):
        return _not_recorded(f"the text recorded for {what} is another one (line {record.line})")
    if record.value is None:
        return _not_recorded(f"line {record.line} holds no number")
    return Score(value=record.value)


def _not_recorded(detail: str) -> Score:
    return Score(value=None, problem=Problem.NOT_RECORDED, detail=detail)


class RecordedReplies:
    """Looks replies up, and reads them. `prefer` has no item to look up."""

    def __init__(self, index: _Index[ReplyRecord], read: Callable[[str], Pick], *, takes_decisions: bool) -> None:
        self._index = index
        self._read_text = read
        self._takes_decisions = takes_decisions

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        raise _cannot_be_asked(self._index.path)

    def look_up(
        self, item: str, probe: Probe, responses: Sequence[str], *, knows_nobody: bool
    ) -> dict[bool, Comparison]:
        """Return what was said in each order that was recorded: by whether the first response stood first."""
        found: dict[bool, ReplyRecord] = {}
        for record in self._index.of(item, probe, knows_nobody=knows_nobody).values():
            place = self._place_of_first(record, responses)
            if place is None:
                continue
            known = found.setdefault(place == 0, record)
            if (known.text, known.decision) != (record.text, record.decision):
                raise _contradiction(self._index.path, known, record)
        return {order: self._read(record) for order, record in found.items()}

    def _place_of_first(self, record: ReplyRecord, responses: Sequence[str]) -> int | None:
        """Return which response stood first, by its text or its place; `None` where it is another text."""
        if isinstance(record.first, int):
            return record.first
        by_text = responses.index(record.first) if record.first in responses else None
        by_place = place_named(record.first) if record.may_be_place else None
        if by_text is None or by_place is None or by_text == by_place:
            return by_place if by_text is None else by_text
        raise DataError(
            f"{self._index.path}:{record.line}: first: {record.first!r} is the text of {_SIDES[by_text]} to item "
            f"{record.id!r}, and the place of {_SIDES[by_place]}. Say in `order` which one stood first."
        )

    def _read(self, record: ReplyRecord) -> Comparison:
        if record.problem:
            return Comparison(
                pick=Pick.UNREADABLE, problem=Problem.NOT_RECORDED, detail=record.problem, raw=record.text or ""
            )
        if self._takes_decisions and record.decision is not None:
            pick = record.decision
        else:
            pick = Pick.UNREADABLE if record.text is None else self._read_text(record.text)
        problem = Problem.NO_VERDICT if pick is Pick.UNREADABLE else Problem.NONE
        return Comparison(pick=pick, problem=problem, raw=record.text or "")


def _cannot_be_asked(path: Path) -> UsageError:
    return UsageError(
        f"{path} holds what was recorded of known items, and nothing else. Name a model that can be asked."
    )
