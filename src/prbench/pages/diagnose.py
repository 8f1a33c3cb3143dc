"""From a diagnosis to words and to one self-contained page."""

from collections.abc import Sequence
from string import ascii_uppercase

from prbench.insight.diagnose import Diagnosis, disagreements
from prbench.insight.diagnose.label_next import LabelCandidate
from prbench.insight.diagnose.slices import FEWEST_ITEMS, FEWEST_USERS, Cell, Field, Slice, SliceFinding
from prbench.metrics.number_format import MISSING, PERCENT, POINTS, counted, p_text
from prbench.pages.charts import Cells, Chart, DotChart, mark_of
from prbench.pages.shell import Chip, Origin, data_name, render_page
from prbench.schema import Json

LETTERS = ascii_uppercase
MOST_RUNS = 4  # in a chart
MOST_ITEMS = 50  # to label, with their texts, on the page
WORDS = {
    SliceFinding.WEAKER: "weaker",
    SliceFinding.STRONGER: "stronger",
    SliceFinding.ALIKE: "",
    SliceFinding.TOO_SMALL: "too small",
    SliceFinding.NOT_TESTED: "not tested",
}
MARKS = {  # where room is short
    SliceFinding.WEAKER: "▼",
    SliceFinding.STRONGER: "▲",
    SliceFinding.ALIKE: "",
    SliceFinding.TOO_SMALL: "?",
    SliceFinding.NOT_TESTED: "–",
}
ONE_RUN = {  # name and style of a dot in the chart of a single run
    SliceFinding.WEAKER: ("weaker than the rest", 2),
    SliceFinding.TOO_SMALL: ("too small to tell", 1),
    SliceFinding.NOT_TESTED: ("not tested", 1),
}


def finding_text(cell: Cell, *, short: bool = False) -> str:
    """Say in words how a slice compares with the rest."""
    if short:
        return MARKS[cell.finding]
    if cell.against_rest is None:
        return WORDS[cell.finding]
    figures = f"{POINTS.value(cell.against_rest.difference)}, p {p_text(cell.against_rest.holm_p)}"
    return f"{figures} {WORDS[cell.finding]}".strip()


def limits_text(found: Diagnosis) -> str:
    """Say how the slices were tested, and what the tests cannot show."""
    tested = sum(cell.against_rest is not None for each in found.slices for cell in each.cells)
    how = (
        "A slice is weaker or stronger than the other items if that stands after Holm's correction over "
        f"{counted(tested, 'test')}, by users and by items; without a word, no difference is shown."
        if tested
        else "No slice could be tested."
    )
    text = (
        f"Intervals are 95 %, over users. {how} Too small: fewer than {FEWEST_ITEMS} pairs or {FEWEST_USERS} users, "
        "here or in the rest. Slices overlap: a cause is not told from what goes with it."
    )
    for name in [field.name for field in found.fields if field.by_outcome]:
        text += (
            f" Not tested: {name}, as these slices are made of the verdicts of {LETTERS[0]}: pairs that it gets wrong "
            "when it knows nobody are hard for it anyway."
        )
    marks = (
        "▼ weaker, ▲ stronger, ? too small, – not tested; differ: share of pairs on which the runs' verdicts differ."
    )
    return text if len(found.names) == 1 else f"{text} {marks}"


def title_of(field: Field) -> str:
    """Return the heading of a field's slices; those by outcome have a phrase for a name."""
    return field.name.capitalize() if field.by_outcome else f"By {field.name}"


def none_weaker(found: Diagnosis) -> str:
    """Say that no slice is weaker, and whether any was tested for it."""
    if any(cell.against_rest is not None for each in found.slices for cell in each.cells):
        return "No slice is shown to be weaker than the rest."
    return (
        f"No slice could be compared with the rest: that takes {FEWEST_ITEMS} pairs of {FEWEST_USERS} users on either "
        "side. Add pairs, or look at the figures below."
    )


