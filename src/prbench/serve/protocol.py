"""The bodies of requests: what each must hold, and how one is read; our own form. `partners` has those of others."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from prbench.schema import ContextKind, Json, LabeledPair, RewardInput, Score, UserContext
from prbench.serve.http import RefusedRequestError
from prbench.serve.settings import ServeSettings

STATUS_TYPES: Mapping[int, str] = {
    400: "invalid_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    422: "invalid_request",
    429: "queue_full",
    500: "model_failed",
    503: "unavailable",
}


def error_body(error: RefusedRequestError) -> dict[str, Json]:
    """Return an error as the OpenAI API writes it."""
    return {
        "error": {"message": str(error), "type": STATUS_TYPES.get(error.status, "error"), "code": error.status},
    }


class Body(BaseModel):
    """A body with exactly the declared fields; a field that we would ignore is refused instead."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LabelRow(Body):
    """Two answers that this user compared before."""

    question: str
    chosen: str
    rejected: str


class UserRow(Body):
    """What is known of the user, as records: models get the posts exactly as they are written here."""

    kind: Literal["none", "profile", "plan", "oracle"]
    posts: list[str] = []
    labels: list[LabelRow] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "none" and self.posts:
            raise ValueError("kind is none, and there are posts: say profile")
        if self.kind == "oracle" and self.labels:
            raise ValueError("an oracle knows all, so labels add nothing to it")
        return self

    def as_context(self) -> UserContext:
        """Return the record that the model sees."""
        labels = tuple(LabeledPair(**each.model_dump()) for each in self.labels)
        # With nothing to tell, any kind is the impersonal baseline.
        kind = ContextKind(self.kind) if self.posts or labels else ContextKind.NONE
        return UserContext(kind=kind, segments=tuple(self.posts), labels=labels)


class AboutUser(Body):
    """What is known of the user: `user` as records, or `context` as one text of the caller's own."""

    context: str | None = None
    user: UserRow | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if self.context is not None and self.user is not None:
            raise ValueError("context and user say the same in two ways: give one")
        return self

    def as_context(self) -> UserContext:
        """Return the record that the model sees; without either, nothing is known of the user."""
        return self.user.as_context() if self.user else UserContext.from_text(self.context or "")


class KnownUser(AboutUser):
    """What is known of the user must be said, even if it is nothing: "" is the impersonal baseline."""

    @model_validator(mode="after")
    def _check_said(self) -> Self:
        if self.context is None and self.user is None:
            raise ValueError('say what is known of the user: context or user; "context": "" for nothing')
        return self


class InputRow(KnownUser):
    """One input."""

    question: str
    response: str

    def as_inputs(self) -> list[RewardInput]:
        return [RewardInput(question=self.question, user=self.as_context(), response=self.response)]


class InputRows(Body):
    """Many inputs; `/fits` asks whether they fit the model's window."""

    inputs: list[InputRow] = Field(min_length=1)

    def as_inputs(self) -> list[RewardInput]:
        return [each for row in self.inputs for each in row.as_inputs()]


class AskedBody(Protocol):
    """A body that says what the model is asked."""

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Any:
        """Return the body, checked."""
        ...

    def as_inputs(self) -> list[RewardInput]:
        """Return what the model is asked, in the order of the reply."""
        ...


Shape = TypeVar("Shape", bound=AskedBody)
TAGS = ("one", "many", "pairs")  # of the forms that one path takes; no part of a place in a body


def read_body(shape: type[Shape], raw: bytes, settings: ServeSettings) -> tuple[Shape, list[RewardInput]]:
    """Return the body and its inputs; a body that is malformed or too large is refused with one line."""
    try:
        body: Shape = shape.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            fact = first["msg"].partition(": ")[2] or first["msg"]
            raise RefusedRequestError(400, f"The body cannot be read as JSON: {fact}.") from None
        place = ".".join(str(part) for part in first["loc"] if part not in TAGS)
        fact = first["msg"].removeprefix("Value error, ")
        raise RefusedRequestError(422, f"{place or 'body'}: {fact}.") from None
    inputs = body.as_inputs()
    if not inputs:
        raise RefusedRequestError(422, "The request has nothing to score. Give at least one input.")
    if len(inputs) > (most := settings.inputs_per_request):
        raise RefusedRequestError(
            413, f"The request has {len(inputs)} inputs, and this server takes {most}. Split it."
        )
    for number, each in enumerate(inputs):
        longest = max(len(each.question), len(each.context), len(each.response))
        if longest > settings.max_characters:
            raise RefusedRequestError(
                413,
                f"Input {number} has a text of {longest} characters, and this server takes {settings.max_characters}.",
            )
    return body, inputs


def score_rows(scores: Sequence[Score]) -> list[dict[str, Json]]:
    """Return the scores in our own form."""
    return [
        {
            "value": None if score.value is None else float(score.value),
            "problem": score.problem.value,
            "detail": score.detail,
        }
        for score in scores
    ]
