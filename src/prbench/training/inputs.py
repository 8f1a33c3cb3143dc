"""Training rows as a reward model will be asked about them."""

from collections.abc import Sequence

from prbench.schema import ContextKind, Example, RewardInput, UserContext


def pair_inputs(examples: Sequence[Example], *, posts: int) -> list[RewardInput]:
    """Return each row's `chosen` and then its `rejected`, with at most so many posts, the newest."""
    return [one for example in examples for one in inputs_of(example, _newest_first(example, posts))]


def inputs_of(example: Example, user: UserContext) -> list[RewardInput]:
    """Return the row's `chosen` and then its `rejected`, with the same context."""
    return [
        RewardInput(question=example.question, user=user, response=response)
        for response in (example.chosen, example.rejected)
    ]


def _newest_first(example: Example, posts: int) -> UserContext:
    newest = tuple(post.text for post in example.user.profile[::-1][:posts])
    return UserContext(kind=ContextKind.PROFILE, segments=newest) if newest else UserContext()
