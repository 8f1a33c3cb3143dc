"""Train a summariser, and the reward model that reads its summaries (formulas: `prbench.reward_models.summaries`).

The bank of statements comes from the training rubrics (`prbench.training.statements`). Then four losses at once:

    pairs      -log sigmoid(margin) with the summary that the posts give             (Bradley-Terry)
    truth      -log sigmoid(margin) with the summary that the user's rubrics give
    holds      cross-entropy: which statements hold for the user, by all of the user's rubrics
    reads      cross-entropy: which statement of the bank an aspect of a rubric says, by name, reason or both

Refinement by best-of-n (expert iteration): for every training user, sample n summaries from the summariser's own
shares, keep the one under which the reward model finds the user's pairs most likely, and train the summariser on the
winners. A round that does not help held-out users is undone; the card says what each round gave.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from prbench.backends.encoders import Encoder, load_encoder
from prbench.backends.llm import load_llm
from prbench.context.aspect_planner import SHARPNESS
from prbench.errors import UsageError
from prbench.reward_models.summaries import (
    SUMMARIES,
    BankSummariser,
    LLMSummariser,
    Posts,
    Summariser,
    Summary,
    SummaryCache,
    SummaryWeights,
    as_line,
)
from prbench.runs import Checkpoint
from prbench.runs.files import write_text
from prbench.runs.manifest import Keys
from prbench.schema import Example, Json
from prbench.training.calibrate import calibrate_margins
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data
from prbench.training.folder import Progress, Trained, checkpoint_in
from prbench.training.loop import BestEpoch, LoopConfig, fit, one_thread, seeded
from prbench.training.rows import EmbeddingTables, HeadRows, RaggedIndex, head_rows, mean_of, sum_of
from prbench.training.statements import StatementBank, make_statements

READS_WEIGHT = 0.3
WRITTEN_TOGETHER = 32  # users that a chat model is asked about before the next are


@dataclass(frozen=True, kw_only=True)
class SummaryConfig:
    """How to train. The defaults were chosen on the lab's validation split."""

    encoder: str = "minilm"
    summariser: str = "bank"  # or a chat model, e.g. openai:<model>@<base url>
    statements: int = 0  # of the bank; 0: as many as are most distinct
    most: int = 6  # statements of a summary
    least: float = 0.1  # statements that hold less surely are left out
    posts: int = 30  # of each profile, the newest
    rounds: int = 2  # of best-of-n refinement; a chat model is not refined
    samples: int = 16  # summaries per user and round
    epochs: int = 12
    patience: int = 5
    batch_size: int = 256
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    dropout: float = 0.3
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        encoder="minilm",
        summariser="bank",
        statements=0,
        most=6,
        least=0.1,
        posts=30,
        rounds=2,
        samples=16,
        epochs=12,
        patience=5,
        batch_size=256,
        learning_rate=1e-2,
        weight_decay=1e-2,
        dropout=0.3,
        seed=0,
    )

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        for name in ("most", "posts", "samples", "epochs", "patience", "batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)} trains nothing. Give a whole number above 0.")
        if min(self.statements, self.rounds) < 0 or not 0 <= self.least < 1 or not 0 <= self.dropout < 1:
            raise UsageError("statements and rounds must be 0 or more, least and dropout from 0 to below 1.")


class SummaryModel(nn.Module):
    """Summariser and reward model as one module."""

    def __init__(self, size: int, bank: int, dropout: float) -> None:
        super().__init__()
        self.common = nn.Linear(size, bank + 1)  # posts, sentences and statements about one thing begin alike
        self.posts, self.sentences = nn.Linear(size, bank + 1), nn.Linear(size, bank + 1)
        self.statements = nn.Linear(size, bank)
        for part in (self.posts, self.sentences, self.statements):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)
        self.mix = nn.Parameter(2 * torch.eye(bank))
        self.average = nn.Parameter(torch.full((bank,), -1.0))
        self.scale = nn.Parameter(torch.tensor(4.0))
        self.dropout = nn.Dropout(dropout)

    def raw(self, part: nn.Linear, table: Tensor) -> Tensor:
        """Return what texts are about, before the softmax."""
        return SHARPNESS * F.linear(self.dropout(table), *self.arrays(part))

    def arrays(self, part: nn.Linear) -> tuple[Tensor, Tensor]:
        """Return weight and bias of one reader: what all have in common, and its own."""
        size = part.out_features
        return self.common.weight[:size] + part.weight, self.common.bias[:size] + part.bias

    def odds(self, posts: Tensor, bags: RaggedIndex) -> Tensor:
        """Return the log-odds that each statement holds: (rows, bank)."""
        about = self.raw(self.posts, posts).softmax(-1)[:, :-1]
        return self.average + torch.log1p(2 * sum_of(about, bags)) @ self.mix

    def differs(self, others: Tensor, rows: HeadRows) -> Tensor:
        """Return how much more `chosen` is about each statement than `rejected`: (rows, bank)."""
        about = self.raw(self.sentences, others).softmax(-1)[:, :-1].contiguous()
        return mean_of(about, rows.chosen) - mean_of(about, rows.rejected)

    def says(self, statements: Tensor) -> Tensor:
        """Return what statements are about: (statements, bank)."""
        return self.raw(self.statements, statements).softmax(-1)

    def weights(self, config: SummaryConfig, temperature: float) -> SummaryWeights:
        """Return the arrays that scoring needs."""
        read: dict[str, Tensor] = {"mix": self.mix, "average": self.average, "scale": self.scale / temperature}
        for name, part in (("post", self.posts), ("sentence", self.sentences), ("statement", self.statements)):
            weight, bias = self.arrays(part)
            read |= {f"{name}_weight": weight.T, f"{name}_bias": bias}
        arrays = {name: value.detach().numpy().astype(np.float32).copy() for name, value in read.items()}
        limits = {"least": np.array(config.least, np.float32), "most": np.array(config.most, np.float32)}
        return SummaryWeights(**arrays, **limits)


