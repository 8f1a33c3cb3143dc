"""What to know before believing the two answers."""

from collections.abc import Sequence

from prbench.people.agreement.annotators import Annotator
from prbench.people.agreement.answers import Answer
from prbench.people.agreement.label import CHANCE, Position
from prbench.people.agreement.reliability import TENTATIVE, Reliability
from prbench.people.agreement.verdict import Settings, ask
from prbench.schema import Estimate


def find_caveats(
    people: Sequence[Answer],
    settings: Settings,
    *,
    position: Position,
    reliability: Reliability,
    annotators: Sequence[Annotator],
) -> tuple[str, ...]:
    """Return the caveats of a panel of choices, one sentence each."""
    lines = [_one_person(annotators), *_one_decides(people, settings), _lean(position), _disagreement(reliability)]
    odd = [each.name for each in annotators if each.flags]
    if odd:
        lines.append(f"Worth a look: {', '.join(odd)} (see the table of annotators).")
    return tuple(line for line in lines if line)


def _one_person(annotators: Sequence[Annotator]) -> str:
    people = [each for each in annotators if not each.is_judge]
    return f"All answers come from one person, {people[0].name}." if len(people) == 1 else ""


def _one_decides(rows: Sequence[Answer], settings: Settings) -> list[str]:
    """Say which replies would be others without some single annotator."""
    names = sorted({row.annotator for row in rows})
    if len(names) < 2:
        return []
    usual = ask(rows, settings)
    lines = []
    for name in names:
        rest = ask([row for row in rows if row.annotator != name], settings)
        lines += [
            f"Without {name}, “{now.text}” would be “{now.reply.value}”, not “{before.reply.value}”."
            for before, now in zip(usual, rest, strict=True)
            if before.reply is not now.reply
        ]
    return lines


def _lean(position: Position) -> str:
    """Tell a lean by the difference between the sides, as the left share also moves with where chosen stood."""
    difference, left = position.difference, position.left_share
    if (
        not isinstance(difference, Estimate)
        or not isinstance(left, Estimate)
        or difference.low <= 0 <= difference.high
    ):
        return ""
    side, share = ("left", left.value) if difference.value > 0 else ("right", 1 - left.value)
    if share <= CHANCE:
        return ""
    return f"People lean to the {side}: {100 * share:.1f} % of the picks."


def _disagreement(reliability: Reliability) -> str:
    alpha = reliability.alpha
    if not isinstance(alpha, Estimate):
        return f"Agreement with each other is not known. {alpha.words}"
    if alpha.high >= TENTATIVE:
        return ""
    return (
        f"People agree little with each other: alpha {alpha.value:.2f}, at most {alpha.high:.2f}, "
        f"where {TENTATIVE} is asked for even tentative conclusions."
    )
