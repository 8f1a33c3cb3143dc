"""Audit a dataset: can it measure personalization, or would a shortcut do?"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from prbench.data import ExampleStore
from prbench.evaluation import DataSettings, as_loaded, evaluate_store
from prbench.metrics.compare import ASSUMED_DISCORDANCE, resolution
from prbench.reward_models import ModelSettings
from prbench.schema import Example, Probe, RatedExample
from prbench.walk import EvalSettings

GOOD, LOOK, BAD = "good", "look", "bad"
# Rules that know nothing of the user's taste. Far from 50 %, in either direction, they are a shortcut.
FLOORS = (
    ("control:longest", "the longer response", "Match the lengths of chosen and rejected, or balance them."),
    (
        "control:question",
        "word overlap with the question",
        "Rewrite the responses that repeat or avoid the question's words.",
    ),
    (
        "control:overlap",
        "word overlap with the profile",
        "Chosen responses echo the posts: rewrite them, or mirror the pairs.",
    ),
)
NEAR, FAR = 0.05, 0.10  # distance of a floor from one half that is fine, and that is not


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check: what was looked at, what came out, and what to do if it is not good."""

    check: str
    verdict: str
    figure: str
    remedy: str = ""


def check_pairs(store: ExampleStore, *, seed: int = 0) -> Iterator[Finding]:
    """Yield one finding after the other, the cheap ones first."""
    yield _rows(store)
    yield _users(store)
    yield _profiles(store)
    if store.kind == "pairs":
        yield _lengths(store)
        yield from _floors(store, seed)
        yield _resolution(len(store))


def _rows(store: ExampleStore) -> Finding:
    bad = len(store.bad_rows)
    figure = f"{len(store)} good rows, {bad} bad"
    return Finding(
        check="rows",
        verdict=LOOK if bad else GOOD,
        figure=figure,
        remedy="Repair the rows named above." if bad else "",
    )


def _users(store: ExampleStore) -> Finding:
    rows_of = Counter(example.user.id for example in store)
    most = max(rows_of.values())
    figure = f"{len(rows_of)} users, {len(store) / len(rows_of):.1f} rows each, at most {most}"
    few = len(rows_of) < 30
    remedy = "Intervals are drawn over users: with fewer than 30 they are rough. Add users." if few else ""
    return Finding(check="users", verdict=LOOK if few else GOOD, figure=figure, remedy=remedy)


def _profiles(store: ExampleStore) -> Finding:
    sizes = [len(example.user.profile) for example in store]
    empty = sum(size == 0 for size in sizes)
    figure = f"{fmean(sizes):.1f} posts on average, {min(sizes)} to {max(sizes)}; {empty} rows without any"
    if not empty:
        return Finding(check="profiles", verdict=GOOD, figure=figure)
    remedy = (
        "A general set: use --context none."
        if empty == len(sizes)
        else "These rows cannot be personal. Drop them, or add posts."
    )
    return Finding(check="profiles", verdict=LOOK, figure=figure, remedy=remedy)


def _lengths(store: ExampleStore) -> Finding:
    ratios = [_length_ratio(example) for example in store]
    mean = fmean(ratios)
    verdict = GOOD if 0.95 <= mean <= 1.05 else LOOK if 0.85 <= mean <= 1.15 else BAD
    return Finding(
        check="length",
        verdict=verdict,
        figure=f"chosen has {mean:.2f} times the characters of rejected on average",
        remedy="" if verdict == GOOD else "Ask for equal lengths when responses are written, or drop the extremes.",
    )


def _length_ratio(example: Example | RatedExample) -> float:
    assert isinstance(example, Example), "only pairs have two responses"
    return len(example.chosen) / len(example.rejected)


def _floors(store: ExampleStore, seed: int) -> Iterator[Finding]:
    settings = EvalSettings(context="profile", probes=(Probe.OWN,), posts=10_000, seed=seed)
    for spec, rule, remedy in FLOORS:
        run = evaluate_store(store, as_loaded(spec, ModelSettings(seed=seed)), settings, DataSettings())
        estimate = run.summary["accuracy"]
        # The end of the interval nearer to one half decides: few rows must not look like a shortcut.
        distance = max(estimate["low"] - 0.5, 0.5 - estimate["high"], 0.0)
        verdict = GOOD if distance <= NEAR else LOOK if distance <= FAR else BAD
        yield Finding(
            check=f"floor: {rule}",
            verdict=verdict,
            figure="right in {:.1f} % [{:.1f}, {:.1f}]".format(
                *(100 * estimate[key] for key in ("value", "low", "high"))
            ),
            remedy="" if verdict == GOOD else remedy,
        )


def _resolution(n: int) -> Finding:
    smallest = resolution(n)
    assumed = f"if two models differ on {100 * ASSUMED_DISCORDANCE:.0f} % of the pairs"
    if smallest is None:
        return Finding(
            check="resolution",
            verdict=BAD,
            figure=f"{n} pairs cannot show any difference, {assumed}",
            remedy="Add pairs.",
        )
    verdict = GOOD if smallest <= 0.05 else LOOK
    figure = f"{n} pairs show differences from {100 * smallest:.1f} points at 80 % power, {assumed}"
    return Finding(check="resolution", verdict=verdict, figure=figure, remedy="" if verdict == GOOD else "Add pairs.")
