"""Length and style: differences between chosen and rejected that a reward model could learn instead of the user."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from prbench.construction.check.duplicates import iterate_pairs
from prbench.construction.check.finding import (
    DIGITS,
    SKIPPED,
    TOO_FEW,
    CheckFinding,
    as_values,
    grade,
    unless_too_few,
)
from prbench.data import ExampleStore
from prbench.data.texts import sentences, words
from prbench.metrics.estimate import LEVEL
from prbench.metrics.number_format import NumberFormat
from prbench.schema import Estimate, Progress, RatedExample

CHECK = "length and style"
WIDEST_DZ, WIDEST_RHO = 1.5, 1.0  # intervals of a difference, and of a correlation, that can be good
SMALL, LARGE = 0.1, 0.3  # standardized differences and correlations: good up to, look up to
MOST_DZ = 10.0  # a difference that is the same in every pair has no spread to be measured by
FEWEST_ROWS, FEWEST_USERS = 10, 5  # with fewer, the spread is a guess and so is every interval
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
_MARKS = re.compile(r"^[^\S\n]*+(?:[-*+•]|\d+[.)]|#{1,6}|>)\s|\*\*|__|`", re.MULTILINE)
_FIRST_PERSON = re.compile(r"(?:i|we)(?:['’](?:m|ve|d|ll|re))?|me|my|mine|myself|us|our|ours|ourselves")
SIGNED = NumberFormat(2, sign=True)
_WHY = "A model that only likes long or lively texts would look personal, or be punished, for reasons of style."


@dataclass(frozen=True, slots=True)
class _Reading:
    """A response taken apart once, for all features."""

    text: str
    words: Sequence[str]
    sentences: int


FEATURES: Mapping[str, Callable[[_Reading], float]] = {
    "characters": lambda each: len(each.text),
    "words": lambda each: len(each.words),
    "sentences": lambda each: each.sentences,
    "words per sentence": lambda each: len(each.words) / max(1, each.sentences),
    "characters per word": lambda each: sum(map(len, each.words)) / max(1, len(each.words)),
    "list and Markdown marks": lambda each: len(_MARKS.findall(each.text)),
    "question marks": lambda each: each.text.count("?"),
    "exclamation marks": lambda each: each.text.count("!"),
    "digits": lambda each: sum(map(str.isdigit, each.text)),
    "first person": lambda each: sum(bool(_FIRST_PERSON.fullmatch(word)) for word in each.words),
    "type-token ratio": lambda each: len(set(each.words)) / max(1, len(each.words)),
}


def features(text: str) -> list[float]:
    """Return the value of every feature, in the order of `FEATURES`."""
    reading = _Reading(text, words(text), len(sentences(text)))
    return [float(read(reading)) for read in FEATURES.values()]


def check_style(store: ExampleStore, *, advance: Progress | None = None) -> CheckFinding:
    """Compare chosen and rejected in length and style. The worst feature decides, so all share one level."""
    if len(store) < FEWEST_ROWS or store.users < FEWEST_USERS:
        remedy = f"It takes {FEWEST_ROWS} rows of {FEWEST_USERS} users to tell a habit from chance. Add rows or users."
        return CheckFinding(CHECK, SKIPPED, "too few rows", why=_WHY, remedy=remedy)
    differences, users = [], []
    for done, pair in enumerate(iterate_pairs(store), 1):
        differences.append(np.subtract(features(pair.chosen), features(pair.rejected)))
        users.append(pair.user.id)
        if advance:
            advance(done, len(store))
    columns = np.array(differences)  # (pairs, features)
    found = {name: standardized(columns[:, at], users, comparisons=len(FEATURES)) for at, name in enumerate(FEATURES)}
    name = max(found, key=lambda each: (distance_from_zero(found[each]), abs(found[each].value)))
    widest = max(found.values(), key=lambda each: each.high - each.low)
    verdict = unless_too_few(
        grade(distance_from_zero(found[name]), good=SMALL, look=LARGE), widest, store.users, widest=WIDEST_DZ
    )
    return CheckFinding(
        CHECK,
        verdict,
        f"largest difference, chosen minus rejected: {name}, dz {SIGNED.estimate(found[name])} "
        f"(interval corrected for {len(FEATURES)} features)",
        why=_WHY,
        remedy=(
            f"{len(users)} rows of {store.users} users cannot tell a habit from chance. Add rows, of new users."
            if verdict == TOO_FEW
            else f"Even out {name} between chosen and rejected: rewrite or drop the extremes, or mirror the pairs."
        ),
        values={
            each: as_values(estimate) | {"mean_difference": round(float(columns[:, at].mean()), DIGITS)}
            for at, (each, estimate) in enumerate(found.items())
        },
    )


def standardized(differences: npt.NDArray[np.float64], users: Sequence[str], *, comparisons: int = 1) -> Estimate:
    """Return dz, the mean difference over its standard deviation, with an interval clustered by two or more users.

    The variance adds that of the mean, over users, and dz² / 2n for the estimated standard deviation (Hedges and
    Olkin 1985), n being the users: rows of one user may all be alike, and then say no more than one. The quantile is
    Student's with users - 1 degrees of freedom, at a level corrected for so many `comparisons` (Bonferroni).
    """
    from scipy.stats import t

    n, clusters, mean = len(differences), len(set(users)), float(differences.mean())
    spread = float(differences.std(ddof=1))
    if spread * MOST_DZ <= abs(mean):
        dz, relative_variance = math.copysign(MOST_DZ, mean) if mean else 0.0, 0.0
    else:
        sums = np.bincount(np.unique(users, return_inverse=True)[1], weights=differences - mean)
        variance = clusters / (clusters - 1) * float(sums @ sums) / n**2  # of the mean, clustered by user
        dz, relative_variance = mean / spread, variance / spread**2
    quantile = float(t.ppf(1 - (1 - LEVEL) / (2 * comparisons), clusters - 1))
    half = quantile * math.sqrt(relative_variance + dz**2 / (2 * clusters))
    return Estimate(value=dz, low=dz - half, high=dz + half, n=n)


def distance_from_zero(estimate: Estimate) -> float:
    """Return how far the interval stays away from 0: the nearer end decides, so few rows do not raise an alarm."""
    return max(estimate.low, -estimate.high, 0.0)


def check_rated_length(store: ExampleStore) -> CheckFinding:
    """Correlate length and rating (Spearman), with Fisher's interval."""
    from scipy.stats import spearmanr

    rows = [row for row in store if isinstance(row, RatedExample)]
    lengths, ratings = [len(row.response) for row in rows], [row.rating for row in rows]
    if len(rows) < 4 or len(set(lengths)) == 1 or len(set(ratings)) == 1:
        estimate = Estimate(value=0.0, low=0.0, high=0.0, n=len(rows))
        figure, verdict = "too few different lengths or ratings to correlate", TOO_FEW
    else:
        found = float(spearmanr(lengths, ratings).statistic)
        # Fisher's z; 1.06 is for ranks (Fieller, Hartley and Pearson 1957). A perfect correlation has no spread.
        half = _Z * math.sqrt(1.06 / (len(rows) - 3))
        z = math.atanh(found) if abs(found) < 1 else math.copysign(math.inf, found)
        estimate = Estimate(value=found, low=math.tanh(z - half), high=math.tanh(z + half), n=len(rows))
        figure = f"Spearman correlation of length and rating: {SIGNED.estimate(estimate)}"
        verdict = unless_too_few(
            grade(distance_from_zero(estimate), good=SMALL, look=LARGE), estimate, store.users, widest=WIDEST_RHO
        )
    return CheckFinding(
        "length and rating",
        verdict,
        figure,
        why="Where longer responses are rated higher, a model that counts characters looks aligned.",
        remedy=(
            "Add rows, of new users: these are too few to tell."
            if verdict == TOO_FEW
            else "Balance the lengths over the ratings, or report control:longest beside every model."
        ),
        values={"spearman": as_values(estimate)},
    )
