"""A run of PPO as curves: one SVG file, and its page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from prbench.context import label_of_context
from prbench.downstream.ppo.evaluate import GOLD_SPAN
from prbench.downstream.ppo.loop import BUDGET, DONE, read_steps
from prbench.metrics.estimate import clustered_ratios
from prbench.metrics.number_format import MISSING, NumberFormat
from prbench.pages.charts import Axis, Cells, DotChart, LineChart, Mark, Series, mark_of, round_axis, write_svg
from prbench.pages.shell import Origin, render_page
from prbench.runs.files import EVALUATION_ROWS, read_lines
from prbench.schema import Json

CURVES, PAGE, TEMPLATE = "curves.svg", "report.html", "ppo.html"
SHOWN = {  # what is drawn: its title, and what the numbers are
    "reward": ("Reward", "As the reward model gave it: the mean over the answers of a step."),
    "gold": ("Gold", "What the users get of these answers, by the truth about them."),
    "kl": ("KL to the reference", "Nats per answer."),
    "kl_per_token": ("KL to the reference", "Nats per token."),
    "entropy": ("Entropy", "Of the policy, nats per token."),
    "length": ("Length", "Tokens per answer."),
    "failure_rate": ("Failed rewards", "Share of the rewards that a step asked for."),
}
SIDES = {"gold": "all users", "gold_majority": "with the majority", "gold_minority": "with the minority"}
ENDS = {DONE: "", BUDGET: ", when the KL budget was spent"}
FEW_USERS = 20  # fewer say little about other users
NEARLY_ZERO = 0.02  # of the highest value: a measured KL of nothing can lie a little below 0
MOST_POINTS = 40
MOST_GAINS = 12
GOLD, GAIN, TWO = NumberFormat(3), NumberFormat(3, sign=True), NumberFormat(2)
Item = TypeVar("Item")
Row = Mapping[str, Json]
Rows = Sequence[Row]


def render_run(run: Path, summary: Row, evaluation: Row | None = None, origin: Origin | None = None) -> str:
    """Draw the curves of a run beside its rows, and return its page."""
    return render_page(TEMPLATE, page_of_run(run, summary, evaluation), origin)


def page_of_run(run: Path, summary: Row, evaluation: Row | None = None) -> dict[str, Json]:
    """Draw the curves of a run beside its rows, and return what the template of its page needs."""
    rows = read_steps(run)
    write_curves(run / CURVES, f"{summary['algorithm']}: {summary['policy']} by {summary['reward_model']}", rows)
    answers = [row for _, _, row in read_lines(run / EVALUATION_ROWS)] if evaluation else []
    return page_of(summary, rows, evaluation, answers)


def write_curves(path: Path, title: str, rows: Rows) -> None:
    """Draw every figure that the rows have, one below the other; what did not change is a line of text."""
    charts, steady = _charts(rows)
    write_svg(path, title, charts, steady)


def page_of(summary: Row, rows: Rows, evaluation: Row | None = None, answers: Rows = ()) -> dict[str, Json]:
    """Return what the template needs; `answers` are the rows behind the evaluation."""
    held_out = _held_out(evaluation, answers) if evaluation else None
    some = [name for name in SHOWN if _measured(rows, name)]
    charts, steady = _charts(rows)
    drawn = _thinned(rows)
    return {
        "title": f"{summary['algorithm'].upper()} by {summary['reward_model']}",
        "facts": {
            "policy": summary["policy"],
            **({"context of policy / reward model": policy_context(summary)} if "context" in summary else {}),
            "updates": f"{summary['updates']}{ENDS[summary['ended']]}",
            "failed rewards": f"{summary['rewards_failed']} of {summary['rewards_asked']}",
            **({"held-out users": str(held_out["users"])} if held_out else {}),
            "run": summary["run_id"],
            "seed": str(summary["seed"]),
        },
        "said": _training_sentence(summary),
        "notes": _notes(summary, rows, held_out),
        "charts": charts,
        "steady": steady,
        "steps": (
            ("updates", *(SHOWN[name][0] for name in some)),
            [
                [str(row["step"]), *(f"{row[name]:.4g}" if row.get(name) is not None else MISSING for name in some)]
                for row in drawn
            ],
        ),
        "left_out": len(rows) - len(drawn),
        "held_out": held_out,
    }


def policy_context(facts: Row) -> str:
    """Return the context of the policy and that of the reward model."""
    policy, reward = (label_of_context(facts[name]) for name in ("context", "reward_context"))
    shots = facts.get("labels")
    return f"{policy} / {reward}" + (f", {shots} labels" if shots else "")


def _training_sentence(summary: Row) -> str:
    """Say what happened to reward and gold, and how far the policy went for it."""
    first, last, updates = summary["first"], summary["last"], summary["updates"]
    parts = []
    for key, name in (("reward", "the reward"), ("gold", "gold")):
        before, after = (None if end.get(key) is None else f"{end[key]:.3g}" for end in (first, last))
        if before is None and after is not None:
            parts.append(f"{name} came to {after}")
        elif after is not None:
            parts.append(f"{name} stayed at {after}" if before == after else f"{name} went from {before} to {after}")
    for key, unit in (("kl", "answer"), ("kl_per_token", "token")):
        if last.get(key) is not None:
            parts.append(f"the policy ended {last[key]:.3g} nats per {unit} from the reference")
    said = ", and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
    return f"In {updates} update{'' if updates == 1 else 's'}, {said or 'nothing was measured'}."


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
            f"Intervals are over {held_out['users']} held-out users, too few to say much of others. "
            f"Take {FEW_USERS} or more."
        )
    return notes


def _charts(rows: Rows) -> tuple[list[LineChart], list[str]]:
    """Return a chart for every measured figure that changes, and a line about every other one."""
    charts, steady = [], []
    for name, (title, _) in SHOWN.items():
        measured = _measured(rows, name)
        if not measured:
            continue
        values = [float(row[name]) for row in measured]
        if _is_steady(values):
            where = "the one measured step" if len(values) == 1 else f"all {len(values)} measured steps"
            steady.append(f"{title}: {values[0]:.4g} at {where}.")
        else:
            charts.append(_curve(name, measured, values))
    return charts, steady


def _measured(rows: Rows, name: str) -> Rows:
    return [row for row in rows if row.get(name) is not None]


def _thinned(rows: Sequence[Item]) -> Sequence[Item]:
    """Return at most so many rows, evenly spaced, the first and the last among them."""
    if len(rows) <= MOST_POINTS:
        return rows
    last = len(rows) - 1
    return [rows[round(number * last / (MOST_POINTS - 1))] for number in range(MOST_POINTS)]


def _is_steady(values: Sequence[float]) -> bool:
    return math.isclose(min(values), max(values), rel_tol=1e-9, abs_tol=1e-9)


def _axis(values: Sequence[float]) -> Axis:
    """Return a round axis that holds the values, from 0 where that does not flatten them."""
    low, high = min(values), max(values)
    return round_axis(0.0 if -NEARLY_ZERO * high < low < high / 2 else low, high)


def _curve(name: str, rows: Rows, values: Sequence[float]) -> LineChart:
    """Return one figure over updates: the line through all steps, dots on some."""
    title, note = SHOWN[name]
    steps = [int(row["step"]) for row in rows]
    curve = [(float(step), value) for step, value in zip(steps, values, strict=True)]
    marks = [
        Mark(value=value, low=value, high=value, x=step, name=f"after {step:g} updates")
        for step, value in _thinned(curve)
    ]
    ticks = round_axis(steps[0], steps[-1]).ticks
    whole = [(tick, text) for tick, text in ticks if steps[0] <= tick <= steps[-1] and float(tick).is_integer()]
    return LineChart(
        title=title,
        note=note,
        series=[Series(name=title, marks=marks, curve=curve)],
        x=Axis(steps[0], steps[-1], whole),
        y=_axis(values),
        x_name="updates",
        form=NumberFormat(4),
        alt_text=f"Over {steps[-1]} updates: from {values[0]:.3g} to {values[-1]:.3g}, "
        f"between {min(values):.3g} and {max(values):.3g}.",
    )


def _held_out(evaluation: Row, answers: Rows) -> dict[str, Json]:
    """Return what strangers get: a sentence, gold over distance, gains over the reference, and a table."""
    policies, how = evaluation["policies"], evaluation["held_out"]
    sides = [side for side in SIDES if all(entry[side] is not None for entry in policies)]
    gains = _gains(answers, [entry["step"] for entry in policies], sides)
    changes = not _is_steady([float(row["gold"]) for row in answers])
    users, questions = (len({row[key] for row in answers}) for key in ("user_id", "id"))
    return {
        **_verdict(policies, gains),
        "asked": f"{questions} questions of {users} users (split {how['split']}), {how['samples']} answers to each.",
        "users": users,
        "chart": _gold_over_kl(policies, sides) if changes else None,
        "gains": _gain_chart(gains, sides) if changes and gains else None,
        "steady": "" if changes else f"Gold was {policies[0]['gold']['value']:.4g} for every policy.",
        "cells": _cells(policies, gains),
    }


def _gains(answers: Rows, steps: Sequence[int], sides: Sequence[str]) -> dict[int, dict[str, Row]]:
    """Return, for each policy but the first, how much more gold its users get, paired by question."""
    golds = {(row["step"], row["id"]): float(row["gold"]) for row in answers}
    questions = [row for row in answers if row["step"] == steps[0]]
    belongs = [[side == "gold" or row["majority"] is (side == "gold_majority") for side in sides] for row in questions]
    # One block of columns per policy, one column in it per side.
    counts = [[float(each) for _ in steps for each in one] for one in belongs]
    sums = [
        [golds[step, row["id"]] * each for step in steps for each in one]
        for row, one in zip(questions, belongs, strict=True)
    ]
    draws = clustered_ratios(sums, counts, [row["user_id"] for row in questions], span=GOLD_SPAN)
    return {
        step: {
            side: asdict(draws.estimate(len(sides) * number + column, minus=column))
            for column, side in enumerate(sides)
        }
        for number, step in enumerate(steps)
        if number
    }


def _verdict(policies: Rows, gains: Mapping[int, Mapping[str, Row]]) -> dict[str, str]:
    """Say whether the last policy gives strangers more than the reference did."""
    first, last = policies[0]["gold"], policies[-1]["gold"]
    if not gains:
        return {"class": "look", "reply": "not trained", "said": f"Held-out users get gold of {GOLD.estimate(first)}."}
    gain = gains[policies[-1]["step"]]["gold"]
    ends = f"from {first['value']:.3f} to {last['value']:.3f}, by {GAIN.estimate(gain)}"
    if gain["low"] > 0:
        return {"class": "good", "reply": "gold rose", "said": f"For held-out users, gold rose {ends}."}
    if gain["high"] < 0:
        return {"class": "bad", "reply": "gold fell", "said": f"For held-out users, gold fell {ends}."}
    if first["value"] == last["value"]:
        said = f"For held-out users, gold stayed at {last['value']:.3f}."
        return {"class": "look", "reply": "gold stayed", "said": said}
    said = f"For held-out users, gold went {ends}: the interval holds 0, so it may be chance."
    return {"class": "look", "reply": "gold: open", "said": said}


def _gold_over_kl(policies: Rows, sides: Sequence[str]) -> LineChart:
    kls = [float(entry["kl"]) for entry in policies]
    wide = _axis([0.0, *kls])
    across = Axis(wide.low, max(kls), [tick for tick in wide.ticks if tick[0] <= max(kls)]) if max(kls) > 0 else wide
    ends = [entry[side][key] for entry in policies for side in sides for key in ("low", "high")]
    series = [
        Series(
            name=SIDES[side],
            style=style,
            marks=[
                replace(mark, x=kl, name=f"after {entry['step']} updates, KL {kl:.2f}")
                for entry, kl in zip(policies, kls, strict=True)
                for mark in mark_of(entry[side])
            ],
        )
        for style, side in enumerate(sides)
    ]
    return LineChart(
        title="Gold over KL",
        note="Each dot is a policy that was kept, with its 95 % interval over users; lines follow the training.",
        series=series,
        x=across,
        y=round_axis(min(ends), max(ends)),
        x_name="KL to the reference, nats per answer",
        y_name="gold",
        form=GOLD,
    )


def _gain_chart(gains: Mapping[int, Mapping[str, Row]], sides: Sequence[str]) -> DotChart:
    """Return dots of what the policies gained, in rows; of many policies, some."""
    # Taken from the end, so that the last policy is among them.
    steps = list(gains)[:: -math.ceil(len(gains) / MOST_GAINS)][::-1]
    rows = [
        (
            f"{step} updates",
            [mark for style, side in enumerate(sides) for mark in mark_of(gains[step][side], SIDES[side], style)],
        )
        for step in steps
    ]
    note = (
        "Gold of a policy minus gold of the reference on the same questions, with 95 % intervals over users; the line "
        "is at 0."
    )
    return DotChart(title="Gain over the reference", note=note, rows=rows, reference=0.0, form=GAIN)


def _cells(policies: Rows, gains: Mapping[int, Mapping[str, Row]]) -> Cells:
    heads = ("updates", "KL, nats per answer", "gold", "gain over the reference", *list(SIDES.values())[1:])
    rows = [
        [
            str(entry["step"]),
            TWO.number(entry["kl"]),
            GOLD.estimate(entry["gold"]),
            GAIN.estimate(gains.get(entry["step"], {}).get("gold")),
            GOLD.estimate(entry["gold_majority"]),
            GOLD.estimate(entry["gold_minority"]),
            NumberFormat(1).number(entry["length"]),
            NumberFormat(1, 100.0).number(entry["truncated"]),
        ]
        for entry in policies
    ]
    return (*heads, "length, tokens", "truncated, %"), rows
