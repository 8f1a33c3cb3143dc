"""Does a benchmark's ranking of reward models predict what policies get? From result files alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from prbench.errors import DataError, UsageError
from prbench.insight.meta.board import BoardPair, Matches, ModelBoard, apply_map, pair_up, read_map
from prbench.insight.meta.predictors import Recommendation, SpearmanDifference, compare_spearman, recommend
from prbench.insight.meta.read import DOWNSTREAM_KINDS, check_families, read_boards
from prbench.insight.meta.resolution import Corrected, corrected_spearman
from prbench.insight.meta.statistics import (
    ByFamily,
    Choices,
    PartialCorrelation,
    Population,
    RankStatistic,
    Regret,
    by_family,
    measure,
    partial_correlations,
    population,
    regret,
)
from prbench.insight.meta.structural import NullSettings, StructuralNull, structural_null
from prbench.insight.meta.verdict import BAR, Conclusion, conclude
from prbench.schema import Json

__all__ = ["Choices", "Meta", "NullSettings", "Prediction", "compare_boards", "meta", "predict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one benchmark says about one downstream board."""

    pair: BoardPair
    matches: Matches
    figures: Mapping[str, RankStatistic]
    corrected: Corrected | None  # without the noise of items, where item rows exist
    regrets: tuple[Regret, ...]
    partials: tuple[PartialCorrelation, ...]
    population: Population
    by_family: ByFamily | None  # where families of several models are known
    null: StructuralNull | None  # what a board of this spread yields by itself
    verdict: Conclusion

    @property
    def name(self) -> str:
        """Both boards."""
        return f"{self.pair.benchmark.name} → {self.pair.downstream.name}"

    def as_json(self) -> dict[str, Json]:
        """Return one prediction for machines."""
        pair, matches, verdict, told = self.pair, self.matches, self.verdict, self.pair.family_names
        return {
            "benchmark": pair.benchmark.name,
            "downstream": pair.downstream.name,
            "n_models": pair.n,
            "population": {**asdict(self.population), "sentence": self.population.sentence},
            "models": [
                {"model": model, "benchmark": float(one), "downstream": float(two), "family": told.get(model)}
                for model, one, two in zip(pair.models, pair.benchmark.scores, pair.downstream.scores, strict=True)
            ],
            "statistics": {name: asdict(figure) for name, figure in self.figures.items()},
            "corrected_for_item_noise": asdict(self.corrected) if self.corrected else None,
            "regret": {f"top_{each.k}": asdict(each) for each in self.regrets},
            "partial": {each.given: asdict(each) for each in self.partials},
            "by_family": asdict(self.by_family) if self.by_family else None,
            "structural_null": self.null.as_json() if self.null else None,
            "verdict": verdict.sentence,
            "outcome": verdict.outcome.value,
            "rule": verdict.rule,
            "models_needed": verdict.needed,
            "models_needed_for_bar": verdict.needed_for_bar,
            "matched": [asdict(each) for each in matches.matched],
            "unmatched": {"benchmark": list(matches.only_benchmark), "downstream": list(matches.only_downstream)},
            "suggestions": [list(each) for each in matches.suggestions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkDifference:
    """Two benchmarks before the same downstream board, on the models that all three have."""

    first: str
    second: str
    downstream: str
    difference: SpearmanDifference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """All that the boards say."""

    predictions: tuple[Prediction, ...]
    compared: tuple[BenchmarkDifference, ...]
    recommendations: tuple[Recommendation, ...]
    choices: Choices
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Json]:
        """Return everything for machines; the first prediction stands at the top as well."""
        every = [each.as_json() for each in self.predictions]
        return {
            **every[0],
            "predictions": every,
            "differences": [asdict(each) for each in self.compared],
            "recommendations": [asdict(each) for each in self.recommendations],
            "choices": asdict(self.choices),
            "notes": list(self.notes),
        }


def meta(
    benchmarks: Sequence[str],
    downstreams: Sequence[str],
    *,
    names: Path | None = None,
    choices: Choices | None = None,
    bar: float = BAR,
    at_kl: float | None = None,
) -> Meta:
    """Read the sources, match their models, and compare every benchmark with every downstream board.

        found = meta(["board.csv"], ["policies.csv"])
        print(found.predictions[0].figures["spearman"])

    A source is a CSV or JSON file of scores, or a folder of runs.
    """
    choices = choices or Choices()
    first = read_boards(benchmarks, family_by=choices.family_by)
    second = read_boards(downstreams, at_kl=at_kl, prefer=DOWNSTREAM_KINDS, family_by=choices.family_by)
    check_families([*first, *second], choices.family_by)
    boards, unknown = apply_map([*first, *second], read_map(names) if names else {})
    return compare_boards(boards[: len(first)], boards[len(first) :], choices=choices, bar=bar, notes=unknown)


def compare_boards(
    benchmarks: Sequence[ModelBoard],
    downstreams: Sequence[ModelBoard],
    *,
    choices: Choices,
    bar: float = BAR,
    notes: Sequence[str] = (),
) -> Meta:
    """Measure every benchmark before every downstream board."""
    if not benchmarks or not downstreams:
        raise UsageError("Name at least one --benchmark and one --downstream.")
    if not 0 < bar < 1:
        raise UsageError(f"--min-correlation {bar:g}: give a correlation between 0 and 1.")
    predictions = [predict(one, two, choices, bar=bar) for two in downstreams for one in benchmarks]
    compared, recommendations = [], []
    for downstream in downstreams:
        of_this = [each for each in predictions if each.pair.downstream.name == downstream.name]
        compared += [_compare(*two, choices.seed) for two in combinations(of_this, 2)]
        found = recommend([each.pair for each in of_this], seed=choices.seed) if len(of_this) > 1 else None
        recommendations += [found] if found is not None else []
    said = [note for board in (*benchmarks, *downstreams) for note in board.notes]
    said += [note for one in benchmarks for two in downstreams if (note := _shared_users(one, two))]
    return Meta(
        predictions=tuple(predictions),
        compared=tuple(compared),
        recommendations=tuple(recommendations),
        choices=choices,
        notes=(*notes, *dict.fromkeys(said)),
    )


def predict(benchmark: ModelBoard, downstream: ModelBoard, choices: Choices, *, bar: float = BAR) -> Prediction:
    """Measure one benchmark before one downstream board, on the models that both have."""
    pair, matches = pair_up(benchmark, downstream)
    if not pair.n:
        nearest = "Give files about the same models, or match them with --map."
        if matches.suggestions:
            ours, theirs = matches.suggestions[0]
            nearest = f"Did you mean {ours!r} = {theirs!r}? Say so with --map."
        raise DataError(f"{benchmark.name} and {downstream.name} have no model in common. {nearest}")
    null = structural_null(pair, choices.null, gain=choices.gain, p=choices.rbo_p, seed=choices.seed)
    figures = measure(pair, choices, null)
    headline, drawn = figures["spearman"], population(pair)
    return Prediction(
        pair=pair,
        matches=matches,
        figures=figures,
        corrected=corrected_spearman(pair),
        regrets=tuple(regret(pair.benchmark, pair.downstream, k) for k in sorted({1, min(choices.top_k, pair.n)})),
        partials=tuple(partial_correlations(pair)),
        population=drawn,
        by_family=by_family(pair, choices),
        null=null,
        verdict=conclude(
            n=pair.n,
            value=headline.value,
            low=headline.low,
            high=headline.high,
            p=headline.p,
            bar=bar,
            families=drawn.families,
            band=headline.structural,
        ),
    )


def _shared_users(benchmark: ModelBoard, downstream: ModelBoard) -> str:
    """Say so where the same users are behind both boards: they may make one model look good on both."""
    if benchmark.items is None or downstream.items is None:
        return ""
    shared = set(benchmark.items.users) & set(downstream.items.users)
    if not shared:
        return ""
    both = f"{benchmark.name} and {downstream.name}"
    return f"{both} share {len(shared)} users, so a part of the correlation may be theirs alone. Use other users."


def _compare(first: Prediction, second: Prediction, seed: int) -> BenchmarkDifference:
    theirs = set(second.pair.models)
    shared = [model for model in first.pair.models if model in theirs]
    one, two = first.pair.benchmark.of(shared), second.pair.benchmark.of(shared)
    downstream = first.pair.downstream.of(shared)
    return BenchmarkDifference(
        first=one.name,
        second=two.name,
        downstream=downstream.name,
        difference=compare_spearman(
            one.scores,
            two.scores,
            downstream.scores,
            seed=seed,
            families=BoardPair(benchmark=one, downstream=downstream).families,
        ),
    )
