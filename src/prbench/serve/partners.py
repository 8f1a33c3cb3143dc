"""What others send to a reward server and read of its reply: one row of `PROTOCOLS` each, ours among them.

Jina, Cohere and vLLM score and rank pairs of texts; vLLM and verl's reward loop classify conversations; OpenRLHF asks
its remote reward. Each follows its own API to the letter where it says something about the reward, and a field that
we would have to ignore is refused.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import (
    AliasChoices,
    Discriminator,
    Field,
    RootModel,
    Tag,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from prbench.schema import Json, Problem, RewardInput, Score
from prbench.serve.http import RefusedRequestError
from prbench.serve.protocol import AboutUser, AskedBody, Body, InputRow, InputRows, KnownUser, score_rows
from prbench.serve.queue import Operation


class PartnerBody(Body):
    """What their requests have in common."""

    model: str | None = None
    use_activation: bool | None = None  # vLLM's word for a sigmoid or a softmax

    @field_validator("use_activation")
    @classmethod
    def _check_raw(cls, given: bool | None) -> bool | None:
        if given:
            raise ValueError("a reward is the model's raw number: send false, or leave it out")
        return given


class PairsBody(AboutUser, PartnerBody):  # `context` and `user` are no fields of that API
    """`/v1/score`: the question is `text_1`, the response `text_2`; one against many, or as many of each."""

    text_1: str | list[str] = Field(validation_alias=AliasChoices("text_1", "queries", "data_1"))
    text_2: str | list[str] = Field(validation_alias=AliasChoices("text_2", "documents", "data_2"))

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


def _form_of(body: Any) -> str:
    if isinstance(body, dict) and "inputs" in body:
        return "many"
    is_pair = isinstance(body, dict) and not body.keys().isdisjoint(("text_1", "queries", "data_1"))
    return "pairs" if is_pair else "one"


class ScoreBody(
    RootModel[
        Annotated[
            Annotated[InputRow, Tag("one")] | Annotated[InputRows, Tag("many")] | Annotated[PairsBody, Tag("pairs")],
            Discriminator(_form_of),
        ]
    ]
):
    """`/score`: one input, `{"inputs": [...]}`, or the pairs of `/v1/score`, which vLLM takes here as well."""

    @property
    def model(self) -> str | None:
        """The model that is asked for, in the form that names one."""
        return self.root.model if isinstance(self.root, PairsBody) else None

    def as_inputs(self) -> list[RewardInput]:
        return self.root.as_inputs()


class Document(Body):
    """A candidate written as an object."""

    text: str


class RerankBody(AboutUser, PartnerBody):
    """`/v1/rerank`: the question is the query, and the responses are the documents."""

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


class ChatMessage(AboutUser):
    """One message. The user's may say what it asks and who asks, which its text mixes with a policy's instructions."""

    role: str
    content: str
    question: str | None = None


CHAT = TypeAdapter(list[ChatMessage])


class ClassifyBody(PartnerBody):
    """`/classify`: a conversation as messages, or one or many as text, which must be the JSON of their messages."""

    input: str | list[str] | None = None
    messages: list[ChatMessage] | None = None
    add_generation_prompt: bool = False

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.input is None) == (self.messages is None):
            raise ValueError("give either messages or input")
        if self.add_generation_prompt:
            raise ValueError("add_generation_prompt begins another answer: send false, or leave it out")
        return self

    def as_inputs(self) -> list[RewardInput]:
        if self.messages is not None:
            return [_last_answer(self.messages)]
        texts = [self.input] if isinstance(self.input, str) else self.input or []
        return [_last_answer(_messages_in(text)) for text in texts]


def _messages_in(text: str) -> list[ChatMessage]:
    try:
        return CHAT.validate_json(text)
    except ValidationError:
        raise RefusedRequestError(
            422,
            "input: a conversation that a chat template has laid out cannot be taken apart again. Send messages, or "
            "lay it out by the chat template {{ messages | tojson }}.",
        ) from None


def _last_answer(messages: Sequence[ChatMessage]) -> RewardInput:
    """Return the last answer, and what it answers; what stands before that must be said in the user's message."""
    if len(messages) < 2 or messages[-1].role != "assistant" or messages[-2].role != "user":
        raise RefusedRequestError(
            422, "A conversation must end with a message of the user and the assistant's answer."
        )
    asked, answer = messages[-2:]
    if asked.question is None and len(messages) > 2:
        raise RefusedRequestError(
            422, f"A conversation of {len(messages)} messages: say in the user's last one what its question is."
        )
    question = asked.content if asked.question is None else asked.question
    return RewardInput(question=question, user=asked.as_context(), response=answer.content)


