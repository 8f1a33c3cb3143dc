"""The floors on every board: rules that know nothing of quality, and little or nothing of the user."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

import numpy as np

from prbench.encoders import Encoder, load_encoder
from prbench.errors import UsageError
from prbench.lab.gold import GoldInstrument, aspect_traits
from prbench.lexical import load_bm25s
from prbench.schema import Json, RewardInput, Score

CONTROLS: Mapping[str, str] = {
    "random": "a fixed coin per question and response",
    "longest": "the response with more characters",
    "shortest": "the response with fewer characters",
    "overlap": "the response that shares more words with the context (BM25)",
    "question": "the response that repeats more words of the question",
    "embed": "the response nearest to the context by sentence embeddings",
    "gold": "the lab's own instrument with the gold rubric, a ceiling: only --data lab --context oracle",
}

# The usual BM25 constants; the formula is Lucene's, whose idf is never negative.
_K1, _B = 1.5, 0.75
_WORD = re.compile(r"\b\w\w+\b")
_NEAREST = 3


class RuleReward:
    """A control that scores each input on its own, by a fixed rule."""

    def __init__(self, name: str, rule: Callable[[RewardInput], float], identity: Mapping[str, Json]) -> None:
        self.name = name
        self.identity = identity
        self._rule = rule

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        """Return one score per input, in the same order."""
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
        """Return one score per input, in the same order."""
        references = [each.user.texts or (each.question,) for each in inputs]
        every = [text for reference in references for text in reference] + [each.response for each in inputs]
        texts = list(dict.fromkeys(every))
        if not texts:
            return []
        rows = dict(zip(texts, self._encoder.encode(texts), strict=True))
        return [
            Score(value=_nearness(rows[each.response], [rows[text] for text in reference]))
            for each, reference in zip(inputs, references, strict=True)
        ]


def load_control(name: str, *, seed: int = 0, encoder: str = "minilm") -> RuleReward | EmbedReward:
    """Return the control of that name."""
    match name:
        case "random":
            return RuleReward(name, lambda each: _coin(each, seed), {"control": name, "rule": 1, "seed": seed})
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
            instrument = GoldInstrument(lambda: load_encoder(encoder))
            identity = {"control": name, "rule": 1, "instrument": dict(instrument.identity)}
            return RuleReward(name, lambda each: _gold(each, instrument), identity)
        case _:
            raise UsageError(f"There is no control {name!r}. Known controls: {', '.join(CONTROLS)}.")


def words(text: str) -> list[str]:
    """Return the words that count for overlap: lower case, two letters or more, without stop words."""
    stop_words = _stop_words()
    return [word for word in _WORD.findall(text.lower()) if word not in stop_words]


def _coin(each: RewardInput, seed: int) -> float:
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


def _gold(each: RewardInput, instrument: GoldInstrument) -> float:
    """Return what the response is worth to the user whose rubric the context shows; 0 where it shows none."""
    if not each.user.texts:
        return 0.0
    known = aspect_traits()
    aspects = [known[name] for text in each.user.texts if (name := text.partition(": ")[0]) in known]
    if not aspects:
        raise UsageError("control:gold reads the rubrics of the lab, and found none. Use --data lab --context oracle.")
    subject = Counter(subject for subject, _ in aspects).most_common(1)[0][0]
    return instrument.value(each.response, subject, {trait for its, trait in aspects if its == subject})


def _nearness(response: np.ndarray, posts: Sequence[np.ndarray]) -> float:
    cosines = np.stack(posts).astype(np.float64) @ response.astype(np.float64)
    nearest = sorted(cosines.tolist(), reverse=True)[:_NEAREST]
    return math.fsum(nearest) / len(nearest)


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    return frozenset(load_bm25s().stopwords.STOPWORDS_EN)
