"""What a panel's answers say, as figures: agreement with the label, general quality, agreement with each other.

A figure is an estimate, or the reason in words why there is none: never a bare nan, never an empty cell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from statistics import median

import numpy as np

from prbench.metrics.agreement import (
    Exchange,
    Label,
    LabelTable,
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
    label_table,
    majority_labels,
    pairwise_cohen_kappa,
    pooled_cohen_kappa,
    raw_agreement,
)
from prbench.metrics.equivalence import Equivalence, equivalence
from prbench.metrics.estimate import ClusteredShare, clustered_share, ratio_draws
from prbench.people.agreement.answers import (
    CHOICES,
    CHOSEN,
    HIGHEST,
    LOWEST,
    QUALITIES,
    REJECTED,
    TIE,
    Annotation,
    Annotations,
)
from prbench.schema import POINTS, Estimate, Json, Verdict

DIGITS = 6  # significant ones, so that a small p-value does not become 0
CHANCE = 0.5
RELIABLE, TENTATIVE = 0.8, 0.667  # Krippendorff's own marks for alpha (2004)
SIDES: Exchange = (CHOSEN, REJECTED)
UNEVEN = 0.8  # one label this frequent makes coefficients that know its name unstable


@dataclass(frozen=True, slots=True)
class Why:
    """Why there is no figure."""

    words: str


Figure = Estimate | Why


def figure_or_why(estimate: Estimate | None, table: LabelTable) -> Figure:
    """Return the coefficient of a table, or say why it is undefined."""
    if estimate is not None:
        return estimate
    shared = table.counts()[table.counts().sum(axis=1) > 1]
    if len(table.raters) < 2:
        return Why("There is one annotator only, and nobody to agree with.")
    if not len(shared):
        return Why("No item was answered by two annotators. Plan an overlap.")
    if len(shared) == 1:
        return Why("Only one item was answered by two annotators, and one item says nothing about others.")
    used = [category for category, total in zip(table.categories, shared.sum(axis=0), strict=True) if total]
    if len(used) == 1:
        return Why(f"Everybody always answered {used[0]!r}: they agree, but there is nothing to set chance against.")
    return Why("There are too few items with equally many answers.")


def as_json(content: object) -> Json:
    """Return records as plain objects with rounded numbers; a figure that does not exist is null with its reason."""
    match content:
        case Why(words=words):
            return {"value": None, "why": words}
        case ClusteredShare(estimate=estimate):
            wilson = {"low": as_json(content.low), "high": as_json(content.high)}
            return {**as_json(estimate), "wilson": wilson, "answers": content.answers}
        case Equivalence():
            return {**_record(content), "p_value": as_json(content.p_value), "equivalent": content.equivalent}
        case Mapping():
            return {str(key): as_json(value) for key, value in content.items()}
        case list() | tuple():
            return [as_json(value) for value in content]
        case float():
            return float(f"{content:.{DIGITS}g}")
        case _:
            return _record(content) if is_dataclass(content) else content


def _record(content: object) -> dict[str, Json]:
    return {spec.name: as_json(getattr(content, spec.name)) for spec in fields(content)}  # type: ignore[arg-type]


def points(label: Label | None) -> float:
    """Return what a choice is worth: 1 for the chosen response, one half for a tie."""
    return POINTS[Verdict(str(label))]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelAgreement:
    """Agreement with the label, in points: 1 for the chosen response, one half for a tie. Chance is one half."""

    by_answer: ClusteredShare
    by_majority: ClusteredShare  # one point per item, an even split being half a point
    ties: ClusteredShare
    even_splits: int  # items without a majority


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Does the side matter? Without bias the left share is one half, and the difference is 0."""

    left_share: Figure  # of the answers that are no ties
    chosen_left: Figure  # share that picks the chosen response where it stood left
    chosen_right: Figure
    difference: Figure  # chosen_left - chosen_right: a lean to the left makes it positive


def measure_label(rows: Sequence[Annotation], *, level: float, seed: int) -> LabelAgreement | Why:
    """Return how often the choices go with the label; the answers to one item are kept together."""
    made = [row for row in rows if row.label is not None]
    if not made:
        return Why("Nobody has made a choice yet.")
    items = [row.item for row in made]
    table = label_table(((row.annotator, row.item, row.label) for row in made), categories=CHOICES)
    majority = majority_labels(table)
    votes = [0.5 if label is None else points(label) for label in majority.values()]
    return LabelAgreement(
        by_answer=clustered_share([points(row.label) for row in made], items, level=level, seed=seed),
        by_majority=clustered_share(votes, list(majority), level=level, seed=seed),
        ties=clustered_share([float(row.label == TIE) for row in made], items, level=level, seed=seed),
        even_splits=sum(label is None for label in majority.values()),
    )


