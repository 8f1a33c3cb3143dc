"""Where do models fail, what should be labeled next, and what should they be trained on? From finished runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from prbench.data.export import write_jsonl
from prbench.data.rows import post_digest
from prbench.errors import UsageError
from prbench.evaluation.summary import DIGITS
from prbench.insight.diagnose.label_next import LabelCandidate, check_label_file, most_informative, write_label_file
from prbench.insight.diagnose.run_table import RunTable, load_run_table
from prbench.insight.diagnose.slices import (
    IMPERSONAL,
    MINORITY,
    AccuracyTest,
    Field,
    Slice,
    SliceFinding,
    find_fields,
    measure,
)
from prbench.metrics.compare import compare
from prbench.metrics.estimate import user_folds
from prbench.runs.files import replacing
from prbench.schema import POINTS, Estimate, Example, Json, Verdict

SPREAD = ("category", "posts", "posts seen")  # what items to label are spread over, unless fields were named
SHOWN = ("id", "user_id", "category", "confidence", "disagreement", "value")  # of an item to label
TELL_THE_LABEL = (MINORITY, IMPERSONAL)
NO_SPREAD = "--by {}: tells the label, so the items to label are not spread over it."


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
            "slices": [
                {
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
                for each in self.slices
            ],
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
) -> Diagnosis:
    """Read finished runs on the same items and say where they fail and which items to label next.

        found = diagnose([Path("runs/ID")], label_next=100)
        write_label_next(found, Path("label_next.jsonl"))

    With `labeled=False` the two responses of a row stand in any order: no accuracy is computed, and only
    `label_next` is answered. That answer is the same either way, as it does not use labels.
    """
    run_table = load_run_table(paths, data)
    fields = find_fields(run_table, by)
    slices = measure(run_table.rows, fields) if labeled else []
    telling = [name for name in TELL_THE_LABEL if name in by]
    spread = [each for each in fields if (each.name not in telling if by else each.name in SPREAD)]
    chosen = most_informative(run_table.rows, label_next, spread=spread) if label_next else []
    return Diagnosis(
        run_table=run_table,
        fields=tuple(fields),
        slices=tuple(slices),
        label_next=tuple(chosen),
        labeled=labeled,
        notes=(*run_table.notes, *(NO_SPREAD.format(name) for name in telling if label_next)),
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


def _test_json(test: AccuracyTest | None) -> Mapping[str, Json] | None:
    return None if test is None else {**_plain(test.difference), "p": test.p_value, "holm_p": test.holm_p}


def _plain(estimate: Estimate) -> dict[str, Json]:
    return {name: round(value, DIGITS) for name, value in asdict(estimate).items()}


TRAIN, VALIDATION = "train", "validation"  # as `prbench train` reads them unless told otherwise
HELD_OUT = 0  # the fold of users that goes to `validation`
FEWEST_USERS = 2  # of each split: `prbench train` takes no fewer


def weakest(slices: Sequence[Slice]) -> Slice:
    """Return the slice, weaker than the rest for the first run, that costs it most errors."""
    weak = [each for each in slices if each.cells[0].finding is SliceFinding.WEAKER]
    if not weak:
        raise UsageError(
            "No slice is shown to be weaker than the rest, so there is no hard slice to export. "
            "Name one with --slice FIELD=VALUE."
        )
    return max(weak, key=lambda each: (each.cells[0].extra_errors, each.name))


def named(slices: Sequence[Slice], names: Sequence[str]) -> list[Slice]:
    """Return the slices called FIELD=VALUE, or refuse."""
    known = {each.name: each for each in slices}
    for name in names:
        if name not in known:
            field = name.partition("=")[0]
            near = [each.name for each in slices if each.field == field] or sorted({each.field for each in slices})
            raise UsageError(f"--slice {name}: there is no such slice. There are: {', '.join(near)}.")
    return [known[name] for name in dict.fromkeys(names)]


def check_not_test(run_table: RunTable, *, allow_test: bool) -> None:
    """Stop before rows of a test split become training data."""
    tests = [split for split in run_table.splits if split.lower().startswith("test")]
    if tests and not allow_test:
        raise UsageError(
            f"The items are of the split {tests[0]!r}, and a model trained on them would spoil that test. "
            "Diagnose a run on another split, or say --allow-test."
        )


def write_hard(
    run_table: RunTable, chosen: Sequence[Slice], folder: Path, *, errors_only: bool = False, allow_test: bool = False
) -> dict[str, int]:
    """Write the items that are in all the chosen slices as a dataset folder; return how many rows each split has.

    With `errors_only`, only those that no run gets right. A fifth of the users, by a hash of their ids, becomes
    `validation`, so that `prbench train --data FOLDER` can stop early on people it has not seen.
    """
    check_not_test(run_table, allow_test=allow_test)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"--export {folder}: exists already. Choose another folder, or remove this one.")
    examples = run_table.need_examples("--export")
    places = set.intersection(*(set(each.items) for each in chosen))
    if errors_only:
        places = {place for place in places if all(POINTS[rows[place].verdict] < 1 for rows in run_table.rows)}
    if not places:
        raise UsageError("No item is left to export. Name fewer slices with --slice, or leave out --errors-only.")
    by_split = split_users([examples[run_table.items[place].id] for place in sorted(places)])
    # One file per split, not one per category and split: few users leave categories without a held-out one.
    with replacing(folder) as building:
        for split, rows in by_split.items():
            write_jsonl(rows, building / f"{split}.jsonl")
        card = _card(run_table, chosen, by_split, errors_only=errors_only)
        (building / "README.md").write_text(card, encoding="utf-8")
    return {split: len(rows) for split, rows in by_split.items()}


def split_users(rows: Sequence[Example]) -> dict[str, list[Example]]:
    """Return the rows of each split: nobody is in both, and each has at least `FEWEST_USERS`, or it is refused."""
    person_of = _persons(rows)
    persons = sorted(set(person_of.values()))
    if len(persons) < 2 * FEWEST_USERS:
        raise UsageError(
            f"The {len(rows)} pairs to export are of {len(persons)} users (same posts, same user), and training needs "
            f"{FEWEST_USERS} to learn from and {FEWEST_USERS} held out. Name other slices, or leave out --errors-only."
        )
    folds = dict(zip(persons, user_folds(persons).tolist(), strict=True))
    persons.sort(key=lambda person: (folds[person] != HELD_OUT, sha256(person.encode()).digest()))
    count = sum(fold == HELD_OUT for fold in folds.values())
    held_out = set(persons[: min(max(count, FEWEST_USERS), len(persons) - FEWEST_USERS)])
    return {
        TRAIN: [replace(row, split=TRAIN) for row in rows if person_of[row.user.id] not in held_out],
        VALIDATION: [replace(row, split=VALIDATION) for row in rows if person_of[row.user.id] in held_out],
    }


def _persons(rows: Sequence[Example]) -> dict[str, str]:
    """Return for each user id the first id of the same person: ids with the same posts are one, as in training."""
    same_as = {row.user.id: row.user.id for row in rows}

    def first(user: str) -> str:
        while same_as[user] != user:
            user = same_as[user]
        return user

    with_posts: dict[frozenset[str], str] = {}
    for row in rows:
        if row.user.profile:
            posts = frozenset(post_digest(post.text) for post in row.user.profile)
            other = with_posts.setdefault(posts, row.user.id)
            smaller, larger = sorted((first(row.user.id), first(other)))
            same_as[larger] = smaller
    return {user: first(user) for user in same_as}


def _card(
    run_table: RunTable, chosen: Sequence[Slice], by_split: Mapping[str, Sequence[Example]], *, errors_only: bool
) -> str:
    first = run_table.runs[0]
    which = " and ".join(f"`{each.name}`" for each in chosen)
    figures = "; ".join(
        f"`{each.name}`: {100 * each.cells[0].accuracy.value:.1f} % of {each.cells[0].accuracy.n} pairs"
        for each in chosen
    )
    runs = "\n".join(f"- `{run.folder.name}`: {run.name}" for run in run_table.runs)
    only = " Only pairs that none of the runs gets right were kept." if errors_only else ""
    split = ", ".join(f"`{name}`" for name in run_table.splits) or "unnamed"
    count = sum(len(rows) for rows in by_split.values())
    table = "\n".join(f"| {name} | {len(rows)} |" for name, rows in by_split.items())
    return (
        "---\nlicense: unknown\nlanguage: en\n---\n# A hard slice\n\n"
        f"The {count} pairs of {which} in {first.summary['data']['name']} (split {split}, "
        f"data hash `{first.summary['data']['hash'][:12]}`), exported by `prbench diagnose` for training.{only} "
        f"Accuracy of the first run there: {figures}; on all {first.summary['n_items']} pairs "
        f"{100 * first.summary['accuracy']['value']:.1f} %.\n\nChosen by these runs:\n\n{runs}\n\n"
        "The pairs were chosen because models fail on them: an accuracy measured on them says little, and least of "
        "all about those runs. `validation` has a fifth of the users, by a hash of their ids, and at least two. The "
        f"license is that of the source.\n\n| split | rows |\n| --- | --- |\n{table}\n"
    )
