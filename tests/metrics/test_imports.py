import subprocess
import sys

# `scipy.special` has the t distribution of the intervals; `scipy.stats` alone would take half a second.
HEAVY = ("scipy.stats", "sklearn", "statsmodels", "pandas", "krippendorff", "torch")

CODE = """
import sys
from prbench.metrics import accuracy, agreement, calibration, compare, correlation, groups, official, personal, ratings
from prbench.schema import Probe, Row, Verdict
rows = [
    Row(id=str(i), probe=probe, user_id=str(i % 7), category="c", score_chosen=float(i % 3), score_rejected=0.5,
        verdict=Verdict.CHOSEN if i % 3 else Verdict.REJECTED)
    for i in range(20) for probe in Probe
]
own = [row for row in rows if row.probe is Probe.OWN]
accuracy.accuracy(own), groups.group_figures(rows, "category"), accuracy.worst_decile_accuracy(own)
personal.swap(rows), personal.personalization_gain(rows), personal.majority_split(rows)
calibration.calibrate(own), accuracy.order_effects(own), compare.planned_resolution([1] * 20)
official.official_figures(own)
print(*sys.modules)
"""


def test_summary_of_a_run_loads_no_heavy_package() -> None:
    loaded = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True).stdout.split()
    assert "numpy" in loaded
    assert not set(HEAVY) & set(loaded)
