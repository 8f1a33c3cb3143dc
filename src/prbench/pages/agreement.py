"""From a panel to one self-contained page."""

from prbench.metrics.estimate import ClusteredShare
from prbench.metrics.number_format import MISSING, PERCENT, NumberFormat, p_text
from prbench.pages.charts import DotChart, Mark, mark_of
from prbench.pages.shell import Origin, render_page
from prbench.people.agreement import PanelQuestion, PanelReport, QuestionReply
from prbench.people.agreement.annotators import AnnotatorSummary
from prbench.people.agreement.figures import CHANCE, Coefficient, Figure, LabelAgreement, Quality, Why

CLASSES = {
    QuestionReply.YES: "good",
    QuestionReply.NO: "bad",
    QuestionReply.CANNOT_TELL: "look",
}  # the colors that the style has
MOST_PAIRS = 60  # of annotators on the page; `--json` has all
Cells = tuple[tuple[str, ...], list[list[str]]]
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
            "threshold of the label": f"{100 * settings.bar:g} %",
            "alpha": f"{settings.alpha:g}",
            "seed": settings.seed,
        },
        "questions": [_question(each) for each in panel.questions],
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


def _question(question: PanelQuestion) -> dict[str, str]:
    reply = question.reply
    because = question.because.replace(" %", "\N{NO-BREAK SPACE}%")
    return {"class": CLASSES[reply], "text": question.text, "reply": reply.value, "because": because}


def label_cells(panel: PanelReport) -> Cells:
    """Return the agreement with the label and the position of the responses as a table of texts."""
    names = ("figure", "value", "Wilson", "n", "what it is")
    rows: list[list[str]] = []
    if isinstance(panel.label, LabelAgreement):
        label = panel.label
        splits = f"One point per item; {label.even_splits} even splits count half."
        rows = [
            _share("answers with the label", label.by_answer, "A tie counts half. Chance is 50 %."),
            _share("majorities with the label", label.by_majority, splits),
            _share("ties", label.ties, "“Cannot tell” among all answers."),
        ]
    else:
        rows = [["answers with the label", MISSING, "", "", label_words(panel)]]
    position = panel.position
    for name, figure, what in (
        ("left picks", position.left_share, "Share of the picks; 50 % without a lean."),
        ("label where chosen stood left", position.chosen_left, "Ties left out."),
        ("label where chosen stood right", position.chosen_right, "Ties left out."),
        ("left minus right", position.difference, "0 without a lean to one side, whatever the label is worth."),
    ):
        rows.append([name, percent(figure), "", count(figure), what if not isinstance(figure, Why) else figure.words])
    return names, rows


def label_words(panel: PanelReport) -> str:
    """Say why there is no agreement with the label."""
    return panel.label.words if isinstance(panel.label, Why) else ""


def _share(name: str, share: ClusteredShare, what: str) -> list[str]:
    wilson = PERCENT.interval(share.low, share.high)
    return [name, percent(share.estimate), wilson, f"{share.answers} answers, {share.estimate.n} items", what]


def coefficient_cells(panel: PanelReport) -> Cells:
    """Return the coefficients of agreement as a table of texts."""
    rows = [
        [each.about, each.name, plain(each.figure), count(each.figure), _remark(each)]
        for each in panel.reliability.coefficients
    ]
    for judge in panel.reliability.judges:
        for name, figure in (
            ("Cohen's kappa with people's majority", judge.with_majority),
            ("Krippendorff's alpha, with people", judge.alpha_with_people),
        ):
            rows.append([judge.judge, name, plain(figure), count(figure), f"{judge.verdicts} verdicts."])
    return ("about", "coefficient", "value", "n", "remark"), rows


def _remark(each: Coefficient) -> str:
    return each.figure.words if isinstance(each.figure, Why) else each.remark


def quality_cells(panel: PanelReport) -> Cells:
    """Return the equivalence tests as a table of texts."""
    level = f"{100 * (1 - 2 * panel.settings.alpha):.6g} %"
    names = (
        "quality",
        "chosen",
        "rejected",
        f"difference, {level} interval",
        "p above",
        "p below",
        "equal?",
        "resolves",
    )
    return names, [_quality(quality) for quality in panel.qualities]