def measure_position(rows: Sequence[Annotation], *, seed: int) -> Position:
    """Return the share of answers that pick the left response, and whether the chosen one does better on the left."""
    picks = [row for row in rows if row.side_chosen is not None and row.label in (CHOSEN, REJECTED)]
    if not picks:
        none = Why("The rows do not say on which side the chosen response stood.")
        return Position(left_share=none, chosen_left=none, chosen_right=none, difference=none)
    stood_left = np.array([row.side_chosen == "left" for row in picks])
    right = np.array([row.label == CHOSEN for row in picks])
    # Columns: left picks of all answers; chosen picks where it stood left; chosen picks where it stood right.
    tops = np.stack([stood_left == right, stood_left & right, ~stood_left & right], axis=1).astype(
        np.float64
    )  # (answers, 3)
    bottoms = np.stack([np.ones(len(picks)), stood_left, ~stood_left], axis=1).astype(np.float64)
    draws = ratio_draws(tops, bottoms, [row.item for row in picks], seed=seed)
    one_side = Why("The chosen response always stood on the same side.")
    return Position(
        left_share=draws.estimate(0),
        chosen_left=draws.estimate(1) if stood_left.any() else one_side,
        chosen_right=draws.estimate(2) if not stood_left.all() else one_side,
        difference=draws.estimate(1, minus=2) if 0 < stood_left.sum() < len(picks) else one_side,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One quality of the chosen and of the rejected responses, from 1 to 5."""

    name: str
    chosen: float | None  # mean rating
    rejected: float | None
    test: Equivalence | Why  # of chosen - rejected, or why there is none


def measure_qualities(rows: Sequence[Annotation], *, margin: float, alpha: float) -> tuple[Quality, ...]:
    """Return the equivalence test of every quality, over the answers that rate both responses."""
    qualities = []
    for name in QUALITIES:
        rated = [row for row in rows if name in row.ratings]
        if not rated:
            why = Why("Nobody rated both responses of an item.")
            qualities.append(Quality(name=name, chosen=None, rejected=None, test=why))
            continue
        items = [row.item for row in rated]
        chosen, rejected = zip(*(row.ratings[name] for row in rated), strict=True)
        test: Equivalence | Why = Why("Only one item is rated, and one item says nothing about others.")
        if len(set(items)) > 1:
            differences = [one - two for one, two in zip(chosen, rejected, strict=True)]
            span, tests = HIGHEST - LOWEST, len(QUALITIES)
            test = equivalence(differences, items, margin=margin, span=span, alpha=alpha, tests=tests)
        means = (sum(chosen) / len(rated), sum(rejected) / len(rated))
        qualities.append(Quality(name=name, chosen=means[0], rejected=means[1], test=test))
    return tuple(qualities)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One coefficient of agreement."""

    about: str  # choice, label, or a quality
    name: str
    figure: Figure
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairKappa:
    """Cohen's kappa of two annotators."""

    first: str
    second: str
    kappa: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAgreement:
    """How a model's verdicts go with people's."""

    judge: str
    with_majority: Figure  # kappa with the majority of the people
    alpha_with_people: Figure  # alpha of the people and the judge together
    verdicts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """All that is known about the annotators' agreement with each other."""

    alpha: Figure  # the headline: choices without the names of the responses, or labels
    coefficients: tuple[Coefficient, ...]
    pairs: tuple[PairKappa, ...]
    judges: tuple[JudgeAgreement, ...]


def measure_reliability(answers: Annotations, *, seed: int) -> Reliability:
    """Return the coefficients of people's choices (or labels) and ratings, and each judge's beside them."""
    people = answers.people
    if not any(row.label is not None for row in people):
        return Reliability(alpha=Why("Nobody has made a choice yet."), coefficients=(), pairs=(), judges=())
    table = table_of(people, are_choices=answers.are_choices)
    exchange = SIDES if answers.are_choices else None
    kappas = pairwise_cohen_kappa(table, exchange=exchange, seed=seed)
    coefficients = [*_of_labels(table, kappas, exchange, seed=seed), *_of_ratings(people, seed=seed)]
    return Reliability(
        alpha=next(each.figure for each in coefficients if each.name.startswith("Krippendorff's alpha")),
        coefficients=tuple(coefficients),
        pairs=tuple(
            PairKappa(first=one, second=two, kappa=_kappa_or_why(kappa, table, one, two))
            for (one, two), kappa in kappas.items()
        ),
        judges=tuple(_judges(answers, table, seed=seed)) if answers.are_choices else (),
    )


def table_of(rows: Sequence[Annotation], *, are_choices: bool) -> LabelTable:
    return label_table(
        ((row.annotator, row.item, row.label) for row in rows), categories=CHOICES if are_choices else None
    )


def _of_labels(
    table: LabelTable,
    kappas: Mapping[tuple[str, str], Estimate | None],
    exchange: Exchange | None,
    *,
    seed: int,
) -> list[Coefficient]:
    about = "label" if exchange is None else "choice"
    counts, totals = sorted({int(n) for n in table.counts().sum(axis=1) if n > 1}), table.counts().sum(axis=0)
    uneven, usual = "", ""
    if len(counts) > 1:
        usual = f"Items have {counts[0]} to {counts[-1]} answers; it takes those with the usual number."
    if totals.max() >= UNEVEN * totals.sum():
        share, word = 100 * totals.max() / totals.sum(), table.categories[int(totals.argmax())]
        uneven = f"{share:.0f} % of the answers are {word!r}: so uneven, this is low however well people agree."

    def row(name: str, estimate: Estimate | None, remark: str = "") -> Coefficient:
        return Coefficient(about=about, name=name, figure=figure_or_why(estimate, table), remark=remark)

    alpha = krippendorff_alpha(table, exchange=exchange, seed=seed)
    rows = [
        row("Krippendorff's alpha, nominal", alpha, read_alpha(alpha)),
        row("Fleiss' kappa", fleiss_kappa(table, exchange=exchange, seed=seed), usual),
        row("Cohen's kappa, all pairs", pooled_cohen_kappa(table, exchange=exchange, seed=seed), _mean_of(kappas)),
        row("same answer, share of pairs of answers", raw_agreement(table, seed=seed), "Chance is not taken off."),
    ]
    if exchange is not None:
        named = krippendorff_alpha(table, seed=seed)
        rows.append(row("Krippendorff's alpha of the words chosen, rejected, tie", named, uneven))
    elif not any(isinstance(category, str) for category in table.categories):
        for level in ("ordinal", "interval"):
            found = krippendorff_alpha(table, level, seed=seed)
            rows.append(row(f"Krippendorff's alpha, {level}", found, read_alpha(found)))
    return rows


def _of_ratings(rows: Sequence[Annotation], *, seed: int) -> list[Coefficient]:
    """Return alpha of each quality; both responses of an item are rated, and stay together when items are drawn."""
    found = []
    for quality in QUALITIES:
        rated: list[tuple[str, str, Label | None]] = [
            (row.annotator, f"{side}:{row.item}", row.ratings[quality][side])
            for row in rows
            if quality in row.ratings
            for side in (0, 1)
        ]
        if not rated:
            continue
        table = label_table(rated)
        items = [name.partition(":")[2] for name in table.items]
        for level in ("ordinal", "interval"):
            alpha = krippendorff_alpha(table, level, clusters=items, seed=seed)
            name = f"Krippendorff's alpha, {level}"
            figure = figure_or_why(alpha, table)
            found.append(Coefficient(about=quality, name=name, figure=figure, remark=read_alpha(alpha)))
    return found


def read_alpha(alpha: Estimate | None) -> str:
    """Say what an alpha is worth by Krippendorff's marks; an interval that holds a mark leaves it open."""
    if alpha is None:
        return ""
    if alpha.low >= RELIABLE:
        return "Reliable: 0.800 or more."
    if alpha.high < TENTATIVE:
        return "Not reliable: below 0.667."
    if alpha.low >= TENTATIVE and alpha.high < RELIABLE:
        return "For tentative conclusions: between 0.667 and 0.800."
    marks = [f"{mark:.3f}" for mark in (TENTATIVE, RELIABLE) if alpha.low < mark <= alpha.high]
    return f"Open: its interval holds {' and '.join(marks)}."


def _mean_of(kappas: Mapping[tuple[str, str], Estimate | None]) -> str:
    """Name the mean of the pairs' own kappas (Light 1971), which has no interval that could be trusted."""
    defined = [kappa for kappa in kappas.values() if kappa is not None]
    if len(defined) < 2:
        return ""
    mean = sum(kappa.n * kappa.value for kappa in defined) / sum(kappa.n for kappa in defined)
    common = median(kappa.n for kappa in defined)
    return f"Mean of {len(defined)} pairs' own kappas: {mean:.3f}, with {common:g} items in common (median)."


def _kappa_or_why(kappa: Estimate | None, table: LabelTable, one: str, two: str) -> Figure:
    if kappa is not None:
        return kappa
    both = table.codes[[table.raters.index(one), table.raters.index(two)]]
    common = both[:, (both >= 0).all(axis=0)]
    match common.shape[1]:
        case 0:
            return Why("No item in common.")
        case 1:
            return Why("One item in common.")
        case _:
            return Why(f"Both always answered {table.categories[int(common[0, 0])]!r}.")


def _judges(answers: Annotations, people: LabelTable, *, seed: int) -> list[JudgeAgreement]:
    majority = {item: label for item, label in majority_labels(people).items() if label is not None}
    found = []
    for judge in dict.fromkeys(row.annotator for row in answers.judges):
        verdicts = [row for row in answers.judges if row.annotator == judge]
        pair: list[tuple[str, str, Label | None]] = [("people", item, label) for item, label in majority.items()]
        pair += [("judge", row.item, row.label) for row in verdicts]
        beside = label_table(pair, categories=CHOICES)
        can_compare = {"people", "judge"} <= set(beside.raters)
        kappa = cohen_kappa(beside, "people", "judge", exchange=SIDES, seed=seed) if can_compare else None
        together = table_of([*answers.people, *verdicts], are_choices=True)
        found.append(
            JudgeAgreement(
                judge=judge,
                with_majority=figure_or_why(kappa, beside),
                alpha_with_people=figure_or_why(krippendorff_alpha(together, exchange=SIDES, seed=seed), together),
                verdicts=sum(row.label is not None for row in verdicts),
            )
        )
    return found
