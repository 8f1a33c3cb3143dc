"""Does the lab's benchmark predict what policies get? All figures again from the rows of `meta_experiment.py`.

    python experiments/meta_report.py --rows results/meta --html meta.html

Read: `pairs.csv.gz`, every `bon_POLICY.csv.gz` and every `ppo_POLICY.csv.gz` (`ppo_rows.py`) in `--rows`. Of a PPO run
its last policy counts or, with `--at-kl`, of those after the start the one nearest to so many nats. An item is the
mean over a model's seeds. Written to `--out`, or beside the rows: `figures.json` and `tables.md`; with `--html`, the
page of `prbench meta` with scatter plots. Nothing is asked of any model.
"""

import argparse
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import read_table
from lab_halves import BENCHMARK, DOWNSTREAM

from prbench.insight.meta import Meta, Prediction, compare_boards
from prbench.insight.meta.board import BoardPair, ModelBoard, board_of_items, board_of_scores, tabulate
from prbench.insight.meta.predictors import spearman_interval
from prbench.insight.meta.resolution import measure_resolution
from prbench.insight.meta.statistics import Choices, measure
from prbench.insight.meta.structural import structural_null
from prbench.pages.meta import render

SIZES = (4, 16, 64)
LAST = SIZES[-1]
NEAR_CHANCE = 0.6  # accuracy
FAR_NATS = 0.5  # from the asked distance
CORES = 2
PPO, STEPS = "PPO", "_steps"
FAMILY = re.compile(r"^(control|head|attention|lowrank|planner|general|mixture|[a-z-]+)")
Rows = list[dict[str, str]]
Is = Callable[[Mapping[str, str]], bool]

# Which rows of `pairs.csv.gz` each benchmark is made of.
BENCHMARKS: dict[str, Is] = {
    "personalised": lambda row: row["benchmark"] == "personal" and row["probe"] == "own",
    "general": lambda row: row["benchmark"] == "general",
    "swapped profiles": lambda row: row["benchmark"] == "personal" and row["probe"] == "swap",
    "easy: plain posts": lambda row: BENCHMARKS["personalised"](row) and row["level"] == "plain",
    "hard: oblique posts": lambda row: BENCHMARKS["personalised"](row) and row["level"] == "oblique",
}


