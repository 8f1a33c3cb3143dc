"""Answers at the border: from a form with sides to a record without them, and back."""

from collections.abc import Mapping
from dataclasses import asdict

from prbench.people.agreement.answers import QUALITIES
from prbench.people.annotate.records import MOST_POSTS, MOST_REASONS, Answer, Mode, Ratings, Reason, Side
from prbench.schema import Json, Verdict

LONGEST_NOTE = 4_000  # characters
LONGEST_REASON = 500
LONGEST_POST = 4_000
TIE = "tie"
SCALE = range(1, 6)


class FormError(Exception):
    """A form that our own page would not have sent."""


def read_answer(form: Mapping[str, str], mode: Mode, side: Side) -> Answer:
    """Return the answer that a form holds; `side` says where the chosen response stood."""
    left = {}
    if mode is Mode.VALIDATE:
        left = {where: _read_ratings(form, where) for where in Side}
    return Answer(
        choice=_read_choice(form.get("choice", ""), side),
        chosen=left.get(side, Ratings()),
        rejected=left.get(side.other, Ratings()),
        note=_read_text(form, "note", LONGEST_NOTE),
        is_flagged=form.get("flag", "") == "yes",
        why=_read_reasons(form) if mode is Mode.COLLECT else (),
    )


def read_posts(form: Mapping[str, str]) -> tuple[str, ...]:
    """Return what somebody wrote about themselves."""
    posts = (_read_text(form, f"post_{number}", LONGEST_POST) for number in range(1, MOST_POSTS + 1))
    return tuple(post for post in posts if post)


def form_fields(answer: Answer, side: Side) -> dict[str, str]:
    """Return the answer as the fields of the form; what is empty is left out."""
    fields = {"note": answer.note, "flag": "yes" if answer.is_flagged else ""}
    if answer.choice is not None:
        where = {Verdict.CHOSEN: side.value, Verdict.REJECTED: side.other.value, Verdict.TIE: TIE}
        fields["choice"] = where[answer.choice]
    for place, ratings in ((side, answer.chosen), (side.other, answer.rejected)):
        for quality, value in asdict(ratings).items():
            fields[f"{place}_{quality}"] = "" if value is None else str(value)
    for number, reason in enumerate(answer.why, 1):
        fields |= {f"aspect_{number}": reason.aspect, f"reason_{number}": reason.reason}
    return {name: value for name, value in fields.items() if value}


def answer_to_json(answer: Answer) -> dict[str, Json]:
    """Return the answer as it is stored."""
    return asdict(answer)


def answer_from_json(stored: Mapping[str, Json]) -> Answer:
    """Rebuild an answer from its own JSON."""
    return Answer(
        choice=None if stored["choice"] is None else Verdict(stored["choice"]),
        chosen=Ratings(**stored["chosen"]),
        rejected=Ratings(**stored["rejected"]),
        note=stored["note"],
        is_flagged=stored["is_flagged"],
        why=tuple(Reason(**reason) for reason in stored["why"]),
        posts=tuple(stored["posts"]),
    )


def _read_choice(text: str, side: Side) -> Verdict | None:
    match text:
        case "":
            return None
        case "left" | "right":
            return Verdict.CHOSEN if text == side.value else Verdict.REJECTED
        case "tie":
            return Verdict.TIE
        case _:
            raise FormError("The choice is none of left, right and tie.")


def _read_ratings(form: Mapping[str, str], where: Side) -> Ratings:
    return Ratings(**{quality: _read_rating(form.get(f"{where}_{quality}", "")) for quality in QUALITIES})


def _read_rating(text: str) -> int | None:
    if not text:
        return None
    if text not in map(str, SCALE):
        raise FormError("A rating is a whole number from 1 to 5.")
    return int(text)


def _read_reasons(form: Mapping[str, str]) -> tuple[Reason, ...]:
    reasons = []
    for number in range(1, MOST_REASONS + 1):
        # One line each: other tools get them as lines of one text.
        aspect = " ".join(_read_text(form, f"aspect_{number}", LONGEST_REASON).split())
        reason = " ".join(_read_text(form, f"reason_{number}", LONGEST_REASON).split())
        if aspect or reason:
            reasons.append(Reason(aspect=aspect or reason, reason=reason if aspect else ""))
    return tuple(reasons)


def _read_text(form: Mapping[str, str], name: str, longest: int) -> str:
    text = form.get(name, "").replace("\r\n", "\n").strip()
    if len(text) > longest:
        raise FormError(f"A text has {len(text)} characters; {longest} is the most. Shorten it.")
    return text
