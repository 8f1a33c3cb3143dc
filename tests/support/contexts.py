"""What a model may know of a user, written short."""

from prbench.schema import ContextKind, LabeledPair, UserContext


def profile(*posts: str, labels: tuple[LabeledPair, ...] = ()) -> UserContext:
    """Posts, best first, behind labeled pairs."""
    kind = ContextKind.PROFILE if posts else ContextKind.NONE
    return UserContext(kind=kind, segments=posts, labels=labels)
