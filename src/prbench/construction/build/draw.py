"""Stage `draw`: a question and a first-person narrative from one post of a user, which then leaves the profile."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from prbench.backends.llm.asking import Answer, Asker, Task, Unusable, filled, read_object, text_in
from prbench.backends.llm.client import Reply
from prbench.construction.build.item import DroppedItem, Item
from prbench.construction.build.rows import Row, stage_row
from prbench.construction.build.settings import Stage
from prbench.data.texts import words
from prbench.prompts import load_template
from prbench.schema import Json, Post

TEMPLATE = "build_draw"
LEAST_WORDS = 12  # of a post that a question can be drawn from
MOST_QUESTION_WORDS = 60
LEAST_NARRATIVE_WORDS = 8
TOO_FEW_POSTS, BAD_QUESTION, BAD_NARRATIVE = "too_few_posts", "bad_question", "bad_narrative"
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {"question": {"type": "string"}, "narrative": {"type": "string"}},
    "required": ["question", "narrative"],
    "additionalProperties": False,
}

Drawn = tuple[str, str]  # question, narrative


def hold_out(posts: Sequence[Post], count: int, seed: int) -> tuple[Post, ...]:
    """Return up to `count` posts to draw from, at random by their text; at least one post must be left over."""
    long_enough = [post for post in posts if len(words(post.text)) >= LEAST_WORDS]
    by_chance = sorted(long_enough, key=lambda post: sha256(f"{seed}/{post.text}".encode()).digest())
    return tuple(by_chance[: max(0, min(count, len(posts) - 1))])


def draw(items: Sequence[Item], asker: Asker) -> tuple[list[Item], list[DroppedItem], list[Row]]:
    """Give every item a question and a narrative."""
    able = [item for item in items if item.held_out]
    losses = [_no_post(item) for item in items if not item.held_out]
    answers = asker.ask([task(item) for item in able], "draw")
    done: list[Item] = []
    rows: list[Row] = []
    for item, answer in zip(able, answers, strict=True):
        rows += _rows(item, answer)
        if answer.value:
            done.append(replace(item, question=answer.value[0], narrative=answer.value[1]))
        else:
            losses.append(
                DroppedItem(
                    item=item,
                    stage=Stage.DRAW,
                    reason=answer.reason,
                    detail=answer.detail,
                    round=max(0, len(answer.tries) - 1),
                    tries=answer.tries,
                )
            )
    return done, losses, rows


def task(item: Item) -> Task[Drawn]:
    """Ask for the question of one item."""
    template = load_template(TEMPLATE).require("post", "problem", answer="json")
    assert item.held_out is not None, "an item without a question has a post to draw it from"
    post = item.held_out.text
    return Task(
        id=item.id,
        owner=item.user.id,
        round=0,
        prompt=lambda problem: filled(template, post=post, problem=problem),
        read=read,
        schema=SCHEMA,
    )


def read(reply: Reply) -> Drawn | Unusable:
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


def _no_post(item: Item) -> DroppedItem:
    detail = f"the user has no post of {LEAST_WORDS} words or more to draw from, besides one that stays in the profile"
    return DroppedItem(item=item, stage=Stage.DRAW, reason=TOO_FEW_POSTS, detail=detail)


def _rows(item: Item, answer: Answer[Drawn]) -> list[Row]:
    assert item.held_out is not None, "only items with a post were asked about"
    post: dict[str, Json] = {"post_id": item.held_out.id, "post": item.held_out.text}
    rows = [stage_row(item, number, ok=False, **post, **each) for number, each in enumerate(answer.tries)]
    if answer.value:
        rows.append(stage_row(item, len(rows), ok=True, **post, question=answer.value[0], narrative=answer.value[1]))
    return rows
