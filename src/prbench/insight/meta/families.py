"""Families of models: variants of one training, its sizes, seeds and settings, are no models drawn by themselves.

Which family a model is of is told by a column of a table or by a rule on its name. An interval over families asks what
other families would give: the figure is computed again with each family left out, its variants and their seeds with it
(the delete-a-group jackknife), on the scale of Fisher's z, and the error is multiplied by the quantile of t. Variants,
seeds and items need no resampling of their own there: their noise moves with the family that they are in (Davison and
Hinkley 1997, section 3.8). Families of unequal size count as fewer (Kish 1965). `experiments/meta_families.py` shows
that this covers, and what does not. Two permutation tests ask where an association lies: inside families or between.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from prbench.errors import UsageError
from prbench.insight.meta.intervals import FARTHEST, Interval, interval_of
from prbench.metrics.correlation import PERMUTATIONS, Correlation, correlate
from prbench.metrics.estimate import LEVEL, FloatArray
from prbench.registry import MODELS
from prbench.runs import MANIFEST
from prbench.runs.files import TRAIN, read_json
from prbench.specs import parse_spec

KIND, METHOD, NAME = "kind", "method", "name"
RULES = (KIND, METHOD, NAME)
FEWEST_FAMILIES = 4  # below, nothing is told from them, as nothing is from fewer models
EXACT_WITHIN = 40_320  # orders inside families that are all tried
SLACK = 1e-9  # the same order computed in two ways differs in the last digits
# What ends the name of a variant: a number, a size such as 8B, or a seed, step or epoch with its number.
_VARIANT = re.compile(
    r"(?:[\s_/-]+(?:(?:seed|step|steps|epoch|epochs|checkpoint|ckpt|s)[\s_-]?\d+|\d+(?:\.\d+)?[kmbt]|\d+))+$",
    re.IGNORECASE,
)
Figure = Callable[[npt.NDArray[np.int64]], float | None]  # places of models -> a correlation among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """The family of every model of a board, in its order."""

    names: tuple[str, ...]  # of the families, sorted
    codes: npt.NDArray[np.int64]  # (models,) the place of each one's family among the names

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many models each family has."""
        return np.bincount(self.codes, minlength=len(self.names))

    @property
    def count(self) -> int:
        """How many families there are."""
        return len(self.names)

    @property
    def effective(self) -> float:
        """How many families of equal size would tell as much (Kish 1965)."""
        sizes = self.sizes
        return float(sizes.sum() ** 2 / (sizes @ sizes))

    @property
    def are_single(self) -> bool:
        """True if every model is a family of its own."""
        return self.count == len(self.codes)

    def of(self, places: Sequence[int] | npt.NDArray[np.int64]) -> "Families":
        """Return the families of some of the models."""
        return families_of([self.names[code] for code in self.codes[list(places)]])

    def places(self, family: int) -> npt.NDArray[np.int64]:
        """Return the places of a family's models."""
        return np.flatnonzero(self.codes == family)

    def without(self, family: int) -> npt.NDArray[np.int64]:
        """Return the places of the models that are of other families."""
        return np.flatnonzero(self.codes != family)


def families_of(names: Sequence[str]) -> Families:
    """Return the families of models, given the name of each one's family."""
    found, codes = np.unique(np.array(names, dtype=object), return_inverse=True)
    return Families(names=tuple(map(str, found)), codes=codes.astype(np.int64))


def each_its_own(n: int) -> Families:
    """Return n families of one model each."""
    return Families(names=tuple(map(str, range(n))), codes=np.arange(n))


def family_by_rule(model: str, rule: str) -> str:
    """Return the family that a rule reads off a model's name or spec.

    `kind`: what stands before the colon of its spec. `method`: how the folder that it names was trained, else the
    kind.
    `name`: its name without options and without the numbers, sizes, seeds and steps at its end.
    """
    try:
        spec = parse_spec(model, MODELS)
    except UsageError:  # a name from a table
        return model if rule != NAME else _stem(model.partition("?")[0])
    match rule:
        case "kind":
            return spec.kind
        case "method":
            return _method_of(Path(spec.target)) or spec.kind
        case _:
            return _stem(f"{spec.kind}:{spec.target}" if spec.target else spec.kind)


def _stem(name: str) -> str:
    return _VARIANT.sub("", name) or name


