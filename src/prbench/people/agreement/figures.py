"""What a panel's answers say, as figures: label, quality, agreement with each other, and a line per annotator.

A figure is an estimate, or the reason in words why there is none: never a bare nan, never an empty cell.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
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
from prbench.metrics.estimate import ClusteredShare, clustered_ratios, clustered_share, ratio_estimates
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
# What is worth a look in one annotator's answers.
FEW = 10  # answers below which nothing is called odd
SAME = 0.95  # share of equal answers from which on somebody may not have looked
ODD = 0.01  # chance below which a lean to one side is worth a look
FAST = 1 / 3  # of the others' median time
LOO_DRAWS = 1_000  # for alpha without one annotator


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


def measure_label(rows: Sequence[Annotation], *, level: float) -> LabelAgreement | Why:
    """Return how often the choices go with the label; the answers to one item are kept together."""
    made = [row for row in rows if row.label is not None]
    if not made:
        return Why("Nobody has made a choice yet.")
    items = [row.item for row in made]
    table = label_table(((row.annotator, row.item, row.label) for row in made), categories=CHOICES)
    majority = majority_labels(table)
    votes = [0.5 if label is None else points(label) for label in majority.values()]
    return LabelAgreement(
        by_answer=clustered_share([points(row.label) for row in made], items, level=level),
        by_majority=clustered_share(votes, list(majority), level=level),
        ties=clustered_share([float(row.label == TIE) for row in made], items, level=level),
        even_splits=sum(label is None for label in majority.values()),
    )


def measure_position(rows: Sequence[Annotation]) -> Position:
    """Return the share of answers that pick the left response, and whether the chosen one does better on the left."""
    picks = [row for row in rows if row.side_chosen is not None and row.label in (CHOSEN, REJECTED)]
    if not picks:
        none = Why("The rows do not say on which side the chosen response stood.")
        return Position(left_share=none, chosen_left=none, chosen_right=none, difference=none)
    stood_left = np.array([row.side_chosen == "left" for row in picks])
    right = np.array([row.label == CHOSEN for row in picks])
    # Columns: left picks of all answers; chosen picks where it stood left; chosen picks where it stood right.
    tops = np.stack([stood_left == right, stood_left & right, ~stood_left & right], axis=1)  # (answers, 3)
    bottoms = np.stack([np.ones(len(picks)), stood_left, ~stood_left], axis=1)
    draws = clustered_ratios(tops, bottoms, [row.item for row in picks])
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
    uneven, usual, of_pairs = "", "", ""
    if len(counts) > 1:
        usual = f"Items have {counts[0]} to {counts[-1]} answers; it takes those with the usual number."
    if totals.max() >= UNEVEN * totals.sum():
        share, word = 100 * totals.max() / totals.sum(), table.categories[int(totals.argmax())]
        uneven = f"{share:.0f} % of the answers are {word!r}: so uneven, this is low however well people agree."
    defined = [kappa for kappa in kappas.values() if kappa is not None]
    if len(defined) > 1:  # the mean of the pairs' own kappas (Light 1971) has no interval that could be trusted
        mean = sum(kappa.n * kappa.value for kappa in defined) / sum(kappa.n for kappa in defined)
        common = median(kappa.n for kappa in defined)
        of_pairs = f"Mean of {len(defined)} pairs' own kappas: {mean:.3f}, with {common:g} items in common (median)."

    def row(name: str, estimate: Estimate | None, remark: str = "") -> Coefficient:
        return Coefficient(about=about, name=name, figure=figure_or_why(estimate, table), remark=remark)

    alpha = krippendorff_alpha(table, exchange=exchange, seed=seed)
    rows = [
        row("Krippendorff's alpha, nominal", alpha, read_alpha(alpha)),
        row("Fleiss' kappa", fleiss_kappa(table, exchange=exchange, seed=seed), usual),
        row("Cohen's kappa, all pairs", pooled_cohen_kappa(table, exchange=exchange, seed=seed), of_pairs),
        row("same answer, share of pairs of answers", raw_agreement(table), "Chance is not taken off."),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorSummary:
    """What one annotator, or judge, did."""

    name: str
    is_judge: bool
    answers: int
    no_choice: int
    with_label: Figure
    with_others: Figure  # share of other people's answers to the same items that are the same
    alpha_without: Figure  # of the people, without this one
    seconds: float | None  # median
    left_share: Figure
    ties: int | None
    flags: tuple[str, ...]


def measure_annotators(answers: Annotations, *, seed: int) -> tuple[AnnotatorSummary, ...]:
    """Return everybody, people first."""
    names = sorted({row.annotator for row in answers.people}) + sorted({row.annotator for row in answers.judges})
    own = {name: [row for row in answers.rows if row.annotator == name] for name in names}
    known = {name: [row.seconds for row in own[name] if row.seconds is not None] for name in names}
    medians = {name: median(seconds) for name, seconds in known.items() if seconds}
    return tuple(_measure(name, own[name], answers, medians, seed=seed) for name in names)


def _measure(
    name: str, own: Sequence[Annotation], answers: Annotations, medians: dict[str, float], *, seed: int
) -> AnnotatorSummary:
    made = [row for row in own if row.label is not None]
    is_judge = own[0].is_judge
    with_label: Figure = Why("The labels are not choices.")
    if answers.are_choices:
        with_label = _share([points(row.label) for row in made], [row.item for row in made], "No choice was made.")
    rest = [row for row in answers.people if row.annotator != name]
    alpha_without: Figure = Why("It is no person." if is_judge else "There is nobody else.")
    if not is_judge and any(row.label is not None for row in rest):
        table = table_of(rest, are_choices=answers.are_choices)
        exchange = SIDES if answers.are_choices else None
        alpha = krippendorff_alpha(table, exchange=exchange, seed=seed, draws=LOO_DRAWS)
        alpha_without = figure_or_why(alpha, table)
    sided = [row for row in made if row.side_chosen is not None and row.label in (CHOSEN, REJECTED)]
    left_picks = [float((row.side_chosen == "left") == (row.label == CHOSEN)) for row in sided]
    # Sides are drawn anew for each item, so every pick is a cluster of its own.
    rounds = [str(number) for number in range(len(left_picks))]
    return AnnotatorSummary(
        name=name,
        is_judge=is_judge,
        answers=len(made),
        no_choice=len(own) - len(made),
        with_label=with_label,
        with_others=_with_others(made, answers),
        alpha_without=alpha_without,
        seconds=medians.get(name),
        left_share=_share(left_picks, rounds, "The side is not known."),
        ties=sum(row.label == TIE for row in made) if answers.are_choices else None,
        flags=() if is_judge else tuple(_flags(name, own, made, left_picks, with_label, medians)),
    )


def _share(values: Sequence[float], clusters: Sequence[str], why: str) -> Figure:
    """Return the mean with its Wilson interval, or why there is none."""
    if not values:
        return Why(why)
    share = clustered_share(values, clusters)
    return Estimate(value=share.estimate.value, low=share.low, high=share.high, n=len(values))


def _with_others(made: Sequence[Annotation], answers: Annotations) -> Figure:
    """Compare with other people; a judge is compared with them as well, but nobody with a judge."""
    if not made:
        return Why("No choice was made.")
    mine = {row.item: row.label for row in made}
    others = [
        row
        for row in answers.people
        if row.annotator != made[0].annotator and row.label is not None and row.item in mine
    ]
    if not others:
        return Why("Nobody else answered the same items.")
    same = [float(row.label == mine[row.item]) for row in others]
    shared = ratio_estimates(same, np.ones(len(same)), [row.item for row in others])[0]
    return replace(shared, n=len({row.item for row in others}))


def _flags(
    name: str,
    own: Sequence[Annotation],
    made: Sequence[Annotation],
    left_picks: Sequence[float],
    with_label: Figure,
    medians: dict[str, float],
) -> list[str]:
    """Return what is worth a look, in words. None of it is proof: a careful person may do the same."""
    from scipy.stats import binomtest

    flags = []
    # The ratings left and right, as they were given; without sides, of chosen and rejected.
    rated = [
        tuple(
            (two, one) if row.side_chosen == "right" else (one, two)
            for one, two in (row.ratings[quality] for quality in QUALITIES if quality in row.ratings)
        )
        for row in own
        if row.ratings
    ]
    times = max(Counter(rated).values(), default=0)
    if len(rated) >= FEW and times >= SAME * len(rated):
        flags.append(f"straight-lining: the same ratings on {times} of {len(rated)} items")
    # Nobody sees which response is chosen, so always the same one of the two shows in the sides, below.
    for label, times in Counter(row.label for row in made if row.label not in (CHOSEN, REJECTED)).most_common(1):
        if len(made) >= FEW and times >= SAME * len(made):
            what = "cannot tell" if label == TIE else f"the same answer, {label!r},"
            flags.append(f"{what} on {times} of {len(made)} items")
    left = int(sum(left_picks))
    if len(left_picks) >= FEW and binomtest(left, len(left_picks)).pvalue < ODD:
        side, times = ("left", left) if 2 * left > len(left_picks) else ("right", len(left_picks) - left)
        flags.append(f"leans {side}: {times} of {len(left_picks)} picks")
    others = [seconds for other, seconds in medians.items() if other != name]
    if name in medians and others and len(own) >= FEW and medians[name] < FAST * median(others):
        flags.append(f"fast: {medians[name]:.0f} s per item, the others {median(others):.0f} s")
    if not isinstance(with_label, Why) and len(made) >= FEW and with_label.high < CHANCE:
        flags.append(f"goes against the label: {100 * with_label.value:.0f} %")
    return flags
