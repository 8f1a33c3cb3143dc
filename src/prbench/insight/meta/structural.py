"""The structural null: what correlation a board of this spread yields by itself.

A benchmark and a downstream board that ask for the same thing agree, whatever is benchmarked. So models are simulated
that read no text and learn nothing: each scores an answer by `want * what this user wants + popularity * what most
users want + noise`, and its weight of want is set so that its accuracy on mirrored pairs is the one observed. They are
asked about pairs of one wanted and one unwanted sentence, and pick the best of n answers of a few sentences for other
users; what they pick is worth the share of wanted sentences. A correlation inside the band of such boards is no more
than the design yields by itself. It says nothing about text, or about people.
"""

from dataclasses import asdict, dataclass, field
from functools import lru_cache

import numpy as np

from prbench.errors import UsageError
from prbench.insight.meta.board import BoardPair
from prbench.insight.meta.families import each_its_own
from prbench.metrics.correlation import RBO_P, Gain, Statistic, coefficient_of_each
from prbench.metrics.estimate import FloatArray
from prbench.schema import Json

STATISTICS: tuple[Statistic, ...] = ("spearman", "kendall", "pearson", "weighted_tau", "ndcg", "rbo")
TAILS = (0.05, 0.5, 0.95)
POPULAR = (0.60, 0.40)  # shares of users who want the first and the last trait; those between lie evenly
SENTENCES = 3  # of an answer
NOISE = 0.5  # standard deviation of a score
MOST_USERS = 400  # simulated downstream; more change the band little
USUAL_PAIRS, USUAL_USERS = 1_600, 200  # where a board does not tell its own
MAPPED = (0.50, 0.90)  # accuracies that the least and the largest score stand for, where scores are no accuracies
FARTHEST_WEIGHT, HALVINGS = 6.0, 40
FEWEST_MODELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NullSettings:
    """What is assumed about a board of which only the values are known."""

    draws: int = 200  # simulated boards; 0 for none
    traits: int = 8  # things that a user may want
    best_of: int = 64  # answers that a model picks from
    pairs: int | None = None  # of the benchmark; as many as its items where they are known, else 1,600
    users: int | None = None  # downstream; as many as there are up to 400, else 200

    def __post_init__(self) -> None:
        """Refuse what cannot be simulated."""
        if self.draws < 0 or self.traits < 2 or self.best_of < 1 or min(self.pairs or 1, self.users or 1) < 1:
            raise UsageError("The structural null needs at least 2 traits, 1 answer, 1 pair and 1 user.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NullBand:
    """Where 90 of 100 simulated boards lie."""

    low: float
    median: float
    high: float

    def place(self, value: float) -> str:
        """Return where an observed figure lies: `inside`, `below` or `above`."""
        return "below" if value < self.low else "above" if value > self.high else "inside"


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuralNull:
    """The band of every statistic, and all that was assumed for it."""

    bands: dict[str, NullBand | None]
    models: int
    families: int
    seeds: int
    pairs: int
    users: int
    traits: int
    sentences: int
    best_of: int
    noise: float
    popular: tuple[float, float]  # shares of users who want the most and the least popular trait
    draws: int
    seed: int
    scores: str  # how the benchmark's scores were read
    range: str = field(default="5 to 95 %")

    def as_json(self) -> dict[str, Json]:
        """Return it for machines."""
        return asdict(self)


def structural_null(
    pair: BoardPair, settings: NullSettings, *, gain: Gain = "exponential", p: float = RBO_P, seed: int = 0
) -> StructuralNull | None:
    """Return what a board of this spread yields by itself; `None` if it is not asked for, or there is no spread."""
    scores = pair.benchmark.scores
    if not settings.draws or pair.n < FEWEST_MODELS or np.ptp(scores) == 0:
        return None
    families = pair.families or each_its_own(pair.n)
    accuracies, read = as_accuracies(scores)
    seeds = max(1, round(float(np.median([len(pair.downstream.seeds.get(model, (0,))) for model in pair.models]))))
    items, answered = pair.benchmark.items, pair.downstream.items
    pairs = settings.pairs or (len(items.ids) if items else USUAL_PAIRS)
    users = settings.users or (min(MOST_USERS, len(set(answered.users))) if answered else USUAL_USERS)
    key = tuple(accuracies.round(6).tolist()), tuple(families.codes.tolist())
    known = (settings.traits, settings.best_of, pairs, users, seeds)
    accuracy, gold = _matched(*key, known, settings.draws, seed)
    bands: dict[str, NullBand | None] = {}
    for statistic in STATISTICS:
        bands[statistic] = band_of(coefficient_of_each(accuracy, gold, statistic, gain=gain, p=p))
    return StructuralNull(
        bands=bands,
        models=pair.n,
        families=families.count,
        seeds=seeds,
        pairs=pairs,
        users=users,
        traits=settings.traits,
        sentences=SENTENCES,
        best_of=settings.best_of,
        noise=NOISE,
        popular=POPULAR,
        draws=settings.draws,
        seed=seed,
        scores=read,
    )


def band_of(values: FloatArray) -> NullBand | None:
    """Return where 90 of 100 values lie; `None` where there are none."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    low, median, high = map(float, np.quantile(known, TAILS))
    return NullBand(low=low, median=median, high=high)


def as_accuracies(scores: FloatArray) -> tuple[FloatArray, str]:
    """Return scores as shares of pairs, and how they were read: as shares, as percent, or by their spread alone."""
    least, most = float(scores.min()), float(scores.max())
    if least >= 0 and most <= 1:
        return scores, "accuracies"
    if least >= 0 and 1 < most <= 100 and least > 1:
        return scores / 100, "accuracies in percent"
    low, high = MAPPED
    return low + (high - low) * (scores - least) / (most - least), (
        f"no accuracies: the least stands for {low:.2f} and the largest for {high:.2f}"
    )


@lru_cache(maxsize=32)
def _matched(
    accuracies: tuple[float, ...], codes: tuple[int, ...], known: tuple[int, ...], draws: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return the accuracies and downstream values of simulated boards, (draws, models) each.

    How much a family follows what most want is drawn evenly between 0 and 1; how much each of its models wants
    what the user wants is set so that it has its accuracy.
    """
    traits, best_of, pairs, users, seeds = known
    generator = np.random.Generator(np.random.PCG64(seed))
    follows = generator.uniform(0, 1, size=(draws, max(codes) + 1))[:, list(codes)]
    wants = weights_for(np.array(accuracies), follows, traits)
    return simulate_boards(
        generator, wants, follows, pairs=pairs, users=users, traits=traits, best_of=best_of, seeds=seeds
    )


def weights_for(accuracies: FloatArray, follows: FloatArray, traits: int) -> FloatArray:
    """Return the weights of want that give models these accuracies, (draws, models), by bisection."""
    shares, gaps = _classes(traits)
    low, high = np.full(follows.shape, -FARTHEST_WEIGHT), np.full(follows.shape, FARTHEST_WEIGHT)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_short = (_chance_right(middle, follows, gaps) * shares).sum(axis=-1) < accuracies
        low, high = np.where(is_short, middle, low), np.where(is_short, high, middle)
    middle_of: FloatArray = (low + high) / 2
    return middle_of


def simulate_boards(
    generator: np.random.Generator,
    wants: FloatArray,
    follows: FloatArray,
    *,
    pairs: int = USUAL_PAIRS,
    users: int = USUAL_USERS,
    traits: int = 8,
    best_of: int = 64,
    seeds: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """Return the accuracy and the downstream value of every model of every board; weights are (boards, models).

    `accuracy` is over mirrored pairs: for every user one who wants the opposite. A model with several seeds is asked
    as often, with new noise, and the means count.
    """
    shares, gaps = _classes(traits)
    popular = np.linspace(*POPULAR, traits)
    liked = (2 * popular - 1).astype(np.float32)
    boards, models = wants.shape
    chances = _chance_right(wants, follows, gaps)
    accuracy, value = np.empty((2, boards, models))
    for board in range(boards):
        counts = generator.multinomial(pairs, shares)
        right = generator.binomial(counts * seeds, chances[board])
        accuracy[board] = right.sum(axis=-1) / (pairs * seeds)
        people = np.where(generator.random((users, traits)) < popular, 1.0, -1.0).astype(np.float32)
        answers = generator.integers(0, traits, (users, best_of, SENTENCES))
        gold = np.take_along_axis(people[:, None, :], answers, axis=2).mean(axis=2)
        pleasing = liked[answers].mean(axis=2)
        worth = np.zeros(models)
        for _ in range(seeds):
            scores = generator.standard_normal((models, users, best_of), dtype=np.float32)
            scores *= np.float32(NOISE)
            scores += wants[board].astype(np.float32)[:, None, None] * gold
            scores += follows[board].astype(np.float32)[:, None, None] * pleasing
            worth += np.take_along_axis(gold[None], scores.argmax(axis=2)[..., None], axis=2).mean(axis=(1, 2))
        value[board] = worth / seeds
    return accuracy, value


def _classes(traits: int) -> tuple[FloatArray, FloatArray]:
    """Return the kinds of mirrored pairs: the share of each, and how much more most users like the wanted sentence."""
    popular = np.linspace(*POPULAR, traits)
    first, second = (each.ravel() for each in np.meshgrid(np.arange(traits), np.arange(traits), indexing="ij"))
    first, second = first[first != second], second[first != second]
    # A user wants the one and not the other, and the mirrored user the reverse.
    shares = popular[first] * (1 - popular[second]) + popular[second] * (1 - popular[first])
    return shares / shares.sum(), 2 * (popular[first] - popular[second])


def _chance_right(wants: FloatArray, follows: FloatArray, gaps: FloatArray) -> FloatArray:
    """Return how likely the wanted sentence scores higher: (..., kinds of pairs)."""
    from scipy.special import ndtr

    chance: FloatArray = ndtr((2 * wants[..., None] + follows[..., None] * gaps) / (NOISE * np.sqrt(2)))
    return chance
