"""Training rows as a reward model will be asked about them."""

from collections.abc import Sequence

from prbench.context.render import render
from prbench.schema import Example, RewardInput


def pair_inputs(examples: Sequence[Example], *, posts: int) -> list[RewardInput]:
    """Return each row's `chosen` and then its `rejected`, with at most so many posts, the newest."""
    return [
        RewardInput(question=example.question, context=context, response=response)
        for example in examples
        for context in (render("profile", _newest_first(example, posts)),)
        for response in (example.chosen, example.rejected)
    ]


def _newest_first(example: Example, posts: int) -> list[str]:
    return [post.text for post in example.user.profile[::-1][:posts]]
