"""`prbench meta`: does the benchmark's ranking predict the downstream ranking, and can so few models tell?"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.table import Table

from prbench.cli import options
from prbench.errors import UsageError
from prbench.insight.meta import Choices, Meta, NullSettings, Prediction
from prbench.insight.meta import meta as measure_meta
from prbench.insight.meta.board import Matches
from prbench.insight.meta.read import parse_source, read_boards
from prbench.insight.meta.resolution import Resolution, measure_resolution
from prbench.insight.meta.verdict import BAR
from prbench.metrics.correlation import RBO_P, Gain
from prbench.metrics.number_format import p_text
from prbench.pages.meta import (
    SIGNED,
    TWO,
    family_cells,
    figure_cells,
    null_words,
    recommendation_cells,
    render,
    resolution_cells,
)
from prbench.pages.shell import origin_of, prepare_place, write_page

GAINS: Mapping[str, Gain] = {"exp": "exponential", "linear": "linear"}
LONGEST_FIGURE = 16  # characters; longer texts may be broken
NULL = "What the design yields by itself"
USUAL = NullSettings()
MOST_NAMES = 12  # of a list in the terminal; `--json` has all


@dataclass(frozen=True, kw_only=True)
class NullOptions:
    """The simulated boards that say what a correlation may be by design."""

    null_draws: Annotated[int, options.flag("Simulated boards of the structural null; 0 for none.", NULL, min=0)] = (
        USUAL.draws
    )
    null_traits: Annotated[int, options.flag("Things that a simulated user may want.", NULL, min=2)] = USUAL.traits
    null_best_of: Annotated[int, options.flag("Answers that a simulated model picks from.", NULL, min=1)] = (
        USUAL.best_of
    )
    null_items: Annotated[
        int | None, options.flag("Simulated pairs; default: the benchmark's items, else 1,600.", NULL, min=1)
    ] = None

    def settings(self) -> NullSettings:
        """Return them as the library takes them."""
        return NullSettings(
            draws=self.null_draws, traits=self.null_traits, best_of=self.null_best_of, pairs=self.null_items
        )


def meta(
    benchmark: Annotated[
        list[str],
        options.flag(
            "Scores of models: CSV, JSON, a run or a folder of runs; `NAME=FILE#COLUMN` to choose. Repeat it.",
            options.DATA,
        ),
    ],
    null: NullOptions,
    downstream: Annotated[
        list[str],
        options.flag(
            "What policies got, likewise: also results of `prbench bon` and `prbench ppo`. Repeat it.", options.DATA
        ),
    ] = [],  # noqa: B006
    names: Annotated[
        Path | None, options.flag("CSV with from,to: other names of models.", options.DATA, "--map")
    ] = None,
    family_by: Annotated[
        str,
        options.flag(
            "Families of models: a column of tables (default: `family`), or a rule on names: `kind` of the spec, "
            "training `method`, or `name` without sizes, seeds and steps.",
            options.DATA,
        ),
    ] = "",
    at_kl: options.AtKl = None,
    ndcg_gain: Annotated[str, options.flag("`exp`: 2^(n - rank + 1) - 1, or `linear`: n - rank + 1.")] = "exp",
    rbo_p: Annotated[float, options.flag("Persistence of RBO, between 0 and 1.")] = RBO_P,
    top_k: Annotated[int, options.flag("Models one would try downstream.", min=1)] = 3,
    min_correlation: Annotated[float, options.flag("A correlation worth having, between 0 and 1.")] = BAR,
    resolution: Annotated[
        bool, options.flag("How many items, users and models the benchmark needs.", None, "--resolution")
    ] = False,
    seed: options.Seed = 0,
    html: options.Html = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Does a benchmark's ranking of reward models predict what policies get? From result files alone.

    Example: `prbench meta --benchmark runs --benchmark rewardbench2.csv --downstream runs/bon/1a2b3c --html meta.html`
    """
    choices = Choices(
        gain=GAINS[options.one_of("--ndcg-gain", ndcg_gain, tuple(GAINS))],
        rbo_p=rbo_p,
        top_k=top_k,
        seed=seed,
        family_by=family_by,
        null=null.settings(),
    )
    if html is not None:
        prepare_place(html, "meta.html")
    if not downstream and not resolution:
        raise UsageError("Name what policies got with --downstream FILE, or ask for --resolution alone.")
    found = None
    if downstream:
        found = measure_meta(benchmark, downstream, names=names, choices=choices, bar=min_correlation, at_kl=at_kl)
    studies = _study(benchmark, found, seed) if resolution else []
    if json:
        options.print_json({**(found.as_json() if found else {}), "resolution": [each.as_json() for each in studies]})
    else:
        if found:
            _print(found)
        for study in studies:
            _print_resolution(study)
    if html is not None:
        sources = [*benchmark, *(downstream or ())]
        origin = origin_of([parse_source(each).path for each in sources], options.command_line(), ", ".join(sources))
        write_page(render(found, studies, origin), html)
        options.notes.print(f"page: {html}", soft_wrap=True)


