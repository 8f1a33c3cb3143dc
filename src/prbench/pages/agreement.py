"""From a panel to one self-contained page, in the look of the report."""

from importlib.metadata import version

from prbench.metrics.estimate import ClusteredShare
from prbench.pages.charts import Chart, Estimates, dot_chart
from prbench.pages.shell import render_page
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
Dot = tuple[str, str, Estimates | None]


def render(panel: PanelReport) -> str:
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
        "questions": [_question(each) for each in panel.questions],
        "caveats": panel.caveats,
        "notes": panel.notes,
        "charts": [chart for chart in (_label_chart(panel), _quality_chart(panel), _alpha_chart(panel)) if chart],
        "label": label_cells(panel),
        "coefficients": coefficient_cells(panel),
        "qualities": quality_cells(panel),
        "annotators": annotator_cells(panel),
        "pairs": pair_cells(panel),
        "more_pairs": max(0, len(panel.reliability.pairs) - MOST_PAIRS),
        "are_choices": panel.are_choices,
        "version": version("prbench"),
    }
    return render_page("agreement.html", page=page)


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
        rows = [["answers with the label", "–", "", "", label_words(panel)]]
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
    wilson = f"{100 * share.low:.1f} to {100 * share.high:.1f}"
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
    means = ["–" if mean is None else f"{mean:.2f}" for mean in (quality.chosen, quality.rejected)]
    if isinstance(test, Why):
        return [quality.name, *means, test.words, "", "", "cannot tell", ""]
    verdict = f"within ±{test.margin:g}" if test.equivalent else f"not shown within ±{test.margin:g}"
    difference = f"{test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}]"
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
        "–" if each.seconds is None else f"{each.seconds:.0f}",
        percent(each.left_share),
        "–" if each.ties is None else str(each.ties),
        "; ".join(each.flags) or "–",
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
    if isinstance(figure, Why):
        return "–"
    return f"{100 * figure.value:.1f} [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"


def plain(figure: Figure) -> str:
    """Return a coefficient with its interval; a dash where there is none."""
    if isinstance(figure, Why):
        return "–"
    value, low, high = (
        f"{number:.3f}".replace("-0.000", "0.000") for number in (figure.value, figure.low, figure.high)
    )
    return f"{value} [{low}, {high}]"


def count(figure: Figure) -> str:
    """Return how many items or answers are behind a figure."""
    return "" if isinstance(figure, Why) else str(figure.n)


def p_text(p_value: float) -> str:
    """Return a p-value as one prints it."""
    return "< 0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def _label_chart(panel: PanelReport) -> Chart | None:
    rows = [(each.name, [_dot(each.is_judge, each.with_label)]) for each in panel.annotators]
    if isinstance(panel.label, LabelAgreement):
        share = panel.label.by_answer
        everybody = {"value": share.estimate.value, "low": share.low, "high": share.high}
        rows.insert(0, ("all answers of people", [("own", "people", everybody)]))
        bar = dict.fromkeys(("value", "low", "high"), panel.settings.bar)
        rows.append(("bar to pass", [("none", "bar", bar)]))
    note = "Share of answers, ties counting half. The line is chance, 50 %."
    return dot_chart("Agreement with the label", note, rows, reference=CHANCE)


def _dot(is_judge: bool, figure: Figure) -> Dot:
    form, name = ("swap", "a model") if is_judge else ("own", "people")
    if isinstance(figure, Why):
        return form, name, None
    return form, name, {"value": figure.value, "low": figure.low, "high": figure.high}


def _quality_chart(panel: PanelReport) -> Chart | None:
    tested = [quality for quality in panel.qualities if not isinstance(quality.test, Why)]
    if not tested:
        return None
    margin = panel.settings.margin
    rows: list[tuple[str, list[Dot]]] = [
        (quality.name, [("own", "difference", _interval(quality))]) for quality in tested
    ]
    rows.append((f"margin ±{margin:g}", [("none", "margin", {"value": 0.0, "low": -margin, "high": margin})]))
    level = f"{100 * (1 - 2 * panel.settings.alpha):.6g} %"
    note = (
        f"Chosen minus rejected on a scale from 1 to 5, {level} intervals. Equal means: all within the margin's bar."
    )
    return dot_chart("General quality", note, rows, reference=0.0, unit="plain", sign=True)


def _interval(quality: Quality) -> Estimates | None:
    if isinstance(quality.test, Why):
        return None
    return {"value": quality.test.difference, "low": quality.test.low, "high": quality.test.high}


def _alpha_chart(panel: PanelReport) -> Chart | None:
    shown = [
        each for each in panel.reliability.coefficients if "ordinal" in each.name or each.about in ("choice", "label")
    ]
    rows = [
        (f"{each.about}: {_short(each.name)}", [_dot(False, each.figure)])
        for each in shown
        if not each.name.startswith("same answer")
    ]
    note = "0 is chance, 1 complete agreement; 0.8 is called reliable, 0.667 enough for tentative conclusions."
    return dot_chart("Agreement with each other", note, rows, reference=0.0, unit="plain")


def _short(name: str) -> str:
    return name.removeprefix("Krippendorff's ").removesuffix(", all pairs").replace(" of the words ", ", the words ")
