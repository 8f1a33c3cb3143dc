"""Train a planner for sampling: which rubrics to draw, so that on average they tell `chosen` from `rejected`.

First the planner and its scorer of criteria, as `prbench.training.planner` trains them, on rubrics. Then the planner
goes on with rubrics sampled inside the loss. A pair is as likely as it is under a rubric drawn by the planner's own
probabilities,

    -log mean_s sigmoid(margin under rubric s)        s = 1 .. loss_samples

where the draws are relaxed (binary concrete, Maddison et al. 2017, arXiv 1611.00712), so that gradients pass; the loss
on gold rubrics stays beside it. The card says what averaging 1, 4, 16 and 64 samples gives on held-out users.

It stays beside `planner`, from which it hardly differs: by a little it is ahead on the lab and as a reward of PPO.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from prbench.backends.encoders import load_encoder
from prbench.context.aspect_planner import AspectPlanner, PlannerWeights
from prbench.metrics.calibration import accuracy_of, calibrate_margins
from prbench.reward_models.planner import CriteriaScorer
from prbench.reward_models.rubric_chain import SAMPLES, SampledRubrics
from prbench.runs import Keys
from prbench.schema import Json
from prbench.specs import Count, NotNegative, Positive, Share
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data, pair_inputs
from prbench.training.folder import MethodConfig, ProgressCallback, Trained, checkpoint_in
from prbench.training.loop import fit, one_thread, rubric_loss
from prbench.training.planner import (
    HeldOutPairs,
    Planner,
    PlannerConfig,
    learn_planner,
    make_bank,
)

CHECKPOINT = "checkpoint_chain.pt"
REPORTED = (1, 4, 16, SAMPLES)  # numbers of samples whose accuracy the card gives
LEAST_UNIFORM = 1e-6  # a uniform is kept off 0 and 1: its log-odds must be finite


@dataclass(frozen=True, kw_only=True)
class RubricChainConfig(MethodConfig):
    """How to train. The planner itself is trained with its own defaults."""

    encoder: str = "minilm"
    posts: Count = 30  # of each profile, the newest
    loss_samples: Count = 8  # rubrics per pair and step
    temperature: Positive = 0.5  # of the relaxed draws; towards 0 they fall on 0 or 1
    rubric_weight: NotNegative = 1.0  # of the loss on gold rubrics
    epochs: Count = 6
    patience: Count = 3
    batch_size: Count = 256
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    dropout: Share = 0.3
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        encoder="minilm",
        posts=30,
        loss_samples=8,
        temperature=0.5,
        rubric_weight=1.0,
        epochs=6,
        patience=3,
        batch_size=256,
        learning_rate=2e-3,
        weight_decay=1e-2,
        dropout=0.3,
        seed=0,
    )


def sampled_loss(odds: Tensor, covered: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    """Return -log of the mean likelihood of the pairs over sampled rubrics.

    `odds` and `covered` are (pairs, aspects): log-odds that an aspect is in the rubric, and how much more of it
    `chosen` covers. `uniforms` are uniform, (samples, pairs, aspects).
    """
    rubrics = ((odds + torch.logit(uniforms)) / temperature).sigmoid()
    likelihood = F.logsigmoid((rubrics * covered).sum(-1))  # (samples, pairs)
    return (math.log(len(uniforms)) - likelihood.logsumexp(0)).mean()


def train_rubric_chain(
    data: TrainingData, config: RubricChainConfig, folder: Path, progress: ProgressCallback
) -> Trained:
    """Train into a folder that `--model rubric-chain:FOLDER` takes (and `planner:FOLDER` as well)."""
    check_training_data(data, needs=(PROFILES, RUBRICS))
    encoder = load_encoder(config.encoder)
    of_planner = PlannerConfig(encoder=config.encoder, posts=config.posts, seed=config.seed)
    learned = learn_planner(data, of_planner, encoder, folder, progress)
    scorer = CriteriaScorer(learned.criteria, encoder)
    bank = make_bank([example for example in data.train if example.rubric], encoder)
    texts = torch.from_numpy(encoder.encode([one.text for one in bank.aspects]))
    pairs, held_out = (
        HeldOutPairs.of(rows, bank, scorer, encoder, of_planner) for rows in (data.train, data.validation)
    )
    module = _as_module(learned.planner.weights, config.dropout)
    # (samples, pairs, aspects): after every epoch the same rubrics are drawn for held-out users
    fixed = torch.rand(SAMPLES, *held_out.covered.shape, generator=torch.Generator().manual_seed(config.seed))

    def loss(rows: Tensor) -> Tensor:
        cases = pairs.cases.take(rows)
        odds = module.logits(pairs.posts, texts, cases)
        joint = odds.mean(0)
        uniforms = torch.rand(config.loss_samples, *joint.shape).clamp(LEAST_UNIFORM, 1 - LEAST_UNIFORM)
        sampled = sampled_loss(joint, pairs.covered[rows] * cases.aspects.mask, uniforms, config.temperature)
        return sampled + config.rubric_weight * rubric_loss(odds, cases.wanted, cases.aspects.mask)

    def margins() -> Tensor:
        """The mean margin of each held-out pair over the rubrics that are drawn."""
        shares = (fixed < held_out.probabilities(module, texts)).double().mean(0)
        return (shares * held_out.covered).sum(1)

    before, checkpoint = accuracy_of(margins()), checkpoint_in(folder, config, data, CHECKPOINT)
    with one_thread():
        best = fit(module, len(pairs.covered), loss, margins, config, checkpoint, progress)
    thresholds = held_out.thresholds(module, texts)  # not those before sampling
    planner = replace(learned.planner, weights=module.weights(bank, of_planner.nearness, thresholds))
    planner.save(folder)
    predictor = AspectPlanner(planner.weights, planner.bank, encoder)
    averaging: dict[str, Json] = {}
    for samples in REPORTED:  # as the model will be used; the last, SAMPLES, is what the temperature is for
        model = SampledRubrics(predictor, scorer, samples=samples, seed=0)
        scored = model.score(pair_inputs(data.validation, posts=config.posts))
        scores = np.array([score.value for score in scored], dtype=np.float64)
        margins_when_used = scores[::2] - scores[1::2]
        averaging[str(samples)] = round(accuracy_of(margins_when_used), 4)
    averaging["all rubrics"] = round(accuracy_of(held_out.margins(module, texts)), 4)
    calibrated = calibrate_margins(margins_when_used, [example.user.id for example in data.validation])
    scale = np.array(learned.criteria.scale / calibrated.temperature, np.float32)
    replace(learned.criteria, scale=scale).save(folder)
    facts: dict[str, Json] = {
        "encoder": dict(encoder.identity),
        "parameters": sum(weight.numel() for weight in module.parameters()),
        **best.facts,
        "training_seconds": round(best.seconds + learned.facts["training_seconds"], 2),
        "validation_before_sampling": round(before, 4),
        "validation_by_samples": averaging,
        **calibrated.facts,
    }
    return Trained(spec=f"rubric-chain:{folder}", facts=facts)


def _as_module(weights: PlannerWeights, dropout: float) -> Planner:
    """Return a planner as a module again, in evaluation mode."""
    members, size, topics = weights.aspect_weight.shape
    module = Planner(size, topics, members, dropout).eval()
    learned = {name: torch.from_numpy(np.array(getattr(weights, name))) for name, _ in module.named_parameters()}
    module.load_state_dict(learned)
    return module
