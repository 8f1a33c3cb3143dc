"""What a build was asked for. `BuildSettings` decides its texts; `PublishSettings` only how they are handed on."""

import math
from dataclasses import asdict, dataclass
from enum import StrEnum

from prbench.errors import UsageError
from prbench.schema import Json

DEFAULT_WORDS = 120


class Stage(StrEnum):
    """The steps of a build, in order."""

    DRAW = "draw"
    RANK = "rank"
    RUBRIC = "rubric"
    GENERATE = "generate"
    VERIFY = "verify"
    PARITY = "parity"
    AUDIT = "audit"
    PUBLISH = "publish"

    def reaches(self, other: "Stage") -> bool:
        """True if a build up to this stage comes through the other one."""
        return list(Stage).index(self) >= list(Stage).index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """All that decides what a build makes; it stands in `build.json`, and another one needs another folder."""

    data: str  # a file, a folder, a hub id, or `lab`
    generator: str  # LLM specs
    judge: str
    quality_judge: str
    subset: str | None = None
    split: str | None = None
    users: int | None = None  # of the lab
    questions_per_user: int = 1  # drawn from a user's posts, where the data holds no questions
    posts: int = 10
    rank: str = "bm25"
    encoder: str = "minilm"
    aspects: int = 3
    words: int = DEFAULT_WORDS  # about so many in a response
    retries: int = 3
    batched_verification: bool = False
    reply_tokens: int | None = None  # most tokens of any reply; None: enough for the answer, none for thinking aloud
    temperature: float = 0.7  # of the generator; judges have 0
    seed: int = 0
    redact: bool = False
    pseudonyms: bool = True

    def __post_init__(self) -> None:
        for name in ("posts", "aspects", "words", "questions_per_user"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: give 1 or more.")
        if self.retries < 0:
            raise UsageError(f"--retries {self.retries}: give 0 or more.")
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"--temperature {self.temperature}: give a number that is not negative.")

    def as_json(self) -> dict[str, Json]:
        """Return the settings as they stand in files."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """What the dataset folder says about itself; it may change without building anything again."""

    title: str = ""  # "": the name of the build's folder
    licence: str = ""
    consent: str = ""
    private: bool = False  # not to be handed on: licence and consent may be missing
    date: str = ""  # "": none, so that the same rows give the same bytes
    split_by_user: str = ""  # e.g. "train=0.8,test=0.2"; "": all rows are `test`
