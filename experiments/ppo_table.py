"""What PPO gave to users it has not met, for every reward model: the tables and plots of docs/research/downstream.md.

    python experiments/ppo_table.py results/meta/ppo_sentences.csv.gz --plot docs/images/ppo_sentences.svg
    python experiments/ppo_table.py results/ppo/second/ppo_smollm2.csv.gz --out results/ppo/second/figures.json

Reads what `ppo_rows.py` wrote. A question's gold is the mean over a model's seeds, which the table lists one by one,
since 95 % intervals resample users alone. Gains are of the last policy over the one that all started from, on the same
questions.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import read_table

from prbench.metrics.estimate import ClusteredRatios, clustered_ratios
from prbench.pages.charts import line_chart, round_axis, write_svg
from prbench.schema import Estimate

SPAN = (-1.0, 1.0)
SIDES = ("all", "True", "False")  # all users, those with the majority, those with the minority
SIDE_NAMES = {"all": "all", "True": "majority", "False": "minority"}
LABELS = {  # of the plots, where the name in the rows is short
    "oracle": "gold",
    "noisy": "gold with noise",
    "control-random": "random",
    "no-users": "head, no users",
    "attention": "head (attention)",
    "overlap": "word overlap",
    "bt": "bt, no users",
}
Rows = list[dict[str, str]]


def main() -> None:
    """Print the table; draw gold by step, and who gains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path, help="a JSON file of the figures")
    parser.add_argument("--plot", type=Path, help="an SVG file of gold by step")
    parser.add_argument("--plot-sides", type=Path, help="an SVG file of gains by majority and minority")
    parser.add_argument("--only", nargs="+", help="models of the plots")
    asked = parser.parse_args()
    by_model: dict[str, Rows] = defaultdict(list)
    for row in read_table(asked.rows):
        by_model[row["model"]].append(row)
    found = {model: Found(rows) for model, rows in by_model.items()}
    names = sorted(found, key=lambda model: -found[model].gold(-1).value)
    print("\n".join(table(names, found)))
    if asked.out:
        figures = {
            "command": f"python experiments/ppo_table.py {asked.rows}",
            "start": as_figure(found[names[0]].gold(0)),
            "questions": found[names[0]].gold(0).n,
            "models": {name: found[name].figures() for name in names},
        }
        asked.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    shown = asked.only or names
    if asked.plot:
        series = [
            (LABELS.get(name, name), [as_point(found[name].gold(place)) for place in found[name].places])
            for name in shown
        ]
        ticks = [str(step) for step in found[shown[0]].steps]
        title = "Gold of an answer to held-out users, by updates of PPO, with 95 % intervals"
        chart = line_chart(title, ticks, series, y=round_axis(-0.2, 0.8), x_name="updates")
        write_svg(asked.plot, title, [chart])
    if asked.plot_sides:
        series = [(LABELS.get(name, name), [as_point(found[name].gain(side)) for side in SIDES[1:]]) for name in shown]
        title = "Gain by PPO where the user is with the majority and with the minority, with 95 % intervals"
        chart = line_chart(title, ["majority", "minority"], series, y=round_axis(-0.4, 0.8))
        write_svg(asked.plot_sides, title, [chart])


class Found:
    """The gold of one model's policies at every kept step, with draws of users."""

    def __init__(self, rows: Rows) -> None:
        golds: dict[tuple[str, int], list[float]] = defaultdict(list)
        kls: dict[int, list[float]] = defaultdict(list)
        about = {row["id"]: row for row in rows}
        for row in rows:
            golds[row["id"], int(row["step"])].append(float(row["gold"]))
            kls[int(row["step"])].append(float(row["kl"]))
        self.steps = sorted(kls)
        self.last = str(self.steps[-1])
        self.places = range(len(self.steps))
        self.kls = [float(np.mean(kls[step])) for step in self.steps]
        self.by_seed = [
            float(np.mean([float(row["gold"]) for row in rows if (row["seed"], row["step"]) == (seed, self.last)]))
            for seed in sorted({row["seed"] for row in rows})
        ]
        items = sorted(about)
        values = np.array([[np.mean(golds[item, step]) for step in self.steps] for item in items])
        sides = [np.array([side in ("all", about[item]["majority"]) for item in items], float) for side in SIDES]
        weights = np.hstack([np.repeat(side[:, None], len(self.steps), axis=1) for side in sides])
        users = [about[item]["user_id"] for item in items]
        self._draws: ClusteredRatios = clustered_ratios(
            np.tile(values, len(SIDES)) * weights, weights, users, span=SPAN
        )

    def gold(self, place: int, side: str = "all") -> Estimate:
        """Return the gold at one of the kept steps."""
        return self._draws.estimate(self._column(place, side))

    def gain(self, side: str = "all", place: int = -1) -> Estimate:
        """Return the gold at one of the kept steps, by default the last, minus that at the start."""
        return self._draws.estimate(self._column(place, side), minus=self._column(0, side))

    def figures(self) -> dict[str, Any]:
        """Return gold, gains (by users too) and KL at every kept step but the first."""
        return {
            "by_seed": [round(gold, 6) for gold in self.by_seed],
            "steps": {
                str(self.steps[place]): {
                    "gold": as_figure(self.gold(place)),
                    "gain": {SIDE_NAMES[side]: as_figure(self.gain(side, place)) for side in SIDES},
                    "kl": round(self.kls[place], 4),
                }
                for place in self.places[1:]
            },
        }

    def _column(self, place: int, side: str) -> int:
        return SIDES.index(side) * len(self.steps) + place % len(self.steps)


def table(names: Sequence[str], found: Mapping[str, Found]) -> list[str]:
    """Return a markdown table: gold at the end, gains, and how far the policies went."""
    head = "| rewarded by | gold | by seed | gain | with the majority | with the minority | KL |"
    lines = [head, "| --- " * 7 + "|"]
    for name in names:
        one = found[name]
        gains = " | ".join(shown(one.gain(side), signed=True) for side in SIDES)
        seeds = ", ".join(f"{gold:.2f}" for gold in one.by_seed)
        lines.append(f"| `{name}` | {shown(one.gold(-1))} | {seeds} | {gains} | {one.kls[-1]:.1f} |")
    start = found[names[0]].gold(0)
    return [*lines, "", f"All start at {shown(start)}, on {start.n} questions."]


def shown(estimate: Estimate, *, signed: bool = False) -> str:
    """Return a figure with its interval."""
    form = "+.2f" if signed else ".2f"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def as_figure(estimate: Estimate) -> dict[str, float]:
    """Return a figure with its interval, as the plot takes it and as JSON has it."""
    return {name: round(value, 6) for name, value in as_point(estimate).items()}


def as_point(estimate: Estimate) -> dict[str, float]:
    """Return what the plot takes."""
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


if __name__ == "__main__":
    main()
