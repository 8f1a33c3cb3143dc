"""What `prbench bench` measured, as a page and as one SVG file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from prbench.pages.charts import LineChart, line_chart, point, round_axis, write_svg
from prbench.pages.shell import Origin, render_page
from prbench.schema import Json

CHARTS = (  # title, what it is, and the lines with their keys
    (
        "Seconds",
        "Median time for all scores; less is better.",
        (("padded batches", "naive_seconds"), ("shared prefixes", "seconds")),
    ),
    (
        "Tokens per second",
        "More is better.",
        (("padded batches", "naive_tokens_per_second"), ("shared prefixes", "tokens_per_second")),
    ),
    (
        "Times as fast",
        "Measured, and what the number of tokens would allow.",
        (("measured", "ratio"), ("by number of tokens", "token_ratio")),
    ),
)


def render(sweep: Mapping[str, Json], *, command: str = "") -> str:
    """Return the page of a sweep as a string."""
    settings, points = sweep["settings"], sweep["points"]
    names = (
        "shared prefixes, seconds",
        "tokens per second",
        "times as fast",
        "by number of tokens",
        "largest difference of scores",
    )
    keys = ("seconds", "tokens_per_second", "ratio", "token_ratio", "parity_max_abs")
    page = {
        "title": "Shared prefixes against padded batches",
        "lead": _load(sweep),
        "facts": {
            "model": f"{settings['shape']} (random weights)",
            "device": sweep["device"],
            "dtype": settings["dtype"],
            "repeats": str(settings["repeats"]),
            "seed": str(settings["seed"]),
        },
        "charts": _charts(points),
        "cells": (
            ("candidates", "padded batches, seconds", *names),
            [
                [str(each["settings"]["candidates"]), *(f"{each[key]:.6g}" for key in ("naive_seconds", *keys))]
                for each in points
            ],
        ),
    }
    made = f"prompts drawn with seed {settings['seed']}, for a model of random weights"
    return render_page("speed.html", page, Origin(command=command, data=made))


def plot_sweep(path: Path, sweep: Mapping[str, Json]) -> None:
    """Draw a sweep: seconds, tokens per second, and the ratio beside what the number of tokens allows."""
    write_svg(path, _load(sweep), _charts(sweep["points"]))


def _load(sweep: Mapping[str, Json]) -> str:
    settings = sweep["settings"]
    prompts = f"{settings['prompts']} prompt{'s' if settings['prompts'] > 1 else ''} of {settings['prefix']} tokens"
    return f"{prompts}, candidates of {settings['response']} tokens ({sweep['device']})"


def _charts(points: Sequence[Mapping[str, Json]]) -> list[LineChart]:
    counts = [str(each["settings"]["candidates"]) for each in points]
    return [
        line_chart(
            title,
            counts,
            [(name, [point(each[key]) for each in points]) for name, key in lines],
            y=round_axis(0.0, max(each[key] for each in points for _, key in lines)),
            note=note,
            x_name="candidates per prompt",
        )
        for title, note, lines in CHARTS
    ]
