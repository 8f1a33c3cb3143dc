"""Stage `rubric`: what this user expects in an answer. Every expectation is proved by the user's own words.

Where the narrative was drawn by the generator, it proves nothing: then the account is the post that it was drawn from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prbench.backends.llm.asking import (
    UNREADABLE,
    Answer,
    Asker,
    Prompt,
    Task,
    Unusable,
    cut,
    filled,
    read_object,
    text_in,
)
from prbench.backends.llm.client import Reply
from prbench.backends.llm.server_facts import upper_estimate
from prbench.construction.build.item import DroppedItem, Item, rubric_rows
from prbench.construction.build.rows import Row, stage_row
from prbench.construction.build.settings import Stage
from prbench.context import PromptWindow, fit_for
from prbench.data.texts import fold, is_quote
from prbench.prompts import load_template
from prbench.schema import Aspect, ContextKind, Json, UserContext, as_list

TEMPLATE = "build_rubric"
WRONG_NUMBER, NOT_QUOTED, NOTHING_TO_GO_BY = "wrong_number", "evidence_not_quoted", "no_narrative_and_no_posts"
_TEXT = {"type": "string"}

Rubric = tuple[Aspect, ...]


def find_rubrics(items: Sequence[Item], asker: Asker, count: int) -> tuple[list[Item], list[DroppedItem], list[Row]]:
    """Give every item its rubric: the row's own where it has one, else the generator's."""
    given = {item.id: _check_given(item) for item in items if item.rubric}
    unasked = [item for item in items if not item.rubric and (item.narrative or item.posts)]
    asked = [with_posts_that_fit(item, asker, count) for item in unasked]
    answers = dict(
        zip([item.id for item in asked], asker.ask([task(item, count) for item in asked], "rubric"), strict=True)
    )
    done: list[Item] = []
    losses: list[DroppedItem] = []
    rows: list[Row] = []
    for item in items:
        answer = given.get(item.id) or answers.get(item.id) or _nothing_to_go_by()
        rows += _rows(item, answer)
        if answer.value:
            done.append(replace(item, rubric=answer.value))
        else:
            losses.append(_loss(item, answer))
    return done, losses, rows


def with_posts_that_fit(item: Item, asker: Asker, count: int) -> Item:
    """Leave out posts from the end of the ranking until the prompt fits the model's window, where that is known."""
    window = asker.llm.window
    if window is None:
        return item

    def count_tokens(user: UserContext) -> int:
        messages = task(replace(item, posts=item.posts[: user.used]), count).prompt("")
        # The estimate is never too low, so most prompts need not be counted by the server.
        estimate = upper_estimate(messages)
        return estimate if estimate + asker.max_tokens <= window else asker.llm.count_tokens(messages)

    profile = UserContext(kind=ContextKind.PROFILE, segments=tuple(post.text for post in item.posts))
    prompts = PromptWindow(count_tokens=count_tokens, limit=window)
    shown = fit_for(prompts, profile, question=item.question, reserve_tokens=asker.max_tokens)
    return item if shown.problem else replace(item, posts=item.posts[: shown.used])


def task(item: Item, count: int) -> Task[Rubric]:
    """Ask for the rubric of one item."""
    template = load_template(TEMPLATE).require("question", "narrative", "posts", "count", "problem", answer="json")
    posts = as_list([post.text for post in item.posts])

    def prompt(problem: str) -> Prompt:
        return filled(
            template,
            question=item.question,
            narrative=account_of(item),
            posts=posts,
            count=str(count),
            problem=problem,
        )

    return Task(
        id=item.id,
        owner=item.user.id,
        round=0,
        prompt=prompt,
        read=lambda reply: read(reply, item, count),
        schema=schema_for(count),
    )


