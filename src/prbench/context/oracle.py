"""The gold rubric as context: a ceiling, never ranked. It belongs to an example, not to a user and a question."""

from prbench.context.render import Material
from prbench.errors import DataError
from prbench.schema import Aspect, Example


def oracle_material(example: Example) -> Material:
    """What the user of this example really looks for, from its rubric."""
    if not example.rubric:
        raise DataError(
            f"Example {example.id}: it has no rubric_aspects, so --context oracle has nothing to show. "
            "Use --context profile, or data with rubrics."
        )
    return Material(kind="oracle", pieces=tuple(map(_piece, example.rubric)))


def _piece(aspect: Aspect) -> str:
    first = f"{aspect.aspect}: {aspect.reason}" if aspect.reason else aspect.aspect
    return f"{first}\nEvidence: {aspect.evidence}" if aspect.evidence else first
