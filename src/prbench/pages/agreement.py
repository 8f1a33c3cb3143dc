"""From a panel to one self-contained page."""

from prbench.metrics.number_format import MISSING, PERCENT, NumberFormat, p_text
from prbench.pages.charts import Cells, DotChart, Mark, mark_of
from prbench.pages.shell import Origin, render_page
from prbench.people.agreement import PanelReport, QuestionReply
from prbench.people.agreement.figures import CHANCE, Figure, LabelAgreement, Why

CLASSES = {
    QuestionReply.YES: "good",
    QuestionReply.NO: "bad",
    QuestionReply.CANNOT_TELL: "look",
}  # the colors that the style has
MOST_PAIRS = 60  # of annotators on the page; `--json` has all
COEFFICIENT, SCALE = NumberFormat(3), NumberFormat(2, sign=True)


def render(panel: PanelReport, origin: Origin | None = None) -> str:
    """Return the page as a string."""
    settings = panel.settings
    page = {
        "title": "What the annotators say",
        "facts": {
            "items": panel.items,
            "answers": panel.answers,
            "people": panel.people,
            "models beside them": panel.judges,
            "margin of quality": f"±{settings.margin:g} of 1 to 5",
            "bar of the label": f"{100 * settings.bar:g} %",
            "alpha": f"{settings.alpha:g}",
            "seed": settings.seed,
        },
        "questions": panel.questions,
        "classes": CLASSES,
        "caveats": panel.caveats,
        "notes": panel.notes,
        "charts": [*_label_chart(panel), *_quality_chart(panel), *_alpha_chart(panel)],
        "label": label_cells(panel),
        "coefficients": coefficient_cells(panel),
        "qualities": quality_cells(panel),
        "annotators": annotator_cells(panel),
        "pairs": pair_cells(panel),
        "more_pairs": max(0, len(panel.reliability.pairs) - MOST_PAIRS),
        "are_choices": panel.are_choices,
    }
    return render_page("agreement.html", page, origin)


def label_cells(panel: PanelReport) -> Cells:
    """Return the agreement with the label and the position of the responses as a table of texts."""
    label, position = panel.label, panel.position
    rows: list[list[str]] = []
    if isinstance(label, LabelAgreement):
        splits = f"One point per item; {label.even_splits} even splits count half."
        for name, share, what in (
            ("answers with the label", label.by_answer, "A tie counts half. Chance is 50 %."),
            ("majorities with the label", label.by_majority, splits),
            ("ties", label.ties, "“Cannot tell” among all answers."),
        ):
            counts = f"{share.answers} answers, {share.estimate.n} items"
            rows.append([name, text(share.estimate), PERCENT.interval(share.low, share.high), counts, what])
    else:
        rows = [["answers with the label", MISSING, "", "", label.words if isinstance(label, Why) else ""]]
    for name, figure, what in (
        ("left picks", position.left_share, "Share of the picks; 50 % without a lean."),
        ("label where chosen stood left", position.chosen_left, "Ties left out."),
        ("label where chosen stood right", position.chosen_right, "Ties left out."),
        ("left minus right", position.difference, "0 without a lean to one side, whatever the label is worth."),
    ):
        known = ["", figure.words] if isinstance(figure, Why) else [str(figure.n), what]
        rows.append([name, text(figure), "", *known])
    return ("figure", "value", "Wilson", "n", "what it is"), rows


def coefficient_cells(panel: PanelReport) -> Cells:
    """Return the coefficients of agreement as a table of texts."""
    found = [(each.about, each.name, each.figure, each.remark) for each in panel.reliability.coefficients]
    for judge in panel.reliability.judges:
        verdicts = f"{judge.verdicts} verdicts."
        found.append((judge.judge, "Cohen's kappa with people's majority", judge.with_majority, verdicts))
        found.append((judge.judge, "Krippendorff's alpha, with people", judge.alpha_with_people, verdicts))
    rows = []
    for about, name, figure, remark in found:
        known = ["", figure.words] if isinstance(figure, Why) else [str(figure.n), remark]
        rows.append([about, name, text(figure, COEFFICIENT), *known])
    return ("about", "coefficient", "value", "n", "remark"), rows


def quality_cells(panel: PanelReport) -> Cells:
    """Return the equivalence tests as a table of texts."""
    level = f"{100 * (1 - 2 * panel.settings.alpha):.6g} %"
    rows = []
    for quality in panel.qualities:
        test = quality.test
        row = [quality.name, *(NumberFormat(2).number(mean) for mean in (quality.chosen, quality.rejected))]
        if isinstance(test, Why):
            rows.append([*row, test.words, "", "", "cannot tell", ""])
            continue
        verdict = f"within ±{test.margin:g}" if test.equivalent else f"not shown within ±{test.margin:g}"
        row += [SCALE.of(test.difference, test.low, test.high), p_text(test.p_above), p_text(test.p_below)]
        rows.append([*row, verdict, f"±{test.resolves:.2f}"])
    heads = ("quality", "chosen", "rejected", f"difference, {level} interval", "p above", "p below", "equal?")
    return (*heads, "resolves"), rows


