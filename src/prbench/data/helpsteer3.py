"""HelpSteer3 (preference): `context` (messages), `response1`, `response2`, and `overall_preference` from -3 to 3."""

from collections.abc import Mapping

from prbench.data.importing import ORIGINAL, content_id, leftover, original_messages, to_question, to_response
from prbench.data.rows import quoted, row_error
from prbench.schema import Json

_USED = frozenset({"id", "context", "response1", "response2", "domain"})
_ADDED = frozenset({"question", "profile", "category", "chosen", "rejected", ORIGINAL})
_STRONGEST = 3


def to_rows(raw: Mapping[str, Json], where: str) -> list[dict[str, Json]]:
    """One row per pair; below 0 the first response is preferred. What each annotator said stays in `meta`."""
    context, first, second, preference = (
        raw[name] for name in ("context", "response1", "response2", "overall_preference")
    )
    is_whole = isinstance(preference, int | float) and not isinstance(preference, bool) and preference % 1 == 0
    if not is_whole or abs(preference) > _STRONGEST:
        fact = f"is {quoted(preference)}, but preferences are whole numbers from -{_STRONGEST} to {_STRONGEST}"
        raise row_error(where, "overall_preference", fact, "Drop the row")
    if preference == 0:
        remedy = "Drop the row, or tolerate such rows with --skip-bad-rows N"
        raise row_error(where, "overall_preference", "is 0, which prefers neither response", remedy)
    question = to_question(context, where, "context")
    answers = to_response(first, where, "response1"), to_response(second, where, "response2")
    chosen, rejected = answers if preference < 0 else answers[::-1]
    own_id = raw.get("id")
    return [
        {
            **leftover(raw, _USED, _ADDED, where),
            "id": content_id(context, first, second) if own_id is None else own_id,
            "question": question,
            "profile": [],
            "category": raw.get("domain"),
            "chosen": chosen,
            "rejected": rejected,
            **original_messages(question, chosen, rejected, context, None, None),
        }
    ]
