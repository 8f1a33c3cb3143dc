"""The three kinds of heads as modules; the formulas are in `prbench.reward_models`, beside the code that scores.

Each has the same four methods: `read` turns every text into what the head needs of it, once per batch; `margin` is
score(chosen) - score(rejected); `rubric_logits` are the log-odds that aspects are the user's; `weights` gives the
arrays.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from prbench.reward_models.attention_head import AttentionWeights
from prbench.reward_models.head import SHARPNESS, Floats, HeadWeights, TopicWeights
from prbench.reward_models.lowrank_head import LowRankWeights
from prbench.training.rows import EmbeddingTables, HeadRows, RaggedIndex, mean_of, sum_of

Read = tuple[Tensor, ...]


class HeadModule(Protocol):
    """What training needs of a head."""

    def read(self, tables: EmbeddingTables) -> Read:
        """Return what the head needs of every text."""
        ...

    def margin(self, about: Read, rows: HeadRows) -> Tensor:
        """Return score(chosen) - score(rejected)."""
        ...

    def rubric_logits(self, about: Read, rows: HeadRows) -> Tensor:
        """Return the log-odds that each aspect is one of the user's: (rows, aspects)."""
        ...

    def weights(self, rows: HeadRows, tables: EmbeddingTables) -> HeadWeights:
        """Return the arrays that scoring needs; the rows are those of training, for what is estimated from users."""
        ...


class TopicHead(nn.Module):
    """Kind `topics`."""

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

    def weights(self, rows: HeadRows, tables: EmbeddingTables) -> TopicWeights:
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


