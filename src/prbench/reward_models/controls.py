"""The floors on every board: rules that know nothing of quality, and little or nothing of the user."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Annotated

import numpy as np

from prbench.backends.bm25 import load_bm25s
from prbench.backends.encoders import Encoder, load_encoder
from prbench.data.texts import sentences_of
from prbench.errors import UsageError
from prbench.lab.gold import GoldInstrument, aspect_traits
from prbench.registry import MODELS
from prbench.reward_models.base import LoadedModel, ModelSettings, as_loaded
from prbench.schema import Json, RewardInput, Score
from prbench.specs import AtLeast, Spec, known_names, option

# The usual BM25 constants; the formula is Lucene's, whose idf is never negative.
_K1, _B = 1.5, 0.75
_WORD = re.compile(r"\b\w\w+\b")
_NEAREST = 3


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """Options of controls."""

    seed: Annotated[int, AtLeast(0)] | None = option(None, "of control:random, and of noise= and fail=")
    encoder: str | None = option(None, "of control:embed: minilm, or any encoder")


def load(spec: Spec, options: ControlOptions, settings: ModelSettings) -> LoadedModel:
    """Return `control:NAME`."""
    if options.encoder and spec.target != "embed":
        raise UsageError(f"{spec.text}: only control:embed takes an encoder.")
    if options.seed is not None and spec.target != "random" and not settings.is_disturbed:
        raise UsageError(f"{spec.text}: only control:random takes a seed, or a control with noise= or fail=.")
    model = load_control(spec.target, seed=settings.seed, encoder=options.encoder or "minilm")
    return as_loaded(spec, model, items_per_step=256)


class RuleReward:
    """A control that scores each input on its own, by a fixed rule."""

    def __init__(self, name: str, rule: Callable[[RewardInput], float], identity: Mapping[str, Json]) -> None:
        self.name = name
        self.identity = identity
        self._rule = rule

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        return [Score(value=self._rule(each)) for each in inputs]


class EmbedReward:
    """Similarity of the response to what is known of the user, by sentence embeddings.

    The score is the mean cosine with the three nearest posts of the context (all of them where there are fewer): a
    response suits a user by some of their posts, not by the average post. With an empty context it is the cosine with
    the question.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.name = "embed"
        self.identity: Mapping[str, Json] = {"control": "embed", "rule": 1, "encoder": encoder.identity}
        self._encoder = encoder

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        references = [each.user.texts or (each.question,) for each in inputs]
        every = [text for reference in references for text in reference] + [each.response for each in inputs]
        texts = list(dict.fromkeys(every))
        if not texts:
            return []
        rows = dict(zip(texts, self._encoder.encode(texts), strict=True))
        scores = []
        for each, reference in zip(inputs, references, strict=True):
            vectors = np.stack([rows[text] for text in reference]).astype(np.float64)
            cosines = vectors @ rows[each.response].astype(np.float64)
            nearest = sorted(cosines.tolist(), reverse=True)[:_NEAREST]
            scores.append(Score(value=math.fsum(nearest) / len(nearest)))
        return scores


