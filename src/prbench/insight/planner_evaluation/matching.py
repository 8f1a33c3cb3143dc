"""Which planned aspects say the same as which wanted ones: by a judge, or by the lab's own truth.

A judge, a language model, is asked once per example and read strictly. The lab's truth needs none: a planned aspect is
compared by meaning with the names and reasons of the six aspects of the subject, and with those of the same traits on
every subject. Where the best is not near enough, or not clearly the best, the reader abstains.
`tests/planner_evaluation` measures how often it is right on aspects written for that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prbench.backends.encoders import Encoder, load_encoder
from prbench.backends.llm.client import LLM, ChatRequest, Message, Reply
from prbench.lab.gold import aspect_traits
from prbench.lab.population import load_library
from prbench.metrics.estimate import FloatArray
from prbench.prompts import load_template
from prbench.prompts.llm_json import whole_number
from prbench.prompts.replies import read_json
from prbench.schema import Aspect, Example, Json, Problem

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
    """Reads planned aspects. The encoder is loaded when the first one comes."""

    def __init__(self, encoder: Callable[[], Encoder] = load_encoder) -> None:
        self._load_encoder = encoder
        self._known: dict[tuple[str, str], str] = {}

    def read(self, planned: Sequence[str], subject: str) -> list[str]:
        """Return the trait that each planned aspect is about, or ""."""
        new = [text for text in dict.fromkeys(planned) if (subject, text) not in self._known]
        if new:
            for text, vector in zip(new, self._encode(new), strict=True):
                self._known[subject, text] = self._read(vector, subject)
        return [self._known[subject, text] for text in planned]

    def _read(self, vector: FloatArray, subject: str) -> str:
        here, anywhere = self._vectors
        nearness = {
            trait: OWN_SHARE * float((own @ vector).mean())
            + (1 - OWN_SHARE) * float(np.sort(anywhere[trait] @ vector)[-NEAREST:].mean())
            for trait, own in here[subject].items()
        }
        best, second = sorted(nearness, key=lambda trait: -nearness[trait])[:2]
        is_clear = nearness[best] >= LEAST and nearness[best] - nearness[second] >= LEAD
        return best if is_clear else ""

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


def subject_of(example: Example) -> str:
    """Return the subject of a lab example."""
    return aspect_traits()[example.rubric[0].aspect][0]


def match_traits(read: Sequence[str], wanted: Sequence[str]) -> Matching:
    """Return which planned aspects have the trait of which wanted one."""
    pairs = [(i, j) for i, trait in enumerate(read) for j, other in enumerate(wanted) if trait == other]
    return Matching(pairs=tuple(pairs))