def read(reply: Reply, item: Item, count: int) -> Rubric | Unusable:
    """Read the aspects; each must come with a quote from the account or from a post that the model was shown."""
    found = read_object(reply, "aspects")
    if isinstance(found, Unusable):
        return found
    aspects = _aspects_in(found["aspects"])
    if aspects is None:
        return Unusable(UNREADABLE, "aspects must be a list of objects with aspect, evidence and reason.")
    distinct = {fold(aspect.aspect): aspect for aspect in aspects}
    if len(distinct) != count or len(aspects) != count:
        return Unusable(WRONG_NUMBER, f"it named {len(distinct)} different aspects instead of {count}.")
    for aspect in aspects:
        if not is_quote(aspect.evidence, _sources(item)):
            quote = cut(aspect.evidence)
            detail = f"the evidence “{quote}” does not stand in the account or in a post. Copy it exactly."
            return Unusable(NOT_QUOTED, detail)
    return aspects


def schema_for(count: int) -> dict[str, Json]:
    """Return the JSON schema of a rubric with that many aspects."""
    aspect = {
        "type": "object",
        "properties": {"aspect": _TEXT, "evidence": _TEXT, "reason": _TEXT},
        "required": ["aspect", "evidence", "reason"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"aspects": {"type": "array", "items": aspect, "minItems": count, "maxItems": count}},
        "required": ["aspects"],
        "additionalProperties": False,
    }


def _aspects_in(found: Json) -> Rubric | None:
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        return None
    aspects = tuple(
        Aspect(aspect=text_in(each, "aspect"), evidence=text_in(each, "evidence"), reason=text_in(each, "reason"))
        for each in found
    )
    return aspects if all(each.aspect and each.evidence and each.reason for each in aspects) else None


def _check_given(item: Item) -> Answer[Rubric]:
    """Keep the aspects of a row whose evidence is a quote; where a row gives none for an aspect, there is no claim."""
    texts = (item.narrative, *(post.text for post in item.user.profile))
    kept = tuple(each for each in item.rubric if not each.evidence or is_quote(each.evidence, texts))
    dropped = [each for each in item.rubric if each not in kept]
    tries: tuple[Mapping[str, Json], ...] = tuple(
        {"reason": NOT_QUOTED, "detail": f"the row's evidence “{cut(each.evidence)}” is in no narrative or post"}
        for each in dropped
    )
    if kept:
        return Answer(value=kept, tries=tries)
    detail = "no evidence of the row's own rubric stands in its narrative or posts"
    return Answer(value=None, reason=NOT_QUOTED, detail=detail, tries=tries)


def account_of(item: Item) -> str:
    """Return what the person said about why they ask: a narrative of their own, or the post that it was drawn from."""
    return item.held_out.text if item.held_out else item.narrative


def _sources(item: Item) -> tuple[str, ...]:
    return (account_of(item), *(post.text for post in item.posts))


def _nothing_to_go_by() -> Answer[Rubric]:
    return Answer(value=None, reason=NOTHING_TO_GO_BY, detail="the row has neither a rubric, a narrative nor posts")


def _loss(item: Item, answer: Answer[Rubric]) -> DroppedItem:
    return DroppedItem(
        item=item,
        stage=Stage.RUBRIC,
        reason=answer.reason,
        detail=answer.detail,
        round=0 if item.rubric else max(0, len(answer.tries) - 1),
        tries=answer.tries,
    )


def _rows(item: Item, answer: Answer[Rubric]) -> list[Row]:
    """One row per try; for a row's own rubric one in all, which names the aspects that were dropped."""
    if item.rubric:
        dropped = [dict(each) for each in answer.tries]
        rubric = rubric_rows(answer.value or ())
        return [stage_row(item, 0, ok=bool(rubric), source="row", rubric=rubric, dropped=dropped)]
    rows = [stage_row(item, number, ok=False, source="generator", **each) for number, each in enumerate(answer.tries)]
    if answer.value:
        rubric = rubric_rows(answer.value)
        rows.append(stage_row(item, len(rows), ok=True, source="generator", rubric=rubric))
    return rows
