"""How far the annotators agree with each other: alpha and kappa, with intervals over items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

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
from prbench.people.agreement.answers import CHOICES, CHOSEN, QUALITIES, REJECTED, Answer, Answers, labels_of
from prbench.people.agreement.figures import Figure, Why, figure_or_why
from prbench.schema import Estimate

RELIABLE, TENTATIVE = 0.8, 0.667  # Krippendorff's own marks for alpha (2004)
SIDES: Exchange = (CHOSEN, REJECTED)
UNEVEN = 0.8  # one label this frequent makes coefficients that know its name unstable


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One coefficient of agreement."""

    about: str  # choice, label, or a quality
    name: str
    figure: Figure
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
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
    pairs: tuple[Pair, ...]
    judges: tuple[JudgeAgreement, ...]


def measure_reliability(answers: Answers, *, seed: int) -> Reliability:
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
            Pair(first=one, second=two, kappa=_kappa_or_why(kappa, table, one, two))
            for (one, two), kappa in kappas.items()
        ),
        judges=tuple(_judges(answers, table, seed=seed)) if answers.are_choices else (),
    )


def table_of(rows: Sequence[Answer], *, are_choices: bool) -> LabelTable:
    """Return the labels of some rows as a table."""
    return label_table(labels_of(rows), categories=CHOICES if are_choices else None)


def _of_labels(
    table: LabelTable,
    kappas: Mapping[tuple[str, str], Estimate | None],
    exchange: Exchange | None,
    *,
    seed: int,
) -> list[Coefficient]:
    about = "label" if exchange is None else "choice"

    def row(name: str, estimate: Estimate | None, remark: str = "") -> Coefficient:
        return Coefficient(about=about, name=name, figure=figure_or_why(estimate, table), remark=remark)

    alpha = krippendorff_alpha(table, exchange=exchange, seed=seed)
    rows = [
        row("Krippendorff's alpha, nominal", alpha, read_alpha(alpha)),
        row("Fleiss' kappa", fleiss_kappa(table, exchange=exchange, seed=seed), _fleiss_remark(table)),
        row("Cohen's kappa, all pairs", pooled_cohen_kappa(table, exchange=exchange, seed=seed), _mean_of(kappas)),
        row("same answer, share of pairs of answers", raw_agreement(table, seed=seed), "Chance is not taken off."),
    ]
    if exchange is not None:
        named = krippendorff_alpha(table, seed=seed)
        rows.append(row("Krippendorff's alpha of the words chosen, rejected, tie", named, _uneven(table)))
    elif not any(isinstance(category, str) for category in table.categories):
        for level in ("ordinal", "interval"):
            found = krippendorff_alpha(table, level, seed=seed)
            rows.append(row(f"Krippendorff's alpha, {level}", found, read_alpha(found)))
    return rows


def _of_ratings(rows: Sequence[Answer], *, seed: int) -> list[Coefficient]:
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


def _fleiss_remark(table: LabelTable) -> str:
    given = table.counts().sum(axis=1)
    counts = sorted({int(number) for number in given if number > 1})
    if len(counts) < 2:
        return ""
    return f"Items have {counts[0]} to {counts[-1]} answers; it takes those with the usual number."


def _uneven(table: LabelTable) -> str:
    totals = table.counts().sum(axis=0)
    if totals.max() < UNEVEN * totals.sum():
        return ""
    share = 100 * totals.max() / totals.sum()
    word = table.categories[int(totals.argmax())]
    return f"{share:.0f} % of the answers are {word!r}: so uneven, this is low however well people agree."


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


def _judges(answers: Answers, people: LabelTable, *, seed: int) -> list[JudgeAgreement]:
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