class GoldReward:
    """What a response is worth to the user whose rubric the context shows; 0 where it shows none."""

    def __init__(self, instrument: GoldInstrument) -> None:
        self.name = "gold"
        self.identity: Mapping[str, Json] = {"control": "gold", "rule": 1, "instrument": dict(instrument.identity)}
        self._instrument = instrument

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order; sentences are read together, by subject."""
        truths = [_truth(each) for each in inputs]
        by_subject: dict[str, list[str]] = {}
        for each, (subject, _) in zip(inputs, truths, strict=True):
            if subject:
                by_subject.setdefault(subject, []).extend(sentences_of(each.response))
        for subject, sentences in by_subject.items():
            self._instrument.read(sentences, subject)
        return [
            Score(value=self._instrument.value(each.response, subject, wanted) if subject else 0.0)
            for each, (subject, wanted) in zip(inputs, truths, strict=True)
        ]


def load_control(name: str, *, seed: int = 0, encoder: str = "minilm") -> RuleReward | EmbedReward | GoldReward:
    """Return the control of that name."""
    match name:
        case "random":
            return RuleReward(name, lambda each: _uniform(each, seed), {"control": name, "rule": 1, "seed": seed})
        case "longest":
            return RuleReward(name, lambda each: float(len(each.response)), {"control": name, "rule": 1})
        case "shortest":
            return RuleReward(name, lambda each: -float(len(each.response)), {"control": name, "rule": 1})
        case "overlap":
            return RuleReward(name, overlap, {"control": name, "rule": 1})
        case "question":
            return RuleReward(name, _repeats_question, {"control": name, "rule": 1})
        case "embed":
            return EmbedReward(load_encoder(encoder))
        case "gold":
            return GoldReward(GoldInstrument(lambda: load_encoder(encoder)))
        case _:
            known = [usage.example.partition(":")[2] for usage in MODELS.find("control").usages]
            raise UsageError(f"There is no control {name!r}. {known_names('controls', name, known)}")


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    return frozenset(load_bm25s().stopwords.STOPWORDS_EN)


def words(text: str) -> list[str]:
    """Return the words that count for overlap: lower case, two letters or more, without stop words."""
    stop_words = _stop_words()
    return [word for word in _WORD.findall(text.lower()) if word not in stop_words]


def _uniform(each: RewardInput, seed: int) -> float:
    """Return a uniform number from the question and response alone: no context, order or batch can move it."""
    # Lengths keep the parts apart: ("ab", "c") and ("a", "bc") are different inputs.
    text = f"{seed}:{len(each.question)}:{each.question}{each.response}"
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") / 2**64


def overlap(each: RewardInput) -> float:
    """Return BM25 with the response as query and each post of the context as a document, summed over the posts.

    The sum rewards breadth: words shared with many posts count for each. Each distinct word of the response counts
    once. An empty context gives 0 for every response, so both tie.
    """
    weights = _word_weights(each.user.texts)
    return math.fsum(weights.get(word, 0.0) for word in _distinct_words(each.response))


@lru_cache(maxsize=64)  # every probe asks about the same responses
def _distinct_words(text: str) -> frozenset[str]:
    return frozenset(words(text))


@lru_cache(maxsize=64)  # all responses to one question share their context
def _word_weights(posts: Sequence[str]) -> Mapping[str, float]:
    """Return what a query word is worth: its BM25 score, summed over the posts of the context."""
    documents = [Counter(words(post)) for post in posts]
    lengths = [document.total() for document in documents]
    mean = math.fsum(lengths) / len(lengths) if any(lengths) else 1.0
    frequency = Counter(word for document in documents for word in document)
    # Lucene's idf, by the number of documents that hold the word.
    rarity = [math.log(1 + (len(documents) - held + 0.5) / (held + 0.5)) for held in range(len(documents) + 1)]
    weights: dict[str, float] = {}
    for document, length in zip(documents, lengths, strict=True):
        norm = _K1 * (1 - _B + _B * length / mean)
        for word, count in document.items():
            weights[word] = weights.get(word, 0.0) + rarity[frequency[word]] * count / (count + norm)
    return weights


def _repeats_question(each: RewardInput) -> float:
    """Return the share of the question's distinct words that the response repeats; 0 for a question without words."""
    asked = _distinct_words(each.question)
    return len(asked & _distinct_words(each.response)) / len(asked) if asked else 0.0


def _truth(each: RewardInput) -> tuple[str, frozenset[str]]:
    """Return the subject of the rubric that the context shows, and the traits that it wants; "" without a rubric."""
    if not each.user.texts:
        return "", frozenset()
    known = aspect_traits()
    aspects = [known[name] for text in each.user.texts if (name := text.partition(": ")[0]) in known]
    if not aspects:
        raise UsageError("control:gold reads the rubrics of the lab, and found none. Use --data lab --context oracle.")
    subject = Counter(subject for subject, _ in aspects).most_common(1)[0][0]
    return subject, frozenset(trait for its, trait in aspects if its == subject)
