"""The head of `prbench.reward_models.head` as a module: the formula is there, beside the code that scores."""

import numpy as np
import torch
from torch import Tensor, nn

from prbench.context.aspect_planner import SHARPNESS, Floats
from prbench.reward_models.head import TopicWeights
from prbench.training.rows import EmbeddingTables, HeadRows, RaggedIndex, mean_of, sum_of

Read = tuple[Tensor, Tensor]  # topics of every post, and of every sentence


class TopicHead(nn.Module):
    """Topics of posts and sentences, with the weights between them; `read` is asked once per batch."""

    def __init__(self, size: int, *, topics: int, dropout: float, knows_users: bool) -> None:
        super().__init__()
        self.posts = nn.Linear(size, topics + 1)
        self.sentences = nn.Linear(size, topics)
        with torch.no_grad():  # a post and a sentence about the same thing begin in the same topic
            self.sentences.weight.copy_(self.posts.weight[:topics])
        self.mix = nn.Parameter(2 * torch.eye(topics), requires_grad=knows_users)
        self.average = nn.Parameter(torch.zeros(topics))
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.offset = nn.Parameter(torch.tensor(-1.0))  # of the rubric's odds only
        self.dropout = nn.Dropout(dropout)
        if not knows_users:
            nn.init.zeros_(self.mix)

    def read(self, tables: EmbeddingTables) -> Read:
        """Return the topics of every post and of every sentence."""
        about_posts = (SHARPNESS * self.posts(self.dropout(tables.posts))).softmax(-1)[:, :-1]
        return about_posts, (SHARPNESS * self.sentences(self.dropout(tables.others))).softmax(-1)

    def wants(self, about_posts: Tensor, posts: RaggedIndex) -> Tensor:
        """Return what each row's user wants: (rows, topics)."""
        return self.average + torch.log1p(2 * sum_of(about_posts.contiguous(), posts)) @ self.mix

    def margin(self, about: Read, rows: HeadRows) -> Tensor:
        """Return score(chosen) - score(rejected)."""
        difference = mean_of(about[1], rows.chosen) - mean_of(about[1], rows.rejected)
        margin: Tensor = self.scale * (self.wants(about[0], rows.posts) * difference).sum(-1)
        return margin

    def rubric_logits(self, about: Read, rows: HeadRows) -> Tensor:
        """Return the log-odds that each aspect is one of the user's."""
        wants = self.wants(about[0], rows.posts)[:, None]
        logits: Tensor = self.scale * (wants * about[1][rows.aspects.places]).sum(-1) + self.offset
        return logits

    def weights(self) -> TopicWeights:
        """Return the arrays that scoring needs."""
        return TopicWeights(
            post_weight=_array(self.posts.weight.T),
            post_bias=_array(self.posts.bias),
            sentence_weight=_array(self.sentences.weight.T),
            sentence_bias=_array(self.sentences.bias),
            mix=_array(self.mix),
            average=_array(self.average),
            scale=_array(self.scale),
        )


def _array(value: Tensor) -> Floats:
    return value.detach().numpy().astype(np.float32).copy()
