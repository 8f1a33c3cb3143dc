"""Method encoder: a topic head (`training.head`) and the sentence encoder under it, trained together.

Frozen embeddings tell what a text is about; what a post betrays of its writer is another question, and the encoder can
learn it. The whole encoder is tuned, with a small share of the head's learning rate, and saved beside the head, so
that `head:DIR?encoder=DIR/encoder` scores with it. Meant for a GPU (a minute or two); on two cores it takes hours.
It stays as the most accurate single method on the lab that reads nothing but posts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from prbench.backends.encoders import load_pretrained, source_of
from prbench.errors import UsageError
from prbench.metrics.calibration import calibrate_margins
from prbench.runs import Keys
from prbench.schema import Example
from prbench.specs import Count, NotNegative, Share
from prbench.training.data import PROFILES, TrainingData, check_training_data
from prbench.training.folder import MethodConfig, ProgressCallback, Trained, checkpoint_in
from prbench.training.head import TopicHead, Topics
from prbench.training.loop import EmbeddingTables, HeadRows, Schedule, TextTable, fit, index_rows

FOLDER = "encoder"  # inside the model's folder
TOGETHER = 512  # texts in one forward pass


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(MethodConfig):
    """How to train head and encoder."""

    encoder: str = "minilm"
    posts: Count = 30  # of each profile, the newest
    topics: Count = 24
    rubric_weight: NotNegative = 1.0
    epochs: Count = 25
    patience: Count = 25
    batch_size: Count = 512
    learning_rate: float = 1e-2  # of the head
    encoder_share: float = 0.01  # of it, for the encoder
    weight_decay: float = 1e-2
    dropout: Share = 0.2
    token_dropout: Share = 0.1  # share of tokens that are hidden from the encoder in training
    longest: Count = 128  # tokens of a text in training
    device: str = "auto"
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys(
        encoder="minilm",
        posts=30,
        topics=24,
        rubric_weight=1.0,
        epochs=25,
        patience=25,
        batch_size=512,
        learning_rate=1e-2,
        encoder_share=0.01,
        weight_decay=1e-2,
        dropout=0.2,
        token_dropout=0.1,
        longest=128,
        device="auto",
        seed=0,
    )


class Tokenized:
    """The texts of some rows, as tokens on a device, in batches of similar length."""

    def __init__(self, posts: TextTable, others: TextTable, tokenizer: Any, longest: int, device: str) -> None:
        self.posts = len(posts.texts)
        self.all = [*posts.texts, *others.texts]
        order = sorted(range(len(self.all)), key=lambda place: len(self.all[place]))
        self.batches = []
        for start in range(0, len(order), TOGETHER):
            places = order[start : start + TOGETHER]
            tokens = tokenizer(
                [self.all[place] for place in places],
                padding=True, truncation=True, max_length=longest, return_tensors="pt",
            ).to(device)  # fmt: skip
            here = torch.tensor(places, device=device)
            self.batches.append((here, tokens["input_ids"], tokens["attention_mask"]))


class TunedHead(nn.Module):
    """A topic head on top of an encoder whose weights are trained too."""

    encoder: Any  # a model of transformers

    def __init__(self, encoder: Any, head: TopicHead, token_dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self._token_dropout = token_dropout

    def read(self, texts: Tokenized) -> Topics:
        """Return the topics of every post and sentence, by unit vectors: means over the tokens that are not hidden."""
        vectors = torch.zeros(len(texts.all), self.encoder.config.hidden_size, device=texts.batches[0][1].device)
        for places, ids, mask in texts.batches:
            seen = self._hide(mask)
            hidden = self.encoder(input_ids=ids, attention_mask=seen).last_hidden_state  # (texts, tokens, d)
            mean = (hidden * seen[..., None]).sum(1) / seen.sum(1, keepdim=True)  # (texts, d)
            vectors = vectors.index_copy(0, places, F.normalize(mean, dim=-1))
        return self.head.read(EmbeddingTables(posts=vectors[: texts.posts], others=vectors[texts.posts :]))

    def _hide(self, mask: Tensor) -> Tensor:
        """Hide some tokens in training, never the first."""
        if not (self.training and self._token_dropout):
            return mask
        seen = torch.rand(mask.shape, device=mask.device) >= self._token_dropout
        seen[:, 0] = True
        return mask * seen


def train_encoder(data: TrainingData, config: EncoderConfig, folder: Path, progress: ProgressCallback) -> Trained:
    """Train into a folder that `--model head:FOLDER?encoder=FOLDER/encoder` takes."""
    check_training_data(data, needs=(PROFILES,))
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"--set device={device}: cannot be used here. Give auto, cpu or cuda.") from error
    tokenizer, encoder = load_pretrained(config.encoder, source_of(config.encoder), dtype="float32")
    torch.manual_seed(config.seed)
    head = TopicHead(encoder.config.hidden_size, topics=config.topics, dropout=config.dropout, knows_users=True)
    module = TunedHead(encoder, head, config.token_dropout).to(device)

    def prepare(examples: Sequence[Example]) -> tuple[HeadRows, Tokenized]:
        rows, posts, others = index_rows(examples, posts=config.posts)
        return rows.to(device), Tokenized(posts, others, tokenizer, config.longest, device)

    (rows, train), (held_out, validation) = prepare(data.train), prepare(data.validation)
    rubric_weight = config.rubric_weight if rows.has_unwanted else 0.0

    def loss(numbers: Tensor) -> Tensor:
        batch = rows.take(numbers.to(device))
        return head.loss(module.read(train), batch, rubric_weight)

    @torch.no_grad()
    def margins() -> Tensor:
        return head.margin(module.read(validation), held_out).cpu()

    best = fit(
        module,
        len(rows.wanted),
        loss,
        margins,
        config,
        checkpoint_in(folder, config, data),
        progress,
        schedule=Schedule(warm_up=20, cosine=True, clip=1.0),
        speed=lambda name: config.encoder_share if name.startswith("encoder.") else 1.0,
    )
    calibrated = calibrate_margins(margins(), [example.user.id for example in data.validation])
    head.cpu().weights().scaled(calibrated.temperature).save(folder)
    module.encoder.half().cpu().save_pretrained(folder / FOLDER)
    tokenizer.save_pretrained(folder / FOLDER)
    parameters = sum(weight.numel() for weight in module.parameters() if weight.requires_grad)
    return Trained(
        spec=f"head:{folder}?encoder={folder / FOLDER}",
        context="profile",
        facts={"encoder": config.encoder, "parameters": parameters, **best.facts, **calibrated.facts},
    )