def render(found: Diagnosis, *, command: str = "") -> str:
    """Return the page as a string."""
    runs = found.run_table.runs
    data = runs[0].summary["data"]
    several = len(found.names) > 1
    page = {
        "title": "Where it fails" if found.labeled else "What to label next",
        "facts": {
            "data": data["name"],
            "split": ", ".join(found.run_table.splits) or "unnamed",
            "pairs": f"{found.items:,}",
            "users": f"{data['users']:,}",
            "hash": data["hash"][:12],
        },
        "notes": found.notes,
        "none_weaker": none_weaker(found),
        "runs": (
            ("run", "accuracy", "model and context", "folder"),
            [
                [
                    letter,
                    PERCENT.estimate(run.summary["accuracy"]) if found.labeled else MISSING,
                    run.name,
                    run.folder.name,
                ]
                for letter, run in zip(LETTERS, runs, strict=False)
            ],
        ),
        "odds": disagreements(found.run_table) if found.labeled and several else {},
        "weak": (
            ("slice", "accuracy", "against the rest, points", "p (Holm)", "errors more"),
            [line for each in found.weak for line in _weak_lines(each, several=several)],
        ),
        "charts": _charts(found),
        "tables": [
            (title_of(field), *_cells(found, [each for each in found.slices if each.field == field.name]))
            for field in found.fields
            if found.labeled
        ],
        "label_next": [_item(found, each) for each in found.label_next[:MOST_ITEMS]],
        "label_count": len(found.label_next),
        "limits": limits_text(found) if found.labeled else "",
        "labeled": found.labeled,
    }
    named = data_name(runs[0].manifest["data"], data["hash"])
    origin = Origin(command=command, data=named, manifests=[run.manifest for run in runs])
    return render_page("diagnose.html", page, origin)


def _weak_lines(each: Slice, *, several: bool) -> list[list[str]]:
    return [
        [
            f"{letter}: {each.name}" if several else each.name,
            PERCENT.estimate(cell.accuracy),
            POINTS.estimate(cell.against_rest.difference),
            p_text(cell.against_rest.holm_p),
            f"{cell.extra_errors:.0f}",
        ]
        for letter, cell in zip(LETTERS, each.cells, strict=False)
        if cell.finding is SliceFinding.WEAKER and cell.against_rest is not None
    ]


def _charts(found: Diagnosis) -> list[Chart]:
    """Return a chart for each field; of one run, a dot's form and not only its color shows whether it is weaker."""
    charts: list[Chart] = []
    for field in found.fields:
        rows = []
        for each in (each for each in found.slices if each.field == field.name):
            marks = []
            for place, cell in enumerate(each.cells[:MOST_RUNS]):
                name, style = f"run {LETTERS[place]}", place
                if len(found.names) == 1:
                    name, style = ONE_RUN.get(cell.finding, ("not weaker", 0))
                marks += mark_of(cell.accuracy, name, style)
            rows.append((each.value, marks))
        if rows:
            note = "Accuracy in percent, with intervals over users."
            charts.append(DotChart(title=title_of(field), note=note, rows=rows, reference=0.5))
    return charts


def _cells(found: Diagnosis, slices: Sequence[Slice]) -> Cells:
    """Return the slices of a field as a table: for each run, its accuracy and how that compares with the rest."""
    several = len(found.names) > 1
    heads, rows = ["slice", "pairs", "users"], [[each.value, str(len(each.items)), str(each.users)] for each in slices]
    for place, letter in enumerate(LETTERS[: len(found.names)]):
        heads += [f"accuracy {letter}" if several else "accuracy", "against the rest", "p (Holm)", "finding"]
        heads += [f"{letter} minus A"] if place else []
        for row, each in zip(rows, slices, strict=True):
            cell, rest = each.cells[place], each.cells[place].against_rest
            mark = {SliceFinding.WEAKER: "bad", SliceFinding.STRONGER: "good"}.get(cell.finding, "skipped")
            difference = POINTS.estimate(rest.difference if rest else None)
            row += [
                PERCENT.estimate(cell.accuracy),
                difference,
                p_text(rest.holm_p if rest else None),
                Chip(cell.finding.value, mark),
            ]
            if place:
                first = cell.against_first
                row.append(MISSING if first is None else POINTS.estimate(first.difference) + "*" * first.is_shown)
    if several:
        heads.append("differ")
        for row, each in zip(rows, slices, strict=True):
            row.append(MISSING if each.disagreement is None else f"{100 * each.disagreement:.0f} %")
    return tuple(heads), rows


def _item(found: Diagnosis, each: LabelCandidate) -> dict[str, Json]:
    """Return an item to label; which response is the chosen is not said."""
    example = found.run_table.examples.get(each.id)
    return {
        "id": each.id,
        "user": each.user_id,
        "category": each.category,
        "figures": f"confidence {100 * each.confidence:.0f} %, disagreement {each.disagreement:.2f} bits",
        "texts": [] if example is None else [example.question, *sorted((example.chosen, example.rejected))],
    }
