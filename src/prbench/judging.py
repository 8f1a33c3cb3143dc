"""Judges: our instruments, which know what a user wants. Reward models are under test and never import this module.

`LabJudge` reads the lab's own truth. `RubricJudge` lets a language model look for every aspect of a rubric in a
response and prove what it finds by a quote; `prbench build` verifies its pairs by the same tasks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, SupportsFloat

from prbench.backends.llm import LLM, load_llm
from prbench.backends.llm.asking import (
    UNREADABLE,
    Asker,
    Task,
    Unusable,
    cut,
    filled,
    read_object,
    text_in,
    whole_number_in,
)
from prbench.backends.llm.client import Reply, fingerprint_of
from prbench.backends.llm.spending import keep
from prbench.backends.own_code import asking, identity_of, load_python
from prbench.data import ExampleStore
from prbench.data.texts import is_quote, sentences_of
from prbench.errors import DataError, UsageError
from prbench.lab.gold import GoldInstrument
from prbench.lab.pairs import POINTS
from prbench.prompts import Template, load_template
from prbench.registry import JUDGES
from prbench.schema import Aspect, Example, Json
from prbench.specs import Spec, parse_spec

_PROMISED = ("identity", "span", "check", "grade")

ONE, ALL = "build_verify", "build_verify_all"  # templates: a request for each aspect, or one for the whole rubric
TOP_SCORE = 2
VERDICT_TOKENS = 200  # that each aspect may add, where one reply has the verdicts on all
JUDGE_TOKENS = 200  # beyond what each aspect may add
JUDGE_TRIES = 2
NOT_QUOTED = "evidence_not_quoted"
_VERDICT: dict[str, Json] = {
    "evidence": {"type": "string"},
    "reason": {"type": "string"},
    "score": {"type": "integer", "minimum": 0, "maximum": TOP_SCORE},
}
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": _VERDICT,
    "required": list(_VERDICT),
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What one response is worth to its user; `None` with a problem where nobody could tell."""

    value: float | None
    quality: float | None = None  # whoever asks, from 0 to 1; `None` where it is not measured
    problem: str = ""


class Judge(Protocol):
    """Grades responses by what their user wants."""

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes grades."""
        ...

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest value."""
        ...

    def check(self, examples: Sequence[Example]) -> None:
        """Refuse examples that it could not grade, before anything is sampled or paid for."""
        ...

    def grade(self, example: Example, responses: Sequence[str]) -> list[Grade]:
        """Return one grade per response, in the same order."""
        ...


def judge_for(spec: str, *, seed: int = 0, cache: Path | None = None) -> Judge:
    """Return the judge that a spec names: `lab`, a language model that grades by rubrics, or one of your own.

    A dataset that knows its own truth names its judge (`judge_of_data`); for all others a user does. The replies of a
    language model are kept in `cache`.
    """
    if not spec:
        raise UsageError(
            "This data names no judge that knows what answers are worth. Name a judge of rubrics with --judge, "
            "e.g. openai:MODEL@URL, or `--judge lab` for rows that the lab made."
        )
    parsed = parse_spec(spec, JUDGES)
    judge: Judge = JUDGES.find(parsed.kind).make(parsed, seed, cache, needs=_PROMISED)
    return judge


def judge_of_data(store: ExampleStore) -> str:
    """Return the spec of the judge that data names for itself, "" where it names none.

    What a dataset card says comes with the data, from anybody: it may only name a kind that is installed and that
    needs no more than its name. Anything else could run code, or send rows away.
    """
    said = store.judge_of_card
    if not said:
        return store.judge
    if said in JUDGES.names and not JUDGES.find(said).takes_target:
        return said
    raise UsageError(f"{store.name}: its card names judge {cut(said)!r}. Give it with --judge if you trust it.")


def knows_truth(spec: str) -> bool:
    """Tell of a judge's spec, before it is loaded, whether it needs to ask nobody what a text is worth."""
    return spec in JUDGES.names and JUDGES.find(spec).knows_truth


