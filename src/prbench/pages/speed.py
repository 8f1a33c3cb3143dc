"""What `prbench bench --sweep` measured, as one SVG file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from prbench.pages.svg import Panel, line_panel, plain_axis, point, write_figure
from prbench.schema import Json


def plot_sweep(path: Path, sweep: Mapping[str, Json]) -> None:
    """Draw a sweep: seconds, tokens per second, and the ratio beside what the number of tokens allows."""
    settings, points = sweep["settings"], sweep["points"]
    load = f"{settings['prompts']} prompt{'s' if settings['prompts'] > 1 else ''} of {settings['prefix']} tokens"
    title = f"{load}, candidates of {settings['response']} tokens, by candidates per prompt ({sweep['device']})"
    panels = [
        _panel("seconds", points, (("padded batches", "naive_seconds"), ("shared prefixes", "seconds"))),
        _panel(
            "tokens per second",
            points,
            (("padded batches", "naive_tokens_per_second"), ("shared prefixes", "tokens_per_second")),
        ),
        _panel("times as fast", points, (("measured", "ratio"), ("by number of tokens", "token_ratio"))),
    ]
    write_figure(path, title, panels)


def _panel(title: str, points: Sequence[Mapping[str, Json]], lines: Sequence[tuple[str, str]]) -> Panel:
    axis = plain_axis(max(each[key] for each in points for _, key in lines))
    series = [(name, [point(each[key]) for each in points]) for name, key in lines]
    return line_panel(title, [str(each["settings"]["candidates"]) for each in points], series, axis=axis)
