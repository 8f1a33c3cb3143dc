"""Planner quality: how much of what a user really looks for does a planner predict, and how much does it make up?

Plan for every example, compare the plan with the rubric, keep the rows, and sum up: precision and recall with
intervals over users, and what they rest on. Which planned aspects say the same as which wanted ones, a judge says, a
language model that is asked once per example and read strictly, or the lab's own truth.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from prbench.backends.encoders import Encoder, load_encoder
from prbench.backends.llm import LLM, CachedLLM, load_llm
from prbench.backends.llm.client import ChatRequest, Message, Reply
from prbench.context import Ask, ContextMaker, Planner, load_planner, make_context
from prbench.data import DataSettings, open_data
from prbench.errors import UsageError
from prbench.judging import knows_truth
from prbench.lab.gold import aspect_traits
from prbench.lab.population import load_library
from prbench.metrics.estimate import FloatArray, ratio_estimates
from prbench.prompts import load_template
from prbench.prompts.llm_json import whole_number
from prbench.prompts.replies import read_json
from prbench.runs import ITEMS, SUMMARY, Keys, Layout, RunConfig, RunStore
from prbench.runs.files import PLANNER
from prbench.schema import BROKEN, Aspect, Example, Json, Problem, Progress

TEMPLATE = "match_aspects"
MAX_TOKENS = 512
SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "pairs": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"guess": {"type": "integer"}, "true": {"type": "integer"}},
                "required": ["guess", "true"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["pairs"],
    "additionalProperties": False,
}
# Chosen on every second probe of tests/planner_evaluation/probes.py; the others measure.
LEAST = 0.30  # nearness of what a planned aspect is taken for
LEAD = 0.03  # and how much nearer it is than the next
OWN_SHARE = 0.3  # of the nearness: to this subject's aspect; the rest is to its trait anywhere
NEAREST = 5  # texts on a trait whose nearness is averaged
Positions = tuple[int, int]  # of a planned and of a wanted aspect


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Which planned aspects say the same as which wanted ones; `None` where nobody could tell."""

    pairs: tuple[Positions, ...] | None
    problem: str = ""  # why nobody could tell
    raw: str = ""

    @property
    def matched(self) -> int:
        """The most pairs in which no aspect stands twice: a vague plan must not count for everything.

        That is the size of the largest one-to-one matching (Hopcroft and Karp 1973, by scipy).
        """
        if not self.pairs:
            return 0
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import maximum_bipartite_matching

        planned, wanted = np.array(self.pairs).T
        graph = coo_array((np.ones(len(self.pairs)), (planned, wanted))).tocsr()
        return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())


def judge_request(question: str, wanted: Sequence[Aspect], planned: Sequence[str], owner: str) -> ChatRequest:
    """Return what a judge is asked about one example."""
    template = load_template(TEMPLATE).require("question", "gold", "planned", answer="json")
    gold = [aspect.text for aspect in wanted]
    filled = template.fill(question=question, gold=_numbered(gold), planned=_numbered(planned))
    messages = tuple(Message(role, text) for role, text in filled)
    return ChatRequest(messages=messages, max_tokens=MAX_TOKENS, json_schema=SCHEMA, owner=owner)


def ask_judge(llm: LLM, requests: Sequence[tuple[ChatRequest, int, int]]) -> list[Matching]:
    """Return one matching per request, given with the numbers of planned and of wanted aspects."""
    replies = llm.complete([each for each, _, _ in requests]) if requests else []
    return [
        read_matching(reply, planned, wanted) for reply, (_, planned, wanted) in zip(replies, requests, strict=True)
    ]


def read_matching(reply: Reply, planned: int, wanted: int) -> Matching:
    """Read the pairs. A number that is on no list makes the whole reply unreadable: it was about something else."""
    if reply.problem:
        return Matching(pairs=None, problem=reply.problem, raw=reply.error or reply.text)
    found = read_json(reply.text, {"type": "object", "required": ["pairs"]})
    listed = found["pairs"] if found else None
    pairs = [_pair(one, planned, wanted) for one in listed] if isinstance(listed, list) else [None]
    if None in pairs:
        return Matching(pairs=None, problem=Problem.NO_VERDICT, raw=reply.text)
    return Matching(pairs=tuple(sorted({pair for pair in pairs if pair})), raw=reply.text)


