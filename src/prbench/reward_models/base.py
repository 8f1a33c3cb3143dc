"""What a reward model promises (batch in, batch out, in order), how one is run, and what is known of a loaded one."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from prbench.errors import UsageError
from prbench.schema import (
    NOTHING,
    Comparison,
    ContextKind,
    Json,
    PairInput,
    Probe,
    Problem,
    RewardInput,
    Score,
    UserContext,
)
from prbench.specs import AtLeast, Spec, option

AUTO = 0  # as a batch size: as much as the memory holds
DTYPES = ("auto", "float32", "bfloat16", "float16")
PADDED = 16  # sequences in a padded forward pass, unless a batch size is given


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What the flags say about the model; an option in the spec (`?key=value`) overrides its field."""

    batch_size: int = AUTO  # sequences in one forward pass
    max_length: int | None = None  # tokens; `None`: the model's own limit
    dtype: str = "auto"  # auto (as saved), float32, bfloat16 or float16
    chat_template: Path | None = None  # a Jinja file in place of the tokenizer's own
    trust_remote_code: bool = False
    revision: str | None = None
    seed: int = 0
    template: str | Path | None = None  # a prompt template in place of the kind's own
    cache: Path | None = None  # replies of language models, for `judge` and `rating`
    share_prefixes: bool = True  # compute what inputs have in common once; `False`: padded batches
    keep_prefixes: int = 0  # bytes of keys and values to keep for later calls; for servers
    compile: bool = False  # run decoders through torch.compile
    is_disturbed: bool = False  # by `noise=` or `fail=`, which draw by the seed whatever the model does with it

    @property
    def padded_batch(self) -> int:
        """Return how many sequences a padded forward pass takes."""
        return self.batch_size or PADDED


@dataclass(frozen=True, kw_only=True)
class HfOptions:
    """Options of every kind that runs a Hugging Face model. All but `device` and `bos` stand for a setting."""

    batch_size: Annotated[int, AtLeast(1)] | Literal["auto"] | None = option(None, "sequences in a forward pass")
    max_length: Annotated[int, AtLeast(1)] | None = option(None, "window in tokens; posts beyond it are dropped")
    dtype: str | None = option(None, "auto, float32, bfloat16 or float16")
    chat_template: Path | None = option(None, "Jinja file in place of the tokenizer's own")
    trust_remote_code: bool | None = option(None, "run code that comes with the model")
    revision: str | None = option(None, "of the hub")
    template: str | None = option(None, "prompt template in place of the kind's own")
    share_prefixes: bool | None = option(None, "compute what inputs have in common once")
    compile: bool | None = option(None, "run decoders through torch.compile")
    device: str = option("auto", "auto, cpu, cuda, mps")
    bos: Literal["one", "none"] = option("one", "whether a text begins with the tokenizer's first token")


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """Options of a model that reads with a sentence encoder."""

    encoder: str | None = option(None, "folder or hub id; default: the one that it was trained on")


def override(settings: ModelSettings, options: object) -> ModelSettings:
    """Return the settings with the options of one model put in, where they are given and mean the same."""
    changes: dict[str, object] = {}
    for its in fields(ModelSettings):
        value = getattr(options, its.name, None)
        if value is not None and its.name != "cache":  # that of a spec is a file of summaries
            changes[its.name] = AUTO if value == "auto" and its.name == "batch_size" else value
    return replace(settings, **changes)  # type: ignore[arg-type]


@runtime_checkable
class RewardModel(Protocol):
    """Scores responses; a higher score means that this user would like the response more."""

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        ...


@runtime_checkable
class PairJudge(Protocol):
    """Compares two responses; it answers FIRST or SECOND and never learns which one is the chosen."""

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        """Return one comparison per pair, in the same order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What is known of a model that was asked elsewhere, and whose answers are looked up by item."""

    ids: frozenset[str]  # of the items
    probes: tuple[Probe, ...]
    orders: str = ""  # of a judge: `both` if any pair has two, else `one`


@dataclass(frozen=True, kw_only=True)
class UnknownTokens:
    """How much of some texts a model's tokenizer does not know."""

    unknown: int
    total: int
    written_as: str  # the token that stands for all of it; "" where it is left out
    where: str  # folder or hub id of the tokenizer, as far as it is known

    @property
    def share(self) -> float:
        return self.unknown / self.total if self.total else 0.0

    def sentence(self, texts: str) -> str:
        """Return what is wrong, in one line: the place, the fact and the next step."""
        place = f"{self.where}: the" if self.where else "The"
        fate = f"are {self.written_as}" if self.written_as else "are left out"
        return (
            f"{place} tokenizer does not know the words: {self.unknown} of {self.total} tokens of {texts} {fate}. "
            "Save the tokenizer that the model was trained with beside it."
        )

    def refusal(self, texts: str) -> UsageError:
        return UsageError(self.sentence(texts))


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model under test, with what an evaluation must know about it."""

    spec: str  # as on the command line; the name on the board
    kind: str  # control, classifier, judge, rating, implicit, pmi, head, server, custom
    model: RewardModel | PairJudge
    identity: Mapping[str, Json] = field(default_factory=lambda: NOTHING)  # what changes its scores: in the run id
    template_hash: str = ""
    # Does the prompt for this input fit the model's window? `None`: it has no window.
    fits: Callable[[RewardInput | PairInput], bool] | None = None
    window: int | None = None  # tokens that `fits` counts up to; `None`: there is no limit, or it is not known
    items_per_step: int = 32  # items scored, then written, together; small for slow models
    # Tokens read so far: {"total": as a naive forward pass would, "computed": after sharing}. `None`: not counted.
    tokens: Callable[[], Mapping[str, int]] | None = None
    recorded: Recorded | None = None  # of `scores` and `replies`
    note: str = ""  # what a user should know before it runs, e.g. why it is slower than it could be
    # How much of some texts its tokenizer knows. `None`: it has none, or does not say.
    unknown_tokens: Callable[[Sequence[str]], UnknownTokens] | None = None

    def holds(self, user: UserContext, *, question: str, responses: Sequence[str], reserve_tokens: int = 0) -> bool:
        """Tell whether the model's window holds every response with that much of the user."""
        fits = self.fits
        if fits is None:
            return True
        if isinstance(self.model, PairJudge):
            first, second = responses
            return fits(PairInput(question=question, user=user, first=first, second=second))
        return all(fits(RewardInput(question=question, user=user, response=response)) for response in responses)


