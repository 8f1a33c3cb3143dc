"""Draw the plots of docs/research/lab.md from results/lab.

python experiments/plot_lab.py
"""

import json
import math
from pathlib import Path

from prbench.pages.charts import DotChart, line_chart, mark_of, round_axis, write_svg

HERE = Path(__file__).parents[1]
RUNS = {
    "head:lab-user test": "shipped head",
    "lab-user test (deal 1)": "repetition 1",
    "lab-user test (deal 2)": "repetition 2",
    "lab-user test (deal 3)": "repetition 3",
}
FLOORS = (
    "control:longest test",
    "control:shortest test",
    "control:question test",
    "head:lab-average test",
    "head:lab-average test_population",
    "control:overlap test",
    "control:embed test",
    "head:lab-user test",
    "head:lab-user test_population",
    "control:gold (oracle) test",
)


def main() -> None:
    """Draw."""
    figures, ceiling = (
        json.loads((HERE / "results" / "lab" / name).read_text(encoding="utf-8"))
        for name in ("figures.json", "ceiling.json")
    )
    figures, best = figures["runs"], ceiling["test"]["all"]["accuracy"]
    images = HERE / "docs" / "images"
    title = "Accuracy in percent, with 95 % intervals over users"
    rows = [(name, mark_of(figures[name]["accuracy"])) for name in FLOORS]
    rows.insert(-1, ("ceiling for readers of posts", mark_of({"value": best, "low": best, "high": best})))
    write_svg(images / "lab_floors.svg", title, [DotChart(title=title, note="", rows=rows, reference=0.5)])
    for group, places, unit in (
        ("level", ("plain", "implied", "oblique"), "how openly the posts speak"),
        ("informative_posts", ("1", "3", "8", "16"), "informative posts in the profile"),
    ):
        series = [(label, [figures[run]["groups"][group][place] for place in places]) for run, label in RUNS.items()]
        lowest = min(estimate["low"] for _, estimates in series for estimate in estimates)
        title = f"Accuracy of the head that knows users, by {unit}"
        axis = round_axis(min(0.5, math.floor(10 * lowest) / 10), 1.0, scale=100.0)
        write_svg(images / f"lab_{group}.svg", title, [line_chart(title, places, series, y=axis, x_name=unit)])


if __name__ == "__main__":
    main()
