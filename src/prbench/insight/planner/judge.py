"""A judge compares plans with rubrics: one request per example, read strictly."""

from collections.abc import Mapping, Sequence

from prbench.backends.llm.client import LLM, ChatRequest, Message, Reply
from prbench.insight.planner.records import Matching, Pair
from prbench.prompts import load_template
from prbench.prompts.llm_json import whole_number
from prbench.prompts.replies import read_json
from prbench.schema import Aspect, Json, Problem

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


def request(question: str, wanted: Sequence[Aspect], planned: Sequence[str], owner: str) -> ChatRequest:
    """Return what a judge is asked about one example."""
    template = load_template(TEMPLATE).require("question", "gold", "planned", answer="json")
    gold = [aspect.text for aspect in wanted]
    filled = template.fill(question=question, gold=_numbered(gold), planned=_numbered(planned))
    messages = tuple(Message(role, text) for role, text in filled)
    return ChatRequest(messages=messages, max_tokens=MAX_TOKENS, json_schema=SCHEMA, owner=owner)


def ask(llm: LLM, requests: Sequence[tuple[ChatRequest, int, int]]) -> list[Matching]:
    """Return one matching per request, given with the numbers of planned and of wanted aspects."""
    replies = llm.complete([each for each, _, _ in requests]) if requests else []
    return [read(reply, planned, wanted) for reply, (_, planned, wanted) in zip(replies, requests, strict=True)]


def read(reply: Reply, planned: int, wanted: int) -> Matching:
    """Read the pairs. A number that is on no list makes the whole reply unreadable: it was about something else."""
    if reply.problem:
        return Matching(pairs=None, problem=reply.problem, raw=reply.error or reply.text)
    found = read_json(reply.text, {"type": "object", "required": ["pairs"]})
    listed = found["pairs"] if found else None
    pairs = [_pair(one, planned, wanted) for one in listed] if isinstance(listed, list) else [None]
    if None in pairs:
        return Matching(pairs=None, problem=Problem.NO_VERDICT, raw=reply.text)
    return Matching(pairs=tuple(sorted({pair for pair in pairs if pair})), raw=reply.text)


def _pair(value: Json, planned: int, wanted: int) -> Pair | None:
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