def _study(benchmark: list[str], found: Meta | None, seed: int) -> list[Resolution]:
    """Study the boards that have item rows; it is an error if none has."""
    boards = read_boards(benchmark)
    with_items = [board for board in boards if board.items is not None] or boards
    pairs = [each.pair for each in found.predictions] if found else []
    return [
        measure_resolution(board, [pair for pair in pairs if pair.benchmark.name == board.name], seed=seed)
        for board in with_items
    ]


def _print(found: Meta) -> None:
    show = options.out_console.print
    for note in found.notes:
        show(f"note: {note}", style="dim", soft_wrap=True)
    for prediction in found.predictions:
        _print_prediction(prediction)
    if found.compared:
        show()
    for each in found.compared:
        gap, what = each.difference, f"{each.first} − {each.second}, for {each.downstream}"
        figures = (
            "undefined"
            if gap is None
            else f"{SIGNED.of(gap.value, gap.low, gap.high)}, p {p_text(gap.p, equals=True)}"
        )
        show(f"Spearman of {what}: {figures}", soft_wrap=True)
    for recommendation in found.recommendations:
        show()
        _print_table(*recommendation_cells(recommendation))
        show(recommendation.sentence, soft_wrap=True)


def _print_prediction(prediction: Prediction) -> None:
    show = options.out_console.print
    show()
    show(f"{prediction.name}: {prediction.pair.n} models", style="bold", soft_wrap=True)
    _print_matches(prediction.matches)
    show(prediction.population.sentence, style="dim" if prediction.population.families else "yellow", soft_wrap=True)
    _print_table(*figure_cells(prediction))
    if prediction.null is not None:
        show(null_words(prediction.null), style="dim", soft_wrap=True)
    if prediction.by_family is not None:
        _print_table(*family_cells(prediction.by_family))
    for regret in prediction.regrets:
        show(f"regret of the first {regret.k}: {regret.value:.3f}; by chance {regret.chance:.3f}")
    if prediction.corrected is not None:
        each = prediction.corrected.spearman
        show(f"Spearman without the noise of items: {TWO.estimate(each)}")
    for partial in prediction.partials:
        figure = partial.why if partial.value is None else TWO.of(partial.value, partial.low, partial.high)
        show(f"Spearman given {partial.given}: {figure}", soft_wrap=True)
    show(prediction.verdict.sentence, style="bold", soft_wrap=True)


def _print_matches(matches: Matches) -> None:
    show = options.out_console.print
    for each in matches.matched:
        if each.benchmark != each.downstream:
            show(f"matched: {each.benchmark} = {each.downstream} ({each.rule})", style="dim", soft_wrap=True)
    for side, names in (("benchmark", matches.only_benchmark), ("downstream", matches.only_downstream)):
        if names:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            show(f"only {side}: {', '.join(names[:MOST_NAMES])}{more}", style="yellow", soft_wrap=True)
    for ours, theirs in matches.suggestions:
        show(f"not used, but alike: {ours} ~ {theirs}. Say so with --map.", style="yellow", soft_wrap=True)


def _print_resolution(study: Resolution) -> None:
    show = options.out_console.print
    show()
    show(study.headline, style="bold", soft_wrap=True)
    for names, rows in resolution_cells(study):
        show()
        _print_table(names, rows)
    show()
    for line in study.advice:
        show(line, soft_wrap=True)


def _print_table(names: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, name in enumerate(names):
        longest = max((len(row[place]) for row in rows), default=0)
        word = max(map(len, name.split()))
        table.add_column(name, min_width=max(word, min(longest, LONGEST_FIGURE)), overflow="fold")
    for row in rows:
        table.add_row(*row)
    options.out_console.print(table)