def _quality(quality: Quality) -> list[str]:
    test = quality.test
    means = [NumberFormat(2).number(mean) for mean in (quality.chosen, quality.rejected)]
    if isinstance(test, Why):
        return [quality.name, *means, test.words, "", "", "cannot tell", ""]
    verdict = f"within ±{test.margin:g}" if test.equivalent else f"not shown within ±{test.margin:g}"
    difference = SCALE.of(test.difference, test.low, test.high)
    return [
        quality.name,
        *means,
        difference,
        p_text(test.p_above),
        p_text(test.p_below),
        verdict,
        f"±{test.resolves:.2f}",
    ]


def annotator_cells(panel: PanelReport) -> Cells:
    """Return one row of texts per annotator."""
    names = (
        "annotator",
        "answers",
        "with the label",
        "with the others",
        "alpha without",
        "s",
        "left",
        "ties",
        "worth a look",
    )
    return names, [_annotator(each) for each in panel.annotators]


def _annotator(each: AnnotatorSummary) -> list[str]:
    done = f"{each.answers} of {each.answers + each.no_choice}" if each.no_choice else str(each.answers)
    return [
        f"{each.name} (model)" if each.is_judge else each.name,
        done,
        percent(each.with_label),
        percent(each.with_others),
        plain(each.alpha_without).partition(" ")[0],
        MISSING if each.seconds is None else f"{each.seconds:.0f}",
        percent(each.left_share),
        MISSING if each.ties is None else str(each.ties),
        "; ".join(each.flags) or MISSING,
    ]


def pair_cells(panel: PanelReport) -> Cells:
    """Return the pairs of annotators as a table of texts, those that agree least first."""
    pairs = sorted(panel.reliability.pairs, key=lambda pair: 2.0 if isinstance(pair.kappa, Why) else pair.kappa.value)
    rows = [
        [
            pair.first,
            pair.second,
            pair.kappa.words if isinstance(pair.kappa, Why) else plain(pair.kappa),
            count(pair.kappa),
        ]
        for pair in pairs[:MOST_PAIRS]
    ]
    return ("first", "second", "Cohen's kappa", "items in common"), rows


def percent(figure: Figure) -> str:
    """Return a share in percent with its interval; a dash where there is none."""
    return MISSING if isinstance(figure, Why) else PERCENT.estimate(figure)


def plain(figure: Figure) -> str:
    """Return a coefficient with its interval; a dash where there is none."""
    return MISSING if isinstance(figure, Why) else COEFFICIENT.estimate(figure)


def count(figure: Figure) -> str:
    """Return how many items or answers are behind a figure."""
    return "" if isinstance(figure, Why) else str(figure.n)


def _label_chart(panel: PanelReport) -> list[DotChart]:
    rows = [(each.name, _marks(each.with_label, is_judge=each.is_judge)) for each in panel.annotators]
    if isinstance(panel.label, LabelAgreement):
        share = panel.label.by_answer
        everybody = Mark(
            value=share.estimate.value, low=share.low, high=share.high, n=share.estimate.n, series="people"
        )
        rows.insert(0, ("all answers of people", [everybody]))
        bar = panel.settings.bar
        rows.append(("threshold to pass", [Mark(value=bar, low=bar, high=bar, series="threshold", style=1)]))
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
        (f"{each.about}: {_short(each.name)}", marks)
        for each in panel.reliability.coefficients
        if ("ordinal" in each.name or each.about in ("choice", "label")) and not each.name.startswith("same answer")
        if (marks := _marks(each.figure))
    ]
    note = "0 is chance, 1 complete agreement; 0.8 is called reliable, 0.667 enough for tentative conclusions."
    form = NumberFormat(2)
    return (
        [DotChart(title="Agreement with each other", note=note, rows=rows, reference=0.0, form=form)] if rows else []
    )


def _short(name: str) -> str:
    return name.removeprefix("Krippendorff's ").removesuffix(", all pairs").replace(" of the words ", ", the words ")
