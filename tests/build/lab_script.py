"""A scripted generator, judge and quality judge that live in the lab, with mistakes at known rates.

They know a request by its prompt, and answer from the lab's own texts. Every mistake is decided by a hash of the whole
request, seed included, so that threads and restarts cannot change what happens, and another round is another throw.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

from prbench.backends.llm import ChatRequest
from prbench.data.texts import sentences_of
from prbench.lab.gold import aspect_traits
from prbench.lab.pairs import POINTS
from prbench.lab.population import LabAspect, load_library

DIMENSIONS = ("correctness", "relevance", "helpfulness")


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How often the script makes which mistake."""

    violations: float = 0.0  # a chosen response that misses an aspect, a rejected one that serves one
    wrong_verdicts: float = 0.0  # the judge sees what is not there, or misses what is
    unquoted: float = 0.0  # evidence in the judge's own words
    unequal: float = 0.0  # the quality judge finds one response much better


HONEST = Rates()
ERRING = Rates(violations=0.10, wrong_verdicts=0.02, unquoted=0.05, unequal=0.05)


def answer(body: dict[str, Any]) -> str:
    """Answer one request without mistakes."""
    return reply(body, HONEST)


def erring(body: dict[str, Any]) -> str:
    """Answer one request with mistakes."""
    return reply(body, ERRING)


def body_of(request: ChatRequest) -> dict[str, Any]:
    """What a server would be sent, for models inside the process."""
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    return {"messages": messages, "seed": request.seed}


def reply(body: dict[str, Any], rates: Rates) -> str:
    """Answer as the role that the prompt asks for."""
    prompt = body["messages"][-1]["content"]
    dice = random.Random(sha256(json.dumps([body["messages"], body.get("seed")]).encode()).digest())
    if "Write two texts:" in prompt:
        return _draw(prompt)
    if "different aspects that this person expects" in prompt:
        return _rubric(prompt)
    if "What this person expects in the answer" in prompt:
        return _response(prompt, dice, rates, listed=_names(fence(prompt, "expected")), wanted=True)
    if "Concerns that must not come up" in prompt:
        return _response(prompt, dice, rates, listed=_names(fence(prompt, "avoided")), wanted=False)
    if "The expectations, numbered:" in prompt:
        names = _names(fence(prompt, "expectations"))
        verdicts = [{"number": n, **_verdict(prompt, name, dice, rates)} for n, name in enumerate(names, 1)]
        return json.dumps({"verdicts": verdicts})
    if "The expectation:" in prompt:
        return json.dumps(_verdict(prompt, fence(prompt, "expectation"), dice, rates))
    if "Rate each response from 1" in prompt:
        return _ratings(dice, rates)
    raise AssertionError(f"no script for: {prompt[:200]}")


def fence(prompt: str, name: str) -> str:
    """The text between a pair of tags."""
    found = re.search(rf"<{name}-([0-9a-f]+)>\n(.*?)\n</{name}-\1>", prompt, re.DOTALL)
    assert found, f"the prompt has no {name}"
    return found[2]


def _names(listed: str) -> list[str]:
    """The aspects of a list, whose names are the lab's own."""
    return [
        name for line in listed.splitlines() for name in aspect_traits() if re.match(rf"\S+ {re.escape(name)}:", line)
    ]


def _draw(prompt: str) -> str:
    post = fence(prompt, "post")
    return json.dumps({"question": f"What would you advise me about this, in {len(post)} ways?", "narrative": post})


def _rubric(prompt: str) -> str:
    """The aspects whose evidence sentences stand in the account, so many as asked for."""
    account = fence(prompt, "account")
    wanted = int(re.search(r"Name (\d+) different", prompt)[1])  # type: ignore[index]
    found = [
        {"aspect": aspect.name, "evidence": text, "reason": aspect.reason}
        for subject in load_library().subjects
        for aspect in subject.aspects
        for text in aspect.evidence
        if text in account
    ]
    return json.dumps({"aspects": found[:wanted]})


def _response(prompt: str, dice: random.Random, rates: Rates, *, listed: Sequence[str], wanted: bool) -> str:
    """Points of the lab: of the listed aspects, or of all others; of the form that is asked for, if there is one."""
    ours, theirs = _sides(tuple(listed))
    good, bad = (ours, theirs) if wanted else (theirs, ours)
    violates = dice.random() < rates.violations
    found = re.search(r"\((\d+) to (\d+) characters\)", prompt)
    low, high = (int(found[1]), int(found[2])) if found else (0, 10**6)
    count = max(POINTS, len(ours))
    text = ""
    for _ in range(300):
        aspects = [good[place % len(good)] for place in range(count)]
        if violates:
            lost = aspects[0]
            aspects = [dice.choice(bad) if aspect is lost else aspect for aspect in aspects]
        points = [dice.choice(aspect.points) for aspect in aspects]
        dice.shuffle(points)
        text = " ".join(points)
        if len(set(points)) == count and low <= len(text) <= high:
            break
    return text


@cache
def _sides(listed: tuple[str, ...]) -> tuple[list[LabAspect], list[LabAspect]]:
    name = aspect_traits()[listed[0]][0]
    (subject,) = (each for each in load_library().subjects if each.subject == name)
    ours = [aspect for aspect in subject.aspects if aspect.name in listed]
    return ours, [aspect for aspect in subject.aspects if aspect.name not in listed]


def _verdict(prompt: str, aspect: str, dice: random.Random, rates: Rates) -> dict[str, Any]:
    sentences = sentences_of(fence(prompt, "response"))
    serving = [text for text in sentences if _aspect_of().get(text) == aspect]
    if dice.random() < rates.wrong_verdicts:
        serving = [] if serving else [sentences[0]]
    if not serving:
        return {"evidence": "", "reason": f"nothing about {aspect}", "score": 0}
    quote = "that it pays to do so" if dice.random() < rates.unquoted else serving[0]
    return {"evidence": quote, "reason": f"it is about {aspect}", "score": 2}


@cache
def _aspect_of() -> dict[str, str]:
    return {
        point: aspect.name
        for subject in load_library().subjects
        for aspect in subject.aspects
        for point in aspect.points
    }


def _ratings(dice: random.Random, rates: Rates) -> str:
    first = {name: dice.choice((8, 9)) for name in DIMENSIONS}
    second = {name: dice.choice((8, 9)) for name in DIMENSIONS}
    if dice.random() < rates.unequal:
        second["helpfulness"] = 3
    return json.dumps({"a": first, "b": second})
