"""A run as curves: one SVG file, and what `templates/ppo.html` draws in the look of the report."""

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from prbench.context import label_of_context
from prbench.downstream.ppo.evaluate import GOLD_SPAN
from prbench.downstream.ppo.loop import BUDGET, DONE, read_steps
from prbench.metrics.estimate import DRAWS, RatioDraws, ratio_draws
from prbench.pages.svg import Axis, Panel, line_panel, point, round_axis, text_panel, write_figure
from prbench.runs.files import EVALUATION_ROWS, read_lines
from prbench.schema import Json

CURVES, PAGE, TEMPLATE = "curves.svg", "report.html", "ppo.html"
MISSING = "–"
SHOWN = {  # what is drawn: its title, and what the numbers are
    "reward": ("Reward", "As the reward model gave it: the mean over the answers of a step."),
    "gold": ("Gold", "What the users get of these answers, by the truth about them."),
    "kl": ("KL to the reference", "Nats per answer."),
    "kl_per_token": ("KL to the reference", "Nats per token."),
    "entropy": ("Entropy", "Of the policy, nats per token."),
    "length": ("Length", "Tokens per answer."),
    "failure_rate": ("Failed rewards", "Share of the rewards that a step asked for."),
}
SIDES = {  # of held-out users: the name, the color of its line, the key of its dots
    "gold": ("all users", "c0", "own"),
    "gold_majority": ("with the majority", "c1", "none"),
    "gold_minority": ("with the minority", "c3", "swap"),
}
ENDS = {DONE: "", BUDGET: ", when the KL budget was spent"}
FEW_USERS = 20  # below this, draws of users say little about other users
NEARLY_ZERO = 0.02  # of the highest value: a measured KL of nothing can lie a little below 0
MOST_POINTS = 40
MOST_LABELS = 10  # below a curve of the SVG file
MOST_GAINS = 12
WIDTH, HEIGHT, TALL = 520, 220, 330  # of a drawing; the tall one has a name below its axis
LEFT, TOP, MARGIN, BELOW, APART = 56.0, 14.0, 14.0, 38.0, 6.0
Row = Mapping[str, Json]
Rows = Sequence[Row]


def page_of_run(run: Path, summary: Row, evaluation: Row | None = None) -> dict[str, Json]:
    """Draw the curves of a run beside its rows, and return what the template of its page needs."""
    rows = read_steps(run)
    draw_curves(run / CURVES, f"{summary['algorithm']}: {summary['policy']} by {summary['reward_model']}", rows)
    return page_of(summary, rows, evaluation, _read_answers(run / EVALUATION_ROWS) if evaluation else [])


def draw_curves(path: Path, title: str, rows: Rows) -> None:
    """Draw one panel per figure that the rows have."""
    measured = {name: _measured(rows, name) for name in SHOWN}
    write_figure(path, title, [_panel(name, some) for name, some in measured.items() if some])


def page_of(summary: Row, rows: Rows, evaluation: Row | None = None, answers: Rows = ()) -> dict[str, Json]:
    """Return what the template needs; `answers` are the rows behind the evaluation."""
    held_out = _held_out(evaluation, answers) if evaluation else None
    some = {name: measured for name in SHOWN if (measured := _measured(rows, name))}
    drawn = _thinned(rows)
    return {
        "title": f"{summary['algorithm'].upper()} by {summary['reward_model']}",
        "facts": _facts(summary, held_out),
        "said": _training_sentence(summary),
        "notes": _notes(summary, rows, held_out),
        "charts": [_curve(name, each) for name, each in some.items() if not _is_steady(_values(each, name))],
        "steady": [_steady(name, each) for name, each in some.items() if _is_steady(_values(each, name))],
        "steps": (
            ["updates", *[SHOWN[name][0] for name in some]],
            [[str(row["step"]), *[_short(row.get(name)) for name in some]] for row in drawn],
        ),
        "left_out": len(rows) - len(drawn),
        "held_out": held_out,
        "draws": f"{DRAWS:,}",
        "version": version("prbench"),
    }


def _read_answers(path: Path) -> list[dict[str, Json]]:
    return [row for _, _, row in read_lines(path)]


def _facts(summary: Row, held_out: Row | None) -> dict[str, str]:
    facts = {
        "policy": summary["policy"],
        **({"told to policy / reward model": policy_context(summary)} if "context" in summary else {}),
        "updates": f"{summary['updates']}{ENDS[summary['ended']]}",
        "failed rewards": f"{summary['rewards_failed']} of {summary['rewards_asked']}",
    }
    if held_out:
        facts["held-out users"] = str(held_out["users"])
    return {**facts, "run": summary["run_id"], "seed": str(summary["seed"])}