def main() -> None:
    """Read, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path("results/meta"))
    parser.add_argument("--at-kl", type=float)
    parser.add_argument("--out", type=Path, help="folder of the figures")
    parser.add_argument("--html", type=Path)
    asked = parser.parse_args()
    started = time.monotonic()
    pairs = of_half(BENCHMARK, read_table(asked.rows / "pairs.csv.gz"))
    pools = {
        path.name[4:-7]: of_half(DOWNSTREAM, read_table(path)) for path in sorted(asked.rows.glob("bon_*.csv.gz"))
    }
    benchmarks = [board(name, [row for row in pairs if chosen(row)], "points") for name, chosen in BENCHMARKS.items()]
    downstreams = [*boards_of_pools(pools), *boards_of_ppo(asked.rows, asked.at_kl)]
    best = [each for each in downstreams if f"best of {LAST}" in each.name or each.name.endswith(PPO)]
    with ProcessPoolExecutor(max_workers=CORES) as workers:
        whole = workers.submit(compare_boards, benchmarks, downstreams, choices=Choices())
        parts = [
            workers.submit(
                compare_boards, [benchmarks[0], *predictors(pairs, pools, each.name)], [each], choices=Choices()
            )
            for each in best
        ]
        found, predicting = whole.result(), [part.result() for part in parts]
    study = measure_resolution(benchmarks[0], [found.predictions[0].pair])
    figures = as_figures(found, predicting, asdict(study)) | {"at_kl": asked.at_kl}
    out = asked.out or asked.rows
    out.mkdir(parents=True, exist_ok=True)
    # On one line: with its indents the file would be a fifth of all results.
    compact = json.dumps(figures, separators=(",", ":"))
    (out / "figures.json").write_text(compact + "\n", encoding="utf-8")
    text = "\n".join(markdown(found, predicting, benchmarks, best))
    (out / "tables.md").write_text(text, encoding="utf-8")
    if asked.html:
        asked.html.write_text(render(before(found, best), [study]), encoding="utf-8")
    print(text)
    print(f"{time.monotonic() - started:.0f} s")


def of_half(half: int, rows: Rows) -> Rows:
    """Return rows whose users are named after their half: each half counts its people from 0."""
    return [{**row, "user_id": f"{half}/{row['user_id']}"} for row in rows]


def board(name: str, rows: Rows, column: str) -> ModelBoard:
    """Return a board whose items are means over seeds."""
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    by_seed: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row[column] != "":
            values[row["model"], row["id"], row["user_id"]].append(float(row[column]))
            by_seed[row["model"]][row["seed"]].append(float(row[column]))
    models, items = tabulate([(*key, float(np.mean(several))) for key, several in values.items()])
    means_of = {model: tuple(float(np.mean(each)) for each in of.values()) for model, of in by_seed.items()}
    seeds = {model: several for model, several in means_of.items() if len(several) > 1}
    return board_of_items(name, models, items, families={model: family(model) for model in models}, seeds=seeds)


def family(model: str) -> str:
    """Return what kind of model a name tells of: variants by rows, by turned labels and by weight are one family."""
    found = FAMILY.match(model)
    assert found is not None, model
    return found[1].rstrip("-")


def boards_of_pools(pools: Mapping[str, Rows]) -> Iterator[ModelBoard]:
    """Yield a board for every policy and n."""
    for policy, rows in pools.items():
        for n in SIZES:
            yield board(f"{policy}: best of {n}", rows, f"best_of_{n}")


def boards_of_ppo(folder: Path, at_kl: float | None) -> Iterator[ModelBoard]:
    """Yield a board for every policy that PPO moved, by the model that rewarded it."""
    for path in sorted(folder.glob("ppo_*.csv.gz")):
        policy = path.name[4:-7]
        if not policy.endswith(STEPS):
            yield board(f"{policy}: {PPO}", of_half(DOWNSTREAM, list(kept_policies(read_table(path), at_kl))), "gold")


def kept_policies(rows: Rows, at_kl: float | None) -> Iterator[dict[str, str]]:
    """Yield of every run the rows of its last policy, or of the one whose mean KL is nearest."""
    runs: dict[tuple[str, str], dict[str, Rows]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        runs[row["seed"], row["model"]][row["step"]].append(row)
    for steps in runs.values():
        yield from steps[chosen_step(steps, at_kl)]


def chosen_step(steps: Mapping[str, Rows], at_kl: float | None) -> str:
    """Return the last step, or of those after the start the one whose mean KL is nearest."""
    if at_kl is None:
        return max(steps, key=int)
    learned = {step: float(np.mean([float(row["kl"]) for row in rows])) for step, rows in steps.items() if int(step)}
    nearest = min(learned, key=lambda step: abs(learned[step] - at_kl))
    if abs(learned[nearest] - at_kl) > FAR_NATS:
        row = steps[nearest][0]
        print(f"{row['model']} {row['seed']}: the nearest policy is at {learned[nearest]:.1f} nats")
    return nearest


def before(found: Meta, downstreams: Sequence[ModelBoard]) -> Meta:
    """Return what was found before some of the downstream boards."""
    names = {each.name for each in downstreams}
    return replace(
        found,
        predictions=tuple(each for each in found.predictions if each.pair.downstream.name in names),
        compared=tuple(each for each in found.compared if each.downstream in names),
        recommendations=(),
    )


def predictors(pairs: Rows, pools: Mapping[str, Rows], downstream: str) -> Iterator[ModelBoard]:
    """Yield what else may predict a downstream board, one figure per model; samples are of its policy, or of all."""
    own = {(row["seed"], row["model"], row["id"]): row for row in pairs if BENCHMARKS["personalised"](row)}
    gaps = [
        {**row, "gap": str(float(own[row["seed"], row["model"], row["id"]]["points"]) - float(row["points"]))}
        for row in pairs
        if BENCHMARKS["swapped profiles"](row)
    ]
    yield board("swap gap", gaps, "gap")
    mine = list(own.values())
    yield board("minority accuracy", [row for row in mine if row["majority"] == "False"], "points")
    yield least_category(mine)
    on_policy = pools.get(downstream.partition(":")[0]) or [row for rows in pools.values() for row in rows]
    yield board("accuracy on policy samples", on_policy, "pairs_right")
    yield board_of_scores("variance of rewards", means(on_policy, "variance"))
    yield board_of_scores(
        "little to do with length",
        {model: -abs(value) for model, value in means(on_policy, "length_correlation").items()},
    )


def least_category(rows: Rows) -> ModelBoard:
    """Return the accuracy of every model in its worst category."""
    by_category: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_category[row["model"]][row["category"]].append(float(row["points"]))
    worst = {model: min(float(np.mean(each)) for each in of.values()) for model, of in by_category.items()}
    return board_of_scores("least category", worst)


def means(rows: Rows, column: str) -> dict[str, float]:
    """Return the mean of a column for every model that has values there."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row[column] != "":
            values[row["model"]].append(float(row[column]))
    return {model: float(np.mean(each)) for model, each in values.items()}


