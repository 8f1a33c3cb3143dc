"""Audit a dataset: can it measure personalization, or would a shortcut do?

The list of checks comes first, and then those that only count: rows, users, profiles, the place of the chosen
response, and what so many pairs can show.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from prbench.backends.encoders import Encoder, load_encoder
from prbench.construction.check.duplicates import check_duplicates, check_near, check_rated_duplicates, pair_keys
from prbench.construction.check.finding import (
    BAD,
    CHANCE,
    DIGITS,
    GOOD,
    LOOK,
    SKIPPED,
    TOO_FEW,
    CheckFinding,
    as_values,
)
from prbench.construction.check.floors import INSTALL, check_floors
from prbench.construction.check.splits import check_splits, split_of, texts_of
from prbench.construction.check.style import check_rated_length, check_style
from prbench.data import DataSettings, ExampleStore, Rows, open_data
from prbench.data.rows import hash64
from prbench.data.texts import fold
from prbench.errors import UsageError
from prbench.evaluation.score import can_swap, chosen_comes_first
from prbench.metrics.compare import ASSUMED_CORRELATION, planned_resolution
from prbench.metrics.estimate import independent_rows, ratio_estimates
from prbench.metrics.number_format import counted, percent_text
from prbench.schema import Json, StepProgress

__all__ = ["BAD", "GOOD", "LOOK", "SKIPPED", "TOO_FEW", "Audit", "CheckFinding", "check_dataset", "check_store"]

MINILM, NO_ENCODER = "minilm", "none"
FEW_USERS = 30
NAMED = 5  # rows that the figure names; --json names all
FINE_RESOLUTION = 0.05
RECURRING = ("questions", "responses", "sentences", "posts")  # whose distinct texts are counted
OFTEN = 1.5  # uses of a text, from which on it is worth a look
# Intra-user correlation of two models' difference, where no run has shown it yet. Pairs of one user share a taste that
# a model gets right or wrong as a whole, but each asks something else: above 0, and small. A convention, not measured.


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What all checks found out about one dataset."""

    data: str
    split: str
    kind: str  # pairs or rated
    rows: int
    users: int
    hash: str
    findings: tuple[CheckFinding, ...]

    @property
    def is_bad(self) -> bool:
        return any(finding.verdict == BAD for finding in self.findings)


def check_dataset(
    data: Rows,
    *,
    which: DataSettings | None = None,
    encoder: str | Encoder = MINILM,
    seed: int = 0,
    progress: StepProgress = lambda step: None,
) -> Audit:
    """Audit a dataset: a path, a hub id, `lab`, or the rows themselves.

        audit = check_dataset("pairs.jsonl", encoder="none")
        print([finding.check for finding in audit.findings if finding.verdict == BAD])

    `encoder` is `minilm`, `none` (the checks that need one are then skipped), a path or hub id, or an object;
    `progress` is told the name of every long check, and may return what wants to hear of its progress.
    """
    which = which or DataSettings()
    if isinstance(data, str | Path):
        which = replace(which, source=str(data))
    with open_data(which, None if which.source else data) as store:
        return check_store(store, which, encoder=encoder, seed=seed, progress=progress)


def check_store(
    store: ExampleStore,
    which: DataSettings,
    *,
    encoder: str | Encoder = MINILM,
    seed: int = 0,
    progress: StepProgress = lambda step: None,
) -> Audit:
    """Audit rows that are open already; `which` says where they and their other splits come from."""
    return Audit(
        data=which.source or "rows given in Python",
        split=split_of(store, which),
        kind=store.kind,
        rows=len(store),
        users=store.users,
        hash=store.content_hash,
        findings=tuple(_check(store, which, encoder, seed, progress)),
    )


