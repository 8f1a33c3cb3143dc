"""UltraFeedback as its authors ship it: an `instruction` and `completions`, each with scores."""

from collections.abc import Mapping

from prbench.data.importing import content_id, leftover
from prbench.data.rows import quoted, row_error
from prbench.schema import Json

_USED = frozenset({"id", "instruction", "completions", "source", "models"})
_FACTS = ("group", "chosen_score", "rejected_score", "chosen_model", "rejected_model")
_ADDED = frozenset({"user_id", "question", "profile", "category", "chosen", "rejected", *_FACTS})
SCORES = ("fine-grained_score", "overall_score")  # the first that every completion has


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row for the best completion against each that scored lower; none of them is preferred where all are equal.

    The pairs of one instruction share a `user_id`, so that intervals are clustered by instructions. Critiques and
    scores of single aspects are left out.
    """
    completions, instruction = raw["completions"], raw["instruction"]
    if not isinstance(completions, list) or not all(isinstance(one, Mapping) for one in completions):
        raise row_error(where, "completions", f"is {quoted(completions)}, not a list of objects", "Correct the row")
    name = next((name for name in SCORES if all(_number(one.get(name)) is not None for one in completions)), "")
    if not name or not completions:
        fact = f"have no {' or '.join(SCORES)}, so none of them is known to be the best"
        raise row_error(where, "completions", fact, "Drop the row")
    scores = [float(one[name]) for one in completions]
    best = scores.index(max(scores))
    worse = [place for place, score in enumerate(scores) if score < scores[best]]
    if not worse:
        raise row_error(where, "completions", "all have the same score, so none is preferred", "Drop the row")
    group = str(content_id(instruction, [one.get("response") for one in completions]))
    if raw.get("id") is not None:
        group = str(raw["id"])
    return [
        {
            **leftover(raw, _USED, _ADDED, where),
            "id": f"{group}#{best}-{place}",
            "user_id": group,
            "question": instruction,
            "profile": [],
            "category": raw.get("source"),
            "chosen": completions[best].get("response"),
            "rejected": completions[place].get("response"),
            "group": group,
            "chosen_score": scores[best],
            "rejected_score": scores[place],
            "chosen_model": completions[best].get("model"),
            "rejected_model": completions[place].get("model"),
        }
        for place in worse
    ]


def _number(value: Json) -> float | None:
    """A score, which some versions of the set write as text."""
    try:
        return None if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError):
        return None
