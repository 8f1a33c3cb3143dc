"""`rubric-chain:FOLDER`: sample rubrics from a trained planner, score the response against each, take the mean.

A planner says how likely this user is to look for each aspect that belongs to the question. A sample is a rubric: each
aspect is in it or not, by a coin of that probability; those that are not in it compete for sentences at weight 0. The
mean over samples tends to the score under all rubrics that the posts allow. An aspect's coins are spread evenly over
the samples (a van der Corput sequence, shifted at random): of 64 coins of probability 0.6, 38 or 39 fall on one side,
where free coins would miss by 4 on average, more than people about whom nothing is known differ. The coins depend on
seed, posts and question alone, so all responses meet the same rubrics, in any batch; the first 4 of 16 samples are
those of 4.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import load_encoder
from prbench.context.aspect_planner import AspectPlanner, PredictedAspect, load_aspect_planner, read_planner
from prbench.reward_models.criteria import CriteriaScorer, Criterion, load_criteria
from prbench.schema import Json, RewardInput, Score

_BITS = 32  # of a coin
SAMPLES = 64  # unless said otherwise; more cost next to nothing, as coverage is computed once


def load_sampled_rubrics(folder: Path, *, samples: int, seed: int) -> "SampledRubrics":
    """Read a folder that `prbench train --method rubric-chain` (or `planner`) wrote."""
    planner = load_aspect_planner(folder)
    scorer = CriteriaScorer(load_criteria(folder), load_encoder(read_planner(folder).encoder))
    return SampledRubrics(planner, scorer, samples=samples, seed=seed)


class SampledRubrics:
    """Scores responses against rubrics that are sampled from a planner."""

    def __init__(self, planner: AspectPlanner, scorer: CriteriaScorer, *, samples: int, seed: int) -> None:
        self._planner = planner
        self._scorer = scorer
        self._samples = samples
        self._seed = seed
        sampling: Mapping[str, Json] = {"samples": samples, "seed": seed, "sampling_rule": 2}
        self.identity: Mapping[str, Json] = {**planner.identity, **scorer.identity, **sampling}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
        asked = list(dict.fromkeys((each.user, each.question) for each in inputs))
        plans = self._planner.predict([user.segments for user, _ in asked], [each for _, each in asked])
        drawn = {one: self._criteria(plan, one[0].segments, one[1]) for one, plan in zip(asked, plans, strict=True)}
        scores = self._scorer.score(
            [drawn[each.user, each.question] for each in inputs], [each.response for each in inputs]
        )
        return [Score(value=score) for score in scores]

    def _criteria(self, plan: Sequence[PredictedAspect], posts: Sequence[str], question: str) -> list[Criterion]:
        """Return the aspects with the share of samples that hold each: a score is linear in the weights.

        So scoring once with these weights is the mean of the scores under the single rubrics.
        """
        ordered = sorted(plan, key=lambda each: each.aspect.text)  # the coin of an aspect stays its own
        rubrics = draw([each.probability for each in ordered], posts, question, self._samples, self._seed)
        return [
            Criterion(each.aspect.text, float(share))
            for each, share in zip(ordered, rubrics.mean(axis=0), strict=True)
        ]


def draw(
    probabilities: Sequence[float], posts: Sequence[str], question: str, samples: int, seed: int
) -> NDArray[np.float64]:
    """Return rubrics as (samples, aspects) of 0 and 1; the coins depend on seed, posts and question."""
    key = sha256("\0".join([str(seed), question, *sorted(posts)]).encode("utf-8", "surrogatepass")).digest()
    dice = np.random.default_rng(int.from_bytes(key[:16], "big"))
    masks = dice.integers(0, 1 << _BITS, len(probabilities), dtype=np.uint64)
    uniforms = (_reversed_bits(samples)[:, None] ^ masks[None, :]) / 2.0**_BITS
    rubrics: NDArray[np.float64] = (uniforms < np.asarray(probabilities)).astype(np.float64)
    return rubrics


def _reversed_bits(count: int) -> NDArray[np.uint64]:
    """Return the numbers from 0 on, their bits in reverse: any first part of them is spread evenly."""
    numbers, found = np.arange(count, dtype=np.uint64), np.zeros(count, dtype=np.uint64)
    for bit in range(_BITS):
        found |= ((numbers >> np.uint64(bit)) & np.uint64(1)) << np.uint64(_BITS - 1 - bit)
    return found