def as_loaded(
    spec: Spec, model: Any, *, items_per_step: int = 32, identity: Mapping[str, Json] | None = None
) -> LoadedModel:
    """Return the model of a spec with what it says of itself; of all but its identity it may say nothing."""
    return LoadedModel(
        spec=spec.text,
        kind=spec.kind,
        model=model,
        identity=model.identity if identity is None else identity,
        template_hash=getattr(model, "template_hash", ""),
        fits=getattr(model, "fits", None),
        window=getattr(model, "window", None),
        items_per_step=items_per_step,
        tokens=getattr(model, "tokens", None),
        note=getattr(model, "note", ""),
        unknown_tokens=getattr(model, "unknown_tokens", None),
    )


def require_scores(loaded: LoadedModel, who: str, *, of_items: bool = False) -> RewardModel:
    """Return the model if it scores single responses, as `who` needs; one that only compares is refused.

    So is one whose scores were recorded, unless they are looked up `of_items`.
    """
    if not isinstance(loaded.model, RewardModel):
        raise only_compares(loaded.spec, who)
    if loaded.recorded is not None and not of_items:
        fact = f"holds recorded scores of known items, and {who} asks for new ones"
        raise UsageError(f"{loaded.spec} {fact}. Name a model that can be asked.")
    return loaded.model


def only_compares(spec: str, who: str) -> UsageError:
    """Return the one line that refuses a model which only compares."""
    return UsageError(f"{spec} only compares, and {who} needs a score for each response. Use rating:… instead.")


def as_score(value: float | MemoryError | None) -> Score:
    """Return the number as a score; NaN and infinities have no place in a ranking."""
    if value is None:
        return Score(value=None, problem=Problem.NO_VERDICT)
    if isinstance(value, MemoryError):
        return failed(str(value))
    if not math.isfinite(value):
        return failed("not a finite number")
    return Score(value=value)


def rounded_scores(values: NDArray[np.float64]) -> list[Score]:
    """Return numbers as scores in float32: the last bits of a matrix product depend on how many rows it has."""
    return [Score(value=float(value)) for value in values.astype(np.float32)]


def failed(detail: str) -> Score:
    """Return the score of an input that could not be scored this time."""
    return Score(value=None, problem=Problem.FAILED, detail=detail)


def too_long(tokens: int, limit: int) -> Score:
    """Return the score of an input that the model's window does not hold."""
    return Score(value=None, problem=Problem.TOO_LONG, detail=f"{tokens} tokens, and the window holds {limit}")


def one_by_one(each: RewardInput | PairInput) -> tuple[RewardInput, ...]:
    """Return the input itself, or a pair as its two inputs."""
    if isinstance(each, RewardInput):
        return (each,)
    return (
        RewardInput(question=each.question, user=each.user, response=each.first),
        RewardInput(question=each.question, user=each.user, response=each.second),
    )


def input_row(each: RewardInput) -> dict[str, Json]:
    """Return an input as `prbench serve` takes it."""
    return {"question": each.question, **user_row(each.user), "response": each.response}


def user_row(user: UserContext) -> dict[str, Json]:
    """Return what is known of a user as `prbench serve` takes it: records, or a text that came from outside."""
    if user.kind == ContextKind.TEXT:
        return {"context": user.text}
    labels = [
        {"question": label.question, "chosen": label.chosen, "rejected": label.rejected} for label in user.labels
    ]
    return {"user": {"kind": user.kind.value, "posts": list(user.segments), "labels": labels}}


@dataclass(frozen=True, kw_only=True)
class RemoteModelRef:
    """How a worker gets the model."""

    spec: str
    settings: ModelSettings


class RemoteScorer(RemoteModelRef):
    """Stands for a reward model; never asked, as workers load their own."""

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        raise AssertionError(f"{self.spec} is loaded by workers, and was asked outside of them")


class RemoteJudge(RemoteModelRef):
    """Stands for a model that compares, likewise."""

    def prefer(self, pairs: Sequence[PairInput]) -> list[Comparison]:
        raise AssertionError(f"{self.spec} is loaded by workers, and was asked outside of them")


def detach(loaded: LoadedModel, settings: ModelSettings) -> LoadedModel:
    """Return what may leave the worker: all that is known about the model, without the model."""
    stands_for = RemoteJudge if isinstance(loaded.model, PairJudge) else RemoteScorer
    model = stands_for(spec=loaded.spec, settings=settings)
    return replace(loaded, model=model, identity=dict(loaded.identity), fits=None, tokens=None, unknown_tokens=None)
