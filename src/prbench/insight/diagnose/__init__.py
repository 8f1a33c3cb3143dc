"""Where do models fail, what should be labeled next, and what should they be trained on? From finished runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from prbench.evaluation.summary import DIGITS
from prbench.insight.diagnose.label_next import LabelCandidate, check_label_file, most_informative, write_label_file
from prbench.insight.diagnose.run_table import RunTable, load_run_table
from prbench.insight.diagnose.slices import (
    MINORITY,
    AccuracyTest,
    Field,
    Slice,
    SliceFinding,
    find_fields,
    measure,
)
from prbench.metrics.compare import compare
from prbench.schema import Estimate, Json, Verdict

SPREAD = ("category", "posts", "posts seen")  # what items to label are spread over, unless fields were named
SHOWN = ("id", "user_id", "category", "confidence", "disagreement", "value")  # of an item to label
NO_SPREAD = f"--by {MINORITY}: tells the label, so the items to label are not spread over it."


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that is found about some runs."""

    run_table: RunTable
    fields: tuple[Field, ...]
    slices: tuple[Slice, ...]  # empty where the labels are not to be believed
    label_next: tuple[LabelCandidate, ...]
    labeled: bool
    notes: tuple[str, ...]  # what the reader should know: of the material, and of the choice of items

    @property
    def weak(self) -> list[Slice]:
        """The slices on which some run is worse than elsewhere, the most costly first."""
        found = [each for each in self.slices if any(cell.finding is SliceFinding.WEAKER for cell in each.cells)]
        return sorted(found, key=lambda each: (-max(cell.extra_errors for cell in each.cells), each.name))

    @property
    def names(self) -> list[str]:
        """The runs."""
        return [run.name for run in self.run_table.runs]

    def as_json(self) -> dict[str, Json]:
        """Return everything as `--json` prints it."""
        runs = self.run_table.runs
        return {
            "data": {**runs[0].summary["data"], "splits": list(self.run_table.splits), "shared": self.items},
            "notes": list(self.notes),
            "runs": [
                {
                    "run": run.folder.name,
                    "name": run.name,
                    "accuracy": run.summary["accuracy"] if self.labeled else None,
                }
                for run in runs
            ],
            "differences": _differences(self.run_table) if self.labeled else [],
            "slices": [_slice_json(each) for each in self.slices],
            "label_next": [
                {
                    name: round(value, DIGITS) if isinstance(value, float) else value
                    for name, value in candidate.items()
                }
                for candidate in ({name: getattr(each, name) for name in SHOWN} for each in self.label_next)
            ],
        }

    @property
    def items(self) -> int:
        """How many items all runs share."""
        return len(self.run_table.items)


def diagnose(
    paths: Sequence[Path],
    *,
    data: str | None = None,
    by: Sequence[str] = (),
    label_next: int = 0,
    labeled: bool = True,
    seed: int = 0,
) -> Diagnosis:
    """Read finished runs on the same items and say where they fail and which items to label next.

        found = diagnose([Path("runs/ID")], label_next=100)
        write_label_next(found, Path("label_next.jsonl"))

    With `labeled=False` the two responses of a row stand in any order: no accuracy is computed, and only
    `label_next` is answered. That answer is the same either way, as it does not use labels.
    """
    run_table = load_run_table(paths, data)
    fields = find_fields(run_table, by)
    slices = measure(run_table.rows, fields, seed=seed) if labeled else []
    spread = [field for field in fields if (field.name != MINORITY if by else field.name in SPREAD)]
    chosen = most_informative(run_table.rows, label_next, spread=spread) if label_next else []
    return Diagnosis(
        run_table=run_table,
        fields=tuple(fields),
        slices=tuple(slices),
        label_next=tuple(chosen),
        labeled=labeled,
        notes=(*run_table.notes, NO_SPREAD) if label_next and MINORITY in by else run_table.notes,
    )


def write_label_next(diagnosis: Diagnosis, path: Path) -> int:
    """Write the items to label, best first, as a file that `prbench annotate create --data` takes; return how many."""
    check_label_file(path, diagnosis.run_table.sources)
    examples = diagnosis.run_table.need_examples("--label-next")
    rows = [examples[each.id] for each in diagnosis.label_next]
    write_label_file(rows, path)
    return len(rows)


def disagreements(run_table: RunTable) -> dict[str, int]:
    """Count the items by how the runs come out: all right, all wrong, or at odds."""
    counts = {"all right": 0, "at odds": 0, "all wrong": 0}
    for same in zip(*run_table.rows, strict=True):
        right = {row.verdict is Verdict.CHOSEN for row in same}
        counts["at odds" if len(right) > 1 else "all right" if True in right else "all wrong"] += 1
    return counts


def _differences(run_table: RunTable) -> list[dict[str, Json]]:
    """Return every further run against the first, on all items."""
    found = []
    for run, rows in zip(run_table.runs[1:], run_table.rows[1:], strict=True):
        test = compare(rows, run_table.rows[0])
        found.append(
            {"run": run.folder.name, "minus": run_table.runs[0].folder.name, "difference": _plain(test.difference)}
            | {"p": test.p_value}
        )
    return found


def _slice_json(each: Slice) -> dict[str, Json]:
    return {
        "field": each.field,
        "value": each.value,
        "n": len(each.items),
        "users": each.users,
        "disagreement": each.disagreement,
        "runs": [
            {
                "accuracy": _plain(cell.accuracy),
                "finding": cell.finding.value,
                "against_rest": _test_json(cell.against_rest),
                "against_first": _test_json(cell.against_first),
            }
            for cell in each.cells
        ],
    }


def _test_json(test: AccuracyTest | None) -> Mapping[str, Json] | None:
    return None if test is None else {**_plain(test.difference), "p": test.p_value, "holm_p": test.holm_p}


def _plain(estimate: Estimate) -> dict[str, Json]:
    return {name: round(value, DIGITS) for name, value in asdict(estimate).items()}