class QueryLabel(KnownUser):
    """The label of a row for OpenRLHF: who asks what, and the texts that end an answer of its policy."""

    question: str
    id: str = ""  # of the row, for those who read logs
    ends: list[str] = Field(default_factory=list)


class QueriesBody(Body):
    """`/get_reward`: each query is a prompt with its answer; the label, as JSON text, says who asks what."""

    query: list[str] = Field(min_length=1)
    prompts: list[str]
    labels: list[str]

    def as_inputs(self) -> list[RewardInput]:
        if not len(self.query) == len(self.prompts) == len(self.labels):
            raise RefusedRequestError(
                422, f"{len(self.query)} queries, {len(self.prompts)} prompts and {len(self.labels)} labels."
            )
        given = zip(self.query, self.prompts, self.labels, strict=True)
        return [self._input(place, *each) for place, each in enumerate(given)]

    @staticmethod
    def _input(place: int, query: str, prompt: str, label: str) -> RewardInput:
        try:
            asked = QueryLabel.model_validate_json(label)
        except ValidationError:
            raise RefusedRequestError(
                422,
                f'labels.{place}: must be JSON that says who asks what: {{"question": …, "user": …}}. '
                "prbench.prompt_rows writes it, and --data.label_key label sends it.",
            ) from None
        if not query.startswith(prompt):
            raise RefusedRequestError(
                422,
                f"query.{place}: does not begin with its prompt, so its answer cannot be told. Is the prompt longer "
                "than --data.max_len allows?",
            )
        response = query[len(prompt) :]
        for end in asked.ends:
            response = response.partition(end)[0] if end else response
        return RewardInput(question=asked.question, user=asked.as_context(), response=response.strip())


def score_reply(body: ScoreBody, scores: Sequence[Score]) -> dict[str, Json]:
    """Return the scores in the form of the request."""
    if isinstance(body.root, PairsBody):
        return pairs_reply(body.root, scores)
    return {"scores": score_rows(scores)}


def fits_reply(body: InputRows, answers: Sequence[bool]) -> dict[str, Json]:
    """Say of each input whether it fits."""
    return {"fits": list(answers)}


def pairs_reply(body: PairsBody, scores: Sequence[Score]) -> dict[str, Json]:
    """Return the scores as `/v1/score` gives them; a failed one is an error entry without a number."""
    rows = [
        {"index": index, "object": "score", "score": float(score.value)}
        if score.value is not None
        else {"index": index, "object": "error", "score": None, "error": _problem(score)}
        for index, score in enumerate(scores)
    ]
    return {**_head("score"), "data": rows}


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


def classify_reply(body: ClassifyBody, scores: Sequence[Score]) -> dict[str, Json]:
    """Return each score as the one logit of a classifier."""
    values = _all_values(scores)
    rows = [{"index": i, "label": None, "probs": [value], "num_classes": 1} for i, value in enumerate(values)]
    return {**_head("classify"), "data": rows}


def rewards_reply(body: QueriesBody, scores: Sequence[Score]) -> dict[str, Json]:
    """Return the rewards as OpenRLHF reads them."""
    values = _all_values(scores)
    return {"rewards": values, "scores": values, "extra_logs": {"raw_score": values}}


def _all_values(scores: Sequence[Score]) -> list[float]:
    """Return the numbers of a reply that has no place for an answer without one: then the request is refused."""
    for place, score in enumerate(scores):
        if score.value is None:
            window = " (max_model_len)" if score.problem is Problem.TOO_LONG else ""
            fact = f"{score.problem.value or 'failed'}: {score.detail}".rstrip(": ")
            raise RefusedRequestError(422, f"Input {place} has no score: {fact}{window}.")
    return [float(score.value) for score in scores if score.value is not None]


def _head(name: str) -> dict[str, Json]:
    return {"id": f"{name}-{uuid.uuid4().hex}", "object": "list", "created": int(time.time())}


def _problem(score: Score) -> Mapping[str, str]:
    return {"type": score.problem.value or "failed", "message": score.detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A form of request, where it comes in, and how its answers are written."""

    paths: tuple[str, ...]
    body: type[AskedBody]
    reply: Callable[[Any, Sequence[Any]], dict[str, Json]]  # of the body and the answers, without the sender
    asks: Operation = Operation.SCORE


PROTOCOLS = (
    Protocol(paths=("/score",), body=ScoreBody, reply=score_reply),
    Protocol(paths=("/fits",), body=InputRows, reply=fits_reply, asks=Operation.FITS),
    Protocol(paths=("/v1/score",), body=PairsBody, reply=pairs_reply),
    Protocol(paths=("/v1/rerank", "/rerank"), body=RerankBody, reply=rerank_reply),
    Protocol(paths=("/classify",), body=ClassifyBody, reply=classify_reply),
    Protocol(paths=("/get_reward",), body=QueriesBody, reply=rewards_reply),
)
