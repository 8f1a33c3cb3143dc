"""Stage `rank`: which of a user's posts bear on the question."""

from collections.abc import Sequence
from dataclasses import replace

from prbench.backends.encoders import load_encoder
from prbench.construction.build.item import Item
from prbench.construction.build.rows import Row, stage_row
from prbench.construction.build.settings import BuildSettings
from prbench.context.choose import Ask, make_ranker


def rank(items: Sequence[Item], settings: BuildSettings) -> tuple[list[Item], list[Row]]:
    """Give every item the top posts of its user, best first; posts keep their ids."""
    encoder = load_encoder(settings.encoder) if settings.rank == "dense" else None
    ranker = make_ranker(settings.rank, encoder)
    ranked = ranker([Ask(user=item.user, question=item.question) for item in items]) if items else []
    done = [replace(item, posts=posts[: settings.posts]) for item, posts in zip(items, ranked, strict=True)]
    return done, [_row(item) for item in done]


def _row(item: Item) -> Row:
    posts = [{"id": post.id, "text": post.text} for post in item.posts]
    return stage_row(item, 0, question=item.question, posts_in_profile=len(item.user.profile), posts=posts)
