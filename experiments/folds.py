"""Train every method on text that prbench did not write, in five folds, and measure each fold by the other four.

    python experiments/folds.py FOLDER --set personamem --arm match --arm "head, topics" --out results/folds
    python experiments/folds.py FOLDER --set prefeval --out results/folds      # all arms that need no GPU
    python experiments/folds.py FOLDER --table --out results/folds             # tables from the rows that are there

FOLDER holds `personamem_pairs.jsonl.gz` (split by user) and `prefeval_pairs.jsonl.gz` (split by topic); see
docs/research/results.md. Of the four folds that an arm may see, a fifth of the users or topics is held out again,
for early stopping, penalties and temperatures. Written: one file of rows per set and arm (ids, scores, verdicts, no
text), one with the scores of the rows that were held out for those, and `tables.md` with `figures.json`. Arms that
are there already are not run again; nor are folds of one that is not finished, which wait under `parts`. Differences
are paired, item by item, with 95 % intervals that resample what was held out together: users, or topics.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import read_table, write_table

from prbench.backends.encoders import load_encoder
from prbench.data import open_examples
from prbench.errors import PrbenchError
from prbench.evaluation import EvalSettings, evaluate
from prbench.metrics.estimate import clustered_ratios
from prbench.schema import POINTS, Example, Probe, Row, Verdict
from prbench.training.blend import BlendConfig, fit_weights
from prbench.training.data import HOLD_OUT_BY, hold_out, make_training_data, with_every_rejected
from prbench.training.methods import load_method, make_config, run_method

FOLDS = 5
INNER = 0.2  # of the users or topics that an arm may see
POSTS = 30
SEEDS = (0, 1, 2)
PENALTY = BlendConfig(models="one,two").penalty
REMEMBERED = 400_000  # texts; the clauses of PersonaMem alone are 84,000
COLUMNS = ("seed", "fold", "id", "user_id", "group", "probe", "verdict", "score_chosen", "score_rejected")


@dataclass(frozen=True)
class Set:
    """One dataset and how it is split."""

    name: str
    by: str

    @property
    def file(self) -> str:
        """Where its pairs are."""
        return f"{self.name}_pairs.jsonl.gz"


SETS = {each.name: each for each in (Set("personamem", "user"), Set("prefeval", "category"))}


@dataclass(frozen=True)
class Arm:
    """A method with its settings, or a control; `seeds` is one where nothing is drawn."""

    method: str
    settings: tuple[str, ...] = ()
    seeds: Sequence[int] = SEEDS
    gpu: bool = False
    only_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # more settings, by the name of a set


ARMS = {
    "overlap": Arm("control:overlap", seeds=(0,)),
    "embed": Arm("control:embed", seeds=(0,)),
    "match": Arm("match", seeds=(0,)),
    "match, no users": Arm("match", ("knows_users=false",), seeds=(0,)),
    "head, topics": Arm("head"),
    "head, no users": Arm("head", ("knows_users=false",)),
    "planner": Arm("planner"),
    "summary": Arm("summary"),
    "rubric-chain": Arm("rubric-chain"),
    "fewshot": Arm("fewshot"),
    "bt": Arm("bt", ("backbone=smollm2", "accumulate=1"), gpu=True),
    # Minutes of a GPU for each fold: an epoch of PersonaMem has 4.5 million tokens.
    "bt-profile": Arm(
        "bt-profile",
        ("backbone=smollm2",),
        seeds=(0,),
        gpu=True,
        only_for={"personamem": ("epochs=1", "accumulate=8")},
    ),
}
# Arms whose scores are added, with weights from the rows that were held out: `prbench train --method blend`.
BLENDS = {"blend of bt and match": ("bt", "match")}
BARS = ("bt", "match, no users", "head, no users", "overlap")  # what an arm that knows users must beat


def main() -> None:
    """Run what is asked for and not there yet, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", choices=SETS, action="append", dest="sets")
    parser.add_argument("--arm", choices=ARMS, action="append", dest="arms")
    parser.add_argument("--folds", type=int, nargs="+", choices=range(FOLDS), default=range(FOLDS))
    parser.add_argument("--table", action="store_true", help="only the tables")
    parser.add_argument("--out", type=Path, default=Path("results/folds"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    load_encoder().cache_size = REMEMBERED  # type: ignore[attr-defined]
    for name in () if arguments.table else arguments.sets or SETS:
        rows = read(arguments.folder / SETS[name].file)
        for arm in arguments.arms or [arm for arm, each in ARMS.items() if not each.gpu]:
            path = row_file(arguments.out, name, arm)
            if not path.exists():
                run_arm(path, rows, SETS[name], ARMS[arm], f"{name}, {arm}", arguments.folds)
    write_tables(arguments.out)


def read(path: Path) -> list[Example]:
    """Read the pairs of a file."""
    with open_examples(path) as store:
        return [each for each in store if isinstance(each, Example)]


def row_file(out: Path, name: str, arm: str) -> Path:
    """Where the rows of an arm are kept."""
    return out / f"{name}_{arm.replace(', ', '_').replace(' ', '_')}.csv.gz"


def held_out_file(rows: Path) -> Path:
    """Where the scores of rows that stopped the training are kept: what a blend of arms is weighed on."""
    return rows.parent / "held_out" / rows.name


def folds_of(rows: Sequence[Example], by: str) -> dict[str, int]:
    """Deal users or categories to folds."""
    groups = sorted({HOLD_OUT_BY[by](row) for row in rows})
    random.Random("five folds").shuffle(groups)
    return {group: number % FOLDS for number, group in enumerate(groups)}


def run_arm(path: Path, rows: Sequence[Example], which: Set, arm: Arm, label: str, folds: Sequence[int]) -> None:
    """Train and measure fold by fold; with the last one, the parts are joined.

    An arm that cannot be trained on such data says so.
    """
    fold_of = folds_of(rows, which.by)
    group_of = {row.id: HOLD_OUT_BY[which.by](row) for row in rows}
    for seed in arm.seeds:
        for fold in folds:
            part = part_file(path, seed, fold)
            if part.exists():
                continue
            started = time.monotonic()
            seen = [row for row in rows if fold_of[HOLD_OUT_BY[which.by](row)] != fold]
            unseen = [row for row in rows if fold_of[HOLD_OUT_BY[which.by](row)] == fold]
            try:
                answered, stopped = one_fold(seen, unseen, which, arm, seed)
            except PrbenchError as error:
                print(f"{label}: {error}", flush=True)
                return
            for file, found in ((held_out_file(part), stopped), (part, answered)):
                file.parent.mkdir(parents=True, exist_ok=True)
                write_table(file, COLUMNS, [[seed, fold, *cells(row, group_of[row.id])] for row in found])
            right = [POINTS[row.verdict] for row in answered if row.probe is Probe.OWN]
            seconds = time.monotonic() - started
            print(f"{label}, seed {seed}, fold {fold}: {100 * np.mean(right):.1f} in {seconds:.0f} s", flush=True)
    parts = [part_file(path, seed, fold) for seed in arm.seeds for fold in range(FOLDS)]
    if all(part.exists() for part in parts):
        join(held_out_file(path), [held_out_file(part) for part in parts])
        join(path, parts)  # last: whoever finds this file takes the arm for finished


def part_file(path: Path, seed: int, fold: int) -> Path:
    """Where the rows of one fold wait for the others."""
    return path.parent / "parts" / f"{path.name.removesuffix('.csv.gz')}_{seed}_{fold}.csv.gz"


def join(path: Path, parts: Sequence[Path]) -> None:
    """Write the rows of all parts to one file, unless it is there, and remove the parts."""
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    write_table(path, COLUMNS, [list(row.values()) for part in parts for row in read_table(part)])
    for part in parts:
        part.unlink()


def one_fold(
    seen: Sequence[Example], unseen: Sequence[Example], which: Set, arm: Arm, seed: int
) -> tuple[list[Row], list[Row]]:
    """Return the rows of the unseen pairs and of those that stopped the training, from a model of the seen ones."""
    learn, stop = hold_out(seen, INNER, by=which.by)
    own = EvalSettings(posts=POSTS, seed=seed, probes=(Probe.OWN, Probe.NONE))
    if ":" in arm.method:
        everything = EvalSettings(posts=POSTS, seed=seed)
        return list(ask(unseen, arm.method, everything)), list(ask(stop, arm.method, own))
    data = make_training_data(list(with_every_rejected(learn)), stop)
    method = load_method(arm.method)
    config = make_config(method, [*arm.settings, *arm.only_for.get(which.name, ())], seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        trained = run_method(method, data, config, Path(folder) / "model")
        how = EvalSettings(context=trained.context, posts=POSTS, seed=seed)
        answered = list(ask(unseen, trained.spec, how, shots=trained.shots))
        stopped = ask(stop, trained.spec, replace(own, context=trained.context), shots=trained.shots)
        return answered, list(stopped)


def ask(rows: Sequence[Example], spec: str, how: EvalSettings, shots: int = 0) -> Iterator[Row]:
    """Yield the rows of one evaluation; labels are a user's other pairs."""
    run = evaluate(rows, spec, settings=how, labels=rows if shots else None, shots=shots)
    yield from (row for row in run.items if isinstance(row, Row))


def cells(row: Row, group: str) -> list[Any]:
    """Return a row without any text."""
    return [row.id, row.user_id, group, row.probe, row.verdict, row.score_chosen, row.score_rejected]


def read_rows(path: Path) -> dict[tuple[str, str, str], float]:
    """Return the mean points over seeds by item, what was held out with it, and probe."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in read_table(path):
        key = (row["id"], row["group"], row["probe"])
        found.setdefault(key, []).append(POINTS_BY_NAME[row["verdict"]])
    return {key: float(np.mean(points)) for key, points in found.items()}


POINTS_BY_NAME = {str(verdict): points for verdict, points in POINTS.items()}


def write_tables(out: Path) -> None:
    """Compute all figures again from the rows that are there."""
    figures: dict[str, Any] = {"command": "python experiments/folds.py FOLDER", "folds": FOLDS, "posts": POSTS}
    figures["arms"] = {name: asdict(arm) for name, arm in ARMS.items()}
    for name in SETS:
        for blend, arms in BLENDS.items():
            if all(held_out_file(row_file(out, name, arm)).exists() for arm in arms):
                write_blend(row_file(out, name, blend), [row_file(out, name, arm) for arm in arms])
        there = [arm for arm in (*ARMS, *BLENDS) if row_file(out, name, arm).exists()]
        figures[name] = set_figures({arm: read_rows(row_file(out, name, arm)) for arm in there})
    (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    text = "\n".join(markdown(name, figures[name]) for name in SETS if figures[name])
    (out / "tables.md").write_text(text, encoding="utf-8")
    print(text)


def write_blend(path: Path, members: Sequence[Path]) -> None:
    """Blend arms fold by fold: weighed on what was held out, applied to what was not seen."""
    seen = [scores_by_seed(held_out_file(member)) for member in members]
    unseen = [scores_by_seed(member) for member in members]
    found: list[list[Any]] = []
    for seed in max(map(sorted, unseen), key=len):
        held_out, asked = ([each.get(seed, each[min(each)]) for each in some] for some in (seen, unseen))
        for fold in range(FOLDS):
            weights = {
                probe: fit_weights(
                    np.array([
                        [each[key]["chosen"] - each[key]["rejected"] for each in held_out]
                        for key in sorted(held_out[0])
                        if (key[0], key[2]) == (fold, probe)
                    ]),
                    PENALTY,
                )
                for probe in ("own", "none")
            }  # fmt: skip
            for key in sorted(asked[0]):
                if key[0] == fold:
                    how = weights["none" if key[2] == "none" else "own"]
                    found.append([seed, *blended(key, [each[key] for each in asked], how)])
    write_table(path, COLUMNS, found)


Scores = dict[tuple[int, str, str], dict[str, Any]]  # by fold, id and probe


def scores_by_seed(path: Path) -> dict[int, Scores]:
    """Return both scores of every row, with its user and group."""
    found: dict[int, Scores] = {}
    for row in read_table(path):
        key = (int(row["fold"]), row["id"], row["probe"])
        scores = {side: float(row[f"score_{side}"]) for side in ("chosen", "rejected")}
        found.setdefault(int(row["seed"]), {})[key] = {**scores, "user": row["user_id"], "group": row["group"]}
    return found


def blended(key: tuple[int, str, str], said: Sequence[Mapping[str, Any]], weights: Any) -> list[Any]:
    """Return the cells of one row of a blend, without its seed."""
    fold, item, probe = key
    chosen, rejected = (float(weights @ [each[side] for each in said]) for side in ("chosen", "rejected"))
    verdict = Verdict.CHOSEN if chosen > rejected else Verdict.REJECTED if chosen < rejected else Verdict.TIE
    return [fold, item, said[0]["user"], said[0]["group"], probe, verdict, chosen, rejected]


def set_figures(there: Mapping[str, Mapping[tuple[str, str, str], float]]) -> dict[str, Any]:
    """Return accuracy, accuracy without context, swap gap and paired differences of every arm."""
    figures: dict[str, Any] = {}
    for arm, points in there.items():
        items = sorted({(item, group) for item, group, _ in points})
        columns = [[points[*item, probe] for item in items] for probe in ("own", "none", "swap")]
        others = [bar for bar in BARS if bar in there and bar != arm]
        columns += [[there[bar][*item, "own"] for item in items] for bar in others]
        values = np.array(columns).T
        draws = clustered_ratios(values, np.ones_like(values), [group for _, group in items])
        figures[arm] = {
            "accuracy": asdict(draws.estimate(0)),
            "without_posts": asdict(draws.estimate(1)),
            "swap_gap": asdict(draws.estimate(0, minus=2)),
            "over": {bar: asdict(draws.estimate(0, minus=3 + place)) for place, bar in enumerate(others)},
        }
    return figures


def markdown(name: str, figures: Mapping[str, Any]) -> str:
    """Return one table: percent, and points."""
    bars = [bar for bar in BARS if bar in figures]
    lines = [
        f"### {name}",
        "",
        f"| arm | accuracy | without posts | swap gap | {' | '.join(f'over {b}' for b in bars)} |",
    ]
    lines.append("| --- " * (4 + len(bars)) + "|")
    for arm, each in figures.items():
        over = [shown(each["over"].get(bar), signed=True) for bar in bars]
        parts = [shown(each["accuracy"]), shown(each["without_posts"]), shown(each["swap_gap"], signed=True), *over]
        lines.append(f"| {arm} | {' | '.join(parts)} |")
    return "\n".join([*lines, ""])


def shown(estimate: Mapping[str, float] | None, *, signed: bool = False) -> str:
    """Return an estimate with its interval, in points."""
    if estimate is None:
        return "–"
    form = "+.1f" if signed else ".1f"
    value, low, high = (format(100 * estimate[key], form) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()
