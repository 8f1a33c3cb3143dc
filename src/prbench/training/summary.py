"""Train a summarizer, and the reward model that reads its summaries (formulas: `prbench.reward_models.summaries`).

First the bank: a few general wants, each stated in the words of one aspect of the training rubrics. Two aspects belong
together if the same users look for both: the correlation over users, drawn towards the nearness of their texts where
few users tell. What texts owe to their question is taken out first; else all aspects of cooking would be one want.
Groups come from average linkage, in the number that makes them most distinct (silhouette). Then four losses at once:

    pairs      -log sigmoid(margin) with the summary that the posts give             (Bradley-Terry)
    truth      -log sigmoid(margin) with the summary that the user's rubrics give
    holds      cross-entropy: which statements hold for the user, by all of the user's rubrics
    reads      cross-entropy: which statement of the bank an aspect of a rubric says, by name, reason or both

Refinement by best-of-n (expert iteration): for every training user, sample n summaries from the summarizer's own
shares, keep the one under which the reward model finds the user's pairs most likely, and train the summarizer on the
winners. A round that does not help held-out users is undone; the card says what each round gave.

It stays because people can read and edit what such a model knows of them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from prbench.backends.encoders import Encoder, load_encoder
from prbench.backends.llm import load_llm
from prbench.context.aspect_planner import SHARPNESS
from prbench.errors import UsageError
from prbench.metrics.calibration import accuracy_of, calibrate_margins
from prbench.metrics.estimate import FloatArray
from prbench.reward_models.summaries import (
    SUMMARIES,
    BankSummarizer,
    LLMSummarizer,
    Posts,
    Summary,
    SummaryCache,
    SummaryWeights,
    as_line,
)
from prbench.runs import Checkpoint, Keys
from prbench.runs.files import write_text
from prbench.schema import Example, Json
from prbench.specs import Count, Share, Whole
from prbench.training.data import PROFILES, RUBRICS, TrainingData, check_training_data
from prbench.training.folder import MethodConfig, ProgressCallback, Trained, checkpoint_in, spec_with_encoder
from prbench.training.loop import (
    EmbeddingTables,
    HeadRows,
    RaggedIndex,
    TextTable,
    aspect_texts,
    aspects_by_question,
    copy_state,
    fit,
    head_rows,
    mean_of,
    one_thread,
    preference_loss,
    sum_of,
    to_array,
)

MOST_GROUPS = 16
MOST_ASPECTS = 2000  # that are grouped by comparing all with all; the others join the nearest
ASSUMED_USERS = 20.0  # users that the nearness of two texts counts for
UNSEEN = 0.2  # how much it tells that nobody ever asked a user about a want
READS_WEIGHT = 0.3
WRITTEN_TOGETHER = 32  # users that a chat model is asked about before the next are


@dataclass(frozen=True, kw_only=True)
class SummaryConfig(MethodConfig):
    """How to train. The defaults were chosen on the lab's validation split."""

    encoder: str = "minilm"
    summarizer: str = "bank"  # or a chat model, e.g. openai:<model>@<base url>
    statements: Whole = 0  # of the bank; 0: as many as are most distinct
    most: Count = 6  # statements of a summary
    least: Share = 0.1  # statements that hold less surely are left out
    posts: Count = 30  # of each profile, the newest
    rounds: Whole = 2  # of best-of-n refinement; a chat model is not refined
    samples: Count = 16  # summaries per user and round
    epochs: Count = 12
    patience: Count = 5
    batch_size: Count = 256
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    dropout: Share = 0.3
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        encoder="minilm",
        summarizer="bank",
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


@dataclass(frozen=True)
class StatementBank:
    """The wants, and which of them each aspect of the training rubrics is about."""

    statements: tuple[str, ...]
    group_of: dict[str, int]  # by the text of an aspect

    def labels(self, examples: Sequence[Example]) -> tuple[FloatArray, FloatArray]:
        """Return for each row what its user wants, over all of the user's rows, and how sure each label is.

        A want that belongs to one of the user's questions, and is not in the rubric, is sure not to be there.
        """

        def groups(aspects: Sequence[str]) -> set[int]:
            return {self.group_of[text] for text in aspects if text in self.group_of}

        known = aspects_by_question(examples)
        wanted: dict[str, set[int]] = {}
        asked: dict[str, set[int]] = {}
        for example in examples:
            wanted.setdefault(example.user.id, set()).update(groups(aspect_texts(example)))
            asked.setdefault(example.user.id, set()).update(groups(known[example.question]) if example.rubric else ())
        size = range(len(self.statements))
        users = [example.user.id for example in examples]
        labels = np.array([[float(group in wanted[user]) for group in size] for user in users])
        unseen = {user: UNSEEN if wanted[user] else 0.0 for user in wanted}  # without a rubric nothing is known
        sure = np.array([[1.0 if group in asked[user] else unseen[user] for group in size] for user in users])
        return labels, sure


