"""What pays the policy: any reward model of ours, or the lab's truth, with noise and failures where asked for.

`oracle` is the gold instrument, which knows what this user wants; it is a ceiling and no model under test. Any spec
may end in `+noise=SD`, which adds Gaussian noise, and in `+fail=SHARE`, which lets that share of the rewards fail;
both hang on the text and the seed alone, so that the same answer always gets the same.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import NormalDist
from typing import Protocol

from prbench.errors import UsageError
from prbench.evaluation.items import PreparedItem
from prbench.evaluation.score import score_rows
from prbench.judging import LabJudge
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.base import Loaded, PairJudge
from prbench.reward_models.scores import failed
from prbench.schema import Example, Json, Probe, Score, UserContext

ORACLE = "oracle"
_ENDING = re.compile(r"\+(noise|fail)=([0-9.eE-]+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One answer to be scored. A reward model sees question, user and response; the oracle reads the example."""

    example: Example
    user: UserContext  # what a reward model may be told of the user
    response: str


class Reward(Protocol):
    """Scores answers; a score without a value is a failure."""

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes the scores; goes into the run's id."""
        ...

    def score(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Return one score per candidate, in the same order."""
        ...


def load_reward(spec: str, settings: ModelSettings) -> Reward:
    """Build what the command line names, e.g. `head:lab-user`, `server:URL`, `oracle+noise=0.5`."""
    if ending := _ENDING.search(spec):
        inner = load_reward(spec[: ending.start()], settings)
        amount = _amount(spec, ending)
        if ending[1] == "noise":
            return NoisyReward(inner, deviation=amount, seed=settings.seed)
        return FailingReward(inner, share=amount, seed=settings.seed)
    if spec == ORACLE:
        return OracleReward(LabJudge())
    return ModelReward(load_reward_model(spec, settings))


def pays_by_truth(spec: str) -> bool:
    """Whether a spec names the oracle, noisy, failing or not: it reads nothing that a reward model is told."""
    while ending := _ENDING.search(spec):
        spec = spec[: ending.start()]
    return spec == ORACLE


class ModelReward:
    """A reward model under test, in this process or behind `server:URL`."""

    def __init__(self, loaded: Loaded) -> None:
        if isinstance(loaded.model, PairJudge):
            raise UsageError(
                f"{loaded.spec} only compares, and PPO needs a number for each answer. Use rating:… instead."
            )
        self._loaded = loaded
        self.identity: Mapping[str, Json] = {
            "spec": loaded.spec,
            "model": dict(loaded.identity),
            "template_hash": loaded.template_hash,
        }

    def score(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Return one score per candidate. Where a prompt is too long, posts are dropped and the answer never is."""
        prepared = [
            PreparedItem(example=each.example, probe=Probe.OWN, user=each.user, responses=(each.response,))
            for each in candidates
        ]
        return [score for row in score_rows(prepared, self._loaded) for score in row.scores]


class OracleReward:
    """The lab's gold: what this answer is really worth to this user."""

    def __init__(self, judge: LabJudge) -> None:
        self._judge = judge
        self.identity: Mapping[str, Json] = {"spec": ORACLE, "gold": dict(judge.identity)}

    def score(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Return the gold of every candidate."""
        values = self._judge.values([(each.example, each.response) for each in candidates])
        return [Score(value=value) for value in values]


class NoisyReward:
    """Adds Gaussian noise to another reward."""

    def __init__(self, inner: Reward, *, deviation: float, seed: int) -> None:
        self._inner, self._deviation, self._seed = inner, deviation, seed
        self.identity: Mapping[str, Json] = {"noise": deviation, "seed": seed, "of": dict(inner.identity)}

    def score(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Return the inner scores with noise that hangs on user, question and answer."""
        scores = self._inner.score(candidates)
        return [
            score if score.value is None else replace(score, value=score.value + self._noise(candidate))
            for score, candidate in zip(scores, candidates, strict=True)
        ]

    def _noise(self, candidate: Candidate) -> float:
        return self._deviation * NormalDist().inv_cdf(_fraction("noise", self._seed, candidate))


class FailingReward:
    """Lets a share of another reward's scores fail."""

    def __init__(self, inner: Reward, *, share: float, seed: int) -> None:
        if share > 1:
            raise UsageError(f"+fail={share:g}: give a share from 0 to 1.")
        self._inner, self._share, self._seed = inner, share, seed
        self.identity: Mapping[str, Json] = {"fail": share, "seed": seed, "of": dict(inner.identity)}

    def score(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Return the inner scores, with failures in place of some."""
        scores = self._inner.score(candidates)
        return [
            failed("injected failure") if _fraction("fail", self._seed, candidate) < self._share else score
            for score, candidate in zip(scores, candidates, strict=True)
        ]


def _fraction(what: str, seed: int, candidate: Candidate) -> float:
    """Return a number above 0 and below 1 that this answer always gets."""
    parts = (what, str(seed), candidate.example.user.id, candidate.example.question, candidate.response)
    digest = sha256("\x1f".join(parts).encode("utf-8", "backslashreplace")).digest()
    return (int.from_bytes(digest[:6], "big") + 0.5) / 2**48


def _amount(spec: str, ending: re.Match[str]) -> float:
    try:
        amount = float(ending[2])
    except ValueError:
        raise UsageError(f"{spec}: {ending[2]!r} is no number. Write e.g. +{ending[1]}=0.5.") from None
    if not 0 <= amount < math.inf:
        raise UsageError(f"{spec}: {ending[2]} is negative or not finite. Write e.g. +{ending[1]}=0.5.")
    return amount
