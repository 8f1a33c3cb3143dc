"""Inputs in other forms: pairs taken apart, and what goes to a server."""

from prbench.schema import ContextKind, Json, PairInput, RewardInput, UserContext


def one_by_one(each: RewardInput | PairInput) -> tuple[RewardInput, ...]:
    """Return the input itself, or a pair as its two inputs."""
    if isinstance(each, RewardInput):
        return (each,)
    return (
        RewardInput(question=each.question, user=each.user, response=each.first),
        RewardInput(question=each.question, user=each.user, response=each.second),
    )


def input_row(each: RewardInput) -> dict[str, Json]:
    """Return an input as `prbench serve` takes it."""
    return {"question": each.question, **user_row(each.user), "response": each.response}


def user_row(user: UserContext) -> dict[str, Json]:
    """Return what is told of a user as `prbench serve` takes it: records, or a text that came from outside."""
    if user.kind == ContextKind.TEXT:
        return {"context": user.text}
    labels = [
        {"question": label.question, "chosen": label.chosen, "rejected": label.rejected} for label in user.labels
    ]
    return {"user": {"kind": user.kind.value, "posts": list(user.segments), "labels": labels}}