def _pair(value: Json, planned: int, wanted: int) -> Positions | None:
    """Read one pair: an object, or two numbers in a row; also numbers written as text."""
    if isinstance(value, Mapping):
        value = [value.get("guess"), value.get("true")]
    if not isinstance(value, list) or len(value) != 2:
        return None
    guess, true = map(whole_number, value)
    if guess is None or true is None:
        return None
    return (guess - 1, true - 1) if 1 <= guess <= planned and 1 <= true <= wanted else None


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {' '.join(text.split())}" for number, text in enumerate(texts, 1))


class TraitReader:
    """Reads planned aspects by the lab's truth. The encoder is loaded when the first one comes.

    An aspect is compared by meaning with the names and reasons of the six aspects of the subject, and with those of
    the same traits on every subject. Where the best is not near enough, or not clearly the best, the reader abstains.
    `tests/planner_evaluation` measures how often it is right on aspects written for that.
    """

    def __init__(self, encoder: Callable[[], Encoder] = load_encoder) -> None:
        self._load_encoder = encoder
        self._known: dict[tuple[str, str], str] = {}

    def read(self, planned: Sequence[str], subject: str) -> list[str]:
        """Return the trait that each planned aspect is about, or ""."""
        new = [text for text in dict.fromkeys(planned) if (subject, text) not in self._known]
        if new:
            for text, vector in zip(new, self._encode(new), strict=True):
                here, anywhere = self._vectors
                nearness = {
                    trait: OWN_SHARE * float((own @ vector).mean())
                    + (1 - OWN_SHARE) * float(np.sort(anywhere[trait] @ vector)[-NEAREST:].mean())
                    for trait, own in here[subject].items()
                }
                best, second = sorted(nearness, key=lambda trait: -nearness[trait])[:2]
                is_clear = nearness[best] >= LEAST and nearness[best] - nearness[second] >= LEAD
                self._known[subject, text] = best if is_clear else ""
        return [self._known[subject, text] for text in planned]

    @cached_property
    def _vectors(self) -> tuple[dict[str, dict[str, FloatArray]], dict[str, FloatArray]]:
        """Name and reason of each aspect by subject and trait, and of all aspects by trait."""
        subjects = load_library().subjects
        aspects = [(subject.subject, aspect) for subject in subjects for aspect in subject.aspects]
        vectors = self._encode([text for _, aspect in aspects for text in (aspect.name, aspect.reason)])
        here: dict[str, dict[str, FloatArray]] = {}
        anywhere: dict[str, list[FloatArray]] = {}
        for place, (subject, aspect) in enumerate(aspects):
            both = vectors[2 * place : 2 * place + 2]
            here.setdefault(subject, {})[aspect.trait] = both
            anywhere.setdefault(aspect.trait, []).append(both)
        return here, {trait: np.concatenate(parts) for trait, parts in anywhere.items()}

    def _encode(self, texts: Sequence[str]) -> FloatArray:
        return np.asarray(self._load_encoder().encode(texts), dtype=np.float64)


def wanted_traits(example: Example) -> tuple[str, ...] | None:
    """Return the traits of a lab example's rubric, in its order; None where somebody has changed the rubric."""
    known = aspect_traits()
    if not example.rubric or any(aspect.aspect not in known for aspect in example.rubric):
        return None
    return tuple(known[aspect.aspect][1] for aspect in example.rubric)


def match_traits(read: Sequence[str], wanted: Sequence[str]) -> Matching:
    """Return which planned aspects have the trait of which wanted one."""
    pairs = [(i, j) for i, trait in enumerate(read) for j, other in enumerate(wanted) if trait == other]
    return Matching(pairs=tuple(pairs))


PLANNED = "planner"  # the folder of the figures, beside the replies or within the folder of a run
LAYOUT = Layout(kind=PLANNER, made=(ITEMS, SUMMARY))
AT_ONCE = 32  # examples between two looks at the progress
DIGITS = 6
ASPECTS_OF_A_SUBJECT = 6  # in the lab


