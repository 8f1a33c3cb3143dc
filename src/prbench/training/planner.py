"""Train a planner on gold rubrics: config, losses and loop (`prbench.context.aspect_planner` has the model).

First the scorer of criteria (`prbench.training.criteria`), then the planner: of the aspects that occur with a user's
questions, it learns which ones are in the user's rubrics (binary cross-entropy). The best epoch is the one whose
plans, through that scorer, prefer `chosen` most often for held-out users; the thresholds of the tags and one
temperature are chosen on the same users.

It stays because its plans can be read, and shown to any other model (`--context plan`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prbench.backends.encoders import Encoder, load_encoder
from prbench.context.aspect_planner import (
    SHARPNESS,
    BankAspect,
    PlannerFolder,
    PlannerWeights,
    candidates,
    log_odds,
)
from prbench.metrics.calibration import calibrate_margins
from prbench.reward_models.planner import CriteriaScorer, CriteriaWeights
from prbench.runs import Keys
from prbench.schema import Example, Json
from prbench.specs import Count, Share
from prbench.training.criteria import CriteriaConfig, train_criteria
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data
from prbench.training.folder import MethodConfig, ProgressCallback, Trained, checkpoint_in
from prbench.training.loop import (
    RaggedIndex,
    RowTensors,
    TextTable,
    fit,
    newest_posts,
    one_thread,
    rubric_loss,
    to_array,
)

PRECISE = (0.9, 0.75)  # precision of essential aspects, and of essential and important ones together
UNREACHABLE = 2.0  # a threshold that no probability meets
ASSUMED = 2.0  # users added to every share of a question, half of them wanting the aspect


@dataclass(frozen=True, kw_only=True)
class PlannerConfig(MethodConfig):
    """How to train a planner and its scorer. The defaults were chosen on the lab's validation split."""

    encoder: str = "minilm"
    posts: Count = 30  # of each profile, the newest
    topics: Count = 24
    members: Count = 4  # planners trained side by side; their log-odds are averaged
    nearness: float = 40.0  # how sharply the nearest known questions count for a new one
    epochs: Count = 20
    patience: Count = 8
    batch_size: Count = 128
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    dropout: Share = 0.3
    criteria_rank: Count = 32
    criteria_epochs: Count = 8
    criteria_learning_rate: float = 5e-3
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        encoder="minilm",
        posts=30,
        topics=24,
        members=4,
        nearness=40.0,
        epochs=20,
        patience=8,
        batch_size=128,
        learning_rate=1e-2,
        weight_decay=1e-2,
        dropout=0.3,
        criteria_rank=32,
        criteria_epochs=8,
        criteria_learning_rate=5e-3,
        seed=0,
    )


@dataclass(frozen=True)
class Cases(RowTensors):
    """Users with questions: posts as places in a table, aspects as places in the bank."""

    posts: RaggedIndex
    aspects: RaggedIndex  # those that belong to the questions
    wanted: Tensor  # (cases, most aspects): 1 for aspects in the user's rubrics
    prior: Tensor  # log-odds in the population


