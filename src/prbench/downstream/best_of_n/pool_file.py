"""A pool of answers that were sampled, and perhaps graded and scored, elsewhere: `prbench bon --pool FILE`.

One row is one question with all its answers:

    {"id": "1", "user_id": "ana", "question": "…", "answers": ["…", "…"], "gold": [0.2, 0.9], "scores": {"rm": [1, 3]}}

`gold` is what each answer is truly worth, `scores` what reward models said of them. It stands in the place of a policy
and of a judge, so that everything else is as for answers that are sampled here.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prbench.backends.policy import Prompt, Sample
from prbench.data import ExampleStore, MadeExamples
from prbench.data.rows import quoted, row_error, to_example
from prbench.data.source import read_file
from prbench.errors import DataError, UsageError
from prbench.judging import Grade, Judge
from prbench.schema import Example, Json
from prbench.specs import format_spec

_OWN = ("answers", "gold", "scores")
_PLACEHOLDERS = {"chosen": "the first answer", "rejected": "the last answer"}
_NO_GOLD = "no gold value was recorded"


@dataclass(frozen=True, kw_only=True)
class PoolFile:
    """The questions of a file, their answers, and what is known of them."""

    path: Path
    examples: tuple[Example, ...]
    answers: Mapping[str, tuple[str, ...]]  # by question id
    gold: Mapping[str, tuple[float | None, ...]]  # likewise; of questions that have it
    models: tuple[str, ...]  # whose scores are in it; "": of one without a name
    digest: str  # of the file

    @classmethod
    def read(cls, path: str | Path) -> "PoolFile":
        """Read a JSONL or Parquet file; a bad row is refused."""
        path = Path(path).expanduser()
        if not path.is_file():
            raise UsageError(f"--pool {path}: there is no such file. Check the path.")
        places: dict[tuple[str, str], str] = {}
        examples: dict[str, Example] = {}
        answers: dict[str, tuple[str, ...]] = {}
        gold: dict[str, tuple[float | None, ...]] = {}
        models: dict[str, None] = {}
        for raw in read_file(path):
            if raw.problem or not isinstance(raw.value, Mapping):
                raise raw.refusal() if raw.problem else row_error(raw.where, "row", "is no object", "Correct the row")
            example, texts = _question(raw.value, raw.where)
            _check_new(example, raw.where, places, examples)
            examples[example.id], answers[example.id] = example, texts
            if raw.value.get("gold") is not None:
                gold[example.id] = _numbers(raw.value["gold"], "gold", len(texts), raw.where)
            models |= dict.fromkeys(_check_scores(raw.value.get("scores"), len(texts), raw.where))
        if not examples:
            raise DataError(f"{path}: there are no rows. Check that this is the file you meant.")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(
            path=path,
            examples=tuple(examples.values()),
            answers=answers,
            gold=gold,
            models=tuple(models),
            digest=digest,
        )

    @property
    def n(self) -> int:
        """How many answers every question has at least: what the best of more is worth is known of some only."""
        return min(map(len, self.answers.values()))

    @property
    def specs(self) -> list[str]:
        """The reward models whose scores are recorded in the file."""
        return [format_spec("scores", str(self.path), {"model": name} if name else {}) for name in self.models]

    def open(self) -> ExampleStore:
        """Return the questions as examples."""
        return MadeExamples(self.examples, str(self.path))

    def policy(self) -> "RecordedPolicy":
        """Return what gives the answers."""
        return RecordedPolicy(self)

    def judge(self) -> Judge:
        """Return what gives the gold values; refused where the file has none."""
        if not self.gold:
            raise UsageError(f"--pool {self.path}: has no gold values. Add them, or name a judge with --judge.")
        return RecordedGold(self)


class RecordedPolicy:
    """Gives the answers of a file, whatever the seed."""

    def __init__(self, pool: PoolFile) -> None:
        self.name = f"pool:{pool.path.name}"
        self.identity: Mapping[str, Json] = {"policy": "recorded", "file": pool.digest}
        self._answers = pool.answers

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        return [[Sample(text=text) for text in self._answers[prompt.id]] for prompt in prompts]


class RecordedGold:
    """Gives the gold values of a file; the span is from the least to the greatest of them."""

    def __init__(self, pool: PoolFile) -> None:
        known = [value for values in pool.gold.values() for value in values if value is not None]
        if not known or min(known) == max(known):
            fact = "all gold values are the same" if known else "no gold value is a number"
            raise UsageError(f"--pool {pool.path}: {fact}, so there is nothing to gain. Check the column.")
        self.name = f"gold of {pool.path.name}"
        self.span = min(known), max(known)
        self.identity: Mapping[str, Json] = {"judge": "recorded gold", "file": pool.digest}
        self._gold = pool.gold

    def check(self, examples: Sequence[Example]) -> None:
        """Every question may be asked about: one without gold is left out, and counted."""

    def grade(self, example: Example, responses: Sequence[str]) -> list[Grade]:
        values = self._gold.get(example.id, (None,) * len(responses))
        return [Grade(value=value, problem=_NO_GOLD if value is None else "") for value in values]


def _question(row: Mapping[str, Json], where: str) -> tuple[Example, tuple[str, ...]]:
    """The question as an example, through the same border as all rows, and its answers."""
    answers = row.get("answers")
    if not isinstance(answers, list) or not answers or not all(isinstance(text, str) for text in answers):
        fact = "is missing" if answers is None else f"is {quoted(answers)}, not a list of texts"
        raise row_error(where, "answers", fact, "Give all answers to the question, in one list")
    rest = {name: value for name, value in row.items() if name not in _OWN}
    if "question" not in rest and "prompt" in rest:
        rest["question"] = rest.pop("prompt")
    example = to_example({"profile": [], **rest, **_PLACEHOLDERS}, where)
    return replace(example, chosen=answers[0], rejected=answers[-1]), tuple(answers)


def _check_new(
    example: Example, where: str, places: dict[tuple[str, str], str], examples: Mapping[str, Example]
) -> None:
    asked = (example.user.id, example.question)
    if example.id in examples:
        raise row_error(where, "id", f"{quoted(example.id)} was used before", "Give every row its own id")
    if asked in places:
        fact = f"was asked by this user before, at {places[asked]}"
        raise row_error(where, "question", fact, "Put all its answers into one row")
    places[asked] = where


def _check_scores(scores: Json, count: int, where: str) -> list[str]:
    """The names of the models whose scores a row has."""
    if scores is None:
        return []
    by_model = scores if isinstance(scores, Mapping) else {"": scores}
    for name, values in by_model.items():
        if values is not None:
            _numbers(values, f"scores.{name}" if name else "scores", count, where)
    return [str(name) for name, values in by_model.items() if values is not None]


def _numbers(values: Json, field: str, count: int, where: str) -> tuple[float | None, ...]:
    """One number for each answer; null stands for none."""
    if not isinstance(values, list) or len(values) != count:
        found = f"{len(values)} values" if isinstance(values, list) else quoted(values)
        raise row_error(where, field, f"is {found}, and there are {count} answers", "Give one number for each answer")
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise row_error(where, field, f"holds {quoted(value)}, not a number", "Correct it, or write null")
        if value is not None and not math.isfinite(value):
            raise row_error(where, field, f"holds {value}, which is not finite", "Correct it, or write null")
    return tuple(None if value is None else float(value) for value in values)