def _check(
    store: ExampleStore, which: DataSettings, encoder: str | Encoder, seed: int, progress: StepProgress
) -> Iterator[CheckFinding]:
    """Yield one finding after the other, the cheap ones first."""
    yield check_rows(store)
    yield check_users(store)
    yield check_profiles(store)
    if store.kind != "pairs":
        progress("duplicates")
        yield check_rated_duplicates(store)
        progress("splits")
        yield check_splits(store, which)
        yield check_rated_length(store)
        yield CheckFinding(
            "pairs only",
            SKIPPED,
            "rated rows have one response: no near-duplicates, style, floors, label position or resolution",
            why="These checks compare two responses.",
            remedy="Nothing to do: they are for pairs.",
        )
        return
    yield check_recurrence(store)
    found = _find_encoder(encoder)  # before the long checks, as a wrong name ends it all
    progress("duplicates")
    keys = pair_keys(store)
    yield check_duplicates(store, keys)
    yield check_near(store, keys, seed=seed, advance=progress("near-duplicates"))
    progress("splits")
    yield check_splits(store, which)
    yield check_style(store, advance=progress("length and style"))
    yield from check_floors(store, keys, found, seed=seed, progress=progress)
    yield check_position(store, seed=seed)
    yield check_resolution(count_rows_of_users(store).values())


def _find_encoder(encoder: str | Encoder) -> Encoder | str:
    """Return the encoder, or what to do to have one. A path or hub id that cannot be loaded is an error."""
    if not isinstance(encoder, str):
        return encoder
    if encoder == NO_ENCODER:
        return f"Leave out --audit-encoder none. It needs: {INSTALL}"
    try:
        return load_encoder(encoder)
    except UsageError as error:
        if encoder != MINILM:
            raise
        return str(error)


def check_rows(store: ExampleStore) -> CheckFinding:
    """Count the rows that pass the border, and those that do not."""
    bad = len(store.bad_rows)
    return CheckFinding(
        "rows",
        LOOK if bad else GOOD,
        f"{len(store)} good rows, {bad} bad",
        why="A row that breaks the format is left out of every figure.",
        remedy="Repair the rows named above.",
        values={"good": len(store), "bad": bad, "hash": store.content_hash},
    )


def count_rows_of_users(store: ExampleStore) -> Counter[str]:
    return Counter(example.user.id for example in store)


def check_users(store: ExampleStore) -> CheckFinding:
    """Count the users, and the number of equally busy users that they are worth: 1 / sum of squared shares."""
    rows_of = count_rows_of_users(store)
    users, rows, most = len(rows_of), len(store), max(rows_of.values())
    effective = 1 / sum((count / rows) ** 2 for count in rows_of.values())
    recurring = sum(count > 1 for count in rows_of.values()) / users
    return CheckFinding(
        "users",
        GOOD if effective >= FEW_USERS else LOOK,
        f"{counted(users, 'user')} (worth {effective:.0f} equal ones), {rows / users:.1f} rows each, at most {most}; "
        f"{percent_text(recurring)} have more than one",
        why="Figures speak of other users: few of them, or a few with most of the rows, say little of others.",
        remedy=f"Fewer than {FEW_USERS} users say little of others. Add users, or spread the rows over them.",
        values={
            "users": users,
            "effective_users": round(effective, DIGITS),
            "rows_per_user": round(rows / users, DIGITS),
            "most_rows": most,
            "recurrence": round(recurring, DIGITS),
        },
    )


def check_recurrence(store: ExampleStore) -> CheckFinding:
    """Count how many questions, responses, sentences and posts there are, and how often each is used."""
    uses: dict[str, Counter[int]] = {kind: Counter() for kind in RECURRING}
    for example in store:
        for kind, text in texts_of(example):
            if kind in uses:
                uses[kind][hash64(fold(text))] += 1
    counts = {kind: (len(found), found.total()) for kind, found in uses.items()}
    shared = [kind for kind, (distinct, total) in counts.items() if total > OFTEN * distinct]
    rows_of = count_rows_of_users(store).values()
    by_user = sum(rows_of) / independent_rows(rows_of, ASSUMED_CORRELATION)
    by_question = sum(rows_of) / independent_rows(uses["questions"].values(), ASSUMED_CORRELATION)
    figure = ", ".join(
        f"{counted(distinct, kind.removesuffix('s'))} used {counted(total, 'time')}"
        for kind, (distinct, total) in counts.items()
        if total
    )
    return CheckFinding(
        "recurrence",
        LOOK if "questions" in shared else GOOD,
        f"{figure}; design effect {by_user:.2f} by users, {by_question:.2f} by questions, if pairs that share one "
        f"correlate by {ASSUMED_CORRELATION}",
        why="Few texts that recur are few observations: figures on them say little of new questions.",
        remedy="Read the interval for new users and new questions, too: --resample users,questions.",
        values={
            **{kind: {"distinct": distinct, "uses": total} for kind, (distinct, total) in counts.items()},
            "design_effect_users": round(by_user, DIGITS),
            "design_effect_questions": round(by_question, DIGITS),
            "assumed_correlation": ASSUMED_CORRELATION,
        },
    )


