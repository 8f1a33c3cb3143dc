"""From what a model said to rows: scores or picks become a verdict, and what could not be read stays visible."""

from collections.abc import Mapping, Sequence

from prbench.evaluation.score import ScoredRow
from prbench.schema import (
    NOTHING,
    Comparison,
    Example,
    Json,
    Pick,
    Problem,
    RatedExample,
    RatedRow,
    Row,
    Score,
    Verdict,
    decide,
    gravest,
)

LONGEST_GROUP = 80  # characters; a longer text is no name of a group


def as_row(scored: ScoredRow) -> Row | RatedRow:
    """Return the row of one item: a pair gets a verdict, a rated response keeps its score."""
    item = scored.item
    if isinstance(item.example, RatedExample):
        return _rated_row(scored, item.example)
    if item.user.problem:
        return _row(scored, Verdict.UNREADABLE, problem=item.user.problem, detail=item.user.detail)
    return _judged_row(scored) if scored.comparisons else _scored_row(scored)


def _scored_row(scored: ScoredRow) -> Row:
    chosen, rejected = scored.scores
    bad = gravest(score for score in scored.scores if score.value is None)
    return _row(
        scored,
        decide(chosen, rejected),
        score_chosen=chosen.value,
        score_rejected=rejected.value,
        problem=bad.problem if bad else Problem.NONE,
        detail=bad.detail if bad else "",
        replies=_replies(chosen, rejected),
    )


def _replies(chosen: Score, rejected: Score) -> dict[str, str]:
    """Return a rating model's own words, so that every number can be traced to what was said."""
    return {"chosen": chosen.raw, "rejected": rejected.raw} if chosen.raw or rejected.raw else {}


def _judged_row(scored: ScoredRow) -> Row:
    answers = scored.comparisons
    bad = gravest(answer for _, answer in answers if answer.pick is Pick.UNREADABLE)
    margin = _margin(answers)
    return _row(
        scored,
        Verdict.UNREADABLE if bad else _joint_verdict(answers, margin),
        score_chosen=None if margin is None else margin / 2,
        score_rejected=None if margin is None else -margin / 2,
        problem=bad.problem if bad else Problem.NONE,
        detail=bad.detail if bad else "",
        orders=tuple(
            {
                "order": "chosen_first" if chosen_first else "rejected_first",
                "pick": answer.pick.value,
                "reason": answer.problem.value,
                "margin": answer.margin,
                "raw": answer.raw,
            }
            for chosen_first, answer in answers
        ),
    )


def _margin(answers: Sequence[tuple[bool, Comparison]]) -> float | None:
    """Return the mean log-odds for the chosen response over the orders, where the judge gives them."""
    margins = [
        None if answer.margin is None else (answer.margin if chosen_first else -answer.margin)
        for chosen_first, answer in answers
    ]
    known = [margin for margin in margins if margin is not None]
    return sum(known) / len(known) if known and len(known) == len(margins) else None


def _joint_verdict(answers: Sequence[tuple[bool, Comparison]], margin: float | None) -> Verdict:
    """Return what the orders say together: the mean margin decides; without margins, disagreement is a tie."""
    if margin is not None:
        return Verdict.TIE if margin == 0 else (Verdict.CHOSEN if margin > 0 else Verdict.REJECTED)
    votes = 0
    for chosen_first, answer in answers:
        if answer.pick is not Pick.TIE:
            votes += 1 if (answer.pick is Pick.FIRST) == chosen_first else -1
    if votes == 0:
        return Verdict.TIE
    return Verdict.CHOSEN if votes > 0 else Verdict.REJECTED


def _rated_row(scored: ScoredRow, example: RatedExample) -> RatedRow:
    (score,) = scored.scores
    user = scored.item.user
    return RatedRow(
        id=example.id,
        probe=scored.item.probe,
        user_id=example.user.id,
        category=example.category,
        rating=example.rating,
        score=score.value,
        problem=score.problem,
        detail=score.detail,
        raw=score.raw,
        posts_used=user.used,
        posts_dropped=user.dropped + user.truncated_posts,
        groups=_groups(example),
    )


def _row(
    scored: ScoredRow,
    verdict: Verdict,
    *,
    score_chosen: float | None = None,
    score_rejected: float | None = None,
    problem: Problem = Problem.NONE,
    detail: str = "",
    orders: tuple[Mapping[str, Json], ...] = (),
    replies: Mapping[str, str] = NOTHING,
) -> Row:
    example, user = scored.item.example, scored.item.user
    return Row(
        id=example.id,
        probe=scored.item.probe,
        user_id=example.user.id,
        category=example.category,
        verdict=verdict,
        score_chosen=score_chosen,
        score_rejected=score_rejected,
        problem=problem,
        detail=detail,
        orders=orders,
        replies=replies,
        posts_used=user.used,
        posts_dropped=user.dropped + user.truncated_posts,
        groups=_groups(example),
    )


def _groups(example: Example | RatedExample) -> dict[str, Json]:
    """Return the plain facts of a row, so that any of them can be grouped by later, whatever was asked for now."""
    facts: dict[str, Json] = {"split": example.split} if example.split else {}
    return facts | {name: value for name, value in example.meta.items() if _is_plain(value)}


def _is_plain(value: Json) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST_GROUP)