def preference_loss(margin: Tensor) -> Tensor:
    """Return the Bradley-Terry loss, -log sigmoid(margin), averaged (Bradley and Terry 1952)."""
    return F.softplus(-margin).mean()


def holds_loss(odds: Tensor, labels: Tensor, sure: Tensor) -> Tensor:
    """Return the binary cross-entropy, each label by how sure it is."""
    each = F.binary_cross_entropy_with_logits(odds, labels, reduction="none")
    return (each * sure).sum() / sure.sum().clamp(min=1e-9)


def shorten(holds: Tensor, most: int, least: float) -> Tensor:
    """Return shares as they stand in a summary: rounded, only the `most` surest, and none below `least`."""
    percent = torch.round(100 * holds)  # whole numbers: 0.1 is not the same in every precision
    rounded = percent / 100
    order = percent.argsort(dim=1, descending=True, stable=True)
    rank = torch.zeros_like(order).scatter_(1, order, torch.arange(holds.shape[1]).expand_as(order))
    is_kept = (rank < most) & ((percent >= round(100 * least)) | (rank == 0))
    return rounded * is_kept


def best_of(samples: Tensor, differs: Tensor, users: Tensor, scale: Tensor) -> Tensor:
    """Return for each user the sample under which the user's pairs are most likely: (users, bank).

    `samples` is (n, users, bank), `differs` (rows, bank), `users` (rows,) the user of each row. The first of equal
    samples wins.
    """
    margins = scale * (samples[:, users] * differs).sum(-1)  # (n, rows)
    likelihood = torch.zeros(samples.shape[:2]).index_add_(1, users, F.logsigmoid(margins))
    winner = likelihood.argmax(0)
    return samples[winner, torch.arange(samples.shape[1])]


@dataclass(frozen=True)
class _Split:
    """Rows of one split; `written` points to what a chat model stated, where one sums up."""

    rows: HeadRows
    tables: EmbeddingTables
    written: RaggedIndex | None
    statements: Tensor  # embeddings that `written` points into; without a chat model, those of the bank


@dataclass(frozen=True)
class _Truth:
    """What the training rubrics say."""

    labels: Tensor  # (rows, bank)
    sure: Tensor
    aspects: Tensor  # (texts, d): names, reasons and both
    groups: Tensor  # (texts,): which statement each of them says
    users: Tensor  # (rows,): the user of each row, counted from 0