class Planner(nn.Module):
    """The members as one module; see `prbench.context.aspect_planner` for the formula."""

    def __init__(self, size: int, topics: int, members: int, dropout: float) -> None:
        super().__init__()
        reach = size**-0.5  # as torch's own linear layers begin
        self.post_weight = nn.Parameter(torch.empty(members, size, topics + 1).uniform_(-reach, reach))
        self.post_bias = nn.Parameter(torch.empty(members, 1, topics + 1).uniform_(-reach, reach))
        # A post and an aspect about the same thing begin in the same topic.
        self.aspect_weight = nn.Parameter(self.post_weight.detach()[..., :topics].clone())
        self.aspect_bias = nn.Parameter(torch.empty(members, 1, topics).uniform_(-reach, reach))
        self.mix = nn.Parameter(2 * torch.eye(topics).repeat(members, 1, 1))
        self.average = nn.Parameter(torch.zeros(members, 1, topics))
        self.scale = nn.Parameter(torch.full((members,), 1.5))
        self.offset = nn.Parameter(torch.full((members,), -1.0))
        self.prior = nn.Parameter(torch.full((members,), 0.5))
        self.dropout = nn.Dropout(dropout)

    def logits(self, posts: Tensor, bank: Tensor, cases: Cases) -> Tensor:
        """Return every member's log-odds: (members, cases, aspects), from embeddings of posts and of the bank."""
        about = self._topics(posts, self.post_weight, self.post_bias)[..., :-1]  # (m, texts, k)
        mass = (about[:, cases.posts.places] * cases.posts.mask[..., None]).sum(2)  # (m, cases, k)
        wants = self.average + torch.log1p(2 * mass) @ self.mix
        of_aspects = self._topics(bank, self.aspect_weight, self.aspect_bias)[:, cases.aspects.places]
        wanted = torch.einsum("mck,mcak->mca", wants, of_aspects)
        scale, offset, prior = (each[:, None, None] for each in (self.scale, self.offset, self.prior))
        logits: Tensor = offset + scale * wanted + prior * cases.prior
        return logits

    def _topics(self, texts: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        topics: Tensor = (SHARPNESS * (self.dropout(texts) @ weight + bias)).softmax(-1)
        return topics

    def weights(self, bank: "Bank", nearness: float, thresholds: Sequence[float]) -> PlannerWeights:
        """Return the arrays that planning needs."""
        return PlannerWeights(
            **{name: to_array(value) for name, value in self.named_parameters()},
            questions=bank.questions,
            shares=bank.shares,
            nearness=np.array(nearness, dtype=np.float32),
            thresholds=np.array(thresholds, dtype=np.float32),
        )


@dataclass(frozen=True)
class Bank:
    """All aspects of the training rubrics, and how often each is looked for with each question."""

    aspects: tuple[BankAspect, ...]
    questions: NDArray[np.float32]  # (questions, d)
    counts: NDArray[np.float64]  # (questions, aspects): rows that ask this and look for that
    asked: NDArray[np.float64]  # (questions, 1): rows that ask this
    place: dict[str, int]  # of a question
    column: dict[BankAspect, int]  # where each aspect stands

    @property
    def shares(self) -> NDArray[np.float32]:
        """How many of those who asked this look for that aspect; 0 where nobody does."""
        shares = np.where(self.counts > 0, (self.counts + ASSUMED / 2) / (self.asked + ASSUMED), 0.0)
        return shares.astype(np.float32)

    def without(self, rows: Sequence[Example]) -> Self:
        """Return the same without some of its rows: what would be known if their user had never asked."""
        counts, asked = self.counts.copy(), self.asked.copy()
        for example in rows:
            at = self.place[example.question]
            asked[at] -= 1
            counts[at, [self.column[one] for one in _rubric(example)]] -= 1
        return replace(self, counts=counts, asked=asked)


def make_bank(examples: Sequence[Example], encoder: Encoder) -> Bank:
    """Collect the aspects; one is the same as another if name and reason are."""
    aspects = {BankAspect(one.aspect, one.reason): None for example in examples for one in example.rubric}
    column = {aspect: at for at, aspect in enumerate(aspects)}
    place = {question: at for at, question in enumerate(dict.fromkeys(example.question for example in examples))}
    counts, asked = np.zeros((len(place), len(column))), np.zeros((len(place), 1))
    for example in examples:
        asked[place[example.question]] += 1
        counts[place[example.question], [column[one] for one in _rubric(example)]] += 1
    return Bank(tuple(aspects), encoder.encode(list(place)), counts, asked, place, column)


def train_planner(data: TrainingData, config: PlannerConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train scorer and planner into a folder that `--model planner:FOLDER` and `--planner FOLDER` take."""
    check_training_data(data, needs=(PROFILES, RUBRICS))
    encoder = load_encoder(config.encoder)
    learned = learn_planner(data, config, encoder, folder, progress)
    learned.planner.save(folder)
    learned.criteria.save(folder)
    facts = {"encoder": dict(encoder.identity), **learned.facts}
    return Trained(spec=f"planner:{folder}", facts=facts)


@dataclass(frozen=True, kw_only=True)
class LearnedPlanner:
    """A planner and its scorer, both of their best epoch."""

    planner: PlannerFolder
    criteria: CriteriaWeights
    facts: dict[str, Json]


def learn_planner(
    data: TrainingData, config: PlannerConfig, encoder: Encoder, folder: Path, progress: ProgressCallback
) -> LearnedPlanner:
    """Train both; killed and called again with the same folder, it goes on."""
    first = config.criteria_epochs
    progress(0, first + config.epochs, "embedding")
    criteria_config = CriteriaConfig(
        rank=config.criteria_rank,
        without_rivals=0.0,  # a plan holds all aspects that belong to the question
        epochs=config.criteria_epochs,
        learning_rate=config.criteria_learning_rate,
        seed=config.seed,
    )
    criteria, criteria_best = train_criteria(
        data, encoder, criteria_config, checkpoint_in(folder, config, data, "checkpoint_criteria.pt"), progress
    )
    bank = make_bank([example for example in data.train if example.rubric], encoder)
    texts = torch.from_numpy(encoder.encode([one.text for one in bank.aspects]))
    users, posts = user_cases(data.train, bank, encoder, config)
    held_out = HeldOutPairs.of(data.validation, bank, CriteriaScorer(criteria, encoder), encoder, config)
    torch.manual_seed(config.seed)
    module = Planner(texts.shape[1], config.topics, config.members, config.dropout)

    def loss(rows: Tensor) -> Tensor:
        cases = users.take(rows)
        return rubric_loss(module.logits(posts, texts, cases), cases.wanted, cases.aspects.mask)

    with one_thread():
        best = fit(
            module,
            len(users.wanted),
            loss,
            lambda: held_out.margins(module, texts),
            config,
            checkpoint_in(folder, config, data, "checkpoint_planner.pt"),
            lambda done, total, text: progress(first + done, first + total, text),
        )
        thresholds = held_out.thresholds(module, texts)
        calibrated = calibrate_margins(held_out.margins(module, texts), [one.user.id for one in data.validation])
    return LearnedPlanner(
        planner=PlannerFolder(
            weights=module.weights(bank, config.nearness, thresholds),
            bank=bank.aspects,
            # A folder is named so that it is found from anywhere.
            encoder=str(Path(config.encoder).resolve()) if Path(config.encoder).is_dir() else config.encoder,
        ),
        criteria=replace(criteria, scale=np.array(criteria.scale / calibrated.temperature, dtype=np.float32)),
        facts={
            "parameters": sum(weight.numel() for weight in module.parameters()),
            "aspects_in_bank": len(bank.aspects),
            **best.facts,
            "training_seconds": round(best.seconds + criteria_best.seconds, 2),
            "criteria_accuracy_with_gold_rubrics": round(criteria_best.accuracy, 4),
            "thresholds": [round(threshold, 4) for threshold in thresholds],
            **calibrated.facts,
        },
    )


@dataclass(frozen=True)
class HeldOutPairs:
    """Pairs of held-out users, with what the scorer sees in their responses."""

    cases: Cases
    posts: Tensor  # embeddings
    covered: Tensor  # (pairs, most aspects): how much more of each aspect `chosen` covers, in units of the score

    @classmethod
    def of(
        cls, examples: Sequence[Example], bank: Bank, scorer: CriteriaScorer, encoder: Encoder, config: PlannerConfig
    ) -> Self:
        """Predict from the bank alone, as for any new question; rubrics only say what would have been right."""
        questions = encoder.encode([example.question for example in examples]).astype(np.float64)
        shares = bank.shares
        found = [candidates(question, bank.questions, shares, config.nearness) for question in questions]
        cases, posts = _cases(
            [newest_posts(example, config.posts) for example in examples],
            [[int(place) for place in places] for places, _ in found],
            [set(_rubric(example)) for example in examples],
            [prior.tolist() for _, prior in found],
            bank,
            encoder,
        )
        texts = [[bank.aspects[place].text for place in places] for places, _ in found]
        good = scorer.covered(texts, [example.chosen for example in examples])
        bad = scorer.covered(texts, [example.rejected for example in examples])
        covered = torch.zeros_like(cases.aspects.mask)
        for row, (one, other) in enumerate(zip(good, bad, strict=True)):
            covered[row, : len(one)] = torch.from_numpy(scorer.scale * (one - other))
        return cls(cases, posts, covered)

    @torch.no_grad()
    def probabilities(self, module: Planner, texts: Tensor) -> Tensor:
        """Return how likely the module finds it that each aspect is in the user's rubric: (pairs, aspects)."""
        return module.logits(self.posts, texts, self.cases).mean(0).sigmoid()

    def margins(self, module: Planner, texts: Tensor) -> Tensor:
        """Return score(chosen) - score(rejected) of each pair, by the plans of the module."""
        return (self.probabilities(module, texts) * self.covered).sum(1)

    def thresholds(self, module: Planner, texts: Tensor) -> tuple[float, float, float]:
        """Return the least probabilities by which aspects are tagged."""
        there = self.cases.aspects.mask > 0
        return choose_thresholds(self.probabilities(module, texts)[there], self.cases.wanted[there])


def choose_thresholds(probabilities: Tensor, wanted: Tensor) -> tuple[float, float, float]:
    """Return the least probability of essential, important and optional aspects, from held-out users.

    Essential: nine in ten of those at or above it are wanted; important: three in four; optional: the plan that holds
    all of them has the best balance of precision and recall (F1). One that cannot be had is out of reach.
    """
    order = probabilities.argsort(descending=True, stable=True)
    hits, planned = wanted[order].cumsum(0), torch.arange(1, len(order) + 1)
    precision, f1 = hits / planned, 2 * hits / (planned + wanted.sum().clamp(min=1))
    ranked = probabilities[order]
    # Half-way to the next one below, so that what is as clear as these gets the same tag.
    below = (ranked + torch.cat([ranked[1:], ranked[-1:]])) / 2
    optional = float(below[int(f1.argmax())])
    found = []
    for least in PRECISE:
        precise = torch.nonzero(precision >= least).flatten()
        found.append(max(optional, float(below[int(precise[-1])])) if len(precise) else UNREACHABLE)
    return found[0], found[1], optional


def user_cases(
    examples: Sequence[Example], bank: Bank, encoder: Encoder, config: PlannerConfig
) -> tuple[Cases, Tensor]:
    """Return one case per training user, with the aspects that belong to any of the user's questions.

    How common they are is told by the rows of others alone: of a new user's question nothing else is known either.
    """
    rows: dict[str, list[Example]] = {}
    for example in examples:
        if example.rubric:
            rows.setdefault(example.user.id, []).append(example)
    aspects, wanted, prior = [], [], []
    for own in rows.values():
        others = bank.without(own)
        found: dict[int, float] = {}
        for example in own:
            found.update(_belonging(example, bank, others, config.nearness))
        aspects.append(list(found))
        prior.append(list(found.values()))
        wanted.append({one for example in own for one in _rubric(example)})
    posts = [newest_posts(own[0], config.posts) for own in rows.values()]
    return _cases(posts, aspects, wanted, prior, bank, encoder)


def _belonging(example: Example, bank: Bank, others: Bank, nearness: float) -> dict[int, float]:
    """Return the aspects that belong to a question, with their log-odds among others.

    Where nobody else asked it, they are those of near questions, and the row's own, as common as those are.
    """
    at = bank.place[example.question]
    own = [bank.column[one] for one in _rubric(example)]
    if others.asked[at] > 0:
        shares = (others.counts[at] + ASSUMED / 2) / (others.asked[at] + ASSUMED)
        places = np.flatnonzero(bank.counts[at])
        return dict(zip(places.tolist(), log_odds(shares[places]).tolist(), strict=True))
    elsewhere = others.asked[:, 0] > 0
    if not elsewhere.any():
        return dict.fromkeys(own, 0.0)
    question = bank.questions[at].astype(np.float64)
    places, odds = candidates(question, bank.questions[elsewhere], others.shares[elsewhere], nearness)
    return dict.fromkeys(own, float(odds.mean())) | dict(zip(places.tolist(), odds.tolist(), strict=True))


def _cases(
    posts: Sequence[Sequence[str]],
    aspects: Sequence[Sequence[int]],
    wanted: Sequence[set[BankAspect]],
    prior: Sequence[Sequence[float]],
    bank: Bank,
    encoder: Encoder,
) -> tuple[Cases, Tensor]:
    table = TextTable()
    most = max(map(len, aspects), default=0) or 1
    padded = [[*own, *[0] * (most - len(own))] for own in aspects]
    mask = [[1.0] * len(own) + [0.0] * (most - len(own)) for own in aspects]
    is_wanted = [[float(bank.aspects[at] in mine) for at in own] for own, mine in zip(padded, wanted, strict=True)]
    cases = Cases(
        posts=table.index(posts),
        aspects=RaggedIndex(torch.tensor(padded), torch.tensor(mask)),
        wanted=torch.tensor(is_wanted),
        prior=torch.tensor([[*own, *[0.0] * (most - len(own))] for own in prior]),
    )
    return cases, table.vectors(encoder)


def _rubric(example: Example) -> tuple[BankAspect, ...]:
    """Return the aspects of a rubric, each once, in their order; a set has another order in every process."""
    return tuple(dict.fromkeys(BankAspect(one.aspect, one.reason) for one in example.rubric))
