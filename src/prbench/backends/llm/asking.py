"""Asking a model until its reply can be used, or the tries are spent.

A request has a seed of its own, made from the common seed, the item, the stage and the round. So no item depends on
another one or on the order in which threads finish, and every round is another sample.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Generic, TypeVar

from prbench.backends.llm.client import LLM, ChatRequest, Finish, Message, Reply, always, complete_each, never
from prbench.errors import shortened
from prbench.prompts import Template
from prbench.prompts.llm_json import whole_number
from prbench.prompts.replies import read_json
from prbench.schema import BROKEN, NOTHING, Json

Value = TypeVar("Value")
Prompt = tuple[Message, ...]
OnProgress = Callable[[int, int], None]  # requests answered, requests in all

UNREADABLE = "unreadable"
CUT_OFF = "cut_off"
LONGEST_QUOTE = 200  # characters of a model's own words that a later prompt repeats


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a reply is of no use: a name to count by, and the words in which the model is told."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[Value]):
    """One thing to ask."""

    id: str  # of the item that it is about; part of the seed
    owner: str  # the user whose texts it holds
    round: int
    about: str = ""  # which of an item's questions in this stage, e.g. `chosen/2`; part of the seed
    prompt: Callable[[str], Prompt]  # takes what was wrong with the reply before, "" at first
    read: Callable[[Reply], "Value | Unusable"]
    schema: Mapping[str, Json] = field(default_factory=lambda: NOTHING)
    extra_tokens: int = 0  # that its reply may have beyond what the stage allows
    cut_is_enough: Callable[[str], bool] = never


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[Value]):
    """What came of a task. Without a value, `reason` and `detail` say why."""

    value: Value | None
    reason: str = ""
    detail: str = ""
    tries: tuple[Mapping[str, Json], ...] = ()  # the replies that could not be used, in order


@dataclass(slots=True)
class Used:
    """What the replies cost that a stage made use of, whether they came now or in an earlier run."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, reply: Reply) -> None:
        """Count one reply."""
        self.requests += 1
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The model of one stage, and how it is asked."""

    llm: LLM
    stage: str  # part of the seed
    seed: int
    max_tokens: int
    is_capped: bool = False  # `max_tokens` holds for every task, whatever it asks for
    temperature: float = 0.0
    tries: int = 1
    used: Used = field(default_factory=Used)
    on_step: Callable[[str], OnProgress | None] = lambda label: None

    def ask(self, tasks: Sequence[Task[Value]], label: str) -> list[Answer[Value]]:
        """Return one answer per task, in order; an unusable reply is asked for again, told what was wrong."""
        answers: dict[int, Answer[Value]] = {}
        tries: list[list[dict[str, Json]]] = [[] for _ in tasks]  # of each task, the replies that were of no use
        for attempt in range(self.tries):
            waiting = [index for index in range(len(tasks)) if index not in answers]
            if not waiting:
                break
            told = [str(tries[index][-1]["detail"]) if tries[index] else "" for index in waiting]
            requests = [self.request(tasks[index], attempt, what) for index, what in zip(waiting, told, strict=True)]
            progress = self.on_step(label if not attempt else f"{label}, asked again")
            for done, (place, reply) in enumerate(complete_each(self.llm, requests), 1):
                index = waiting[place]
                before = tuple(tries[index])
                if reply.problem in BROKEN:
                    answers[index] = Answer(value=None, reason=reply.problem.value, detail=reply.error, tries=before)
                else:
                    self.used.add(reply)
                    value = tasks[index].read(reply)
                    if isinstance(value, Unusable):
                        tries[index].append({"reason": value.reason, "detail": value.detail, "reply": reply.text})
                    else:
                        answers[index] = Answer(value=value, tries=before)
                if progress:
                    progress(done, len(requests))
        return [
            answers[index]
            if index in answers
            else Answer(value=None, reason=some[-1]["reason"], detail=some[-1]["detail"], tries=tuple(some))
            for index, some in enumerate(tries)
        ]

    def request(self, task: Task[Value], attempt: int, problem: str) -> ChatRequest:
        """Return the request of one attempt at a task."""
        return ChatRequest(
            messages=task.prompt(problem),
            max_tokens=self.max_tokens + (0 if self.is_capped else task.extra_tokens),
            temperature=self.temperature,
            seed=seed_of(self.seed, task.id, self.stage, task.about, task.round, attempt),
            json_schema=task.schema,
            owner=task.owner,
            # A cut-off reply is kept where the next try, told so, follows at once: else a build that runs again would
            # have a new first try, and maybe another pair. After the last try it is the next run that asks again.
            cut_is_enough=task.cut_is_enough if attempt == self.tries - 1 else always,
        )


def seed_of(*parts: object) -> int:
    """Return 31 bits that depend on all parts: servers take no more."""
    return int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest()[:4], "big") >> 1


def filled(template: Template, **slots: str) -> Prompt:
    """Return the messages of a prompt."""
    return tuple(Message(role, text) for role, text in template.fill(**slots))


def read_object(reply: Reply, *keys: str) -> Mapping[str, Json] | Unusable:
    """Return the JSON object in a reply that has these keys; what they hold is for the caller to check."""
    if reply.finish is Finish.LENGTH:
        return Unusable(CUT_OFF, "it was cut off before its end. Be brief.")
    found = read_json(reply.text, {"type": "object", "required": list(keys)})
    if found is not None:
        return found
    named = ", ".join(keys)
    return Unusable(UNREADABLE, f"it held no JSON object with the keys {named}.")


def cut(text: str) -> str:
    """Return what a model wrote on one line and short, where another prompt or a reason repeats it."""
    return shortened(" ".join(text.split()), LONGEST_QUOTE)


def text_in(found: Mapping[str, Json], key: str) -> str:
    """Return a text of an object, trimmed; "" where there is none, or something else."""
    value = found.get(key)
    return value.strip() if isinstance(value, str) else ""


def whole_number_in(found: Mapping[str, Json], key: str, low: int, high: int) -> int | None:
    """Return a whole number within bounds, as `whole_number` reads it; else nothing."""
    value = whole_number(found.get(key))
    return value if value is not None and low <= value <= high else None
