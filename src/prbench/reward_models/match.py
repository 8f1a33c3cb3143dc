"""`match:FOLDER`: does the response touch what this user speaks for, or what they speak against?

Posts are cut into clauses, each for something, against it, or neither. "I usually prefer trains over planes, as flying
scares me" speaks for trains and against planes in one sentence, so sentences are cut at punctuation and connectives;
stances come from a short list of English cue words. With unit vectors c of clauses, p of posts, x of the question and
y of the response:

    touches(stance) = max_c c.y,   max_c c.y max(0, c.x),   max_c |words(c) & words(y) - words(x)|     over its clauses
    user            = touches(for), touches(against), touches(neither), mean of the three largest p.y, BM25 of y on p
    free            = y, x.y
    score           = scale * (free . known_free + user . known_user)

Without posts the score is `scale * free . alone`: a model that was trained without users, so that knowing nothing of
somebody is never worse than not asking. All weights come from convex logistic regressions (`prbench.training.match`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Doubles, Encoder
from prbench.backends.npz_weights import NpzRecord, check_size, open_encoder
from prbench.context.aspect_planner import Floats
from prbench.data.texts import sentences_of
from prbench.reward_models.base import EncoderOptions, LoadedModel, ModelSettings, as_loaded, rounded_scores
from prbench.reward_models.controls import overlap, words
from prbench.schema import Json, RewardInput, Score, UserContext
from prbench.specs import Spec


class Stance(StrEnum):
    """Whether a clause speaks for what it names, against it, or neither."""

    FOR = "for"
    AGAINST = "against"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a sentence."""

    text: str
    stance: Stance


# What follows is what somebody does not choose; "more than twenty" and "more than anything" choose nothing.
_AMOUNT = (
    r"\d|any|(?:ever|just|half|once|twice|one|two|three|four|five|six|ten|twelve)\b|usual|twenty|thirty|forty|fifty"
    r"|hundred|thousand|an? (?:hour|day|week|month|year|decade|dozen|hundred|thousand|few)"
)
_CONTRAST = rf"rather than|instead of|except|over(?! (?:{_AMOUNT}))|than(?! (?:{_AMOUNT}))"
_CUT = re.compile(
    rf"[,;:()—–]|\s-\s|\b(?P<contrast>{_CONTRAST})\b"
    r"|\b(?:but|because|since|as|so|although|though|while|whereas|which|and|or|if|unless)\b",
    re.IGNORECASE,
)
_CHOOSES = re.compile(
    r"\b(?:prefer\w*|rather|instead|except|choos\w+|chose|pick\w*|opt(?:s|ed|ing)?|favou?r\w*|better|more)\b", re.I
)
_STRONGLY_FOR = re.compile(
    r"\bcan(?:no|'?)t (?:(?:live|do) without|get enough|wait)\b|\bnever (?:miss|tire)\w*\b"
    r"|\bcouldn'?t be (?:happier|more pleased)\b",
    re.IGNORECASE,
)
# A no that says nothing; taken out before cues are looked for.
_NOT_AGAINST = re.compile(r"\b(?:don'?t|wouldn'?t) mind\b|\bno (?:problem|doubt)\b|\bnot only\b", re.IGNORECASE)
_AGAINST = re.compile(
    r"n't\b|\b(?:not|no|never|without|neither|nor|cannot|cant|dont|against|avoid\w*|refus\w+|skip\w*|oppos\w+"
    r"|away from|steer clear|dislik\w+|hat(?:e|es|ed|ing)|avers\w+|distaste\w*|despis\w+|allerg\w+|fear\w*|afraid"
    r"|scar(?:es?|ed|y)|wary|worr(?:y|ies|ied)|uncomfortable|stress(?:ful|ed|es)?|struggl\w+|annoy\w+|frustrat\w+"
    r"|disappoint\w+|bor(?:es|ed|ing)|tired of|sick of|quit|gave up|stopped|too \w+|less \w+)\b",
    re.IGNORECASE,
)
_FOR = re.compile(
    r"\b(?:prefer\w*|lov(?:e|es|ed|ing)|enjoy\w*|lik(?:e|es|ed|ing)|favou?rit\w*|fan of|fond of|keen|interest\w*"
    r"|passion\w*|excit\w+|appreciat\w+|delight\w*|satisf\w+|reward\w+|amazing|wonderful|fantastic|great|only"
    r"|always|stick to|strict\w*|committed|need\w*|priorit\w+|important|valu(?:e|es|ed|ing))\b",
    re.IGNORECASE,
)
_LETTER = re.compile(r"[^\W\d_]")


@lru_cache(maxsize=4096)  # a user's posts are read once per response
def clauses_of(text: str) -> tuple[Clause, ...]:
    """Return the clauses of a text in their order; what stands behind "rather than" is spoken against."""
    found = []
    for sentence in sentences_of(text):
        chooses = _CHOOSES.search(sentence) is not None
        start, turned = 0, False
        for cut in (*_CUT.finditer(sentence), None):
            contrast = cut is not None and cut["contrast"] is not None
            if contrast and not chooses:
                continue  # "over the years"
            part = sentence[start : cut.start() if cut else len(sentence)].strip(" .!?\"'")
            if _LETTER.search(part):
                found.append(Clause(part, Stance.AGAINST if turned else _stance(part)))
            if cut is not None:
                start, turned = cut.end(), contrast
    return tuple(found)


