"""The gold rubric as context: a ceiling, never ranked. It belongs to an example, not to a user and a question."""

from prbench.errors import DataError
from prbench.schema import Aspect, ContextKind, Example, UserContext


def oracle_context(example: Example) -> UserContext:
    """What the user of this example really looks for, from its rubric."""
    if not example.rubric:
        raise DataError(
            f"Example {example.id}: it has no rubric_aspects, so --context oracle has nothing to show. "
            "Use --context profile, or data with rubrics."
        )
    return UserContext(kind=ContextKind.ORACLE, segments=tuple(map(_segment, example.rubric)))


def _segment(aspect: Aspect) -> str:
    first = f"{aspect.aspect}: {aspect.reason}" if aspect.reason else aspect.aspect
    return f"{first}\nEvidence: {aspect.evidence}" if aspect.evidence else first
