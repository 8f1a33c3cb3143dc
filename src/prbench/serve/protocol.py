"""The bodies of requests and replies: our own form, and that of score and rerank servers (Jina, Cohere, vLLM)."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, RootModel, Tag, ValidationError, model_validator

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


class InputRow(AboutUser):
    """One input. What is known of the user must be said, even if it is nothing: "" is the impersonal baseline."""

    question: str
    response: str

    @model_validator(mode="after")
    def _check_said(self) -> Self:
        if self.context is None and self.user is None:
            raise ValueError('say what is known of the user: context or user; "context": "" for nothing')
        return self

    def as_inputs(self) -> list[RewardInput]:
        return [RewardInput(question=self.question, user=self.as_context(), response=self.response)]


class InputRows(Body):
    """Many inputs; `/fits` asks whether they fit the model's window."""

    inputs: list[InputRow] = Field(min_length=1)

    def as_inputs(self) -> list[RewardInput]:
        return [each for row in self.inputs for each in row.as_inputs()]


class ScoreBody(
    RootModel[
        Annotated[
            Annotated[InputRow, Tag("one")] | Annotated[InputRows, Tag("many")],
            Discriminator(lambda body: "many" if isinstance(body, dict) and "inputs" in body else "one"),
        ]
    ]
):
    """`/score`: one input, or `{"inputs": [...]}`."""

    def as_inputs(self) -> list[RewardInput]:
        return self.root.as_inputs()


class PairsBody(AboutUser):  # `context` and `user` are no fields of that API
    """`/v1/score`: the question is `text_1`, the response `text_2`; one against many, or as many of each."""

    model: str | None = None
    text_1: str | list[str]
    text_2: str | list[str]

    def as_inputs(self) -> list[RewardInput]:
        questions = [self.text_1] if isinstance(self.text_1, str) else self.text_1
        responses = [self.text_2] if isinstance(self.text_2, str) else self.text_2
        if len(questions) == 1:
            questions = questions * len(responses)
        if len(questions) != len(responses) or not responses:
            raise RefusedRequestError(
                422, f"text_1 has {len(questions)} texts and text_2 {len(responses)}: give one, or as many, and not 0."
            )
        user = self.as_context()
        return [
            RewardInput(question=question, user=user, response=response)
            for question, response in zip(questions, responses, strict=True)
        ]


class Document(Body):
    """A candidate written as an object."""

    text: str


class RerankBody(AboutUser):  # nor of this one
    """`/v1/rerank`: the question is the query, and the responses are the documents."""

    model: str | None = None
    query: str
    documents: list[str | Document] = Field(min_length=1)
    top_n: int | None = Field(default=None, ge=0)  # `None` and 0: all of them
    return_documents: bool = True

    @property
    def texts(self) -> list[str]:
        return [each if isinstance(each, str) else each.text for each in self.documents]

    def as_inputs(self) -> list[RewardInput]:
        user = self.as_context()
        return [RewardInput(question=self.query, user=user, response=text) for text in self.texts]


Shape = TypeVar("Shape", ScoreBody, InputRows, PairsBody, RerankBody)


def read_body(shape: type[Shape], raw: bytes, settings: ServeSettings) -> tuple[Shape, list[RewardInput]]:
    """Return the body and its inputs; a body that is malformed or too large is refused with one line."""
    try:
        body = shape.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            fact = first["msg"].partition(": ")[2] or first["msg"]
            raise RefusedRequestError(400, f"The body cannot be read as JSON: {fact}.") from None
        place = ".".join(str(part) for part in first["loc"] if part not in ("one", "many"))
        fact = first["msg"].removeprefix("Value error, ")
        raise RefusedRequestError(422, f"{place or 'body'}: {fact}.") from None
    inputs = body.as_inputs()
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


def pairs_reply(scores: Sequence[Score]) -> dict[str, Json]:
    """Return the scores as `/v1/score` gives them; a failed one is an error entry without a number."""
    rows = [
        {"index": index, "object": "score", "score": float(score.value)}
        if score.value is not None
        else {"index": index, "object": "error", "score": None, "error": _problem(score)}
        for index, score in enumerate(scores)
    ]
    return {"id": f"score-{uuid.uuid4().hex}", "object": "list", "created": int(time.time()), "data": rows}


def rerank_reply(body: RerankBody, scores: Sequence[Score]) -> dict[str, Json]:
    """Return the scored documents, best first (equal ones in the order given), and apart from them the failed ones."""
    scored = [(float(score.value), index) for index, score in enumerate(scores) if score.value is not None]
    scored.sort(key=lambda each: -each[0])
    results: list[dict[str, Json]] = []
    for value, index in scored[: body.top_n or None]:
        document = {"document": {"text": body.texts[index]}} if body.return_documents else {}
        results.append({"index": index, **document, "relevance_score": value})
    errors = [{"index": i, "error": _problem(score)} for i, score in enumerate(scores) if score.value is None]
    return {"id": f"rerank-{uuid.uuid4().hex}", "results": results, "errors": errors}


def _problem(score: Score) -> dict[str, str]:
    return {"type": score.problem.value or "failed", "message": score.detail}