def _stance(clause: str) -> Stance:
    plain = _NOT_AGAINST.sub("", clause.replace("’", "'"))
    if _STRONGLY_FOR.search(plain):
        return Stance.FOR
    if _AGAINST.search(plain):
        return Stance.AGAINST
    return Stance.FOR if _FOR.search(plain) else Stance.NEITHER


NEAREST = 3  # posts whose nearness counts
TOUCHES = ("near", "near_and_asked", "words")
USER_FEATURES = (*(f"{name}_{stance}" for stance in Stance for name in TOUCHES), "nearest_posts", "overlap")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s)\Z")  # a stem keeps three letters


@dataclass(frozen=True, kw_only=True)
class MatchWeights(NpzRecord):
    """The arrays of one model, for embeddings of size d."""

    FILE = "match.npz"

    alone: Floats  # (d + 1,)
    known_free: Floats  # (d + 1,)
    known_user: Floats  # (len(USER_FEATURES),)
    scale: Floats  # (): divided by a temperature, so that a margin is a log-odds


@dataclass(frozen=True)
class Features:
    """What is known of some responses, one row each."""

    free: Doubles  # (responses, d + 1)
    user: Doubles  # (responses, len(USER_FEATURES)): zeros without posts
    has_posts: NDArray[np.bool_]


class Matcher:
    """Turns inputs into features; every text is embedded once."""

    def __init__(self, encoder: Encoder) -> None:
        self.identity: Mapping[str, Json] = {"encoder": dict(encoder.identity), "rule": 1}
        self.encoder = encoder

    def features(self, inputs: Sequence[RewardInput]) -> Features:
        """Return the features of each input, in the same order."""
        users = list(dict.fromkeys(one.user for one in inputs))
        texts = [text for one in inputs for text in (one.question, one.response)]
        for post in (post for user in users for post in user.segments):
            texts += [post, *(clause.text for clause in clauses_of(post))]
        texts = list(dict.fromkeys(texts))
        vectors = dict(zip(texts, self.encoder.encode(texts).astype(np.float64), strict=True))
        known = {user: _take_apart(user, vectors) for user in users if user.segments}
        free, touched = [], np.zeros((len(inputs), len(USER_FEATURES)))
        for place, one in enumerate(inputs):
            response, question = vectors[one.response], vectors[one.question]
            free.append(np.append(response, question @ response))
            if one.user in known:
                touched[place] = _touched(known[one.user], one, response, question)
        has_posts = np.array([one.user in known for one in inputs])
        return Features(free=np.stack(free), user=touched, has_posts=has_posts)


@dataclass(frozen=True)
class _Known:
    """A user who wrote something, taken apart."""

    posts: Doubles  # (posts, d)
    clauses: Mapping[Stance, Doubles]  # (clauses, d) each
    words: Mapping[Stance, Sequence[frozenset[str]]]  # of each clause


def _take_apart(user: UserContext, vectors: Mapping[str, Doubles]) -> _Known:
    clauses = [clause for post in user.segments for clause in clauses_of(post)]
    said = {stance: [clause.text for clause in clauses if clause.stance is stance] for stance in Stance}
    size = len(vectors[user.segments[0]])
    return _Known(
        posts=np.stack([vectors[post] for post in user.segments]),
        clauses={
            stance: np.array([vectors[text] for text in texts]).reshape(len(texts), size)
            for stance, texts in said.items()
        },
        words={stance: [stems(text) for text in texts] for stance, texts in said.items()},
    )


def _touched(known: _Known, one: RewardInput, response: Doubles, question: Doubles) -> Doubles:
    """Return USER_FEATURES of one response."""
    words_said = stems(one.response) - stems(one.question)
    touched: list[float] = []
    for stance in Stance:
        near = known.clauses[stance] @ response
        asked = near * np.maximum(known.clauses[stance] @ question, 0)
        shared = max((len(words_said & each) for each in known.words[stance]), default=0)
        touched += [near.max(initial=0.0), asked.max(initial=0.0), shared]
    nearest = np.sort(known.posts @ response)[-NEAREST:].mean()
    return np.array([*touched, nearest, overlap(one)])


def load(spec: Spec, options: EncoderOptions, settings: ModelSettings) -> LoadedModel:
    """Return `match:FOLDER`."""
    folder = Path(spec.target)
    matcher = Matcher(open_encoder(folder, options.encoder))
    model = MatchReward(MatchWeights.load(folder), matcher, name=spec.target)
    return as_loaded(spec, model, items_per_step=64)


class MatchReward:
    """Scores responses with trained weights; once texts are embedded, it costs little."""

    def __init__(self, weights: MatchWeights, matcher: Matcher, *, name: str = "match") -> None:
        self.name = name
        self._weights = weights
        self._matcher = matcher
        self.identity: Mapping[str, Json] = {"match": weights.hash, **matcher.identity}

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        if not inputs:
            return []
        features = self._matcher.features(inputs)
        check_size(features.free[:, :-1], len(self._weights.alone) - 1, self._matcher.encoder, model=self.name)
        return rounded_scores(score_features(self._weights, features))


def score_features(weights: MatchWeights, features: Features) -> Doubles:
    """Return one score per row of features."""
    known = features.free @ weights.known_free + features.user @ weights.known_user
    values: Doubles = np.where(features.has_posts, known, features.free @ weights.alone) * float(weights.scale)
    return values


@lru_cache(maxsize=4096)
def stems(text: str) -> frozenset[str]:
    """Return the distinct words of a text without their commonest endings."""
    return frozenset(_ENDING.sub("", word) for word in words(text))
