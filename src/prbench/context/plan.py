"""A planner reads a user's posts and foresees what they will look for; it never sees the rubric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prbench.context.aspect_planner import AspectPlanner, Foreseen
from prbench.context.choose import Ask, Ranker
from prbench.context.render import Material, as_list, longest, rendering_hash
from prbench.llm.client import LLM, ChatRequest, Message, Reply
from prbench.prompts import Template, load_template
from prbench.replies import read_aspects
from prbench.schema import RETRIED, Json, Post, Problem

MOST_ASPECTS = 5
MAX_TOKENS = 512  # of a plan; a planner that thinks aloud needs more

NOTHING_KNOWN = Material(kind="plan")
Prompt = tuple[Message, ...]


class PlanContext:
    """Aspects that a language model infers from a user's top posts, asked once per user and question."""

    kind = "plan"

    def __init__(
        self, planner: LLM, *, ranker: Ranker, posts: int, identity: Mapping[str, Json], max_tokens: int = MAX_TOKENS
    ) -> None:
        self._planner = planner
        self._rank = ranker
        self._posts = posts
        self._max_tokens = max_tokens
        # By the prompt itself: the same user, posts and question give the same prompt, and nothing else does.
        self._plans: dict[Prompt, Material] = {}
        self.identity: Mapping[str, Json] = {
            **identity,
            "kind": self.kind,
            "planner": planner.name,
            "planner_template": _template().hash,
            "max_tokens": max_tokens,
            "rendering": rendering_hash(self.kind),
        }

    def materials(self, asks: Sequence[Ask]) -> list[Material]:
        """Return one plan per ask, in the same order; a plan that cannot be had says why."""
        drafts = [self._draft(ask, ranked[: self._posts]) for ask, ranked in zip(asks, self._rank(asks), strict=True)]
        owners = {draft.prompt: ask.user.id for draft, ask in zip(drafts, asks, strict=True) if draft.prompt}
        done = dict(self._plans)
        new = [prompt for prompt in owners if prompt not in done]
        requests = [
            ChatRequest(
                messages=prompt,
                max_tokens=self._max_tokens,
                owner=owners[prompt],
                cut_is_enough=lambda text: has_points(text, MOST_ASPECTS),
            )
            for prompt in new
        ]
        replies = self._planner.complete(requests) if requests else []
        done.update(zip(new, map(to_material, replies), strict=True))
        # What is worth another try is not kept beyond this call.
        self._plans = {prompt: plan for prompt, plan in done.items() if plan.problem not in RETRIED}
        return [
            replace(done[draft.prompt], unread=draft.unread) if draft.prompt else draft.instead for draft in drafts
        ]

    def _draft(self, ask: Ask, posts: Sequence[Post]) -> "_Draft":
        """The planner's prompt with as many of the top posts as its window takes."""
        if not posts:
            return _Draft()  # nothing is known of this user, so there is nothing to plan from
        window = self._planner.window

        def prompt(used: int) -> Prompt:
            return plan_messages(ask.question, [post.text for post in posts[:used]])

        def fits(used: int) -> bool:
            return window is None or self._planner.count_tokens(prompt(used)) + self._max_tokens <= window

        used = longest(len(posts), fits)
        if not used:
            detail = f"no post of user {ask.user.id} fits the planner's window of {window} tokens"
            return _Draft(instead=Material(kind="plan", problem=Problem.TOO_LONG, detail=detail, unread=len(posts)))
        return _Draft(prompt=prompt(used), unread=len(posts) - used)


class AspectPlanContext:
    """Aspects that a trained planner infers from a user's top posts, once per user and question."""

    kind = "plan"

    def __init__(self, planner: AspectPlanner, *, ranker: Ranker, posts: int, identity: Mapping[str, Json]) -> None:
        self._planner = planner
        self._rank = ranker
        self._posts = posts
        self._plans: dict[tuple[tuple[str, ...], str], Material] = {}
        self.identity: Mapping[str, Json] = {
            **identity,
            **planner.identity,
            "kind": self.kind,
            "rendering": rendering_hash(self.kind),
        }

    def materials(self, asks: Sequence[Ask]) -> list[Material]:
        """Return one plan per ask, in the same order; it is empty where there are no posts to plan from."""
        keys = [
            (tuple(post.text for post in ranked[: self._posts]), ask.question)
            for ask, ranked in zip(asks, self._rank(asks), strict=True)
        ]
        new = [key for key in dict.fromkeys(keys) if key[0] and key not in self._plans]
        plans = self._planner.foresee([posts for posts, _ in new], [question for _, question in new])
        self._plans.update(zip(new, map(as_material, plans), strict=True))
        return [self._plans[key] if key[0] else NOTHING_KNOWN for key in keys]


def as_material(plan: Sequence[Foreseen]) -> Material:
    """The aspects of a plan that have a tag, the most likely first; the likeliest alone, where none has."""
    tagged = [foreseen for foreseen in plan if foreseen.tag] or plan[:1]
    return Material(kind="plan", pieces=tuple(_piece(foreseen) for foreseen in tagged[:MOST_ASPECTS]))


def _piece(foreseen: Foreseen) -> str:
    aspect = foreseen.aspect
    return f"{aspect.aspect}: {aspect.reason}" if aspect.reason else aspect.aspect


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """What to ask the planner or, where there is nothing to ask, the material instead."""

    prompt: Prompt = ()
    unread: int = 0
    instead: Material = NOTHING_KNOWN


def plan_messages(question: str, posts: Sequence[str]) -> Prompt:
    """What a language model is asked about one question and these posts."""
    filled = _template().fill(question=question, posts=as_list(posts))
    return tuple(Message(role, text) for role, text in filled)


def _template() -> Template:
    return load_template("plan").require("question", "posts", answer="aspects")


def to_material(reply: Reply) -> Material:
    """The plan that a reply holds, or the reason why it holds none."""
    points, problem = read_points(reply, MOST_ASPECTS)
    if problem:
        return Material(kind="plan", problem=problem, detail=reply.error or what_is_missing(problem, "aspect"))
    return Material(kind="plan", pieces=tuple(f"{aspect}: {why}" if why else aspect for aspect, why in points))


def read_points(reply: Reply, most: int) -> tuple[tuple[tuple[str, str], ...], Problem]:
    """Return the first points of a listing reply, or none and the reason.

    Of a list that was cut off nobody knows the rest: it counts only where it already has all that is read of it.
    """
    was_cut = reply.problem is Problem.OUT_OF_TOKENS
    if reply.problem and not (was_cut and has_points(reply.text, most)):
        return (), reply.problem
    points = read_aspects(_whole_lines(reply.text) if was_cut else reply.text)[:most]
    return points, Problem.NONE if points else Problem.NO_VERDICT


def has_points(text: str, most: int) -> bool:
    """Tell whether a list that was cut off has so many points."""
    return len(read_aspects(_whole_lines(text))) >= most


def _whole_lines(text: str) -> str:
    """Return a text that was cut off without its last line, which is probably half a point."""
    return text.rpartition("\n")[0]


def what_is_missing(problem: Problem, point: str) -> str:
    """Return the words for a listing reply of no use."""
    was_cut = problem is Problem.OUT_OF_TOKENS
    return f"the reply was cut off within its list of {point}s" if was_cut else f"the reply lists no {point}"