def policy_context(facts: Row) -> str:
    """Say what the policy and what the reward model was told of the user."""
    policy, reward = (label_of_context(facts[name]) for name in ("context", "reward_context"))
    shots = facts.get("labels")
    return f"{policy} / {reward}" + (f", {shots} labels" if shots else "")


def _training_sentence(summary: Row) -> str:
    """Say what happened to reward and gold, and how far the policy went for it."""
    first, last, updates = summary["first"], summary["last"], summary["updates"]
    parts = [
        _change(name, first.get(key), last[key])
        for key, name in (("reward", "the reward"), ("gold", "gold"))
        if last.get(key) is not None
    ]
    for key, unit in (("kl", "answer"), ("kl_per_token", "token")):
        if last.get(key) is not None:
            parts.append(f"the policy ended {last[key]:.3g} nats per {unit} from the reference")
    said = ", and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
    return f"In {updates} update{'' if updates == 1 else 's'}, {said or 'nothing was measured'}."


def _change(name: str, first: float | None, last: float) -> str:
    if first is None:
        return f"{name} came to {last:.3g}"
    if f"{first:.3g}" == f"{last:.3g}":
        return f"{name} stayed at {last:.3g}"
    return f"{name} went from {first:.3g} to {last:.3g}"


def _notes(summary: Row, rows: Rows, held_out: Row | None) -> list[str]:
    """Say what is missing from the figures, and what weakens them."""
    notes = []
    if held_out is None and not _measured(rows, "gold"):
        notes.append("Gold is known in the lab alone: nothing here says what the users got.")
    for name, what in (("truncated", "ran out of tokens"), ("empty", "were empty")):
        if share := summary["last"].get(name):
            notes.append(f"{100 * share:.1f} % of the answers at the last measured step {what}.")
    if held_out and held_out["users"] < FEW_USERS:
        notes.append(
            f"Intervals are over {held_out['users']} held-out users, too few for them to mean much: they come out too "
            f"narrow. Take {FEW_USERS} or more."
        )
    return notes


def _panel(name: str, rows: Rows) -> Panel:
    title, what = SHOWN[name]
    values = _values(rows, name)
    if _is_steady(values):
        return text_panel(_steady(name, rows))
    drawn = _thinned(rows)
    every = max(1, math.ceil(len(drawn) / MOST_LABELS))
    ticks = [str(row["step"]) if number % every == 0 else "" for number, row in enumerate(drawn)]
    points = [point(value) for value in _values(drawn, name)]
    return line_panel(f"{title}. {what}", ticks, [("", points)], axis=_axis(values))


def _measured(rows: Rows, name: str) -> Rows:
    return [row for row in rows if row.get(name) is not None]


def _thinned(rows: Rows) -> Rows:
    """Return at most so many rows, evenly spaced, the first and the last among them."""
    if len(rows) <= MOST_POINTS:
        return rows
    last = len(rows) - 1
    return [rows[round(number * last / (MOST_POINTS - 1))] for number in range(MOST_POINTS)]


def _values(rows: Rows, name: str) -> list[float]:
    return [float(row[name]) for row in rows]


def _is_steady(values: Sequence[float]) -> bool:
    return math.isclose(min(values), max(values), rel_tol=1e-9, abs_tol=1e-9)


def _steady(name: str, rows: Rows) -> str:
    where = "the one measured step" if len(rows) == 1 else f"all {len(rows)} measured steps"
    return f"{SHOWN[name][0]}: {rows[0][name]:.4g} at {where}."


def _axis(values: Sequence[float]) -> Axis:
    """Return a round axis that holds the values, from 0 where that does not flatten them."""
    low, high = min(values), max(values)
    return round_axis(0.0 if -NEARLY_ZERO * high < low < high / 2 else low, high)


def _curve(name: str, rows: Rows) -> dict[str, Json]:
    """Return one figure over updates: the line through all steps, dots on some."""
    (title, note), values = SHOWN[name], _values(rows, name)
    steps, axis = [int(row["step"]) for row in rows], _axis(values)
    updates = Axis(steps[0], steps[-1], _whole_ticks(steps[0], steps[-1]))
    spots = [
        {"x": _across(updates, step), "y": _down(axis, value, HEIGHT), "text": f"{value:.4g} after {step} updates"}
        for step, value in zip(steps, values, strict=True)
    ]
    return {
        "title": title,
        "note": note,
        "alt": f"{title} over {steps[-1]} updates: from {values[0]:.3g} to {values[-1]:.3g}, "
        f"between {min(values):.3g} and {max(values):.3g}",
        "lines": [{**_line(title, "c0", spots), "points": _thinned(spots)}],
        **_frame(updates, axis, HEIGHT),
    }


