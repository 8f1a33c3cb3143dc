"""From a draft that passed to an example of the official schema."""

from prbench.construction.build.draft import PairDraft
from prbench.schema import Example, Json


def to_example(draft: PairDraft) -> Example:
    """Return the pair. `meta` says which posts were ranked top, and in which round the pair passed."""
    item = draft.item
    made: dict[str, Json] = {"round": draft.round, "top_posts": [post.id for post in item.posts]}
    if item.held_out:
        made["drawn_from"] = item.held_out.id
    return Example(
        id=item.id,
        user=item.user,
        question=item.question,
        chosen=draft.chosen.text,
        rejected=draft.rejected.text,
        rubric=item.rubric,
        narrative=item.narrative,
        category=item.category,
        meta={**item.meta, "build": made},
    )
