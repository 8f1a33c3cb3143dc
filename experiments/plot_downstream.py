"""Draw the plots of docs/research/downstream.md from results/bon.

python experiments/plot_downstream.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prbench.pages.charts import line_chart, round_axis, write_svg

HERE = Path(__file__).parents[1]
ENCODER = "head:models/encoder-0?encoder=models/encoder-0/encoder"
FEWSHOT = "fewshot:models/fewshot-encoder-0?encoder=models/encoder-0/encoder"
NO_USERS = "head:models/head_knows_users=false-0?context=none"
CURVES = {
    "oracle": "gold",
    "blend:models/blend-0": "blend",
    "head:models/head-0": "head",
    "head:models/head_kind=lowrank-0": "head (lowrank)",
    NO_USERS: "head, no users",
    "random": "random pick",
}

SIDES = {"encoder": ENCODER, "head": "head:models/head-0", "head, no users": NO_USERS}


def main() -> None:
    """Draw."""
    found, labelled = (
        json.loads((HERE / "results" / "bon" / name).read_text(encoding="utf-8"))
        for name in ("lab.json", "lab_labels.json")
    )
    series = [(label, values(found, model)) for model, label in CURVES.items()]
    series.insert(1, ("fewshot, 30 labels", values(labelled, FEWSHOT)))
    ticks = [str(n) for n in found["sizes"]]
    title = "Gold of the best-scored of n answers, with 95 % intervals over users"
    chart = line_chart(title, ticks, series, y=round_axis(-0.2, 1.0), x_name="n")
    write_svg(HERE / "docs" / "images" / "bon_lab.svg", title, [chart])
    sides = [(name, by_majority(found, model)) for name, model in SIDES.items()]
    title = "Captured headroom at 64, where the user is with the majority and with the minority"
    chart = line_chart(title, ["majority", "minority"], sides, y=round_axis(-0.4, 1.0))
    write_svg(HERE / "docs" / "images" / "bon_lab_majority.svg", title, [chart])


def values(found: Mapping[str, Any], model: str) -> list[dict[str, float]]:
    """Return the value at every n."""
    return [found["models"][model]["value_at"][str(n)] for n in found["sizes"]]


def by_majority(found: Mapping[str, Any], model: str) -> list[dict[str, float]]:
    """Return the captured headroom of both sides."""
    sides = {entry["group"]: entry["captured_headroom"][model] for entry in found["groups"]["majority"]}
    return [sides["True"], sides["False"]]


if __name__ == "__main__":
    main()
