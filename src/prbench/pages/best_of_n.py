"""From the figures of Best-of-N to a page: what users get for each n, by model."""

from collections.abc import Mapping, Sequence

from prbench.downstream.best_of_n.summary import ORACLE, RANDOM
from prbench.metrics.number_format import MISSING, PERCENT, NumberFormat, p_text
from prbench.pages.charts import Axis, Cells, DotChart, LineChart, Mark, Series, mark_of, round_axis
from prbench.pages.shell import Origin, render_page
from prbench.schema import Json

FEW_USERS = 20  # fewer say little about other users
CONTEXTS = {"none": "no context", "profile": "the profile", "plan": "a plan", "oracle": "the rubric, a ceiling"}
CEILING = "The policy is given the rubric, which nobody knows outside the lab: a ceiling."
VALUE, CHANGE = NumberFormat(3), NumberFormat(3, sign=True)
FLOOR_STYLE, CEILING_STYLE = 7, 6  # of the curves of `random` and `oracle`: models have the others
MODEL_STYLES = 6
Summary = Mapping[str, Json]


def render(summary: Summary, origin: Origin | None = None) -> str:
    """Return the page as a string."""
    return render_page("best_of_n.html", page_of(summary), origin)


def page_of(summary: Summary) -> dict[str, Json]:
    """Return what the template needs."""
    models, last = summary["models"], str(summary["n"])
    data = summary["data"]
    return {
        "title": f"Best of {last}",
        "facts": {
            "policy": f"{summary['policy']}, given {CONTEXTS[summary['policy_context']]}",
            "answers per question": last,
            "questions": f"{summary['questions']} of {summary['users']} users",
            "data": " ".join(part for part in (data["name"], data["split"]) if part),
            "graded by": str(summary["judge"].get("llm") or summary["judge"].get("judge", "a judge in Python")),
            "pool": summary["pool"],
            "seed": str(summary["seed"]),
        },
        "notes": notes_of(summary),
        "n": last,
        "charts": [_curves(summary), *_headroom(models)],
        "models": _models(models, last),
        "swaps": _swaps(models),
        "shapes": _shapes(models),
        "groups": [(field, _groups(groups, list(models))) for field, groups in summary["groups"].items()],
        "values": _values(summary),
        "differences": (
            ("first", "second", "first minus second", "p, by Holm"),
            [
                [each["first"], each["second"], CHANGE.estimate(each["difference"]), p_text(each["holm_p"])]
                for each in summary["differences"]
            ],
        ),
        "has_quality": models[ORACLE]["quality_at"] is not None,
    }


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
            f"Intervals are over {summary['users']} users, too few to say much of others. Take {FEW_USERS} or more."
        )
    if summary["models"][ORACLE]["captured_headroom"] is None:
        notes.append("All answers to a question are worth the same, so there was nothing to gain.")
    if summary["truncated"] > 0:
        notes.append(f"{100 * summary['truncated']:.1f} % of the answers ran out of tokens.")
    return notes


def _models(models: Mapping[str, Summary], last: str) -> Cells:
    heads = ["picked by", "context", "value", "captured headroom, %", "regret", "win rate, %", "best n", "area"]
    has_quality = models[ORACLE]["quality_at"] is not None
    rows = []
    for name, found in models.items():
        quality, ties = found["quality_at"], found["ties"]
        rows.append(
            [
                name,
                found["context"] or MISSING,
                VALUE.estimate(found["value_at"][last]),
                PERCENT.estimate(found["captured_headroom"]),
                VALUE.value(found["regret"]),
                PERCENT.value(found["win_rate"]),
                str(found["best_n"] or MISSING),
                VALUE.number(found["area"]),
                *([VALUE.value(quality and quality[last])] if has_quality else []),
                PERCENT.number(ties and ties["pools"]),
            ]
        )
    return (*heads, *(["quality"] if has_quality else []), "tied tops, %"), rows