def load_lab_judge(spec: Spec, seed: int, cache: Path | None) -> "LabJudge":
    """Return `lab`."""
    return LabJudge()


def load_rubric_judge(spec: Spec, seed: int, cache: Path | None) -> "RubricJudge":
    """Return any chat model as a judge of rubrics."""
    llm = load_llm(spec.text, seed=seed)
    return RubricJudge(keep(llm, cache, "judge"), seed=seed)


def load_own(spec: Spec, seed: int, cache: Path | None) -> Judge:
    """Return `python:package.module:Factory`: what the factory makes, if it can grade."""
    made = load_python(spec)
    with asking(spec, f"the {type(made).__name__} that it made"):
        for name in _PROMISED:
            if not hasattr(made, name):
                what = f"made a {type(made).__name__} without {name}"
                raise UsageError(f"{spec.text}: {what}. See prbench.judging.Judge.")
        return OwnJudge(spec, made)


class OwnJudge:
    """An object that grades, checked: what it raises and what it returns wrongly is one line that names its spec."""

    def __init__(self, spec: Spec, inner: Any) -> None:
        self.name = spec.text
        self.identity = {"judge": f"{spec.kind}:{spec.target}", **identity_of(spec, inner.identity)}
        span = inner.span
        ends = list(span) if isinstance(span, Sequence) and not isinstance(span, str) else []
        is_span = len(ends) == 2 and all(isinstance(end, int | float) and isfinite(end) for end in ends)
        if not is_span or ends[0] >= ends[1]:
            raise UsageError(f"{self.name}: its span is {cut(repr(span))}. Make it the least and the greatest grade.")
        self.span = float(ends[0]), float(ends[1])
        self._spec, self._inner = spec, inner

    def check(self, examples: Sequence[Example]) -> None:
        with asking(self._spec, "check"):
            self._inner.check(examples)

    def grade(self, example: Example, responses: Sequence[str]) -> list[Grade]:
        with asking(self._spec, "grade"):
            return grades_of(self.name, self._inner.grade(example, responses), count=len(responses))


def name_of(judge: Judge) -> str:
    """Return what errors call a judge: its spec, or the class of an object in Python."""
    return str(getattr(judge, "name", "") or type(judge).__name__)


def grades_of(name: str, given: Any, *, count: int) -> list[Grade]:
    """Return what a judge gave, if it is one grade per response; a number that is not finite is none.

    It is asked before anything is kept: a grade that stands in the store is never asked for again.
    """
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise UsageError(f"{name}: grade returned a {type(given).__name__} where a list of Grade belongs.")
    if len(given) != count:
        raise UsageError(
            f"{name}: grade returned {len(given)} grades for {count} responses. Return one each, in order."
        )
    grades = []
    for grade in given:
        if not isinstance(grade, Grade):
            raise UsageError(f"{name}: grade returned a {type(grade).__name__} where a prbench.judging.Grade belongs.")
        value, quality = (_number_of(name, field, getattr(grade, field)) for field in ("value", "quality"))
        problem = grade.problem
        if not isinstance(problem, str):
            raise UsageError(f"{name}: the problem of a grade is a {type(problem).__name__}. Make it a text.")
        if value is None and grade.value is not None:
            problem = problem or "not a finite number"
        grades.append(Grade(value=value, quality=quality, problem=problem))
    return grades


def _number_of(name: str, field: str, number: Any) -> float | None:
    """Return a number as it was given; those of numpy as Python's own, and those that are not finite as none."""
    if number is None or type(number) in (int, float):
        return number if number is not None and isfinite(number) else None
    if isinstance(number, SupportsFloat) and not isinstance(number, str | bytes | bool):
        return _number_of(name, field, float(number))
    raise UsageError(f"{name}: the {field} of a grade is a {type(number).__name__}. Make it a number, or None.")