def check_profiles(store: ExampleStore) -> CheckFinding:
    """Count the posts per row, the rows without any, and those whose posts everybody else has, too."""
    sizes = [len(example.user.profile) for example in store]
    empty = sum(size == 0 for size in sizes)
    alike = [
        example.id
        for position, example in enumerate(store)
        if example.user.profile
        and (donor := store.donor(position, seed=0))
        and not can_swap(example.user, donor, "profile")
    ]
    figure = f"{fmean(sizes):.1f} posts on average, {min(sizes)} to {max(sizes)}; {empty} rows without any"
    values: dict[str, Json] = {
        "mean": round(fmean(sizes), DIGITS),
        "fewest": min(sizes),
        "most": max(sizes),
        "rows_without": empty,
    }
    remedies = []
    if empty:
        general = empty == len(sizes)
        remedies.append(
            "A general set: use --context none."
            if general
            else "Rows without posts cannot be personal: drop them, or add posts."
        )
    if alike:
        named = ", ".join(alike[:NAMED]) + (", …" if len(alike) > NAMED else "")
        figure += f"; {len(alike)} in whose category everybody has the same posts ({named})"
        remedies.append("Without a user who has other posts there is no swap: give each person their own.")
        values["same_posts"] = alike
    return CheckFinding(
        "profiles",
        LOOK if empty or alike else GOOD,
        figure,
        why="A row without posts tells nothing about its user, so no model can be personal on it.",
        remedy=" ".join(remedies),
        values=values,
    )


def check_position(store: ExampleStore, *, seed: int) -> CheckFinding:
    """Count the rows in which a judge that is asked once would see the chosen response as A."""
    first = [float(chosen_comes_first(example.id, seed=seed)) for example in store]
    users = [example.user.id for example in store]
    estimate = ratio_estimates(first, np.ones(len(first)), users)[0]
    verdict = CHANCE.verdict(estimate, store.users)
    remedy = "Take another --seed, or leave --orders at both, which asks in both orders."
    return CheckFinding(
        "label position",
        verdict,
        f"chosen comes first in {100 * estimate.value:.1f} % of rows under seed {seed}",
        why="If chosen is mostly A, a judge that always answers A looks good when it is asked in one order only.",
        remedy=CHANCE.too_few(estimate) if verdict == TOO_FEW else remedy,
        values={"chosen_first": as_values(estimate), "seed": seed},
    )


def check_resolution(rows_of_users: Collection[int]) -> CheckFinding:
    """Say which difference between two models so many pairs can show."""
    planned = planned_resolution(rows_of_users)
    effective = math.floor(independent_rows(rows_of_users, ASSUMED_CORRELATION))
    verdict = LOOK
    if planned.difference is None:
        verdict = BAD
    elif planned.difference <= FINE_RESOLUTION:
        verdict = GOOD
    return CheckFinding(
        "resolution",
        verdict,
        planned.sentence.removeprefix("Resolution: ").removesuffix("."),
        why="Models that differ by less than this are often not told apart by the set.",
        remedy="Add pairs, of new users where you can.",
        values={
            "pairs": planned.pairs,
            "effective_pairs": effective,
            "assumed_correlation": ASSUMED_CORRELATION,
            "smallest_difference": None if planned.difference is None else round(planned.difference, DIGITS),
        },
    )
