"""Pairs taken apart, for models that read one response at a time."""

from prbench.schema import PairInput, RewardInput


def one_by_one(each: RewardInput | PairInput) -> tuple[RewardInput, ...]:
    """Return the input itself, or a pair as its two inputs."""
    if isinstance(each, RewardInput):
        return (each,)
    return (
        RewardInput(question=each.question, context=each.context, response=each.first),
        RewardInput(question=each.question, context=each.context, response=each.second),
    )