class LabJudge:
    """The lab's own instrument, for examples that the lab made.

    `value` is what `GoldInstrument` says, from -1 to 1: wanted points minus unwanted ones. `quality` is the share of
    an answer that tells a point of the subject at all, each point once: talk beside the subject, rambling and
    repetition lower it, whatever the user wants.
    """

    span = (-1.0, 1.0)

    def __init__(self) -> None:
        self._instrument = GoldInstrument()
        self.identity: Mapping[str, Json] = {
            "judge": "lab",
            **self._instrument.identity,
            "encoder": "minilm",
            "quality": 1,
        }

    def check(self, examples: Sequence[Example]) -> None:
        for example in examples:
            _truth(example)

    def grade(self, example: Example, responses: Sequence[str]) -> list[Grade]:
        subject, wanted = _truth(example)
        grades = []
        for text in responses:
            sentences = sentences_of(text)
            made = {point for points in self._instrument.read(sentences, subject) for point in points}
            quality = len(made) / max(POINTS, len(sentences), len(made))
            grades.append(Grade(value=self._instrument.value(text, subject, wanted), quality=quality))
        return grades

    def values(self, answers: Sequence[tuple[Example, str]]) -> list[float]:
        """Return the value of every answer; the sentences of all of them are read together, by subject."""
        by_subject: dict[str, list[str]] = {}
        for example, text in answers:
            by_subject.setdefault(_truth(example)[0], []).extend(sentences_of(text))
        for subject, texts in by_subject.items():
            self._instrument.read(texts, subject)
        return [self._instrument.value(text, *_truth(example)) for example, text in answers]


def _truth(example: Example) -> tuple[str, frozenset[str]]:
    """Return the subject of an example of the lab, and the traits that its user wants."""
    for name in ("subject", "wanted"):
        if name not in example.meta:
            raise DataError(
                f"Example {example.id}: has no {name!r}, so its gold is not known. The lab's judge needs --data lab."
            )
    return str(example.meta["subject"]), frozenset(example.meta["wanted"])


