"""From results to a page: whether a benchmark's ranking of models predicts what policies get from them."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from prbench.insight.meta import Meta, Prediction, predict
from prbench.insight.meta.board import PAPER_BENCHMARK, PAPER_DOWNSTREAM, PAPER_PLACES, SAME, ModelBoard
from prbench.insight.meta.predictors import Recommendation
from prbench.insight.meta.resolution import Resolution
from prbench.insight.meta.statistics import OF_FAMILIES, ByFamily, Choices, RankStatistic
from prbench.insight.meta.structural import StructuralNull
from prbench.insight.meta.verdict import MetaOutcome
from prbench.metrics.number_format import MISSING, NumberFormat, p_text
from prbench.pages.charts import Axis, Cells, DotChart, LineChart, Mark, Series, round_axis
from prbench.pages.shell import Origin, render_page
from prbench.schema import Json

NAMES = {
    "spearman": "Spearman",
    "kendall": "Kendall tau-b",
    "pearson": "Pearson",
    "weighted_tau": "weighted tau",
    "ndcg": "NDCG",
    "rbo": "RBO",
}
CLASSES = {
    MetaOutcome.PREDICTS: "good",
    MetaOutcome.AS_DESIGNED: "look",
    MetaOutcome.REVERSED: "bad",
    MetaOutcome.DOES_NOT: "bad",
    MetaOutcome.TOO_FEW: "look",
}
HEADS = {
    MetaOutcome.PREDICTS: "yes",
    MetaOutcome.AS_DESIGNED: "yes, but no more than the design yields by itself",
    MetaOutcome.REVERSED: "the wrong way round",
    MetaOutcome.DOES_NOT: "no",
    MetaOutcome.TOO_FEW: "too few models to tell",
}
TWO, FOUR, SIGNED = NumberFormat(2), NumberFormat(4), NumberFormat(2, sign=True)


def render(found: Meta | None, studies: Sequence[Resolution] = (), origin: Origin | None = None) -> str:
    """Return the page as a string."""
    page = {
        "title": "Does the benchmark predict what policies get?",
        "facts": _facts(found),
        "notes": [] if found is None else list(found.notes),
        "predictions": [] if found is None else [_prediction(each) for each in found.predictions],
        "differences": difference_cells(found) if found and found.compared else None,
        "recommendations": [
            {
                "cells": recommendation_cells(each),
                "ways": way_cells(each),
                "name": each.downstream,
                "says": each.sentence,
            }
            for each in (found.recommendations if found else ())
        ],
        "studies": [
            {"says": each.headline, "tables": resolution_cells(each), "advice": each.advice} for each in studies
        ],
        "paper": paper_case(),
    }
    return render_page("meta.html", page, origin)


def figure_cells(prediction: Prediction) -> Cells:
    """Return the statistics against chance as a table of texts; interval and p are named for what they are about."""
    interval = f"95 % over {prediction.population.over}"
    left_out = "one left out" if prediction.by_family is None else "one family left out"
    tested = "p, families" if prediction.figures["spearman"].p_if == OF_FAMILIES else "p, orders"
    names = ("statistic", "value", interval, "by design", "chance", "5 % above", tested, left_out)
    return names, [[NAMES[key], *_figure_row(figure)] for key, figure in prediction.figures.items()]


def _figure_row(figure: RankStatistic) -> list[str]:
    if figure.value is None:
        return [MISSING] * 7
    spread, band = figure.leave_one_out, figure.structural
    return [
        FOUR.number(figure.value),
        TWO.interval(figure.low, figure.high),
        MISSING if band is None else f"{TWO.number(band.low)} … {TWO.number(band.high)}",
        TWO.number(figure.null_mean),
        TWO.number(figure.null_95),
        p_text(figure.p),
        MISSING if spread is None else f"{TWO.number(spread.low)} … {TWO.number(spread.high)}",
    ]


def family_cells(found: ByFamily) -> Cells:
    """Return where the association lies, with tests that are named for what they permute."""
    names = ("Spearman", "value", "95 % interval", "of", "p", "what p permutes")
    rows = []
    for name, each, of, permuted in (
        ("within families", found.within, "{0.models} models of {0.families} families", "variants inside a family"),
        ("between families", found.between, "the means of {0.families} families", "families"),
    ):
        figures = [MISSING] * 4
        if each is not None:
            limits = (getattr(each, "low", None), getattr(each, "high", None))
            figures = [TWO.number(each.value), TWO.interval(*limits), of.format(each), p_text(each.p)]
        rows.append([name, *figures, permuted])
    return names, rows


def null_words(found: StructuralNull) -> str:
    """Return what `by design` is, and what is assumed for it."""
    seeds = f", {found.seeds} seeds each" if found.seeds > 1 else ""
    boards = f"{found.draws} simulated boards of {found.models} models ({found.families} families{seeds})"
    return (
        f"By design: {found.range} of {boards} that read no text: want, popularity and noise, mixed so that their "
        f"accuracies are those of the benchmark. Assumed: {found.pairs:,} mirrored pairs, {found.traits} traits, best "
        f"of {found.best_of} answers of {found.sentences} sentences for {found.users} users; scores read as "
        f"{found.scores}."
    )


def difference_cells(found: Meta) -> Cells:
    """Return the paired differences between benchmarks as a table of texts."""
    names = ("first", "second", "downstream", "models", "Spearman", "difference", "95 % interval", "p")
    rows = []
    for each in found.compared:
        gap = each.difference
        figures = [MISSING] * 5
        if gap is not None:
            figures = [
                str(gap.n),
                f"{TWO.number(gap.first)} and {TWO.number(gap.second)}",
                SIGNED.number(gap.value),
                TWO.interval(gap.low, gap.high),
                p_text(gap.p),
            ]
        rows.append([each.first, each.second, each.downstream, *figures])
    return names, rows


def recommendation_cells(found: Recommendation) -> Cells:
    """Return the predictors, best first."""
    names = ("predictor", "Spearman", "95 % interval", "best minus this", "95 % interval", "p")
    rows = []
    for each in found.predictors:
        gap = each.behind_best
        behind = (
            [MISSING] * 3
            if gap is None
            else [SIGNED.number(gap.value), TWO.interval(gap.low, gap.high), p_text(gap.p)]
        )
        rows.append([each.name, TWO.number(each.spearman), TWO.interval(each.low, each.high), *behind])
    return names, rows


def way_cells(found: Recommendation) -> Cells:
    """Return how well left-out models are forecast."""
    names = ("forecast by", "skill", "95 % interval")
    return names, [[way.name, TWO.number(way.skill), TWO.interval(way.low, way.high)] for way in found.ways]


def resolution_cells(study: Resolution) -> list[Cells]:
    """Return the tables of a resolution study."""
    sizes = [
        [
            f"{size.users}",
            f"{size.items}",
            TWO.of(size.agreement, size.agreement_low, size.agreement_high),
            MISSING if size.same_best is None else f"{100 * size.same_best:.0f} %",
            TWO.number(size.reliability),
            TWO.number(size.ceiling),
            f"{size.smallest_difference:.3f}",
        ]
        for size in study.sizes
    ]
    per_user = list(study.needed[0].users_by_items)
    needed = [
        [
            f"{each.reliability:g}",
            str("too many" if each.users is None else each.users),
            str("too many" if each.items is None else each.items),
            *[
                str("too many" if each.users_by_items[count] is None else each.users_by_items[count])
                for count in per_user
            ],
        ]
        for each in study.needed
    ]
    power = [
        [
            f"{each.correlation:g}",
            str(each.models),
            str(each.models_with_these_items),
            *[TWO.interval(*limits) for limits in each.intervals.values()],
        ]
        for each in study.power
    ]
    users = tuple(f"users, {count} item{'s' if count > 1 else ''} each" for count in per_user)
    boards = tuple(f"interval of {n}" for n in study.power[0].intervals)
    tables = [
        (
            ("users", "items", "agrees with itself", "same best", "reliability", "ceiling", "resolves"),
            sizes,
        ),
        (("reliability", "users", "items", *users), needed),
        (("correlation", "models", "with items", *boards), power),
    ]
    return [*tables, *[_part_cells(study, name) for name in dict.fromkeys(part.downstream for part in study.parts)]]


def _part_cells(study: Resolution, downstream: str) -> Cells:
    """Return the correlation of parts of the board with one downstream board: users down, models across."""
    parts = [part for part in study.parts if part.downstream == downstream]
    models = list(dict.fromkeys(part.models for part in parts))
    by_place = {(part.users, part.models): TWO.of(part.mean, part.low, part.high) for part in parts}
    sizes = dict.fromkeys((part.users, part.items) for part in parts)
    rows = [[str(users), str(items), *[by_place.get((users, n), MISSING) for n in models]] for users, items in sizes]
    return ("users", "items", *[f"{n} models, {downstream}" for n in models]), rows


def paper_case() -> dict[str, Json]:
    """Return the six-model case, computed anew."""
    rows, verdicts = [], []
    for downstream in PAPER_DOWNSTREAM:
        found = predict(PAPER_BENCHMARK, downstream, Choices())
        figures = found.figures
        rows.append(
            [
                downstream.name,
                ", ".join(map(str, PAPER_PLACES[downstream.name])),
                *[FOUR.number(figures[key].value) for key in ("ndcg", "spearman")],
                TWO.interval(figures["spearman"].low, figures["spearman"].high),
                TWO.number(figures["spearman"].p),
                TWO.number(figures["ndcg"].null_mean),
                TWO.number(figures["ndcg"].p),
            ]
        )
        verdicts.append({"name": downstream.name, "says": found.verdict.sentence})
    names = ("optimizer", "places downstream", "NDCG", "Spearman", "95 % interval", "p", "NDCG by chance", "p of NDCG")
    return {"cells": (names, rows), "verdicts": verdicts}


def _facts(found: Meta | None) -> dict[str, str]:
    if found is None:
        return {}
    first = next(iter(found.predictions))
    gain = "2^(n − rank + 1) − 1" if found.choices.gain == "exponential" else "n − rank + 1"
    return {
        "benchmarks": str(len({each.pair.benchmark.name for each in found.predictions})),
        "downstream boards": str(len({each.pair.downstream.name for each in found.predictions})),
        "models": str(first.pair.n) if len(found.predictions) == 1 else _range([e.pair.n for e in found.predictions]),
        "gain of NDCG": gain,
        "p of RBO": f"{found.choices.rbo_p:g}",
        "seed": str(found.choices.seed),
        "families by": found.choices.family_by or "the column family",
    }


def _range(counts: Sequence[int]) -> str:
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _prediction(prediction: Prediction) -> dict[str, Json]:
    verdict, matches = prediction.verdict, prediction.matches
    return {
        "name": prediction.name,
        "n": prediction.pair.n,
        "class": CLASSES[verdict.outcome],
        "reply": HEADS[verdict.outcome],
        "because": verdict.sentence,
        "charts": [_scatter(prediction), *_chance(prediction)],
        "population": prediction.population.sentence,
        "p": _p_words(prediction),
        "null": "" if prediction.null is None else null_words(prediction.null),
        "families": None if prediction.by_family is None else family_cells(prediction.by_family),
        "cells": figure_cells(prediction),
        "more": _more(prediction),
        "renamed": [
            f"{each.benchmark} = {each.downstream} ({each.rule})" for each in matches.matched if each.rule != SAME
        ],
        "only_benchmark": matches.only_benchmark,
        "only_downstream": matches.only_downstream,
        "suggestions": [f"{ours} ~ {theirs}" for ours, theirs in matches.suggestions],
    }


def _p_words(prediction: Prediction) -> str:
    """Return what p and the intervals are, for the population that they are over."""
    n = prediction.pair.n
    if prediction.figures["spearman"].p_if == OF_FAMILIES:
        return (
            "Intervals and p of Spearman, Kendall and Pearson: z without each family in turn (jackknife), by t with "
            "the effective number of families less one; p is the chance under no correlation among families. "
            f"Intervals of the others: their mean over boards of {n} models at the ends of Spearman's interval."
        )
    return (
        "p: the chance under any order of the models being as likely, two-sided for correlations, one-sided for NDCG "
        "and RBO, over all orders up to 8 models and 10,000 beyond. Intervals of Spearman and Kendall: correlations "
        "of a Gaussian copula that are compatible with the observed one; of Pearson: Fisher's z; of the others: their "
        f"mean over boards of {n} models."
    )


def _more(prediction: Prediction) -> Cells:
    """Return what stands below the statistics: regret, the noise of items, what size explains, resampling."""
    rows = [
        [
            f"regret of the first {each.k}",
            NumberFormat(3).number(each.value),
            f"By chance {NumberFormat(3).number(each.chance)}. The best downstream is {each.best}.",
        ]
        for each in prediction.regrets
    ]
    if prediction.corrected is not None:
        found = prediction.corrected
        shares = f"{found.reliability_benchmark:.2f} and {found.reliability_downstream:.2f}"
        figure = TWO.of(found.spearman.value, found.spearman.low, found.spearman.high)
        rows.append(["Spearman without the noise of items", figure, f"Reliability of the scores: {shares}."])
    for each in prediction.partials:
        figure = TWO.of(each.value, each.low, each.high)
        rows.append(
            [f"Spearman given {each.given}", figure, each.why or f"p {p_text(each.p, equals=True)}, {each.n} models."]
        )
    spearman = prediction.figures["spearman"]
    for name, limits in (
        ("other models", spearman.bootstrap_models),
        ("other families, variants and seeds", spearman.bootstrap_families),
        ("other items", spearman.bootstrap_items),
        (f"other {prediction.population.over} and items", spearman.bootstrap_both),
    ):
        if limits is not None:
            rows.append(
                [f"Spearman, resampled: {name}", TWO.interval(*limits), "Bootstrap, percentiles; a cross-check."]
            )
    return ("figure", "value", "what it is"), rows


def _chance(prediction: Prediction) -> Iterator[DotChart]:
    """Yield the statistics beside what random orders of the models give."""
    rows = []
    for key, figure in prediction.figures.items():
        if figure.value is None:
            continue
        low, high = (figure.value if end is None else end for end in (figure.low, figure.high))
        marks = [Mark(value=figure.value, low=low, high=high, n=prediction.pair.n, series="value")]
        for style, (name, value) in enumerate(
            (("mean of random orders", figure.null_mean), ("exceeded by 5 % of random orders", figure.null_95)), 1
        ):
            if value is not None:
                marks.append(Mark(value=value, low=value, high=value, n=prediction.pair.n, series=name, style=style))
        if figure.structural is not None:
            band = figure.structural
            name = "a board of this spread, by design"
            marks.append(
                Mark(value=band.median, low=band.low, high=band.high, n=prediction.pair.n, series=name, style=3)
            )
        rows.append((NAMES[key] if figure.p is None else f"{NAMES[key]}, p {p_text(figure.p, equals=True)}", marks))
    if rows:
        note = (
            f"Each statistic with its 95 % interval over {prediction.population.over}, what chance gives, and what a "
            "board of this spread yields by itself (5 to 95 %). NDCG and RBO are high by chance alone."
        )
        yield DotChart(title="Against chance", note=note, rows=rows, reference=0.0, form=TWO, ends=(-1.0, 1.0))


def _scatter(prediction: Prediction) -> LineChart:
    benchmark, downstream = prediction.pair.benchmark, prediction.pair.downstream
    marks = []
    for place, model in enumerate(benchmark.models):
        (x, x_ends), (y, y_ends) = (_score(board, place) for board in (benchmark, downstream))
        low, high = y_ends or (y, y)
        marks.append(Mark(value=y, low=low, high=high, x=x, x_ends=x_ends, name=model))
    spearman = prediction.figures["spearman"].value
    return LineChart(
        title=f"Models on {benchmark.name} and {downstream.name}",
        note="Each dot is a model, with 95 % intervals of its scores where they are known.",
        series=[Series(name="", marks=marks)],
        x=_axis(benchmark),
        y=_axis(downstream),
        x_name=benchmark.name,
        y_name=downstream.name,
        has_lines=False,
        has_names=True,
        alt_text="" if spearman is None else f"{len(marks)} models, Spearman {TWO.number(spearman)}.",
    )


def _score(board: ModelBoard, place: int) -> tuple[float, tuple[float, float] | None]:
    """Return the score of a model with its interval, if one is known."""
    ends = (float(board.low[place]), float(board.high[place]))
    return float(board.scores[place]), ends if all(map(math.isfinite, ends)) else None


def _axis(board: ModelBoard) -> Axis:
    known = np.concatenate([board.scores, board.low, board.high])
    known = known[np.isfinite(known)]
    return round_axis(float(known.min()), float(known.max()), most=6)