def make_statements(examples: Sequence[Example], encoder: Encoder, groups: int = 0) -> StatementBank:
    """Group the aspects into that many wants, or into as many as are most distinct."""
    counts = Counter(text for example in examples for text in aspect_texts(example))
    known = aspects_by_question(examples)
    every = [text for text, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    texts, others = every[:MOST_ASPECTS], every[MOST_ASPECTS:]
    vectors = _without_question(every, known, encoder)
    nearness = vectors[: len(texts)] @ vectors[: len(texts)].T
    label = _group(1 - correlation(_wanted_by_users(examples, texts, known), nearness), groups)
    medoids = []  # of each group, the aspect that is nearest to all of it
    for group in range(label.max() + 1):
        members = np.flatnonzero(label == group)
        medoids.append(int(members[np.argmax(nearness[np.ix_(members, members)].sum(axis=1))]))
    group_of = {text: int(group) for text, group in zip(texts, label, strict=True)}
    for text, vector in zip(others, vectors[len(texts) :], strict=True):
        group_of[text] = int(np.argmax(vectors[medoids] @ vector))
    return StatementBank(tuple(texts[place] for place in medoids), group_of)


def _wanted_by_users(examples: Sequence[Example], texts: Sequence[str], known: dict[str, list[str]]) -> FloatArray:
    """Return 1 for aspects that a user mostly looks for when asked, -1 for mostly not, 0 for never asked."""
    column = {text: index for index, text in enumerate(texts)}
    row = {user: index for index, user in enumerate(dict.fromkeys(example.user.id for example in examples))}
    wanted = np.zeros((len(row), len(texts)))
    for example in examples:
        own = set(aspect_texts(example))
        for text in known[example.question]:
            if text in column:
                wanted[row[example.user.id], column[text]] += 1 if text in own else -1
    signs: FloatArray = np.sign(wanted)
    return signs


def correlation(wanted: FloatArray, nearness: FloatArray, assumed: float = ASSUMED_USERS) -> FloatArray:
    """Return how far aspects are wanted together, from (users, aspects) of 1, -1 and 0 for never asked."""
    asked = (wanted != 0).astype(np.float64)
    count = np.maximum(asked.sum(axis=0), 1)
    centered = (wanted - wanted.sum(axis=0) / count) * asked
    spread = np.sqrt((centered**2).sum(axis=0) / count)
    scaled = centered / np.where(spread > 0, spread, 1)
    together: FloatArray = (scaled.T @ scaled + assumed * nearness) / (asked.T @ asked + assumed)
    return together


def _without_question(texts: Sequence[str], known: dict[str, list[str]], encoder: Encoder) -> FloatArray:
    """Return unit vectors of the texts, each less the mean of the aspects that occur with the same questions."""
    raw = encoder.encode(texts).astype(np.float64)
    place = {text: index for index, text in enumerate(texts)}
    rest = np.zeros_like(raw)
    for aspects in known.values():
        here = [place[text] for text in aspects]
        if len(here) > 1:
            rest[here] += raw[here] - raw[here].mean(axis=0)
    length = np.linalg.norm(rest, axis=1, keepdims=True)
    vectors: FloatArray = np.where(length > 1e-9, rest / np.maximum(length, 1e-9), raw)
    return vectors


def _group(distance: FloatArray, groups: int) -> NDArray[np.int64]:
    """Return the group of each aspect."""
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import silhouette_score

    count = len(distance)
    distance = np.clip((distance + distance.T) / 2, 0, None)
    np.fill_diagonal(distance, 0)
    if count <= max(groups, 2):
        return np.arange(count)

    tries: list[NDArray[np.int64]] = [
        AgglomerativeClustering(into, metric="precomputed", linkage="average").fit_predict(distance).astype(np.int64)
        for into in ([groups] if groups else range(2, min(MOST_GROUPS, count - 1) + 1))
    ]
    if len(tries) == 1:
        return tries[0]
    return max(tries, key=lambda labels: float(silhouette_score(distance, labels, metric="precomputed")))


class SummaryModel(nn.Module):
    """Summarizer and reward model as one module."""

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

    def odds(self, posts: Tensor, index: RaggedIndex) -> Tensor:
        """Return the log-odds that each statement holds: (rows, bank)."""
        about = self.raw(self.posts, posts).softmax(-1)[:, :-1]
        return self.average + torch.log1p(2 * sum_of(about, index)) @ self.mix

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
        limits = {"least": np.array(config.least, np.float32), "most": np.array(config.most, np.float32)}
        return SummaryWeights(**{name: to_array(value) for name, value in read.items()}, **limits)


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
class SummaryRows:
    """Rows of one split; `written` points to what a chat model stated, where one sums up."""

    rows: HeadRows
    tables: EmbeddingTables
    written: RaggedIndex | None
    statements: Tensor  # embeddings that `written` points into; without a chat model, those of the bank


@dataclass(frozen=True)
class RubricLabels:
    """What the training rubrics say."""

    labels: Tensor  # (rows, bank)
    sure: Tensor
    aspects: Tensor  # (texts, d): names, reasons and both
    groups: Tensor  # (texts,): which statement each of them says
    users: Tensor  # (rows,): the user of each row, counted from 0


def train_summary(data: TrainingData, config: SummaryConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train into a folder that `--model summary:FOLDER` takes."""
    check_training_data(data, needs=(PROFILES, RUBRICS))
    encoder = load_encoder(config.encoder)
    progress(0, config.epochs, "embedding")
    bank = make_statements([example for example in data.train if example.rubric], encoder, config.statements)
    writer = None if config.summarizer == "bank" else LLMSummarizer(load_llm(config.summarizer, seed=config.seed))
    users = [
        user for user in dict.fromkeys(_posts(row, config.posts) for row in (*data.train, *data.validation)) if user
    ]
    written = _write_once(users, writer, folder / SUMMARIES, progress) if writer else {}
    train, held_out = (_split(rows, bank, written, encoder, config.posts) for rows in (data.train, data.validation))
    truth = _truth(data.train, bank, encoder)
    torch.manual_seed(config.seed)
    model = SummaryModel(train.statements.shape[1], len(bank.statements), config.dropout)
    loss, margins = partial(_loss, model, train, truth), partial(margins_by_summary, model, held_out, config)
    rounds: list[dict[str, Json]] = []
    with one_thread():
        checkpoint = checkpoint_in(folder, config, data)
        best = fit(model, len(truth.labels), loss, margins, config, checkpoint, progress)
        for number in range(1, 1 if writer else config.rounds + 1):
            checkpoint = checkpoint_in(folder, config, data, f"checkpoint_round_{number}.pt")
            rounds.append(refine(number, model, train, truth, margins, config, checkpoint, progress))
        final = margins()
    calibrated = calibrate_margins(final, [example.user.id for example in data.validation])
    weights = model.weights(config, calibrated.temperature)
    weights.save_with(folder, bank.statements, config.summarizer)
    own = writer or BankSummarizer(weights, bank.statements, encoder)
    if not writer:
        summaries = zip(users, own.summarize(users), strict=True)
        write_text(folder / SUMMARIES, "".join(as_line(user, one, own.name) for user, one in summaries))
    spec = spec_with_encoder("summary", folder, config.encoder)
    facts: dict[str, Json] = {
        "encoder": dict(encoder.identity),
        "summarizer": own.name,
        "statements": len(bank.statements),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        **best.facts,
        "validation_accuracy": round(accuracy_of(final), 4),  # after refinement
        "refinement": rounds,
        **calibrated.facts,
    }
    return Trained(spec=spec, facts=facts)


def _loss(model: SummaryModel, train: SummaryRows, truth: RubricLabels, numbers: Tensor) -> Tensor:
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


@torch.no_grad()
def margins_by_summary(model: SummaryModel, split: SummaryRows, config: SummaryConfig) -> Tensor:
    """Return score(chosen) - score(rejected) by the summaries as they stand in a file."""
    says = model.says(split.statements)
    if split.written is None:
        holds = model.odds(split.tables.posts, split.rows.posts).sigmoid()
        wants = shorten(holds, config.most, config.least) @ says
    else:
        wants = sum_of(says, split.written)
    return model.scale * (wants * model.differs(split.tables.others, split.rows)).sum(-1)


def refine(
    number: int,
    model: SummaryModel,
    train: SummaryRows,
    truth: RubricLabels,
    margins: Callable[[], Tensor],
    config: SummaryConfig,
    checkpoint: Checkpoint,
    progress: ProgressCallback,
) -> dict[str, Json]:
    """Run one round of best-of-n on the summaries of training users, and return what it gave on held-out users.

    The summarizer learns the winning summaries; the reward model stays as it is. A round that does not help is undone.
    """
    before, accuracy, users = copy_state(model), accuracy_of(margins()), truth.users
    model.eval()
    with torch.no_grad():
        holds = model.odds(train.tables.posts, train.rows.posts).sigmoid()
        of_user = torch.zeros(int(users.max()) + 1, holds.shape[1])
        of_user[users] = holds
        generator = torch.Generator().manual_seed(1_000_003 * number + config.seed)
        # (samples, users, bank): each statement holds in a sample as often as the summarizer believes it
        samples = (torch.rand(config.samples, *of_user.shape, generator=generator) < of_user).float()
        differs = model.differs(train.tables.others, train.rows)
        winners = best_of(samples, differs, users, model.scale)[users]
        won = F.logsigmoid(model.scale * (winners * differs).sum(-1)).mean()
        mean = F.logsigmoid(model.scale * (samples[:, users] * differs).sum(-1)).mean()

    def loss(numbers: Tensor) -> Tensor:
        odds = model.odds(train.tables.posts, train.rows.posts.take(numbers))
        return holds_loss(odds, winners[numbers], torch.ones_like(odds))

    learning = {id(weight) for weight in (*model.posts.parameters(), model.mix, model.average)}
    for weight in model.parameters():
        weight.requires_grad_(id(weight) in learning)
    best = fit(model, len(truth.labels), loss, margins, config, checkpoint, progress)
    for weight in model.parameters():
        weight.requires_grad_(True)
    is_kept = best.accuracy > accuracy
    if not is_kept:
        model.load_state_dict(before)
    return {
        "round": number,
        "validation_before": round(accuracy, 4),
        "validation_after": round(best.accuracy, 4),
        "log_likelihood_gain_of_winners": round(float(won - mean), 4),
        "kept": is_kept,
    }


def _split(
    examples: Sequence[Example], bank: StatementBank, written: dict[Posts, Summary], encoder: Encoder, posts: int
) -> SummaryRows:
    rows, tables = head_rows(examples, encoder, posts=posts)
    if not written:
        return SummaryRows(rows, tables, None, torch.from_numpy(encoder.encode(bank.statements)))
    stated = [[one.text for one in written[_posts(example, posts)].statements] for example in examples]
    table = TextTable()
    index = table.index(stated)
    return SummaryRows(rows, tables, index, table.vectors(encoder))


def _truth(examples: Sequence[Example], bank: StatementBank, encoder: Encoder) -> RubricLabels:
    labels, sure = bank.labels(examples)
    said: dict[str, int] = {}
    for example in examples:
        for one in example.rubric:
            whole = f"{one.aspect}. {one.reason}".strip()
            said |= {text: bank.group_of[whole] for text in (whole, one.aspect, one.reason) if text}
    number = {user: index for index, user in enumerate(dict.fromkeys(example.user.id for example in examples))}
    return RubricLabels(
        labels=torch.from_numpy(labels).float(),
        sure=torch.from_numpy(sure).float(),
        aspects=torch.from_numpy(encoder.encode(list(said))),
        groups=torch.tensor(list(said.values())),
        users=torch.tensor([number[example.user.id] for example in examples]),
    )


def _posts(example: Example, posts: int) -> Posts:
    """Return the newest posts, newest first, as a context shows them."""
    return tuple(post.text.strip() for post in example.user.profile[::-1][:posts])


def _write_once(
    users: Sequence[Posts], writer: LLMSummarizer, path: Path, progress: ProgressCallback
) -> dict[Posts, Summary]:
    """Let a chat model sum up every user; each summary is on disk at once, so a kill costs at most a few."""
    cache = SummaryCache(writer.name, [], path)
    for start in range(0, len(users), WRITTEN_TOGETHER):
        new = [user for user in users[start : start + WRITTEN_TOGETHER] if cache.find(user) is None]
        cache.add(dict(zip(new, writer.summarize(new), strict=True)))
        progress(start, len(users), "summing users up")
    found = {user: cache.find(user) or Summary() for user in users}
    if not any(summary.statements for summary in found.values()):
        raise UsageError(f"{writer.name}: no reply holds a statement. Choose another summarizer.")
    return {**found, (): Summary()}