def _method_of(folder: Path) -> str:
    """Return the method that trained the model in a folder, or "" where none is recorded."""
    if not (folder / MANIFEST).is_file():
        return ""
    manifest = read_json(folder / MANIFEST)
    config = manifest.get("config")
    if manifest.get("kind") != TRAIN or not isinstance(config, dict):
        return ""
    return str(config.get("method", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLimits:
    """A 95 % interval over families, and the test of 0 that goes with it."""

    low: float
    high: float
    p: float  # two-sided: z over its error, by t; under 0.05 exactly where the interval leaves 0 out


def family_interval(value: float, figure: Figure, families: Families) -> FamilyLimits | None:
    """Return the interval of a correlation over families, by the jackknife on z; `None` where nothing can be told.

    Where it sees no error, as in a perfect order, the interval is that of as many models as there are families.
    """
    from scipy.stats import t

    if families.count < FEWEST_FAMILIES:
        return None
    without = [figure(families.without(family)) for family in range(families.count)]
    if any(each is None or math.isnan(each) for each in without):
        return None
    end = math.tanh(FARTHEST)
    all_z, z = (np.arctanh(np.clip(np.array(each, dtype=np.float64), -end, end)) for each in (value, without))
    error = math.sqrt((families.count - 1) / families.count * float(((z - z.mean()) ** 2).sum()))
    if abs(value) >= 1 - SLACK or error < SLACK:
        return _as_models(value, families.count)
    freedom = families.effective - 1
    half = float(t.ppf(0.5 + LEVEL / 2, freedom)) * error
    return FamilyLimits(
        low=min(value, math.tanh(float(all_z) - half)),
        high=max(value, math.tanh(float(all_z) + half)),
        p=float(2 * t.sf(abs(float(all_z)) / error, freedom)),
    )


def _as_models(value: float, n: int) -> FamilyLimits:
    """Return the interval and the test of n models with that correlation."""
    from scipy.stats import t

    value = max(-1.0, min(1.0, value))
    low, high = interval_of(value, n, "spearman") or (-1.0, 1.0)
    if abs(value) >= 1 - SLACK:
        return FamilyLimits(low=low, high=high, p=2 / math.factorial(n))  # of all orders, this and its reverse
    return FamilyLimits(low=low, high=high, p=float(2 * t.sf(abs(value) * math.sqrt((n - 2) / (1 - value**2)), n - 2)))


def family_draws(families: Families, draws: int, generator: np.random.Generator) -> Iterator[npt.NDArray[np.int64]]:
    """Yield models drawn anew, (draws, models) places: families, and within each drawn family as many of its variants.

    Families differ in size, so draws do too: those of one size come together.
    """
    members = [families.places(family) for family in range(families.count)]
    if families.are_single:
        yield generator.integers(0, families.count, size=(draws, families.count))
        return
    by_size: dict[int, list[npt.NDArray[np.int64]]] = {}
    for drawn in generator.integers(0, families.count, size=(draws, families.count)):
        own = [members[family] for family in drawn]
        models = np.concatenate([each[generator.integers(0, len(each), size=len(each))] for each in own])
        by_size.setdefault(len(models), []).append(models)
    for _, several in sorted(by_size.items()):
        yield np.stack(several)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinFamilies:
    """Does the benchmark order the variants inside a family? Downstream scores are permuted within families."""

    value: float  # Spearman of ranks taken inside each family
    families: int  # that have variants to order
    models: int
    p: float  # two-sided
    exact: bool  # all orders inside families, or a seeded sample of them


@dataclass(frozen=True, slots=True, kw_only=True)
class BetweenFamilies:
    """Does the benchmark order the families? Their mean scores downstream are permuted."""

    value: float  # Spearman of the families' mean scores
    low: float | None
    high: float | None
    families: int
    p: float  # two-sided
    exact: bool


def within_families(
    x: FloatArray, y: FloatArray, families: Families, *, seed: int = 0, draws: int = PERMUTATIONS
) -> WithinFamilies | None:
    """Return the association inside families with its permutation test; `None` where no family has differing variants.

    Each family's scores become ranks, centered, so that how families differ from each other does not count.
    """
    members = [places for family in range(families.count) if len(places := families.places(family)) > 1]
    ranks = [(_centered(x[places]), _centered(y[places])) for places in members]
    ranks = [(one, two) for one, two in ranks if one.any() and two.any()]
    if not ranks:
        return None
    spread = math.sqrt(sum(float(one @ one) for one, _ in ranks) * sum(float(two @ two) for _, two in ranks))
    observed = sum(float(one @ two) for one, two in ranks) / spread
    orders = math.prod(math.factorial(len(one)) for one, _ in ranks)
    exact = orders <= EXACT_WITHIN
    if exact:
        every = [[float(one @ two[list(order)]) for order in permutations(range(len(two)))] for one, two in ranks]
        null = np.array([sum(each) for each in product(*every)]) / spread
    else:
        generator = np.random.Generator(np.random.PCG64(seed))
        drawn = [generator.permuted(np.tile(two, (draws, 1)), axis=1) @ one for one, two in ranks]
        null = np.sum(drawn, axis=0) / spread
    count = int((np.abs(null) >= abs(observed) - SLACK).sum())
    return WithinFamilies(
        value=observed,
        families=len(ranks),
        models=sum(len(one) for one, _ in ranks),
        p=count / len(null) if exact else (count + 1) / (len(null) + 1),
        exact=exact,
    )


def _centered(values: FloatArray) -> FloatArray:
    from scipy.stats import rankdata

    ranks = rankdata(values)
    centered: FloatArray = ranks - ranks.mean()
    return centered


def between_families(
    x: FloatArray, y: FloatArray, families: Families, *, seed: int = 0, draws: int = PERMUTATIONS
) -> BetweenFamilies | None:
    """Return the association of the families' mean scores; `None` where it is undefined."""
    first, second = (np.bincount(families.codes, weights=column) / families.sizes for column in (x, y))
    found: Correlation | None = correlate(first, second, seed=seed, draws=draws)
    if found is None:
        return None
    limits: Interval | None = interval_of(found.value, families.count, "spearman")
    return BetweenFamilies(
        value=found.value,
        low=limits[0] if limits else None,
        high=limits[1] if limits else None,
        families=families.count,
        p=found.p_value,
        exact=found.exact,
    )


def seeds_drawn(
    seeds: Mapping[str, Sequence[float]],
    models: Sequence[str],
    scores: FloatArray,
    drawn: npt.NDArray[np.int64],
    generator: np.random.Generator,
) -> FloatArray:
    """Return the scores of drawn models, each the mean of seeds drawn from its own; of one seed, its score."""
    found: FloatArray = scores[drawn]
    for place, model in enumerate(models):
        own = np.array(seeds.get(model, ()), dtype=np.float64)
        if len(own) > 1:
            here = drawn == place
            picked = generator.integers(len(own), size=(int(here.sum()), len(own)))
            found[here] = own[picked].mean(axis=1)
    return found
