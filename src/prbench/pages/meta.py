"""From results to a page: plain texts and positions, which `templates/meta.html` draws in the look of the report."""

import math
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from prbench.insight.meta import Meta, Prediction, predict
from prbench.insight.meta.board import PAPER_BENCHMARK, PAPER_DOWNSTREAM, PAPER_PLACES, SAME, ModelBoard
from prbench.insight.meta.predictors import Recommendation
from prbench.insight.meta.resolution import Resolution, ResolutionAt
from prbench.insight.meta.statistics import Choices, MetaOutcome, RankStatistic
from prbench.pages.shell import render_page
from prbench.schema import Json

MISSING = "–"
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
    MetaOutcome.REVERSED: "bad",
    MetaOutcome.DOES_NOT: "bad",
    MetaOutcome.TOO_FEW: "look",
}
HEADS = {
    MetaOutcome.PREDICTS: "yes",
    MetaOutcome.REVERSED: "the wrong way round",
    MetaOutcome.DOES_NOT: "no",
    MetaOutcome.TOO_FEW: "too few models to tell",
}
LETTER, LINE = 6.4, 13.0  # of a label, in units of the drawing; every dot has its name in a tooltip as well
LONGEST_LABEL = 26
LEFT, RIGHT, TOP, BOTTOM = 64.0, 544.0, 14.0, 344.0  # the drawing area of a scatter plot
MOST_TICKS = 6
Cells = tuple[tuple[str, ...], list[list[str]]]
Box = tuple[float, float, float, float]


def render(found: Meta | None, studies: Sequence[Resolution] = ()) -> str:
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
        "version": version("prbench"),
    }
    return render_page("meta.html", page=page)


def figure_cells(prediction: Prediction) -> Cells:
    """Return the statistics against chance as a table of texts."""
    names = ("statistic", "value", "95 % interval", "chance", "5 % above", "p", "one left out")
    return names, [[NAMES[key], *_figure_row(figure)] for key, figure in prediction.figures.items()]


def _figure_row(figure: RankStatistic) -> list[str]:
    if figure.value is None:
        return [MISSING] * 6
    spread = figure.leave_one_out
    return [
        f"{figure.value:.4f}",
        _limits((figure.low, figure.high)),
        _number(figure.null_mean),
        _number(figure.null_95),
        _p(figure.p),
        MISSING if spread is None else f"{spread.low:.2f} … {spread.high:.2f}",
    ]


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
                f"{gap.first:.2f} and {gap.second:.2f}",
                f"{gap.value:+.2f}",
                _limits((gap.low, gap.high)),
                _p(gap.p),
            ]
        rows.append([each.first, each.second, each.downstream, *figures])
    return names, rows


def recommendation_cells(found: Recommendation) -> Cells:
    """Return the predictors, best first."""
    names = ("predictor", "Spearman", "95 % interval", "best minus this", "95 % interval", "p")
    rows = []
    for each in found.predictors:
        gap = each.behind_best
        behind = [MISSING] * 3 if gap is None else [f"{gap.value:+.2f}", _limits((gap.low, gap.high)), _p(gap.p)]
        rows.append([each.name, f"{each.spearman:.2f}", _limits((each.low, each.high)), *behind])
    return names, rows


def way_cells(found: Recommendation) -> Cells:
    """Return how well left-out models are forecast."""
    names = ("forecast by", "skill", "95 % interval")
    return names, [[way.name, f"{way.skill:.2f}", _limits((way.low, way.high))] for way in found.ways]