def annotator_cells(panel: PanelReport) -> Cells:
    """Return one row of texts per annotator."""
    rows = [
        [
            f"{each.name} (model)" if each.is_judge else each.name,
            f"{each.answers} of {each.answers + each.no_choice}" if each.no_choice else str(each.answers),
            text(each.with_label),
            text(each.with_others),
            text(each.alpha_without, COEFFICIENT).partition(" ")[0],
            NumberFormat(0).number(each.seconds),
            text(each.left_share),
            MISSING if each.ties is None else str(each.ties),
            "; ".join(each.flags) or MISSING,
        ]
        for each in panel.annotators
    ]
    shares = ("with the label", "with the others", "alpha without", "seconds", "left")
    return ("annotator", "answers", *shares, "ties", "worth a look"), rows


def pair_cells(panel: PanelReport) -> Cells:
    """Return the pairs of annotators as a table of texts, those that agree least first."""
    pairs = sorted(panel.reliability.pairs, key=lambda pair: 2.0 if isinstance(pair.kappa, Why) else pair.kappa.value)
    rows = []
    for pair in pairs[:MOST_PAIRS]:
        known = (
            [pair.kappa.words, ""]
            if isinstance(pair.kappa, Why)
            else [text(pair.kappa, COEFFICIENT), str(pair.kappa.n)]
        )
        rows.append([pair.first, pair.second, *known])
    return ("first", "second", "Cohen's kappa", "items in common"), rows


def text(figure: Figure, form: NumberFormat = PERCENT) -> str:
    """Return a figure with its interval, a share in percent; a dash where there is none."""
    return MISSING if isinstance(figure, Why) else form.estimate(figure)


def _label_chart(panel: PanelReport) -> list[DotChart]:
    rows = [(each.name, _marks(each.with_label, is_judge=each.is_judge)) for each in panel.annotators]
    if isinstance(panel.label, LabelAgreement):
        share = panel.label.by_answer
        everybody = Mark(
            value=share.estimate.value, low=share.low, high=share.high, n=share.estimate.n, series="people"
        )
        rows.insert(0, ("all answers of people", [everybody]))
        bar = panel.settings.bar
        rows.append(("bar to pass", [Mark(value=bar, low=bar, high=bar, series="bar", style=1)]))
    note = "Share of answers in percent, ties counting half; n items. The line is chance, 50."
    rows = [row for row in rows if row[1]]
    return [DotChart(title="Agreement with the label", note=note, rows=rows, reference=CHANCE)] if rows else []


def _marks(figure: Figure, *, is_judge: bool = False) -> list[Mark]:
    if isinstance(figure, Why):
        return []
    return mark_of(figure, "a model", 2) if is_judge else mark_of(figure, "people", 0)


def _quality_chart(panel: PanelReport) -> list[DotChart]:
    margin = panel.settings.margin
    rows = [
        (quality.name, [Mark(value=test.difference, low=test.low, high=test.high, series="difference")])
        for quality in panel.qualities
        if not isinstance(test := quality.test, Why)
    ]
    if not rows:
        return []
    rows.append((f"margin ±{margin:g}", [Mark(value=0.0, low=-margin, high=margin, series="margin", style=1)]))
    level = f"{100 * (1 - 2 * panel.settings.alpha):.6g} %"
    note = f"Chosen minus rejected on a scale from 1 to 5, {level} intervals. Equal means: all within the margin."
    return [DotChart(title="General quality", note=note, rows=rows, reference=0.0, form=SCALE)]


def _alpha_chart(panel: PanelReport) -> list[DotChart]:
    rows = [
        (f"{each.about}: {shorter}", marks)
        for each in panel.reliability.coefficients
        if ("ordinal" in each.name or each.about in ("choice", "label")) and not each.name.startswith("same answer")
        if (marks := _marks(each.figure))
        and (shorter := each.name.removeprefix("Krippendorff's ").removesuffix(", all pairs"))
    ]
    note = "0 is chance, 1 complete agreement; 0.8 is called reliable, 0.667 enough for tentative conclusions."
    form = NumberFormat(2)
    return (
        [DotChart(title="Agreement with each other", note=note, rows=rows, reference=0.0, form=form)] if rows else []
    )
