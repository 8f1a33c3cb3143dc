"""Training rows as a reward model will be asked about them."""

from collections.abc import Callable, Sequence

from prbench.context import Context, Material, fit
from prbench.context.render import render
from prbench.schema import Example, RewardInput


def pair_inputs(examples: Sequence[Example], *, posts: int) -> list[RewardInput]:
    """Return each row's `chosen` and then its `rejected`, with at most so many posts, the newest."""
    return [
        one for example in examples for one in inputs_of(example, render("profile", _newest_first(example, posts)))
    ]


def inputs_of(example: Example, context: str) -> list[RewardInput]:
    """Return the row's `chosen` and then its `rejected`, with the same context."""
    return [
        RewardInput(question=example.question, context=context, response=response)
        for response in (example.chosen, example.rejected)
    ]


def fitted(example: Example, material: Material, fits: Callable[[RewardInput], bool] | None) -> Context:
    """Return the context cut to a window; both responses get the same one."""
    if fits is None:
        return fit(material, None)
    return fit(material, lambda text: all(map(fits, inputs_of(example, text))))


def _newest_first(example: Example, posts: int) -> list[str]:
    return [post.text for post in example.user.profile[::-1][:posts]]
