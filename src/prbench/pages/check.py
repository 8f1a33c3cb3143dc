"""From an audit to one self-contained page."""

from collections import Counter

from prbench.construction.check import Audit
from prbench.construction.check.finding import GOOD
from prbench.construction.check.style import CHECK as STYLE
from prbench.construction.check.style import SMALL
from prbench.metrics.number_format import NumberFormat
from prbench.pages.charts import DotChart, Mark, mark_of
from prbench.pages.shell import Origin, render_page
from prbench.schema import Json


def render(audit: Audit, *, command: str = "") -> str:
    """Return the page as a string."""
    data = f"{audit.data}, {audit.split}" if audit.split else audit.data
    page = {
        "title": f"Check of {audit.data}",
        "facts": {
            "data": audit.data,
            "split": audit.split or "all",
            "rows": f"{audit.rows:,}",
            "users": f"{audit.users:,}",
            "hash": audit.hash[:12],
        },
        "counts": Counter(finding.verdict for finding in audit.findings),
        "findings": audit.findings,
        "charts": _charts(audit),
        "shown": [finding for finding in audit.findings if finding.samples],
    }
    return render_page("check.html", page, Origin(command=command, data=f"{data} (hash {audit.hash[:12]})"))


def _charts(audit: Audit) -> list[DotChart]:
    charts = []
    floors = [
        (finding.check.removeprefix("floor: "), _marks(finding.values["accuracy"], is_good=finding.verdict == GOOD))
        for finding in audit.findings
        if "accuracy" in finding.values
    ]
    if floors:
        note = (
            "How often rules that know nothing of the user's taste find the chosen response, in percent. Chance is 50."
        )
        charts.append(DotChart(title="Floors", note=note, rows=floors, reference=0.5))
    for finding in audit.findings:
        if finding.check == STYLE and finding.values:
            rows = [
                (name, _marks(found, is_good=max(found["low"], -found["high"], 0.0) <= SMALL))
                for name, found in finding.values.items()
            ]
            note = "Chosen minus rejected, in standard deviations of the difference (dz). At 0 they are alike."
            form = NumberFormat(2, sign=True)
            charts.append(DotChart(title="Length and style", note=note, rows=rows, reference=0.0, form=form))
    return charts


def _marks(figures: Json, *, is_good: bool) -> list[Mark]:
    """Return a dot whose form, not only its color, shows whether it is good."""
    return mark_of(figures, "good", 0) if is_good else mark_of(figures, "not good", 2)
