"""From an audit to one self-contained page, in the look of the report."""

from importlib.metadata import version

from prbench.construction.check import Audit
from prbench.construction.check.finding import GOOD
from prbench.construction.check.style import SMALL
from prbench.pages.charts import Chart, dot_chart
from prbench.pages.shell import render_page
from prbench.schema import Json


def render(audit: Audit) -> str:
    """Return the page as a string."""
    page = {
        "title": f"Check of {audit.data}",
        "facts": {
            "data": audit.data,
            "split": audit.split,
            "rows": audit.rows,
            "users": audit.users,
            "hash": audit.hash[:12],
        },
        "counts": _counts(audit),
        "findings": audit.findings,
        "charts": [chart for chart in (_floors(audit), _style(audit)) if chart is not None],
        "shown": [finding for finding in audit.findings if finding.samples],
        "version": version("prbench"),
    }
    return render_page("check.html", page=page)


def _counts(audit: Audit) -> dict[str, int]:
    verdicts = [finding.verdict for finding in audit.findings]
    return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}


def _floors(audit: Audit) -> Chart | None:
    found = [finding for finding in audit.findings if "accuracy" in finding.values]
    return dot_chart(
        "Floors",
        "How often rules that know nothing of the user's taste find the chosen response, in percent. Chance is 50 %.",
        [
            (finding.check.removeprefix("floor: "), [_dot(finding.verdict == GOOD, finding.values["accuracy"])])
            for finding in found
        ],
        reference=0.5,
    )


def _style(audit: Audit) -> Chart | None:
    finding = next((each for each in audit.findings if each.check == "length and style"), None)
    if finding is None:
        return None
    return dot_chart(
        "Length and style",
        "Chosen minus rejected, in standard deviations of the difference (dz). At 0 they are alike.",
        [(name, [_dot(_is_small(figures), figures)]) for name, figures in finding.values.items()],
        reference=0.0,
        unit="plain",
        sign=True,
    )


def _is_small(figures: Json) -> bool:
    return bool(max(figures["low"], -figures["high"], 0.0) <= SMALL)


def _dot(is_good: bool, figures: Json) -> tuple[str, str, Json]:
    """Return a dot whose form, not only its color, tells whether it is good."""
    return ("own", "good", figures) if is_good else ("swap", "not good", figures)