@dataclass(frozen=True, kw_only=True)
class PlannerSettings:
    """Who plans, from what, and who judges."""

    planner: str
    judge: str = ""  # "": only by the lab's truth
    posts: int = 10
    rank: str = "recent"
    encoder: str = "minilm"
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys("planner", judge="", posts=10, rank="recent", encoder="minilm", seed=0)

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One question of one user."""

    id: str
    user_id: str
    category: str
    wanted: tuple[str, ...]
    planned: tuple[str, ...]
    problem: str = ""  # why there is no plan
    detail: str = ""
    judged: Matching | None = None  # by a language model
    truth: Matching | None = None  # by the lab's own traits
    read: tuple[str, ...] = ()  # the trait that each planned aspect is about, "" for none; lab only

    @property
    def has_failed(self) -> bool:
        """True if a request to the planner or to the judge broke, so that there is nothing to say about the plan."""
        return self.problem in BROKEN or (self.judged is not None and self.judged.problem in BROKEN)

    def as_json(self) -> dict[str, Json]:
        """Return the row as it stands in the file."""
        row: dict[str, Json] = asdict(self)
        return {name: value for name, value in row.items() if value is not None}


def measure_planner(
    settings: PlannerSettings,
    which: DataSettings,
    out: Path,
    *,
    models: Mapping[str, LLM] | None = None,
    reader: TraitReader | None = None,
    fresh: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Json]:
    """Write figures and the rows behind them to the folder `planner` in another one, and return the figures.

    Replies are kept in the folder, so that the same call again asks nothing twice. `models` are clients from Python
    (`planner`, `judge`), instead of those that the settings name.
    """
    out.mkdir(parents=True, exist_ok=True)
    planner, judge = _load_clients(settings, models or {}, out / "cache" / "llm.sqlite")
    maker = make_context("plan", posts=settings.posts, rank=settings.rank, planner=planner, encoder=settings.encoder)
    with open_data(which) as store:
        examples = [example for example in store if isinstance(example, Example) and example.rubric]
        has_truth, content_hash = knows_truth(store.named_judge), store.content_hash
    if not examples:
        raise UsageError("No row has rubric aspects to compare plans with. Choose data with `rubric_aspects`.")
    if judge is None and not has_truth:
        raise UsageError("Only the lab knows the truth about plans. Name a judge with --judge for other data.")
    prompts = {name: load_template(name).hash for name in ("plan", TEMPLATE)}
    asked = RunConfig(
        config={
            "settings": settings.to_config(),
            "data": content_hash,
            "prompts": prompts,
            "context": dict(maker.identity),
            "judge": judge and {"name": judge.name, "fingerprint": judge.fingerprint},
            "truth": has_truth,
        },
        data=which.to_config(),
        command=command,
    )
    # Before the first request: whoever is refused has paid for nothing.
    with RunStore.open(out / PLANNED, LAYOUT, asked, fresh=fresh) as run:
        trait_reader = (reader or TraitReader()) if has_truth else None
        rows: list[PlanRow] = []
        for start in range(0, len(examples), AT_ONCE):
            rows += _measure(examples[start : start + AT_ONCE], maker, judge, trait_reader)
            if progress:
                progress(len(rows), len(examples))
        summary: dict[str, Json] = {
            "settings": PlannerSettings.KEYS.values(settings),
            "data": {**DataSettings.KEYS.values(which), "hash": content_hash},
            "prompts": prompts,
            **summarize_plans(rows),
        }
        run.write_lines(ITEMS, (row.as_json() for row in rows))
        run.finish(summary)
    return summary


def _load_clients(
    settings: PlannerSettings, given: Mapping[str, LLM], cache: Path
) -> tuple[Planner, CachedLLM | None]:
    planner: Planner
    if "planner" in given:
        planner = CachedLLM(given["planner"], cache)
    else:
        planner = load_planner(settings.planner, seed=settings.seed, cache=cache)
    judge: CachedLLM | None = None
    if "judge" in given or settings.judge:
        judge = CachedLLM(given.get("judge") or load_llm(settings.judge, seed=settings.seed), cache)
    return planner, judge


def _measure(
    examples: Sequence[Example], maker: ContextMaker, judge: LLM | None, reader: TraitReader | None
) -> list[PlanRow]:
    """Plan for some examples, and compare the plans by all means there are: a judge, the lab's truth."""
    plans = maker.contexts([Ask(user=example.user, question=example.question) for example in examples])
    rows = [
        PlanRow(
            id=example.id,
            user_id=example.user.id,
            category=example.category,
            wanted=tuple(aspect.aspect for aspect in example.rubric),
            planned=plan.segments,
            problem=str(plan.problem or ("" if plan.segments else "nothing_known")),
            detail=plan.detail,
        )
        for example, plan in zip(examples, plans, strict=True)
    ]
    if judge is not None:
        asked = [place for place, row in enumerate(rows) if row.planned]
        requests = [
            (
                judge_request(
                    examples[place].question, examples[place].rubric, rows[place].planned, rows[place].user_id
                ),
                len(rows[place].planned),
                len(rows[place].wanted),
            )
            for place in asked
        ]
        found = dict(zip(asked, ask_judge(judge, requests), strict=True))
        rows = [replace(row, judged=found.get(place, Matching(pairs=()))) for place, row in enumerate(rows)]
    if reader is None:
        return rows
    return [_with_truth(example, row, reader) for example, row in zip(examples, rows, strict=True)]