class RubricJudge:
    """Grades responses as `prbench build` verifies them: 0, 1 or 2 per aspect of the rubric, proved by a quote.

    The value is the mean over the aspects, scaled to lie between 0 and 1. All aspects are judged in one request.

        judge = RubricJudge(load_llm("openai:NAME@http://127.0.0.1:8000/v1"))
        [grade] = judge.grade(example, ["Sow cheap seeds by the handful in spring."])
    """

    span = (0.0, 1.0)

    def __init__(self, llm: LLM, *, seed: int = 0) -> None:
        self._llm = llm
        self._seed = seed
        self.identity: Mapping[str, Json] = {
            "judge": "rubric",
            "llm": llm.name,
            "fingerprint": fingerprint_of(llm),
            "template": load_template(ALL).hash,
            "seed": seed,
        }

    def check(self, examples: Sequence[Example]) -> None:
        bare = next((example for example in examples if not example.rubric), None)
        if bare is not None:
            raise UsageError(
                f"{bare.id}: has no rubric aspects, so a judge has nothing to grade by. Choose other rows."
            )

    def grade(self, example: Example, responses: Sequence[str]) -> list[Grade]:
        """Return one grade per response; equal ones are judged once."""
        self.check([example])
        different = list(dict.fromkeys(responses))
        rubric = Rubric(id=example.id, owner=example.user.id, question=example.question, aspects=example.rubric)
        tasks = [
            task
            for number, text in enumerate(different)
            for task in rubric_tasks(rubric, text, about="chosen", number=number, batched=True)
        ]
        asker = Asker(llm=self._llm, stage="verify", seed=self._seed, max_tokens=JUDGE_TOKENS, tries=JUDGE_TRIES)
        grades = {
            text: Grade(value=fmean(verdict.score for verdict in answer.value) / TOP_SCORE)
            if answer.value is not None
            else Grade(value=None, problem=answer.reason)
            for text, answer in zip(different, asker.ask(tasks, "grading"), strict=True)
        }
        return [grades[text] for text in responses]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """What a response to one question is held to."""

    id: str  # of the item
    owner: str  # the user whose rubric it is
    question: str
    aspects: tuple[Aspect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectVerdict:
    """What a judge found of one aspect in one response."""

    aspect: str
    score: int  # 0, 1 or 2
    evidence: str
    reason: str


Verdicts = tuple[AspectVerdict, ...]


def rubric_tasks(rubric: Rubric, response: str, *, about: str, number: int, batched: bool) -> Iterator[Task[Verdicts]]:
    """Yield what to ask about one response: one task per aspect, or one for all. `about` and `number` seed it."""

    def task(
        about: str, template: Template, read: Callable[[Reply], Verdicts | Unusable], schema: Json, **slots: str
    ) -> Task[Verdicts]:
        return Task(
            id=rubric.id,
            owner=rubric.owner,
            round=number,
            about=about,
            prompt=lambda problem: filled(
                template, question=rubric.question, response=response, problem=problem, **slots
            ),
            read=read,
            schema=schema,
            extra_tokens=VERDICT_TOKENS * len(rubric.aspects) if batched else 0,
        )

    if batched:
        template = load_template(ALL).require("question", "aspects", "response", "problem", answer="json")
        listed = "\n".join(f"{number}. {aspect.text}" for number, aspect in enumerate(rubric.aspects, 1))
        read_every = partial(read_all, aspects=rubric.aspects, response=response)
        yield task(about, template, read_every, schema_for_all(len(rubric.aspects)), aspects=listed)
        return
    template = load_template(ONE).require("question", "aspect", "reason", "response", "problem", answer="json")
    for index, aspect in enumerate(rubric.aspects):
        read = partial(read_one, aspect=aspect, response=response)
        yield task(f"{about}/{index}", template, read, SCHEMA, aspect=aspect.aspect, reason=aspect.reason)


def read_one(reply: Reply, aspect: Aspect, response: str) -> Verdicts | Unusable:
    """Read the verdict on one aspect."""
    found = read_object(reply, *_VERDICT)
    if isinstance(found, Unusable):
        return found
    verdict = _verdict(found, aspect, response)
    return verdict if isinstance(verdict, Unusable) else (verdict,)


def read_all(reply: Reply, aspects: Sequence[Aspect], response: str) -> Verdicts | Unusable:
    """Read one verdict per aspect, in any order; a missing or doubled one spoils them all."""
    found = read_object(reply, "verdicts")
    if isinstance(found, Unusable):
        return found
    each = found["verdicts"] if isinstance(found["verdicts"], list) else []
    by_number = {whole_number_in(one, "number", 1, len(aspects)): one for one in each if isinstance(one, Mapping)}
    if len(each) != len(aspects) or by_number.keys() != set(range(1, len(aspects) + 1)):
        return Unusable(UNREADABLE, f"it must hold one verdict for each number from 1 to {len(aspects)}.")
    verdicts = [_verdict(by_number[number], aspect, response) for number, aspect in enumerate(aspects, 1)]
    unusable = [verdict for verdict in verdicts if isinstance(verdict, Unusable)]
    return unusable[0] if unusable else tuple(v for v in verdicts if isinstance(v, AspectVerdict))


def schema_for_all(count: int) -> dict[str, Json]:
    """Return the JSON schema of verdicts on that many aspects."""
    number = {"number": {"type": "integer", "minimum": 1, "maximum": count}}
    one = {**SCHEMA, "properties": {**number, **_VERDICT}, "required": ["number", *_VERDICT]}
    return {
        "type": "object",
        "properties": {"verdicts": {"type": "array", "items": one, "minItems": count, "maxItems": count}},
        "required": ["verdicts"],
        "additionalProperties": False,
    }


def _verdict(found: Mapping[str, Json], aspect: Aspect, response: str) -> AspectVerdict | Unusable:
    score = whole_number_in(found, "score", 0, TOP_SCORE)
    if score is None:
        return Unusable(UNREADABLE, "the score must be 0, 1 or 2.")
    evidence, reason = text_in(found, "evidence"), text_in(found, "reason")
    if score and not is_quote(evidence, [response]):
        detail = f"the evidence “{cut(evidence)}” does not stand in the response. Copy some words of it exactly."
        return Unusable(NOT_QUOTED, detail)
    return AspectVerdict(aspect=aspect.aspect, score=score, evidence=evidence if score else "", reason=reason)
