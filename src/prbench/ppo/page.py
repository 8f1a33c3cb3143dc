"""A run as curves: one SVG file, and one self-contained page around it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from prbench.ppo.folder import read_steps
from prbench.ppo.settings import label_of_context
from prbench.schema import Json
from prbench.svg import Axis, Panel, line_panel, plain_axis, point, write_figure

CURVES, PAGE = "curves.svg", "report.html"
SHOWN = {
    "reward": "Reward, as the model gave it",
    "gold": "Gold",
    "kl": "KL to the reference, nats per answer",
    "kl_per_token": "KL to the reference, nats per token",
    "entropy": "Entropy, nats per token",
    "length": "Length, tokens",
    "failure_rate": "Share of rewards that failed",
}
CONTEXTS = {"context": "told to the policy", "reward_context": "told to the reward model"}
MOST_POINTS = 40
MOST_LABELS = 10
_TICKS = 4


def write_page(run: Path, summary: Mapping[str, Json], evaluation: Mapping[str, Json] | None = None) -> Path:
    """Draw the curves of a run beside its rows, and return the page."""
    rows = read_steps(run)
    title = f"{summary['algorithm']}: {summary['policy']} by {summary['reward_model']}"
    draw_curves(run / CURVES, title, rows)
    page = run / PAGE
    page.write_text(_render(title, summary, (run / CURVES).read_text(encoding="utf-8"), evaluation), encoding="utf-8")
    return page


def draw_curves(path: Path, title: str, rows: Sequence[Mapping[str, Json]]) -> None:
    """Draw one panel per figure that the rows have."""
    measured = {name: _thinned([row for row in rows if row.get(name) is not None]) for name in SHOWN}
    panels = [_panel(name, some) for name, some in measured.items() if some]
    write_figure(path, title, panels)


def _panel(name: str, rows: Sequence[Mapping[str, Json]]) -> Panel:
    every = max(1, math.ceil(len(rows) / MOST_LABELS))
    ticks = [str(row["step"]) if number % every == 0 else "" for number, row in enumerate(rows)]
    return line_panel(SHOWN[name], ticks, [(name, [point(float(row[name])) for row in rows])], axis=_axis(rows, name))


def _thinned(rows: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Return at most so many rows, evenly spaced, the first and the last among them."""
    if len(rows) <= MOST_POINTS:
        return list(rows)
    last = len(rows) - 1
    return [rows[round(number * last / (MOST_POINTS - 1))] for number in range(MOST_POINTS)]


def _axis(rows: Sequence[Mapping[str, Json]], name: str) -> Axis:
    """Return an axis from 0 where nothing is below it, else from the lowest value to the highest."""
    values = [float(row[name]) for row in rows]
    low, high = min(values), max(values)
    if low >= 0:
        return plain_axis(high)
    width = (high - low) or 1.0
    return Axis(
        low,
        low + width,
        [(low + width * tick / _TICKS, f"{low + width * tick / _TICKS:.3g}") for tick in range(_TICKS + 1)],
    )


def _render(title: str, summary: Mapping[str, Json], figure: str, evaluation: Mapping[str, Json] | None) -> str:
    environment = Environment(loader=PackageLoader("prbench.ppo"), autoescape=select_autoescape())
    facts = {
        "run": summary["run_id"],
        **{what: label_of_context(summary[name]) for name, what in CONTEXTS.items() if name in summary},
        "seed": summary["seed"],
        "updates": f"{summary['updates']} (ended by {summary['ended']})",
        "rewards that failed": f"{summary['rewards_failed']} of {summary['rewards_asked']}",
        **{name: _change(summary, name) for name in ("reward", "gold", "kl", "length") if _change(summary, name)},
    }
    policies = [_cells(entry) for entry in (evaluation or {}).get("policies", [])]
    # The figure is our own drawing, whose texts were escaped when it was made.
    return environment.get_template("run.html").render(
        title=title, facts=facts, figure=Markup(figure), policies=policies
    )


def _change(summary: Mapping[str, Json], name: str) -> str:
    first, last = summary["first"].get(name), summary["last"].get(name)
    return "" if first is None or last is None else f"{first:.3g} → {last:.3g}"


def _cells(entry: Mapping[str, Json]) -> list[str]:
    golds = [_interval(entry[name]) for name in ("gold", "gold_majority", "gold_minority")]
    return [str(entry["step"]), f"{entry['kl']:.2f}", *golds]


def _interval(estimate: Mapping[str, float] | None) -> str:
    return "" if estimate is None else f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"
