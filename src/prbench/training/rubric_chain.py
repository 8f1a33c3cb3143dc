"""Train a planner for sampling: which rubrics to draw, so that on average they tell `chosen` from `rejected`.

First the planner and its scorer of criteria, as `prbench.training.planner` trains them, on rubrics. Then the planner
goes on with rubrics sampled inside the loss. A pair is as likely as it is under a rubric drawn by the planner's own
probabilities,

    -log mean_s sigmoid(margin under rubric s)        s = 1 .. loss_samples

where the draws are relaxed (binary concrete, Maddison et al. 2017, arXiv 1611.00712), so that gradients pass; the loss
on gold rubrics stays beside it. The card says what averaging 1, 4, 16 and 64 samples gives on held-out users.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from prbench.backends.encoders import load_encoder
from prbench.context.aspect_planner import AspectPlanner, PlannerWeights
from prbench.errors import UsageError
from prbench.reward_models.planner import CriteriaScorer
from prbench.reward_models.rubric_chain import SAMPLES, SampledRubrics
from prbench.runs import Checkpoint
from prbench.runs.manifest import Keys
from prbench.schema import Example, Json
from prbench.training.calibrate import accuracy_of, calibrate_margins
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data, pair_inputs
from prbench.training.folder import MethodConfig, ProgressCallback, Trained, checkpoint_in
from prbench.training.loop import BestEpoch, fit, one_thread
from prbench.training.planner import (
    HeldOutPairs,
    Planner,
    PlannerConfig,
    choose_thresholds,
    learn_planner,
    make_bank,
    rubric_loss,
)

CHECKPOINT = "checkpoint_chain.pt"
REPORTED = (1, 4, 16, SAMPLES)  # numbers of samples whose accuracy the card gives
LEAST_UNIFORM = 1e-6  # a uniform is kept off 0 and 1: its log-odds must be finite


@dataclass(frozen=True, kw_only=True)
class RubricChainConfig(MethodConfig):
    """How to train. The planner itself is trained with its own defaults."""

    encoder: str = "minilm"
    posts: int = 30  # of each profile, the newest
    loss_samples: int = 8  # rubrics per pair and step
    temperature: float = 0.5  # of the relaxed draws; towards 0 they fall on 0 or 1
    rubric_weight: float = 1.0  # of the loss on gold rubrics
    epochs: int = 6
    patience: int = 3
    batch_size: int = 256
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    dropout: float = 0.3
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

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        self.check_positive("posts", "loss_samples", "epochs", "patience", "batch_size")
        if self.temperature <= 0 or self.rubric_weight < 0 or not 0 <= self.dropout < 1:
            raise UsageError("temperature must be above 0, rubric_weight 0 or more, dropout from 0 to below 1.")


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
    module = _module(learned.planner.weights, config.dropout)
    best, before = _go_on(
        module, pairs, held_out, texts, config, checkpoint_in(folder, config, data, CHECKPOINT), progress
    )
    thresholds = choose_thresholds(*held_out.probabilities_and_truth(module, texts))  # not those before sampling
    planner = replace(learned.planner, weights=module.weights(bank, of_planner.nearness, thresholds))
    predictor = AspectPlanner(planner.weights, planner.bank, encoder)
    margins = {
        samples: _margins(SampledRubrics(predictor, scorer, samples=samples, seed=0), data.validation, config.posts)
        for samples in REPORTED
    }
    calibrated = calibrate_margins(margins[SAMPLES], [example.user.id for example in data.validation])
    planner.save(folder)
    scale = np.array(learned.criteria.scale / calibrated.temperature, np.float32)
    replace(learned.criteria, scale=scale).save(folder)
    averaging: dict[str, Json] = {str(samples): round(accuracy_of(found), 4) for samples, found in margins.items()}
    averaging["all rubrics"] = round(accuracy_of(held_out.margins(module, texts)), 4)
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


def _go_on(
    module: Planner,
    pairs: HeldOutPairs,
    held_out: HeldOutPairs,
    texts: Tensor,
    config: RubricChainConfig,
    checkpoint: Checkpoint,
    progress: ProgressCallback,
) -> tuple[BestEpoch, float]:
    """Train a planner further with rubrics sampled in the loss; also return its accuracy before that."""
    fixed = torch.rand(SAMPLES, *held_out.covered.shape, generator=torch.Generator().manual_seed(config.seed))

    def loss(rows: Tensor) -> Tensor:
        cases = pairs.cases.take(rows)
        odds = module.logits(pairs.posts, texts, cases)
        joint = odds.mean(0)
        uniforms = torch.rand(config.loss_samples, *joint.shape).clamp(LEAST_UNIFORM, 1 - LEAST_UNIFORM)
        sampled = sampled_loss(joint, pairs.covered[rows] * cases.aspects.mask, uniforms, config.temperature)
        return sampled + config.rubric_weight * rubric_loss(odds, cases.wanted, cases.aspects.mask)

    def evaluate() -> float:
        return accuracy_of(sampled_margins(module, held_out, texts, fixed))

    module.eval()
    before = evaluate()
    with one_thread():
        return fit(module, len(pairs.covered), loss, evaluate, config, checkpoint, progress), before


def sampled_margins(module: Planner, held_out: HeldOutPairs, texts: Tensor, uniforms: Tensor) -> NDArray[np.float64]:
    """Return the mean margin of each held-out pair over rubrics drawn by `uniforms`, (samples, pairs, aspects)."""
    with torch.no_grad():
        probabilities = module.logits(held_out.posts, texts, held_out.cases).mean(0).sigmoid()
        shares = (uniforms < probabilities).double().mean(0)
    margins: NDArray[np.float64] = (shares * held_out.covered).sum(1).numpy()
    return margins


def _module(weights: PlannerWeights, dropout: float) -> Planner:
    """Return the planner as a module again."""
    members, size, topics = weights.aspect_weight.shape
    module = Planner(size, topics, members, dropout)
    learned = {name for name, _ in module.named_parameters()}
    arrays = {field.name: getattr(weights, field.name) for field in fields(weights) if field.name in learned}
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
    return module


def _margins(model: SampledRubrics, examples: Sequence[Example], posts: int) -> NDArray[np.float64]:
    """Return score(chosen) - score(rejected), by the model as it will be used."""
    scores = np.array([score.value for score in model.score(pair_inputs(examples, posts=posts))], dtype=np.float64)
    margins: NDArray[np.float64] = scores[::2] - scores[1::2]
    return margins
