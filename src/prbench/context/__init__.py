"""What a model under test may know of the user: nothing, posts, a plan, or (as a ceiling) the gold rubric."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from prbench.backends.encoders import load_encoder
from prbench.context.aspect_planner import AspectPlanner
from prbench.context.labels import LabeledContext, Labels, leak_keys
from prbench.context.plan import MAX_TOKENS, AspectPlanContext, PlanContext, Planner, load_planner
from prbench.context.posts import RANKS, Ask, HasWindow, PromptWindow, Ranker, fit_for, make_ranker, rendering_hash
from prbench.errors import DataError, UsageError
from prbench.schema import ContextKind, Example, Json, Post, UserContext

KINDS = ("none", "profile", "plan", "oracle")

__all__ = [
    "KINDS",
    "RANKS",
    "Ask",
    "ContextMaker",
    "HasWindow",
    "LabeledContext",
    "Labels",
    "Planner",
    "PromptWindow",
    "contexts_of",
    "fit_for",
    "label_of_context",
    "leak_keys",
    "load_planner",
    "make_context",
    "oracle_context",
    "required_contexts",
]


class ContextMaker(Protocol):
    """Says what may be known of the users who ask. It sees users and questions, and has no way to a rubric."""

    @property
    def kind(self) -> ContextKind:
        """none, profile, plan or oracle."""
        ...

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes the texts; goes into a run's id."""
        ...

    def contexts(self, asks: Sequence[Ask]) -> list[UserContext]:
        """Return one context per ask, in the same order."""
        ...


def label_of_context(kind: str) -> str:
    """Return how a context is shown: what nobody could know outside the lab is marked."""
    return f"{kind} (a ceiling)" if kind == "oracle" else kind


def contexts_of(maker: ContextMaker, examples: Sequence[Example]) -> list[UserContext]:
    """Return what may be known of the examples' own users, each for the question of the example."""
    if maker.kind == ContextKind.ORACLE:
        return [oracle_context(example) for example in examples]
    asks = [Ask(user=each.user, question=each.question, excluded_keys=leak_keys(each)) for each in examples]
    return maker.contexts(asks)


def required_contexts(maker: ContextMaker, examples: Sequence[Example]) -> list[UserContext]:
    """Return what `contexts_of` does; an example without one is an error."""
    found = contexts_of(maker, examples)
    for example, user in zip(examples, found, strict=True):
        if user.problem:
            raise DataError(f"Example {example.id}: has no context: {user.detail or user.problem.value}.")
    return found


def make_context(
    kind: str,
    posts: int = 10,
    rank: str = "recent",
    planner: Planner | None = None,
    encoder: str = "minilm",
    plan_tokens: int = MAX_TOKENS,
) -> ContextMaker:
    """Build the context named on the command line."""
    if kind not in KINDS:
        raise UsageError(f"--context {kind!r} is not known. Use one of: {', '.join(KINDS)}.")
    if kind == "none":
        return NoContext()
    if kind == "oracle":
        return OracleContext()
    if kind == "plan" and planner is None:
        raise UsageError("--context plan needs a planner. Name one with --planner.")
    if posts < 1:
        raise UsageError(f"--posts {posts} leaves nothing to show. Use 1 or more, or --context none.")
    identity: dict[str, Json] = {"posts": posts, "rank": rank}
    loaded = load_encoder(encoder) if rank == "dense" else None
    if loaded:
        identity["encoder"] = dict(loaded.identity)
    ranker = make_ranker(rank, loaded)

    def top_posts(asks: Sequence[Ask]) -> list[tuple[Post, ...]]:
        return [ranked[:posts] for ranked in ranker(asks)]

    if planner is None or kind == "profile":
        return ProfileContext(top_posts, identity)
    if isinstance(planner, AspectPlanner):
        return AspectPlanContext(planner, top_posts, identity)
    return PlanContext(planner, top_posts, identity, max_tokens=plan_tokens)


class NoContext:
    """The impersonal baseline."""

    kind = ContextKind.NONE
    identity: Mapping[str, Json] = {"kind": kind}

    def contexts(self, asks: Sequence[Ask]) -> list[UserContext]:
        return [UserContext()] * len(asks)


class ProfileContext:
    """A user's top posts."""

    kind = ContextKind.PROFILE

    def __init__(self, top_posts: Ranker, identity: Mapping[str, Json]) -> None:
        self._top_posts = top_posts
        self.identity: Mapping[str, Json] = {**identity, "kind": self.kind, "rendering": rendering_hash(self.kind)}

    def contexts(self, asks: Sequence[Ask]) -> list[UserContext]:
        """Return the top posts of each user, best first; a user without posts has an empty context."""
        return [
            UserContext(kind=self.kind, segments=tuple(post.text for post in posts)) for posts in self._top_posts(asks)
        ]


class OracleContext:
    """Marks a run whose contexts come from `oracle_context`; a user and a question alone hold no rubric."""

    kind = ContextKind.ORACLE
    identity: Mapping[str, Json] = {"kind": kind, "rendering": rendering_hash(kind)}

    def contexts(self, asks: Sequence[Ask]) -> list[UserContext]:
        """Refuse: the rubric belongs to an example, and asks have none."""
        raise UsageError("The oracle context is read from an example's rubric. Call contexts_of instead.")


def oracle_context(example: Example) -> UserContext:
    """What the user of this example really looks for, from its rubric."""
    if not example.rubric:
        raise DataError(
            f"Example {example.id}: it has no rubric_aspects, so --context oracle has nothing to show. "
            "Use --context profile, or data with rubrics."
        )
    segments = tuple(each.text + (f"\nEvidence: {each.evidence}" if each.evidence else "") for each in example.rubric)
    return UserContext(kind=ContextKind.ORACLE, segments=segments)