def _with_truth(example: Example, row: PlanRow, reader: TraitReader) -> PlanRow:
    wanted = wanted_traits(example)
    if wanted is None:
        return row
    read = tuple(reader.read(row.planned, aspect_traits()[example.rubric[0].aspect][0]))
    return replace(row, read=read, truth=match_traits(read, wanted))


def summarize_plans(rows: Sequence[PlanRow]) -> dict[str, Json]:
    """Return the figures of a planner.

    Precision is the share of planned aspects that are wanted, recall the share of wanted aspects that are planned;
    an aspect counts once. Where there is no plan, nothing was planned: recall counts its wanted aspects as missed
    (`recall_with_plan` leaves them out). Where the judge's reply cannot be read, the example is left out of both and
    lowers `judged`. A request to the planner that failed says nothing about it: the example is in `failed`, and left
    out of every share.
    """
    told = [row for row in rows if row.problem not in BROKEN]
    has_plan = [not row.problem for row in told]
    ones = [1.0] * len(told)
    return {
        "examples": len(rows),
        "users": len({row.user_id for row in rows}),
        "failed": sum(row.has_failed for row in rows),
        "planned": _share_of(has_plan, ones, [row.user_id for row in told]),
        "no_plan": dict(sorted(Counter(row.problem for row in rows if row.problem).items())),
        "aspects_per_plan": _ratio([len(row.planned) for row in told], has_plan),
        "aspects_wanted": _ratio([len(row.wanted) for row in rows], [1.0] * len(rows)),
        "judge": _figures([(row, row.judged) for row in told if row.judged is not None]),
        "lab": _lab_figures([(row, row.truth) for row in told if row.truth is not None]),
    }


def _figures(found: Sequence[tuple[PlanRow, Matching]]) -> dict[str, Json] | None:
    if not found:
        return None
    told = [(row, matching) for row, matching in found if matching.pairs is not None]
    asked = [(row, matching) for row, matching in found if row.planned]
    is_told = [float(matching.pairs is not None) for _, matching in asked]
    return {
        "judged": _share_of(is_told, [1.0] * len(asked), [row.user_id for row, _ in asked]),
        "unreadable": dict(sorted(Counter(m.problem for _, m in found if m.pairs is None).items())),
        "precision": _share(told, [len(row.planned) for row, _ in told]),
        "recall": _share(told, [len(row.wanted) for row, _ in told]),
        "recall_with_plan": _share(told, [0 if row.problem else len(row.wanted) for row, _ in told]),
    }


def _lab_figures(found: Sequence[tuple[PlanRow, Matching]]) -> dict[str, Json] | None:
    """The same by the lab's truth, with the share of planned aspects that could be read, and what chance gives."""
    figures = _figures(found)
    if figures is None:
        return None
    planned = [len(row.planned) for row, _ in found]
    read = [sum(bool(trait) for trait in row.read) for row, _ in found]
    chance = [len(row.planned) * len(row.wanted) / ASPECTS_OF_A_SUBJECT for row, _ in found]
    return figures | {
        "aspects_read": _ratio(read, planned),
        "precision_of_read": _share(found, read),
        "precision_by_chance": _ratio(chance, planned),
    }


def _share(found: Sequence[tuple[PlanRow, Matching]], of: Sequence[float]) -> dict[str, Json] | None:
    """Matched aspects among so many."""
    top = [matching.matched if number else 0 for (_, matching), number in zip(found, of, strict=True)]
    return _share_of(top, of, [row.user_id for row, _ in found])


def _share_of(top: Sequence[float], bottom: Sequence[float], users: Sequence[str]) -> dict[str, Json] | None:
    """A ratio with its interval; None where there is nothing to have a share of."""
    if not any(bottom):
        return None
    estimate = asdict(ratio_estimates(top, bottom, users)[0])
    return {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in estimate.items()}


def _ratio(top: Sequence[float], bottom: Sequence[float]) -> float | None:
    return round(sum(top) / sum(bottom), DIGITS) if sum(bottom) else None