def _swaps(models: Mapping[str, Summary]) -> Cells:
    heads = ("picked by", "own profile", "another user's profile", "drop", "captured headroom with another's, %")
    rows = [
        [
            name,
            VALUE.estimate(swap["own"]),
            VALUE.estimate(swap["value"]),
            CHANGE.estimate(swap["drop"]),
            PERCENT.estimate(swap["captured_headroom"]),
        ]
        for name, found in models.items()
        if (swap := found["swap"]) is not None
    ]
    return heads, rows


def _shapes(models: Mapping[str, Summary]) -> Cells:
    heads = ("picked by", "α", "β", "peak of the fit", "drop of the curve", "proxy–gold gap", "RMSE of the fit")
    rows = []
    for name, found in models.items():
        if fit := found["overoptimization"]:
            peak = "does not turn down"
            if fit["peak_d"] is not None:
                peak = f"d = {fit['peak_d']:.2f}" if fit["is_within"] else "beyond these n"
            alpha, beta, drop, rmse = (VALUE.number(fit[key]) for key in ("alpha", "beta", "drop", "rmse"))
            rows.append([name, alpha, beta, peak, drop, CHANGE.estimate(found["proxy_gold_gap"]), rmse])
    return heads, rows


def _groups(groups: Sequence[Summary], names: Sequence[str]) -> Cells:
    rows = [[name, *(PERCENT.estimate(each["captured_headroom"][name]) for each in groups)] for name in names]
    return ("picked by", *(f"{each['group']} ({each['questions']} questions)" for each in groups)), rows


def _values(summary: Summary) -> Cells:
    sizes, models = [str(n) for n in summary["sizes"]], summary["models"]
    bound = models[ORACLE]["kl_bound_at"]
    rows = [["KL bound, nats", *(NumberFormat(2).number(bound[n]) for n in sizes)]]
    rows += [[name, *(VALUE.estimate(found["value_at"][n]) for n in sizes)] for name, found in models.items()]
    return ("picked by", *sizes), rows


def _curves(summary: Summary) -> LineChart:
    """Return the curves of value against n; colors of models do not depend on the floor and the ceiling."""
    sizes, models = summary["sizes"], summary["models"]
    known = [each for found in models.values() for each in found["value_at"].values() if each is not None]
    series = []
    for place, (name, found) in enumerate(sorted(models.items(), key=lambda each: each[0] in (RANDOM, ORACLE))):
        marks = [
            Mark(value=each["value"], low=each["low"], high=each["high"], n=each.get("n"), x=n, name=f"best of {n}")
            for n in sizes
            if (each := found["value_at"][str(n)])
        ]
        curve = [(float(n), value) for n, value in enumerate(found["curve"] or [], 1)]
        style = {RANDOM: FLOOR_STYLE, ORACLE: CEILING_STYLE}.get(name, place % MODEL_STYLES)
        dashed = name in (RANDOM, ORACLE) or place >= MODEL_STYLES
        series.append(Series(name=name, style=style, marks=marks, curve=curve, has_band=True, is_dashed=dashed))
    return LineChart(
        title="Value against n",
        note="Expected true value of the answer picked from n, over all subsets of the pool. Bands are 95 % intervals "
        "over users. The oracle picks by the truth, random at random.",
        series=series,
        x=Axis(1.0, float(max(sizes[-1], 2)), [(float(n), str(n)) for n in sizes], is_log=True),
        y=round_axis(min(each["low"] for each in known), max(each["high"] for each in known)),
        x_name="n (log scale)",
        y_name="value",
    )


def _headroom(models: Mapping[str, Summary]) -> list[DotChart]:
    """Return dots of captured headroom: with the own profile, and with another user's."""
    rows = []
    for name, found in models.items():
        swap = found["swap"] or {}
        marks = [
            *mark_of(found["captured_headroom"], "as asked", 0),
            *mark_of(swap.get("captured_headroom"), "another user's profile", 2),
        ]
        if marks and name != ORACLE:
            rows.append((name, marks))
    if not rows:
        return []
    note = "Share of what the oracle gains over one answer, in percent; the line is at 0."
    return [DotChart(title="Captured headroom", note=note, rows=rows, reference=0.0, form=PERCENT, ends=(0.0, 1.0))]