def as_figures(found: Meta, predicting: Sequence[Meta], study: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything for machines, without the scores of single models twice."""
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for each in (*found.predictions, *(each for one in predicting for each in one.predictions)):
        for side in (each.pair.benchmark, each.pair.downstream):
            scores[side.name] |= {m: round(float(s), 6) for m, s in zip(side.models, side.scores, strict=True)}
    return {
        "command": "python experiments/meta_report.py",
        "models": scores,
        "predictions": [as_figure(each) for each in found.predictions],
        "differences": [asdict(each) for each in found.compared],
        "near_chance": within(found.predictions, lambda score: score <= NEAR_CHANCE),
        "beyond_chance": within(found.predictions, lambda score: score > NEAR_CHANCE),
        "predictors": [as_figure(each) for one in predicting for each in one.predictions],
        "recommendations": [asdict(each) for one in predicting for each in one.recommendations],
        "resolution": study,
        "notes": list(found.notes),
    }


def as_figure(each: Prediction) -> dict[str, Any]:
    """Return one benchmark before one downstream board."""
    kept = ("value", "low", "high", "p", "structural")
    spearman, drawn = each.figures["spearman"], each.null
    return {
        "benchmark": each.pair.benchmark.name,
        "downstream": each.pair.downstream.name,
        "n_models": each.pair.n,
        "statistics": {name: {key: asdict(figure)[key] for key in kept} for name, figure in each.figures.items()},
        "population": asdict(each.population),
        "spearman over models": over_models(each.pair, spearman.value),
        "bootstrap_families": spearman.bootstrap_families,
        "by_family": asdict(each.by_family) if each.by_family else None,
        "structural_null": drawn and {name: value for name, value in asdict(drawn).items() if name != "bands"},
        "corrected": asdict(each.corrected) if each.corrected else None,
        "given": {part.given: asdict(part) for part in each.partials},
        "regret": [asdict(part) for part in each.regrets],
        "verdict": each.verdict.sentence,
        "outcome": each.verdict.outcome,
    }


def over_models(pair: BoardPair, value: float | None) -> dict[str, float] | None:
    """Return the interval that takes variants for models drawn one by one."""
    if value is None:
        return None
    low, high = spearman_interval(value, pair.benchmark.scores, pair.downstream.scores)
    return {"value": value, "low": low, "high": high}


def within(predictions: Sequence[Prediction], keeps: Callable[[float], bool]) -> list[dict[str, Any]]:
    """Return how the first benchmark predicts among models whose score there is kept."""
    found = []
    for each in predictions:
        if each.pair.benchmark.name == next(iter(BENCHMARKS)):
            kept = [m for m, s in zip(each.pair.models, each.pair.benchmark.scores, strict=True) if keeps(float(s))]
            part = BoardPair(benchmark=each.pair.benchmark.of(kept), downstream=each.pair.downstream.of(kept))
            choices = Choices()
            figure = asdict(measure(part, choices, structural_null(part, choices.null))["spearman"])
            found.append(
                {
                    "downstream": part.downstream.name,
                    "models": kept,
                    "families": None if part.families is None else part.families.count,
                    **{name: figure[name] for name in ("value", "low", "high", "p", "structural")},
                    "over models": over_models(part, figure["value"]),
                }
            )
    return found


def markdown(
    found: Meta, predicting: Sequence[Meta], benchmarks: Sequence[ModelBoard], best: Sequence[ModelBoard]
) -> Iterator[str]:
    """Yield the tables of docs/research/meta.md."""
    names = list(dict.fromkeys(each.pair.downstream.name for each in found.predictions))
    yield from ("### Spearman of each benchmark with what policies get", "")
    yield f"| benchmark | {' | '.join(names)} |"
    yield "| --- " * (len(names) + 1) + "|"
    for one in benchmarks:
        cells = [spearman(each) for each in found.predictions if each.pair.benchmark.name == one.name]
        yield f"| {one.name} | {' | '.join(cells)} |"
    yield from ("", "### The personalised benchmark minus another", "", f"| other | {' | '.join(names)} |")
    yield "| --- " * (len(names) + 1) + "|"
    for two in benchmarks[1:]:
        cells = [
            shown(asdict(each.difference), signed=True) if each.difference else "–"
            for each in found.compared
            if (each.first, each.second) == (benchmarks[0].name, two.name)
        ]
        yield f"| {two.name} | {' | '.join(cells)} |"
    yield from ("", "### Other predictors", "", f"| predictor | {' | '.join(each.name for each in best)} |")
    yield "| --- " * (len(best) + 1) + "|"
    rows = [each for one in predicting for each in one.predictions]
    for name in dict.fromkeys(each.pair.benchmark.name for each in rows):
        cells = [spearman(each) for each in rows if each.pair.benchmark.name == name]
        yield f"| {name} | {' | '.join(cells)} |"
    yield from ("", "### Models", "", f"| model | {' | '.join(each.name for each in (*benchmarks, *best))} |")
    yield "| --- " * (len(benchmarks) + len(best) + 1) + "|"
    first = benchmarks[0]
    for model in sorted(first.models, key=lambda model: -float(first.scores[first.models.index(model)])):
        cells = [score(each, model) for each in benchmarks] + [score(each, model, digits=3) for each in best]
        yield f"| `{model}` | {' | '.join(cells)} |"
    yield ""


def spearman(each: Prediction) -> str:
    """Return Spearman's rho with its interval."""
    return shown(asdict(each.figures["spearman"]))


def shown(estimate: Mapping[str, Any], *, signed: bool = False) -> str:
    """Return a figure with its interval."""
    if estimate["value"] is None:
        return "–"
    form = "+.2f" if signed else ".2f"
    return f"{estimate['value']:{form}} [{estimate['low']:{form}}, {estimate['high']:{form}}]"


def score(of: ModelBoard, model: str, digits: int = 1) -> str:
    """Return a model's score: percent, or gold with three digits."""
    if model not in of.models:
        return "–"
    value = float(of.scores[of.models.index(model)])
    return f"{100 * value:.1f}" if digits == 1 else f"{value:.{digits}f}"


if __name__ == "__main__":
    main()
