"""Planners: they read a user's posts and predict what the user will look for; they never see the rubric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prbench.backends.llm import load_llm
from prbench.backends.llm.asking import filled
from prbench.backends.llm.client import LLM, ChatRequest, Message, Reply, fingerprint_of
from prbench.backends.llm.spending import keep
from prbench.context.aspect_planner import WEIGHTS, AspectPlanner, PredictedAspect, aspect_line, load_aspect_planner
from prbench.context.posts import Ask, PromptWindow, Ranker, fit_for, rendering_hash
from prbench.errors import UsageError
from prbench.prompts import load_template
from prbench.prompts.replies import read_aspects
from prbench.schema import RETRIED, ContextKind, Json, Post, Problem, UserContext, as_list

MOST_ASPECTS = 5
MAX_TOKENS = 512  # of a plan; a planner that thinks aloud needs more

NOTHING_KNOWN = UserContext(kind=ContextKind.PLAN)
Prompt = tuple[Message, ...]


class PlanContext:
    """Aspects that a language model infers from a user's top posts, asked once per user and question."""

    kind = ContextKind.PLAN

    def __init__(self, planner: LLM, top_posts: Ranker, identity: Mapping[str, Json], *, max_tokens: int) -> None:
        self._planner = planner
        self._top_posts = top_posts
        self._max_tokens = max_tokens
        # By the prompt itself: the same user, posts and question give the same prompt, and nothing else does.
        self._plans: dict[Prompt, UserContext] = {}
        self.identity: Mapping[str, Json] = {
            **identity,
            "kind": self.kind,
            "planner": planner.name,
            "planner_fingerprint": fingerprint_of(planner),  # trained anew, a planner of the same name is another one
            "planner_template": load_template("plan").hash,
            "max_tokens": max_tokens,
            "rendering": rendering_hash(self.kind),
        }

    def contexts(self, asks: Sequence[Ask]) -> list[UserContext]:
        """Return one plan per ask, in the same order; a plan that cannot be had says why."""
        drafts = [self._draft(ask, posts) for ask, posts in zip(asks, self._top_posts(asks), strict=True)]
        owners = {draft.prompt: ask.user.id for draft, ask in zip(drafts, asks, strict=True) if draft.prompt}
        done = dict(self._plans)
        new = [prompt for prompt in owners if prompt not in done]
        requests = [
            ChatRequest(
                messages=prompt,
                max_tokens=self._max_tokens,
                owner=owners[prompt],
                cut_is_enough=lambda text: len(whole_points(text)) >= MOST_ASPECTS,
            )
            for prompt in new
        ]
        replies = self._planner.complete(requests) if requests else []
        done.update(zip(new, map(to_context, replies), strict=True))
        # What is worth another try is not kept beyond this call.
        self._plans = {prompt: plan for prompt, plan in done.items() if plan.problem not in RETRIED}
        return [
            replace(done[draft.prompt], truncated_posts=draft.truncated_posts) if draft.prompt else draft.instead
            for draft in drafts
        ]

    def _draft(self, ask: Ask, posts: Sequence[Post]) -> "_PendingPlan":
        """The planner's prompt with as many of the top posts as its window takes."""
        if not posts:
            return _PendingPlan()  # nothing is known of this user, so there is nothing to plan from
        window = PromptWindow(
            count_tokens=lambda user: self._planner.count_tokens(plan_messages(ask.question, user.segments)),
            limit=self._planner.window,
        )
        profile = UserContext(kind=ContextKind.PROFILE, segments=tuple(post.text for post in posts))
        shown = fit_for(window, profile, question=ask.question, reserve_tokens=self._max_tokens)
        if not shown.segments:
            detail = f"no post of user {ask.user.id} fits the planner's window of {window.limit} tokens"
            return _PendingPlan(
                instead=replace(NOTHING_KNOWN, problem=Problem.TOO_LONG, detail=detail, truncated_posts=len(posts))
            )
        return _PendingPlan(prompt=plan_messages(ask.question, shown.segments), truncated_posts=shown.dropped)