def train_summary(data: TrainingData, config: SummaryConfig, folder: Path, say: Progress) -> Trained:
    """Train into a folder that `--model summary:FOLDER` takes."""
    check_training_data(data, needs=(PROFILES, RUBRICS))
    encoder = load_encoder(config.encoder)
    say(0, config.epochs, "embedding")
    bank = make_statements([example for example in data.train if example.rubric], encoder, config.statements)
    writer = None if config.summariser == "bank" else LLMSummariser(load_llm(config.summariser, seed=config.seed))
    written = _write_once(_users(data, config.posts), writer, folder / SUMMARIES, say) if writer else {}
    train, held_out = (_split(rows, bank, written, encoder, config.posts) for rows in (data.train, data.validation))
    truth = _truth(data.train, bank, encoder)
    seeded(config.seed)
    model = SummaryModel(train.statements.shape[1], len(bank.statements), config.dropout)

    def loss(numbers: Tensor) -> Tensor:
        return _loss(model, train, truth, numbers)

    def evaluate() -> float:
        return _accuracy(_margins(model, held_out, config))

    with one_thread():
        best = fit(model, len(train.rows), loss, evaluate, _loop(config), checkpoint_in(folder, config, data), say)

    def checkpoint(name: str) -> Checkpoint:
        return checkpoint_in(folder, config, data, name)

    with one_thread():
        rounds = [] if writer else _refine(model, train, held_out, truth, config, checkpoint, say)
        margins = _margins(model, held_out, config).double().numpy()
    calibrated = calibrate_margins(margins, [example.user.id for example in data.validation])
    weights = model.weights(config, calibrated.temperature)
    weights.save(folder, bank.statements, config.summariser)
    own = writer or BankSummariser(weights, bank.statements, encoder)
    if not writer:
        _write_summaries(folder / SUMMARIES, own, _users(data, config.posts))
    spec = f"summary:{folder}" + ("" if config.encoder == "minilm" else f"?encoder={config.encoder}")
    facts: dict[str, Json] = {
        "encoder": dict(encoder.identity),
        "summariser": own.name,
        "statements": len(bank.statements),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        **best.facts,
        "validation_accuracy": round(_accuracy(torch.from_numpy(margins)), 4),  # after refinement
        "refinement": rounds,
        **calibrated.facts,
    }
    return Trained(spec=spec, facts=facts)


def _loss(model: SummaryModel, train: _Split, truth: _Truth, numbers: Tensor) -> Tensor:
    rows, labels = train.rows.take(numbers), truth.labels[numbers]
    odds = model.odds(train.tables.posts, rows.posts)
    differs = model.differs(train.tables.others, rows)
    wants = (
        odds.sigmoid() if train.written is None else sum_of(model.says(train.statements), train.written.take(numbers))
    )
    pairs = preference_loss(model.scale * (wants * differs).sum(-1))
    by_truth = preference_loss(model.scale * (labels * differs).sum(-1))
    reads = F.cross_entropy(model.raw(model.statements, truth.aspects), truth.groups)
    return pairs + by_truth + holds_loss(odds, labels, truth.sure[numbers]) + READS_WEIGHT * reads


def _margins(model: SummaryModel, split: _Split, config: SummaryConfig) -> Tensor:
    """Return score(chosen) - score(rejected) by the summaries as they stand in a file."""
    with torch.no_grad():
        says = model.says(split.statements)
        if split.written is None:
            holds = model.odds(split.tables.posts, split.rows.posts).sigmoid()
            wants = shorten(holds, config.most, config.least) @ says
        else:
            wants = sum_of(says, split.written)
        margins: Tensor = model.scale * (wants * model.differs(split.tables.others, split.rows)).sum(-1)
    return margins


def _refine(
    model: SummaryModel,
    train: _Split,
    held_out: _Split,
    truth: _Truth,
    config: SummaryConfig,
    checkpoint: Callable[[str], Checkpoint],
    say: Progress,
) -> list[dict[str, Json]]:
    """Run the rounds of best-of-n, undo those that do not help, and return what each gave on held-out users."""
    report: list[dict[str, Json]] = []
    for number in range(1, config.rounds + 1):
        before = {name: value.detach().clone() for name, value in model.state_dict().items()}
        accuracy = _accuracy(_margins(model, held_out, config))
        winners, gain = _winners(model, train, truth, config, number)
        best = _learn(model, train, held_out, winners, config, checkpoint(f"checkpoint_round_{number}.pt"), say)
        is_kept = best.accuracy > accuracy
        if not is_kept:
            model.load_state_dict(before)
        report.append(
            {
                "round": number,
                "validation_before": round(accuracy, 4),
                "validation_after": round(best.accuracy, 4),
                "log_likelihood_gain_of_winners": round(gain, 4),
                "kept": is_kept,
            }
        )
    return report


def _learn(
    model: SummaryModel,
    train: _Split,
    held_out: _Split,
    winners: Tensor,
    config: SummaryConfig,
    checkpoint: Checkpoint,
    say: Progress,
) -> BestEpoch:
    """Train the summariser on the winning summaries; the reward model stays as it is."""
    learning = {id(weight) for weight in (*model.posts.parameters(), model.mix, model.average)}
    for weight in model.parameters():
        weight.requires_grad_(id(weight) in learning)

    def loss(numbers: Tensor) -> Tensor:
        odds = model.odds(train.tables.posts, train.rows.posts.take(numbers))
        return holds_loss(odds, winners[numbers], torch.ones_like(odds))

    def evaluate() -> float:
        return _accuracy(_margins(model, held_out, config))

    best = fit(model, len(train.rows), loss, evaluate, _loop(config), checkpoint, say)
    for weight in model.parameters():
        weight.requires_grad_(True)
    return best


