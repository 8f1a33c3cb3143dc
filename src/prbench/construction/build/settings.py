"""What a build was asked for, its stages, and its files.

`BuildSettings` decides what it makes, `ClientOptions` how its models are asked, `PublishSettings` how the set is
handed on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from prbench.backends.llm.spending import Limits, Price
from prbench.errors import UsageError
from prbench.runs.manifest import Keys
from prbench.schema import Json

DEFAULT_WORDS = 120


class BuildStage(StrEnum):
    """The steps of a build, in order."""

    DRAW = "draw"
    RANK = "rank"
    RUBRIC = "rubric"
    GENERATE = "generate"
    VERIFY = "verify"
    PARITY = "parity"
    AUDIT = "audit"
    PUBLISH = "publish"

    def reaches(self, other: "BuildStage") -> bool:
        """True if a build up to this stage comes through the other one."""
        return list(BuildStage).index(self) >= list(BuildStage).index(other)


# `replies.sqlite` is the true state of a build: every other file is made again from there, whole.
REPLIES, PAIRS, REJECTS, DATASET, AUDIT = "replies.sqlite", "pairs.jsonl", "rejects.jsonl", "dataset", "audit.json"
STAGE_FILES: Mapping[BuildStage, str] = {
    BuildStage.DRAW: "0_draw.jsonl",
    BuildStage.RANK: "1_rank.jsonl",
    BuildStage.RUBRIC: "2_rubric.jsonl",
    BuildStage.GENERATE: "3_generate.jsonl",
    BuildStage.VERIFY: "4_verify.jsonl",
    BuildStage.PARITY: "5_parity.jsonl",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """All that decides what a build makes; it stands in `manifest.json`, and another one needs another folder."""

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

    # Not `data`: it may move, and the hash of its rows names it.
    KEYS: ClassVar[Keys] = Keys(
        "generator",
        "judge",
        "quality_judge",
        subset=None,
        split=None,
        users=None,
        questions_per_user=1,
        posts=10,
        rank="bm25",
        encoder="minilm",
        aspects=3,
        words=120,
        retries=3,
        batched_verification=False,
        reply_tokens=None,
        temperature=0.7,
        seed=0,
        redact=False,
        pseudonyms=True,
    )

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a build."""
        return self.KEYS.write(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Json], data: str) -> Self:
        """Return the settings of a build on the data that lie there now."""
        return cls(data=data, **cls.KEYS.read(config))

    def __post_init__(self) -> None:
        for name in ("posts", "aspects", "words", "questions_per_user"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: give 1 or more.")
        if self.retries < 0:
            raise UsageError(f"--retries {self.retries}: give 0 or more.")
        if not 0 <= self.temperature < math.inf:
            raise UsageError(f"--temperature {self.temperature}: give a number that is not negative.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How fast and how dear a build may be; nothing of this changes what it makes."""

    concurrency: int = 8
    timeout_seconds: float = 120.0
    retries: int = 4  # of one request, by the client
    limits: Limits = field(default_factory=Limits)
    price: Price | None = None

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds < math.inf:
            raise UsageError(f"--timeout {self.timeout_seconds}: give a number of seconds above 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """What the dataset folder says about itself; it may change without building anything again."""

    title: str = ""  # "": the name of the build's folder
    license: str = ""
    consent: str = ""
    private: bool = False  # not to be handed on: license and consent may be missing
    date: str = ""  # "": none, so that the same rows give the same bytes
    split_by_user: str = ""  # e.g. "train=0.8,test=0.2"; "": all rows are `test`
