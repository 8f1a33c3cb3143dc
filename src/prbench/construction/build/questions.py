"""Stages `draw`, `rank` and `rubric`: from a user's posts to a question, and to what this user expects of an answer.

A question that the data does not hold is drawn, with a first-person narrative, from one post of the user, which then
leaves the profile. Every expectation is proved by the user's own words. A narrative that the generator wrote proves
nothing: then the account is the post that it was drawn from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256

from prbench.backends.encoders import load_encoder
from prbench.backends.llm.asking import (
    UNREADABLE,
    Answer,
    Asker,
    Task,
    Unusable,
    cut,
    filled,
    read_object,
    text_in,
)
from prbench.backends.llm.client import Reply
from prbench.backends.llm.servers import upper_estimate
from prbench.construction.build.records import (
    BuildItem,
    DroppedItem,
    Row,
    dropped_for,
    object_schema,
    rows_of_tries,
    stage_row,
)
from prbench.construction.build.settings import BuildSettings, BuildStage
from prbench.context import PromptWindow, fit_for
from prbench.context.posts import Ask, make_ranker
from prbench.data.texts import fold, is_quote, words
from prbench.prompts import load_template
from prbench.schema import Aspect, ContextKind, Json, Post, UserContext, as_list

DRAW_TEMPLATE, RUBRIC_TEMPLATE = "build_draw", "build_rubric"
LEAST_POST_WORDS = 12  # of a post that a question can be drawn from
MOST_QUESTION_WORDS = 60
LEAST_NARRATIVE_WORDS = 8
TOO_FEW_POSTS, BAD_QUESTION, BAD_NARRATIVE = "too_few_posts", "bad_question", "bad_narrative"
WRONG_NUMBER, NOT_QUOTED, NOTHING_TO_GO_BY = "wrong_number", "evidence_not_quoted", "no_narrative_and_no_posts"
_TEXT = {"type": "string"}
_DRAW_SCHEMA = object_schema(question=_TEXT, narrative=_TEXT)


def hold_out(posts: Sequence[Post], count: int, seed: int) -> tuple[Post, ...]:
    """Return up to `count` posts to draw from, at random by their text; at least one post must be left over."""
    long_enough = [post for post in posts if len(words(post.text)) >= LEAST_POST_WORDS]
    by_chance = sorted(long_enough, key=lambda post: sha256(f"{seed}/{post.text}".encode()).digest())
    return tuple(by_chance[: max(0, min(count, len(posts) - 1))])


def draw_questions(items: Sequence[BuildItem], asker: Asker) -> tuple[list[BuildItem], list[DroppedItem], list[Row]]:
    """Give every item a question and a narrative."""
    able = [(item, item.held_out) for item in items if item.held_out]
    detail = (
        f"the user has no post of {LEAST_POST_WORDS} words or more to draw from, besides one that stays in the profile"
    )
    dropped = [
        DroppedItem(item=item, stage=BuildStage.DRAW, reason=TOO_FEW_POSTS, detail=detail)
        for item in items
        if not item.held_out
    ]
    done: list[BuildItem] = []
    rows: list[Row] = []
    answers = asker.ask([draw_task(item) for item, _ in able], "draw")
    for (item, post), answer in zip(able, answers, strict=True):
        question, narrative = answer.value or ("", "")
        found = {"question": question, "narrative": narrative}
        rows += rows_of_tries(item, answer, {"post_id": post.id, "post": post.text}, found)
        if answer.value:
            done.append(replace(item, question=question, narrative=narrative))
        else:
            dropped.append(dropped_for(item, BuildStage.DRAW, answer))
    return done, dropped, rows


def draw_task(item: BuildItem) -> Task[tuple[str, str]]:
    """Ask for the question and the narrative of one item."""
    template = load_template(DRAW_TEMPLATE).require("post", "problem", answer="json")
    assert item.held_out is not None, "an item without a question has a post to draw it from"
    post = item.held_out.text
    return Task(
        id=item.id,
        owner=item.user.id,
        round=0,
        prompt=lambda problem: filled(template, post=post, problem=problem),
        read=read_drawn,
        schema=_DRAW_SCHEMA,
    )


def read_drawn(reply: Reply) -> tuple[str, str] | Unusable:
    """Read question and narrative, if they are what was asked for."""
    found = read_object(reply, "question", "narrative")
    if isinstance(found, Unusable):
        return found
    question, narrative = text_in(found, "question"), text_in(found, "narrative")
    if not question.endswith(("?", "？")) or len(words(question)) > MOST_QUESTION_WORDS:
        return Unusable(BAD_QUESTION, f"the question must end with ? and have at most {MOST_QUESTION_WORDS} words.")
    if len(words(narrative)) < LEAST_NARRATIVE_WORDS:
        return Unusable(BAD_NARRATIVE, f"the narrative must have at least {LEAST_NARRATIVE_WORDS} words.")
    return question, narrative


def rank_posts(items: Sequence[BuildItem], settings: BuildSettings) -> tuple[list[BuildItem], list[Row]]:
    """Give every item the posts of its user that bear on the question, best first; posts keep their ids."""
    encoder = load_encoder(settings.encoder) if settings.rank == "dense" else None
    ranker = make_ranker(settings.rank, encoder)
    ranked = ranker([Ask(user=item.user, question=item.question) for item in items]) if items else []
    done = [replace(item, posts=posts[: settings.posts]) for item, posts in zip(items, ranked, strict=True)]
    rows = []
    for item in done:
        posts = [{"id": post.id, "text": post.text} for post in item.posts]
        in_profile = len(item.user.profile)
        rows.append(stage_row(item, 0, question=item.question, posts_in_profile=in_profile, posts=posts))
    return done, rows


def find_rubrics(
    items: Sequence[BuildItem], asker: Asker, count: int
) -> tuple[list[BuildItem], list[DroppedItem], list[Row]]:
    """Give every item its rubric: the row's own where it has one, else the generator's."""
    given = {item.id: _check_given(item) for item in items if item.rubric}
    unasked = [item for item in items if not item.rubric and (item.narrative or item.posts)]
    asked = [with_posts_that_fit(item, asker, count) for item in unasked]
    tasks = [rubric_task(item, count) for item in asked]
    answers = dict(zip([item.id for item in asked], asker.ask(tasks, "rubric"), strict=True))
    nothing: Answer[tuple[Aspect, ...]] = Answer(
        value=None, reason=NOTHING_TO_GO_BY, detail="the row has neither a rubric, a narrative nor posts"
    )
    done: list[BuildItem] = []
    dropped: list[DroppedItem] = []
    rows: list[Row] = []
    for item in items:
        answer = given.get(item.id) or answers.get(item.id) or nothing
        rubric = [asdict(aspect) for aspect in answer.value or ()]
        if item.rubric:  # one line in all, which names the aspects that were dropped
            without = [dict(each) for each in answer.tries]
            rows.append(stage_row(item, 0, ok=bool(rubric), source="row", rubric=rubric, dropped=without))
        else:
            rows += rows_of_tries(item, answer, {"source": "generator"}, {"rubric": rubric})
        if answer.value:
            done.append(replace(item, rubric=answer.value))
        else:
            dropped.append(dropped_for(item, BuildStage.RUBRIC, answer, 0 if item.rubric else None))
    return done, dropped, rows


def with_posts_that_fit(item: BuildItem, asker: Asker, count: int) -> BuildItem:
    """Leave out posts from the end of the ranking until the prompt fits the model's window, where that is known."""
    window = asker.llm.window
    if window is None:
        return item

    def count_tokens(user: UserContext) -> int:
        messages = rubric_task(replace(item, posts=item.posts[: user.used]), count).prompt("")
        # The estimate is never too low, so most prompts need not be counted by the server.
        estimate = upper_estimate(messages)
        return estimate if estimate + asker.max_tokens <= window else asker.llm.count_tokens(messages)

    profile = UserContext(kind=ContextKind.PROFILE, segments=tuple(post.text for post in item.posts))
    prompts = PromptWindow(count_tokens=count_tokens, limit=window)
    shown = fit_for(prompts, profile, question=item.question, reserve_tokens=asker.max_tokens)
    return item if shown.problem else replace(item, posts=item.posts[: shown.used])