def _whole_ticks(first: int, last: int) -> list[tuple[float, str]]:
    ticks = round_axis(first, last).ticks
    return [(tick, text) for tick, text in ticks if first <= tick <= last and float(tick).is_integer()]


def _held_out(evaluation: Row, answers: Rows) -> dict[str, Json]:
    """Return what strangers get: a sentence, gold over distance, gains over the reference, and a table."""
    policies, how = evaluation["policies"], evaluation["held_out"]
    sides = [side for side in SIDES if all(entry[side] is not None for entry in policies)]
    gains = _gains(answers, [entry["step"] for entry in policies], sides, seed=how["seed"])
    changes = not _is_steady([entry[side][key] for entry in policies for side in sides for key in ("low", "high")])
    users, questions = (len({row[key] for row in answers}) for key in ("user_id", "id"))
    return {
        **_verdict(policies, gains),
        "asked": f"{questions} questions of {users} users (split {how['split']}), {how['samples']} answers to each.",
        "users": users,
        "chart": _gold_over_kl(policies, sides) if changes else None,
        "gains": _gain_chart(gains, sides) if changes and gains else None,
        "steady": "" if changes else f"Gold was {policies[0]['gold']['value']:.4g} for every policy.",
        "rows": [_cells(entry, gains.get(entry["step"], {})) for entry in policies],
    }


def _gains(answers: Rows, steps: Sequence[int], sides: Sequence[str], *, seed: int) -> dict[int, dict[str, Row]]:
    """Return, for each policy but the first, how much more gold its users get, paired by question."""
    golds = {(row["step"], row["id"]): float(row["gold"]) for row in answers}
    questions = [row for row in answers if row["step"] == steps[0]]
    belongs = [[_is_of(row, side) for side in sides] for row in questions]
    # One block of columns per policy, one column in it per side.
    counts = [[float(each) for _ in steps for each in one] for one in belongs]
    sums = [
        [golds[step, row["id"]] * each for step in steps for each in one]
        for row, one in zip(questions, belongs, strict=True)
    ]
    draws = ratio_draws(sums, counts, [row["user_id"] for row in questions], seed=seed, span=GOLD_SPAN)
    return {
        step: {side: _gain(draws, len(sides) * number + column, column) for column, side in enumerate(sides)}
        for number, step in enumerate(steps)
        if number
    }


def _is_of(row: Row, side: str) -> bool:
    return side == "gold" or row["majority"] is (side == "gold_majority")


def _gain(draws: RatioDraws, column: int, reference: int) -> dict[str, float]:
    gain = draws.estimate(column, minus=reference)
    return {"value": gain.value, "low": gain.low, "high": gain.high}


def _verdict(policies: Rows, gains: Mapping[int, Mapping[str, Row]]) -> dict[str, str]:
    """Say whether the last policy gives strangers more than the reference did."""
    first, last = policies[0]["gold"], policies[-1]["gold"]
    if not gains:
        return {"class": "look", "reply": "not trained", "said": f"Held-out users get gold of {_interval(first)}."}
    gain = gains[policies[-1]["step"]]["gold"]
    ends = f"from {first['value']:.3f} to {last['value']:.3f}, by {_interval(gain, sign=True)}"
    if gain["low"] > 0:
        return {"class": "good", "reply": "gold rose", "said": f"For held-out users, gold rose {ends}."}
    if gain["high"] < 0:
        return {"class": "bad", "reply": "gold fell", "said": f"For held-out users, gold fell {ends}."}
    if gain["low"] == gain["high"]:
        said = f"For held-out users, gold stayed at {last['value']:.3f}."
        return {"class": "look", "reply": "gold stayed", "said": said}
    said = f"For held-out users, gold went {ends}: the interval holds 0, so it may be chance."
    return {"class": "look", "reply": "gold: open", "said": said}