class AspectPlanContext:
    """Aspects that a trained planner infers from a user's top posts, once per user and question."""

    kind = ContextKind.PLAN

    def __init__(self, planner: AspectPlanner, top_posts: Ranker, identity: Mapping[str, Json]) -> None:
        self._planner = planner
        self._top_posts = top_posts
        self._plans: dict[tuple[tuple[str, ...], str], UserContext] = {}
        self.identity: Mapping[str, Json] = {
            **identity,
            **planner.identity,
            "kind": self.kind,
            "rendering": rendering_hash(self.kind),
        }

    def contexts(self, asks: Sequence[Ask]) -> list[UserContext]:
        """Return one plan per ask, in the same order; it is empty where there are no posts to plan from."""
        keys = [
            (tuple(post.text for post in posts), ask.question)
            for ask, posts in zip(asks, self._top_posts(asks), strict=True)
        ]
        new = [key for key in dict.fromkeys(keys) if key[0] and key not in self._plans]
        plans = self._planner.predict([posts for posts, _ in new], [question for _, question in new])
        self._plans.update(zip(new, map(as_context, plans), strict=True))
        return [self._plans[key] if key[0] else NOTHING_KNOWN for key in keys]


def as_context(plan: Sequence[PredictedAspect]) -> UserContext:
    """The aspects of a plan that have a tag, the most likely first; the likeliest alone, where none has."""
    tagged = [predicted for predicted in plan if predicted.tag] or plan[:1]
    segments = tuple(aspect_line(each.aspect.aspect, each.aspect.reason) for each in tagged[:MOST_ASPECTS])
    return UserContext(kind=ContextKind.PLAN, segments=segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingPlan:
    """What to ask the planner or, where there is nothing to ask, the context instead."""

    prompt: Prompt = ()
    truncated_posts: int = 0
    instead: UserContext = NOTHING_KNOWN


def plan_messages(question: str, posts: Sequence[str]) -> Prompt:
    """What a language model is asked about one question and these posts."""
    template = load_template("plan").require("question", "posts", answer="aspects")
    return filled(template, question=question, posts=as_list(posts))


def to_context(reply: Reply) -> UserContext:
    """The plan that a reply holds, or the reason why it holds none."""
    points, problem, detail = read_points(reply, MOST_ASPECTS, "aspect")
    if problem:
        return replace(NOTHING_KNOWN, problem=problem, detail=detail)
    return UserContext(kind=ContextKind.PLAN, segments=tuple(aspect_line(*point) for point in points))


Points = tuple[tuple[str, str], ...]  # what, and why


def read_points(reply: Reply, most: int, point: str) -> tuple[Points, Problem, str]:
    """Return the first points of a listing reply, or none, the problem and its words; `point` is what one is called.

    Of a truncated list nobody knows the rest: it counts only where it already has all that is read of it.
    """
    if reply.problem is Problem.OUT_OF_TOKENS:
        points = whole_points(reply.text)[:most]
        if len(points) < most:
            words = reply.error or f"the reply was truncated within its list of {point}s"
            return (), reply.problem, words
        return points, Problem.NONE, ""
    points = () if reply.problem else read_aspects(reply.text)[:most]
    if points:
        return points, Problem.NONE, ""
    return (), reply.problem or Problem.NO_VERDICT, reply.error or f"the reply lists no {point}"


def whole_points(text: str) -> Points:
    """Return the points of a truncated text without its last line, which is probably half a point."""
    return read_aspects(text.rpartition("\n")[0])


Planner = LLM | AspectPlanner  # a language model that is asked, or a trained planner on embeddings

_MODEL_FILES = ("adapter_config.json", "config.json")  # of a language model, or of an adapter for one


def load_planner(spec: str, *, seed: int = 0, cache: Path | None = None) -> Planner:
    """Build the planner named by a spec: a folder that was trained here, or any chat model, e.g. `local:smollm2`.

    The replies of a language model are kept in `cache`.
    """
    folder = Path(spec).expanduser()
    if (folder / WEIGHTS).is_file():
        return load_aspect_planner(folder)
    if folder.is_dir() and not any((folder / name).is_file() for name in _MODEL_FILES):
        raise UsageError(f"--planner {spec}: that folder holds no planner. Train one: prbench train --method planner.")
    llm = load_llm(f"hf:{folder}" if folder.is_dir() else spec, seed=seed)
    return keep(llm, cache, "planner")