class AttentionHead(nn.Module):
    """Kind `attention`."""

    def __init__(self, size: int, *, rank: int, hidden: int, dropout: float, knows_users: bool) -> None:
        super().__init__()
        self.posts = nn.Linear(size, 2 * rank, bias=False)  # key, value
        self.sentences = nn.Linear(size, 2 * rank, bias=False)  # query, gist
        with torch.no_grad():  # texts about the same thing begin by attending to each other
            self.posts.weight.mul_(4)
            self.sentences.weight.copy_(self.posts.weight)
        threshold = 1.0 if knows_users else torch.inf
        self.threshold = nn.Parameter(torch.tensor(threshold), requires_grad=knows_users)
        self.question = nn.Linear(size, rank, bias=False)
        self.hidden = nn.Linear(4 * rank + 1, hidden)
        self.output = nn.Linear(hidden, 1, bias=False)
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.offset = nn.Parameter(torch.tensor(-1.0))
        self.dropout = nn.Dropout(dropout)

    def read(self, tables: EmbeddingTables) -> Read:
        """Return keys and values of posts, queries and gists of sentences, and topics of questions."""
        posts, others = self.dropout(tables.posts), self.dropout(tables.others)
        key, value = self.posts(posts).chunk(2, -1)
        query, gist = self.sentences(others).chunk(2, -1)
        return key, value, query, gist, self.question(others)

    def worth(self, about: Read, rows: HeadRows, bags: RaggedIndex) -> Tensor:
        """Return what each sentence is worth to the row's user: (rows, sentences)."""
        key, value, query, gist, question = about
        own = gist[bags.places]
        user, amount = self._see(key[rows.posts.places], value[rows.posts.places], query[bags.places], rows.posts.mask)
        topic = question[rows.questions][:, None].expand_as(own)
        inputs = torch.cat([user, own, user * own, topic, amount], -1)
        worth: Tensor = self.output(torch.tanh(self.hidden(inputs)))[..., 0]
        return worth

    def _see(self, key: Tensor, value: Tensor, query: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        evidence = (query @ key.transpose(1, 2) - self.threshold).masked_fill(mask[:, None] == 0, -torch.inf)
        evidence = torch.cat([torch.zeros_like(evidence[..., :1]), evidence], -1)  # the empty place
        attention = evidence.softmax(-1)[..., 1:]
        return attention @ value, evidence.logsumexp(-1, keepdim=True)

    def margin(self, about: Read, rows: HeadRows) -> Tensor:
        """Return score(chosen) - score(rejected)."""
        good, bad = (_masked_mean(self.worth(about, rows, bags), bags.mask) for bags in (rows.chosen, rows.rejected))
        return self.scale * (good - bad)

    def rubric_logits(self, about: Read, rows: HeadRows) -> Tensor:
        """Return the log-odds that each aspect is one of the user's."""
        return self.scale * self.worth(about, rows, rows.aspects) + self.offset

    def weights(self, rows: HeadRows, tables: EmbeddingTables) -> AttentionWeights:
        """Return the arrays that scoring needs."""
        key, value = self.posts.weight.T.chunk(2, -1)
        query, gist = self.sentences.weight.T.chunk(2, -1)
        return AttentionWeights(
            key=_array(key),
            value=_array(value),
            query=_array(query),
            gist=_array(gist),
            question=_array(self.question.weight.T),
            threshold=_array(self.threshold),
            hidden=_array(self.hidden.weight.T),
            hidden_bias=_array(self.hidden.bias),
            output=_array(self.output.weight[0]),
            scale=_array(self.scale),
        )


class LowRankHead(nn.Module):
    """Kind `lowrank`."""

    def __init__(self, size: int, *, rank: int, dropout: float, knows_users: bool) -> None:
        super().__init__()
        self.sentences = nn.Linear(size, rank)
        self.posts = nn.Linear(size, rank)
        with torch.no_grad():  # a post and a sentence about the same thing begin with the same features
            self.sentences.weight.mul_(4)
            self.posts.weight.copy_(self.sentences.weight)
            self.posts.bias.copy_(self.sentences.bias)
        self.gate = nn.Linear(size, 1)
        self.basis = nn.Parameter(torch.eye(rank), requires_grad=knows_users)
        self.average = nn.Parameter(torch.zeros(rank))
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.offset = nn.Parameter(torch.tensor(-1.0))
        self.dropout = nn.Dropout(dropout)
        if not knows_users:
            nn.init.zeros_(self.basis)

    def read(self, tables: EmbeddingTables) -> Read:
        """Return what posts say, how much they say, and the features of sentences."""
        posts = self.dropout(tables.posts)
        counts = nn.functional.softplus(self.gate(posts))
        said = torch.cat([counts * torch.tanh(self.posts(posts)), counts], -1)
        return said, torch.tanh(self.sentences(self.dropout(tables.others)))

    def users(self, said: Tensor, posts: RaggedIndex) -> Tensor:
        """Return the weights of each row's user, as predicted from posts: (rows, rank)."""
        summed = sum_of(said, posts)
        return self.average + (summed[:, :-1] / (1 + summed[:, -1:])) @ self.basis

    def margin(self, about: Read, rows: HeadRows) -> Tensor:
        """Return score(chosen) - score(rejected)."""
        difference = mean_of(about[1], rows.chosen) - mean_of(about[1], rows.rejected)
        margin: Tensor = self.scale * (self.users(about[0], rows.posts) * difference).sum(-1)
        return margin

    def rubric_logits(self, about: Read, rows: HeadRows) -> Tensor:
        """Return the log-odds that each aspect is one of the user's."""
        users = self.users(about[0], rows.posts)[:, None]
        logits: Tensor = self.scale * (users * about[1][rows.aspects.places]).sum(-1) + self.offset
        return logits

    def weights(self, rows: HeadRows, tables: EmbeddingTables) -> LowRankWeights:
        """Return the arrays that scoring needs, and how the weights of training users vary."""
        with torch.no_grad():
            _, first = np.unique(rows.posts.places.numpy(), axis=0, return_index=True)  # one row per set of posts
            users = self.users(self.read(tables)[0], rows.posts.take(torch.from_numpy(np.sort(first))))
        return LowRankWeights(
            feature=_array(self.sentences.weight.T),
            feature_bias=_array(self.sentences.bias),
            post=_array(self.posts.weight.T),
            post_bias=_array(self.posts.bias),
            gate=_array(self.gate.weight[0]),
            gate_bias=_array(self.gate.bias[0]),
            basis=_array(self.basis),
            average=_array(self.average),
            covariance=_array(torch.cov(users.T)),
            scale=_array(self.scale),
        )


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


def _array(value: Tensor) -> Floats:
    return value.detach().numpy().astype(np.float32).copy()