def _gold_over_kl(policies: Rows, sides: Sequence[str]) -> dict[str, Json]:
    kls = [float(entry["kl"]) for entry in policies]
    wide = _axis([0.0, *kls])
    across = Axis(wide.low, max(kls), [tick for tick in wide.ticks if tick[0] <= max(kls)]) if max(kls) > 0 else wide
    ends = [entry[side][key] for entry in policies for side in sides for key in ("low", "high")]
    axis = round_axis(min(ends), max(ends))
    lines = []
    for place, side in enumerate(sides):
        name, color, _ = SIDES[side]
        aside = APART * (place - (len(sides) - 1) / 2)
        spots = [
            {
                "x": round(_across(across, kl) + aside, 1),
                "y": _down(axis, entry[side]["value"], TALL),
                "ends": [_down(axis, entry[side][key], TALL) for key in ("low", "high")],
                "text": f"{_interval(entry[side])} after {entry['step']} updates, KL {kl:.2f}",
            }
            for entry, kl in zip(policies, kls, strict=True)
        ]
        lines.append(_line(name, color, spots))
    said = [
        f"{SIDES[side][0]} from {_interval(policies[0][side])} to {_interval(policies[-1][side])}" for side in sides
    ]
    return {
        "title": "Gold over KL",
        "note": "Each dot is a policy that was kept, with its 95 % interval over users; lines follow the training.",
        "alt": f"Held-out gold at KL {kls[0]:.2f} to {kls[-1]:.2f}: {'; '.join(said)}",
        "lines": lines,
        "x_name": "KL to the reference, nats per answer",
        **_frame(across, axis, TALL),
    }


def _gain_chart(gains: Mapping[int, Mapping[str, Row]], sides: Sequence[str]) -> dict[str, Json]:
    """Return dots of what the policies gained, in rows; of many policies, some, the last among them."""
    steps = list(gains)[:: -math.ceil(len(gains) / MOST_GAINS)][::-1]
    ends = [gains[step][side][key] for step in steps for side in sides for key in ("low", "high")]
    axis = round_axis(min(0.0, *ends), max(0.0, *ends))

    def place(value: float) -> float:
        return round(100 * axis.place(value), 2)

    def dot(side: str, gain: Row) -> dict[str, Json]:
        return {
            "key": SIDES[side][2],
            "name": SIDES[side][0],
            "at": place(gain["value"]),
            "low": place(gain["low"]),
            "width": round(place(gain["high"]) - place(gain["low"]), 2),
            "text": _interval(gain, sign=True),
        }

    return {
        "title": "Gain over the reference",
        "note": "Gold of a policy minus gold of the reference on the same questions, with 95 % intervals over users; "
        "the line is at 0, the numbers are of all users.",
        "legend": [(SIDES[side][2], SIDES[side][0]) for side in sides],
        "reference": place(0.0),
        "ticks": [{"at": place(tick), "text": text} for tick, text in axis.ticks],
        "rows": [
            {"label": f"{step} updates", "points": [dot(side, gains[step][side]) for side in sides]} for step in steps
        ],
    }


def _cells(entry: Row, gains: Mapping[str, Row]) -> list[str]:
    return [
        str(entry["step"]),
        f"{entry['kl']:.2f}",
        _interval(entry["gold"]),
        _interval(gains.get("gold"), sign=True),
        _interval(entry["gold_majority"]),
        _interval(entry["gold_minority"]),
        f"{entry['length']:.1f}",
        f"{100 * entry['truncated']:.1f}",
    ]


def _frame(across: Axis, down: Axis, height: int) -> dict[str, Json]:
    return {
        "width": WIDTH,
        "height": height,
        "x_ticks": [{"at": _across(across, tick), "text": text} for tick, text in across.ticks],
        "y_ticks": [{"at": _down(down, tick, height), "text": text} for tick, text in down.ticks],
        "diagonal": "",
    }


def _line(name: str, style: str, spots: Sequence[Row]) -> dict[str, Json]:
    path = " ".join(f"{spot['x']},{spot['y']}" for spot in spots)
    return {"name": name, "style": style, "path": path, "points": spots}


def _across(axis: Axis, value: float) -> float:
    return round(LEFT + (WIDTH - MARGIN - LEFT) * axis.place(value), 1)


def _down(axis: Axis, value: float, height: int) -> float:
    return round(height - BELOW - (height - BELOW - TOP) * axis.place(value), 1)


def _short(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}"


def _interval(estimate: Row | None, *, sign: bool = False) -> str:
    if estimate is None:
        return MISSING
    value, low, high = (f"{estimate[key]:{'+z.3f' if sign else 'z.3f'}}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"
