"""From figures to a page: plain texts and positions, which `templates/best_of_n.html` draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

from prbench.downstream.best_of_n.summary import ORACLE, RANDOM
from prbench.schema import Json

MISSING = "–"
FEW_USERS = 20  # below this, draws of users say little about other users
TOLD = {"none": "nothing", "profile": "the profile", "plan": "a plan", "oracle": "the rubric, a ceiling"}  # by context
CEILING = "The policy is told the rubric, which nobody knows outside the lab: a ceiling."
COLORS = 6  # that the style of pages has
LEFT, RIGHT, TOP, BOTTOM = 56.0, 880.0, 14.0, 372.0  # the drawing area of the curves
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # between ticks
MOST_TICKS = 8
MOST_PERCENT_TICKS = 6
Summary = Mapping[str, Json]
Place = Callable[[float], float]


def page_of(summary: Summary) -> dict[str, Json]:
    """Return what the template needs."""
    models, last = summary["models"], str(summary["n"])
    return {
        "title": f"Best of {last}",
        "facts": _facts(summary),
        "notes": notes_of(summary),
        "n": last,
        "curves": _curves(summary),
        "headroom": _headroom_chart(models),
        "rows": [_row(name, figures, last) for name, figures in models.items()],
        "swaps": [_swap_row(name, figures) for name, figures in models.items() if figures["swap"] is not None],
        "shapes": [_shape_row(name, figures) for name, figures in models.items() if figures["overoptimization"]],
        "groups": [_groups(field, groups, list(models)) for field, groups in summary["groups"].items()],
        "sizes": [str(n) for n in summary["sizes"]],
        "kl": [f"{models[ORACLE]['kl_bound_at'][str(n)]:.2f}" for n in summary["sizes"]],
        "values": [
            (name, [number(figures["value_at"][str(n)]) for n in summary["sizes"]]) for name, figures in models.items()
        ],
        "differences": [
            (each["first"], each["second"], number(each["difference"], sign=True), _p_text(each["holm_p"]))
            for each in summary["differences"]
        ],
        "has_quality": models[ORACLE]["quality_at"] is not None,
        "version": version("prbench"),
    }


def number(estimate: Mapping[str, float] | None, *, interval: bool = True, sign: bool = False) -> str:
    """Return an estimate as it is."""
    return _text(estimate, 1.0, "+.3f" if sign else ".3f", interval)


def percent(estimate: Mapping[str, float] | None, *, interval: bool = True) -> str:
    """Return an estimate in percent."""
    return _text(estimate, 100.0, ".1f", interval)


def notes_of(summary: Summary) -> list[str]:
    """Say what is missing from the figures, and what weakens them."""
    notes = [CEILING] if summary["policy_context"] == "oracle" else []
    notes += [
        f"{count} questions are left out: their {step} failed. The same command tries again."
        for step, count in summary["left_out"].items()
        if count
    ]
    for name, figures in summary["models"].items():
        for reason, count in figures["left_out"].items():
            notes.append(f"{name}: {count} questions are left out, without a score: {reason.replace('_', ' ')}.")
        ties = figures["ties"]
        if name != ORACLE and ties and ties["consequential"] > 0:
            notes.append(
                f"{name}: in {100 * ties['pools']:.1f} % of the pools several answers share the best score, and "
                f"in {100 * ties['consequential']:.1f} % these are not worth the same. Any of them is picked with "
                "equal chance."
            )
    if summary["users"] < FEW_USERS:
        notes.append(
            f"Intervals are over {summary['users']} users, too few for them to mean much: they come out too narrow. "
            f"Take {FEW_USERS} or more."
        )
    if summary["models"][ORACLE]["captured_headroom"] is None:
        notes.append("All answers to a question are worth the same, so there was nothing to gain.")
    if summary["truncated"] > 0:
        notes.append(f"{100 * summary['truncated']:.1f} % of the answers ran out of tokens.")
    return notes


def _text(estimate: Mapping[str, float] | None, scale: float, form: str, interval: bool) -> str:
    if estimate is None:
        return MISSING
    value, low, high = (f"{scale * estimate[key]:{form}}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]" if interval else value


def _p_text(p: float | None) -> str:
    if p is None:
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _facts(summary: Summary) -> dict[str, str]:
    data = summary["data"]
    return {
        "policy": f"{summary['policy']}, told {TOLD[summary['policy_context']]}",
        "answers per question": str(summary["n"]),
        "questions": f"{summary['questions']} of {summary['users']} users",
        "data": " ".join(part for part in (data["name"], data["split"]) if part),
        "graded by": str(summary["judge"].get("llm") or summary["judge"].get("judge", "a judge in Python")),
        "pool": summary["pool"],
        "seed": str(summary["seed"]),
    }


def _row(name: str, figures: Summary, last: str) -> dict[str, str]:
    quality, ties = figures["quality_at"], figures["ties"]
    return {
        "name": name,
        "context": figures["context"] or MISSING,
        "value": number(figures["value_at"][last]),
        "headroom": percent(figures["captured_headroom"]),
        "regret": number(figures["regret"], interval=False),
        "win": percent(figures["win_rate"], interval=False),
        "best_n": str(figures["best_n"] or MISSING),
        "area": MISSING if figures["area"] is None else f"{figures['area']:.3f}",
        "quality": MISSING if quality is None else number(quality[last], interval=False),
        "ties": MISSING if ties is None else f"{100 * ties['pools']:.1f}",
    }


def _swap_row(name: str, figures: Summary) -> dict[str, str]:
    swap = figures["swap"]
    return {
        "name": name,
        "own": number(swap["own"]),
        "value": number(swap["value"]),
        "drop": number(swap["drop"], sign=True),
        "headroom": percent(swap["captured_headroom"]),
    }


def _shape_row(name: str, figures: Summary) -> dict[str, str]:
    fit = figures["overoptimization"]
    peak = "does not turn down"
    if fit["peak_d"] is not None:
        peak = f"d = {fit['peak_d']:.2f}" if fit["is_within"] else "beyond these n"
    return {
        "name": name,
        "alpha": f"{fit['alpha']:.3f}",
        "beta": f"{fit['beta']:.3f}",
        "peak": peak,
        "drop": f"{fit['drop']:.3f}",
        "rmse": f"{fit['rmse']:.3f}",
        "gap": number(figures["proxy_gold_gap"], sign=True),
    }


def _groups(field: str, groups: Sequence[Summary], names: Sequence[str]) -> dict[str, Json]:
    rows = [[name, *(percent(each["captured_headroom"][name]) for each in groups)] for name in names]
    return {
        "field": field,
        "heads": [f"{each['group']} ({each['questions']} questions)" for each in groups],
        "rows": rows,
    }


def _curves(summary: Summary) -> dict[str, Json]:
    """Return the curves of value against n, the axis of n in powers of two."""
    sizes, models = summary["sizes"], summary["models"]
    known = [each for figures in models.values() for each in figures["value_at"].values() if each is not None]
    low, high, ticks = _axis(min(e["low"] for e in known), max(e["high"] for e in known), MOST_TICKS)

    def across(n: int) -> float:
        return round(LEFT + (RIGHT - LEFT) * (math.log2(n) / math.log2(sizes[-1]) if sizes[-1] > 1 else 0.5), 1)

    def down(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low), 1)

    lines = []
    for place, (name, figures) in enumerate(_for_drawing(models)):
        spots = [(across(n), figures["value_at"][str(n)], n) for n in sizes if figures["value_at"][str(n)]]
        upper = [f"{x},{down(each['high'])}" for x, each, _ in spots]
        lower = [f"{x},{down(each['low'])}" for x, each, _ in reversed(spots)]
        curve = figures["curve"] or []
        lines.append(
            {
                "name": name,
                "style": _style(name, place),
                "band": " ".join(upper + lower),
                "path": " ".join(f"{across(n)},{down(value)}" for n, value in enumerate(curve, 1)),
                "points": [
                    {"x": x, "y": down(each["value"]), "text": f"{name}: best of {n}: {number(each)}"}
                    for x, each, n in spots
                ],
            }
        )
    return {
        "lines": lines,
        "x_ticks": [{"at": across(n), "text": str(n)} for n in sizes],
        "y_ticks": [{"at": down(tick), "text": f"{tick:g}"} for tick in ticks],
    }


def _for_drawing(models: Mapping[str, Summary]) -> list[tuple[str, Summary]]:
    """Return the curves, models first: their colors do not depend on the floor and the ceiling."""
    return sorted(models.items(), key=lambda each: each[0] in (RANDOM, ORACLE))


def _style(name: str, place: int) -> str:
    """Return the classes of a curve: a color, and another dash when the colors are used up."""
    if name in (RANDOM, ORACLE):
        return name
    return f"c{place % COLORS} dash{place // COLORS % 3}"


def _headroom_chart(models: Mapping[str, Summary]) -> dict[str, Json] | None:
    """Return dots of captured headroom: with the own profile, and with another user's."""
    rows = []
    for name, figures in models.items():
        swap = figures["swap"]
        dots = [("own", "as asked", figures["captured_headroom"])]
        dots.append(("swap", "another's profile", swap["captured_headroom"] if swap else None))
        rows.append((name, [dot for dot in dots if dot[2] is not None]))
    rows = [(name, dots) for name, dots in rows if dots and name != ORACLE]
    if not rows:
        return None
    spans = [each for _, dots in rows for _, _, each in dots]
    low, high, ticks = _axis(
        min(0.0, *(e["low"] for e in spans)), max(1.0, *(e["high"] for e in spans)), MOST_PERCENT_TICKS
    )

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    return {
        "title": "Captured headroom",
        "note": "Share of what an oracle gains over one answer, in percent; the line is at 0.",
        "legend": list(dict.fromkeys((key, name) for _, dots in rows for key, name, _ in dots)),
        "reference": place(0.0),
        "ticks": [{"at": place(tick), "text": f"{100 * tick:.0f}"} for tick in ticks],
        "rows": [{"label": name, "points": [_dot(dot, place) for dot in dots]} for name, dots in rows],
    }


def _dot(dot: tuple[str, str, Mapping[str, float]], place: Place) -> dict[str, Json]:
    key, name, estimate = dot
    low = place(estimate["low"])
    return {
        "key": key,
        "name": name,
        "at": place(estimate["value"]),
        "low": low,
        "width": round(place(estimate["high"]) - low, 2),
        "text": percent(estimate),
    }


def _axis(low: float, high: float, most: int) -> tuple[float, float, list[float]]:
    """Return the ends of an axis that holds both values, and its round ticks."""
    step = next((step for step in STEPS if high - low <= (most - 1) * step), STEPS[-1])
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return first * step, last * step, [round(step * count, 10) for count in range(first, last + 1)]