def rubric_task(item: BuildItem, count: int) -> Task[tuple[Aspect, ...]]:
    """Ask for the rubric of one item."""
    template = load_template(RUBRIC_TEMPLATE)
    template = template.require("question", "narrative", "posts", "count", "problem", answer="json")
    slots = {"question": item.question, "narrative": account_of(item), "count": str(count)}
    posts = as_list([post.text for post in item.posts])
    aspect = object_schema(aspect=_TEXT, evidence=_TEXT, reason=_TEXT)
    schema = object_schema(aspects={"type": "array", "items": aspect, "minItems": count, "maxItems": count})
    return Task(
        id=item.id,
        owner=item.user.id,
        round=0,
        prompt=lambda problem: filled(template, **slots, posts=posts, problem=problem),
        read=lambda reply: read_rubric(reply, item, count),
        schema=schema,
    )


def read_rubric(reply: Reply, item: BuildItem, count: int) -> tuple[Aspect, ...] | Unusable:
    """Read the aspects; each must come with a quote from the account or from a post that the model was shown."""
    found = read_object(reply, "aspects")
    if isinstance(found, Unusable):
        return found
    given = found["aspects"] if isinstance(found["aspects"], list) else [None]
    aspects = tuple(
        Aspect(aspect=text_in(each, "aspect"), evidence=text_in(each, "evidence"), reason=text_in(each, "reason"))
        for each in given
        if isinstance(each, Mapping)
    )
    if len(aspects) < len(given) or not all(each.aspect and each.evidence and each.reason for each in aspects):
        return Unusable(UNREADABLE, "aspects must be a list of objects with aspect, evidence and reason.")
    distinct = {fold(aspect.aspect) for aspect in aspects}
    if len(distinct) != count or len(aspects) != count:
        return Unusable(WRONG_NUMBER, f"it named {len(distinct)} different aspects instead of {count}.")
    sources = (account_of(item), *(post.text for post in item.posts))
    for aspect in aspects:
        if not is_quote(aspect.evidence, sources):
            quote = cut(aspect.evidence)
            detail = f"the evidence “{quote}” does not stand in the account or in a post. Copy it exactly."
            return Unusable(NOT_QUOTED, detail)
    return aspects


def _check_given(item: BuildItem) -> Answer[tuple[Aspect, ...]]:
    """Keep the aspects of a row whose evidence is a quote; where a row gives none for an aspect, there is no claim."""
    texts = (item.narrative, *(post.text for post in item.user.profile))
    kept = tuple(each for each in item.rubric if not each.evidence or is_quote(each.evidence, texts))
    tries: tuple[Mapping[str, Json], ...] = tuple(
        {"reason": NOT_QUOTED, "detail": f"the row's evidence “{cut(each.evidence)}” is in no narrative or post"}
        for each in item.rubric
        if each not in kept
    )
    if kept:
        return Answer(value=kept, tries=tries)
    detail = "no evidence of the row's own rubric stands in its narrative or posts"
    return Answer(value=None, reason=NOT_QUOTED, detail=detail, tries=tries)


def account_of(item: BuildItem) -> str:
    """Return what the person said about why they ask: a narrative of their own, or the post that it was drawn from."""
    return item.held_out.text if item.held_out else item.narrative