def _winners(
    model: SummaryModel, train: _Split, truth: _Truth, config: SummaryConfig, number: int
) -> tuple[Tensor, float]:
    """Return the best of n sampled summaries of each row's user, and what it gains over the mean sample."""
    model.eval()
    with torch.no_grad():
        holds = model.odds(train.tables.posts, train.rows.posts).sigmoid()
        count = int(truth.users.max()) + 1
        of_user = torch.zeros(count, holds.shape[1])
        of_user[truth.users] = holds
        generator = torch.Generator().manual_seed(1_000_003 * number + config.seed)
        samples = (torch.rand(config.samples, *of_user.shape, generator=generator) < of_user).float()
        differs = model.differs(train.tables.others, train.rows)
        winners = best_of(samples, differs, truth.users, model.scale)[truth.users]
        won = F.logsigmoid(model.scale * (winners * differs).sum(-1)).mean()
        mean = F.logsigmoid(model.scale * (samples[:, truth.users] * differs).sum(-1)).mean()
    return winners, float(won - mean)


def _split(
    examples: Sequence[Example], bank: StatementBank, written: dict[Posts, Summary], encoder: Encoder, posts: int
) -> _Split:
    rows, tables = head_rows(examples, encoder, posts=posts)
    if not written:
        return _Split(rows, tables, None, torch.from_numpy(encoder.encode(bank.statements)))
    stated = [[one.text for one in written[_posts(example, posts)].statements] for example in examples]
    place = {text: index for index, text in enumerate(dict.fromkeys(text for group in stated for text in group))}
    most = max(map(len, stated)) or 1
    places, mask = torch.zeros(len(stated), most, dtype=torch.long), torch.zeros(len(stated), most)
    for row, group in enumerate(stated):
        places[row, : len(group)] = torch.tensor([place[text] for text in group], dtype=torch.long)
        mask[row, : len(group)] = 1.0
    return _Split(rows, tables, RaggedIndex(places, mask), torch.from_numpy(encoder.encode(list(place) or [""])))


def _truth(examples: Sequence[Example], bank: StatementBank, encoder: Encoder) -> _Truth:
    labels, sure = bank.labels(examples)
    said: dict[str, int] = {}
    for example in examples:
        for one in example.rubric:
            whole = f"{one.aspect}. {one.reason}".strip()
            said |= {text: bank.group_of[whole] for text in (whole, one.aspect, one.reason) if text}
    number = {user: index for index, user in enumerate(dict.fromkeys(example.user.id for example in examples))}
    return _Truth(
        labels=torch.from_numpy(labels).float(),
        sure=torch.from_numpy(sure).float(),
        aspects=torch.from_numpy(encoder.encode(list(said))),
        groups=torch.tensor(list(said.values())),
        users=torch.tensor([number[example.user.id] for example in examples]),
    )


def _posts(example: Example, posts: int) -> Posts:
    """Return the newest posts, newest first, as a context shows them."""
    return tuple(post.text.strip() for post in example.user.profile[::-1][:posts])


def _users(data: TrainingData, posts: int) -> list[Posts]:
    """Return the posts of every user who has any."""
    every = dict.fromkeys(_posts(example, posts) for example in (*data.train, *data.validation))
    return [user for user in every if user]


def _write_once(users: Sequence[Posts], writer: Summariser, path: Path, say: Progress) -> dict[Posts, Summary]:
    """Let a chat model sum up every user; each summary is on disk at once, so a kill costs at most a few."""
    shelf = SummaryCache(writer.name, [], path)
    for start in range(0, len(users), WRITTEN_TOGETHER):
        new = [user for user in users[start : start + WRITTEN_TOGETHER] if shelf.find(user) is None]
        shelf.add(dict(zip(new, writer.summarize(new), strict=True)))
        say(start, len(users), "summing users up")
    found = {user: shelf.find(user) or Summary() for user in users}
    if not any(summary.statements for summary in found.values()):
        raise UsageError(f"{writer.name}: no reply holds a statement. Choose another summariser.")
    return {**found, (): Summary()}


def _write_summaries(path: Path, summariser: Summariser, users: Sequence[Posts]) -> None:
    summaries = zip(users, summariser.summarize(users), strict=True)
    write_text(path, "".join(as_line(user, one, summariser.name) for user, one in summaries))


def _accuracy(margins: Tensor) -> float:
    return float(((margins > 0).double() + 0.5 * (margins == 0).double()).mean())


def _loop(config: SummaryConfig) -> LoopConfig:
    return LoopConfig(
        epochs=config.epochs,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        patience=config.patience,
        batch_size=config.batch_size,
        seed=config.seed,
    )