def resolution_cells(study: Resolution) -> list[Cells]:
    """Return the tables of a resolution study."""
    sizes = [
        [
            f"{size.users}",
            f"{size.items}",
            _agreement(size),
            MISSING if size.same_best is None else f"{100 * size.same_best:.0f} %",
            f"{size.reliability:.2f}",
            f"{size.ceiling:.2f}",
            f"{size.smallest_difference:.3f}",
        ]
        for size in study.sizes
    ]
    per_user = list(study.needed[0].users_by_items)
    needed = [
        [
            f"{each.reliability:g}",
            _count(each.users),
            _count(each.items),
            *[_count(each.users_by_items[count]) for count in per_user],
        ]
        for each in study.needed
    ]
    power = [
        [
            f"{each.correlation:g}",
            str(each.models),
            str(each.models_with_these_items),
            *[_limits(limits) for limits in each.intervals.values()],
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
    by_place = {(part.users, part.models): f"{part.mean:.2f} {_limits((part.low, part.high))}" for part in parts}
    sizes = dict.fromkeys((part.users, part.items) for part in parts)
    rows = [[str(users), str(items), *[by_place.get((users, n), MISSING) for n in models]] for users, items in sizes]
    return ("users", "items", *[f"{n} models, {downstream}" for n in models]), rows


def _agreement(size: ResolutionAt) -> str:
    return (
        f"{_number(size.agreement)} {_limits((size.agreement_low, size.agreement_high)).removeprefix(MISSING)}".strip()
    )


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
                *[f"{figures[key].value:.4f}" for key in ("ndcg", "spearman")],
                _limits((figures["spearman"].low, figures["spearman"].high)),
                f"{figures['spearman'].p:.2f}",
                f"{figures['ndcg'].null_mean:.2f}",
                f"{figures['ndcg'].p:.2f}",
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
        "scatter": _scatter(prediction.pair.benchmark, prediction.pair.downstream),
        "bars": [_bar(NAMES[key], figure) for key, figure in prediction.figures.items() if figure.value is not None],
        "cells": figure_cells(prediction),
        "more": _more(prediction),
        "renamed": [
            f"{each.benchmark} = {each.downstream} ({each.rule})" for each in matches.matched if each.rule != SAME
        ],
        "only_benchmark": matches.only_benchmark,
        "only_downstream": matches.only_downstream,
        "suggestions": [f"{ours} ~ {theirs}" for ours, theirs in matches.suggestions],
    }


def _more(prediction: Prediction) -> Cells:
    """Return what stands below the statistics: regret, the noise of items, what size explains, resampling."""
    rows = [
        [
            f"regret of the first {each.k}",
            f"{each.value:.3f}",
            f"By chance {each.chance:.3f}. The best downstream is {each.best}.",
        ]
        for each in prediction.regrets
    ]
    if prediction.corrected is not None:
        found = prediction.corrected
        shares = f"{found.reliability_benchmark:.2f} and {found.reliability_downstream:.2f}"
        figure = f"{found.spearman.value:.2f} {_limits((found.spearman.low, found.spearman.high))}"
        rows.append(["Spearman without the noise of items", figure, f"Reliability of the scores: {shares}."])
    for each in prediction.partials:
        figure = MISSING if each.value is None else f"{each.value:.2f} {_limits((each.low, each.high))}"
        rows.append([f"Spearman given {each.given}", figure, each.why or f"p {_with_sign(each.p)}, {each.n} models."])
    spearman = prediction.figures["spearman"]
    for name, limits in (
        ("other models", spearman.bootstrap_models),
        ("other items", spearman.bootstrap_items),
        ("other models and items", spearman.bootstrap_both),
    ):
        if limits is not None:
            rows.append([f"Spearman, resampled: {name}", _limits(limits), "Bootstrap, percentiles; a cross-check."])
    return ("figure", "value", "what it is"), rows


def _bar(name: str, figure: RankStatistic) -> dict[str, Json]:
    """Return the places of one statistic, its interval and what chance gives, in percent of the track."""
    assert figure.value is not None
    low, high = figure.low if figure.low is not None else figure.value, figure.high or figure.value

    def place(value: float) -> float:
        return round(100 * (value + 1) / 2, 2)

    return {
        "name": name,
        "at": place(figure.value),
        "low": place(low),
        "width": round(place(high) - place(low), 2),
        "chance": place(figure.null_mean or 0.0),
        "bar": place(figure.null_95 or 0.0),
        "text": f"{figure.value:.2f} [{low:.2f}, {high:.2f}], p {_with_sign(figure.p)}",
        "p": f"p {_with_sign(figure.p)}",
    }


def _scatter(benchmark: ModelBoard, downstream: ModelBoard) -> dict[str, Json]:
    across, x_ticks = _axis(benchmark, LEFT, RIGHT)
    down, y_ticks = _axis(downstream, BOTTOM, TOP)
    points = []
    for place, model in enumerate(benchmark.models):
        x, y = float(benchmark.scores[place]), float(downstream.scores[place])
        ends = [_ends(board, place) for board in (benchmark, downstream)]
        points.append(
            {
                "name": model,
                "x": _at(x, across),
                "y": _at(y, down),
                "x_ends": [_at(end, across) for end in ends[0]],
                "y_ends": [_at(end, down) for end in ends[1]],
                "text": f"{model}: {_full(x, ends[0])} on the benchmark, {_full(y, ends[1])} downstream",
            }
        )
    _add_labels(points)
    return {
        "points": points,
        "x_ticks": [{"at": _at(tick, across), "text": f"{tick:g}"} for tick in x_ticks],
        "y_ticks": [{"at": _at(tick, down), "text": f"{tick:g}"} for tick in y_ticks],
        "x_name": benchmark.name,
        "y_name": downstream.name,
    }


def _add_labels(points: list[dict[str, Json]]) -> None:
    """Give names to the dots that have room for one."""
    taken = [(point["x"] - 6, point["y"] - 6, point["x"] + 6, point["y"] + 6) for point in points]
    for point in points:
        name = point["name"].rpartition("/")[2][:LONGEST_LABEL]
        width, x, y = LETTER * len(name), point["x"], point["y"]
        places = [
            (anchor, start, y + shift)
            for shift in (4, -9, 17)
            for anchor, start in (("start", x + 9), ("end", x - 9 - width))
        ]
        for anchor, start, line in places:
            box = (start, line - LINE + 3, start + width, line + 3)
            if start >= LEFT and start + width <= RIGHT and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                edge = start if anchor == "start" else start + width
                point |= {"label": name, "anchor": anchor, "label_x": round(edge, 1), "label_y": round(line, 1)}
                break


def _overlap(one: Box, two: Box) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _axis(board: ModelBoard, start: float, end: float) -> tuple[tuple[float, float, float, float], list[float]]:
    known = np.concatenate([board.scores, board.low, board.high])
    known = known[np.isfinite(known)]
    least, most = float(known.min()), float(known.max())
    if most <= least:
        least, most = least - 0.5, most + 0.5
    size = 10.0 ** math.floor(math.log10((most - least) / MOST_TICKS))
    step = next(step * size for step in (1, 2, 5, 10) if (most - least) <= MOST_TICKS * step * size)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    ticks = [round(step * count, 10) for count in range(first, last + 1)]
    return (ticks[0], ticks[-1], start, end), ticks


def _at(value: float, axis: tuple[float, float, float, float]) -> float:
    least, most, start, end = axis
    return round(start + (end - start) * (value - least) / (most - least), 1)


def _ends(board: ModelBoard, place: int) -> Sequence[float]:
    ends = (float(board.low[place]), float(board.high[place]))
    return ends if all(map(math.isfinite, ends)) else ()


def _full(value: float, ends: Sequence[float]) -> str:
    return f"{value:.3g} [{ends[0]:.3g}, {ends[1]:.3g}]" if ends else f"{value:.4g}"


def _limits(limits: tuple[float | None, float | None]) -> str:
    low, high = limits
    return MISSING if low is None or high is None else f"[{low:.2f}, {high:.2f}]"


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def _count(value: int | None) -> str:
    return "too many" if value is None else str(value)


def _with_sign(p: float | None) -> str:
    return text if (text := _p(p)).startswith("<") else f"= {text}"


def _p(p: float | None) -> str:
    if p is None or math.isnan(p):
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
