"""The hard slice as a dataset of its own, to train on."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from prbench.data import write_dataset
from prbench.data.export import Card
from prbench.diagnose.material import Material
from prbench.diagnose.slices import Finding, Slice
from prbench.errors import UsageError
from prbench.metrics.folds import user_folds
from prbench.schema import POINTS, Example

HELD_OUT = 0  # the fold of users that goes to `validation`


def weakest(slices: Sequence[Slice]) -> Slice:
    """Return the slice, weaker than the rest for the first run, that costs it most errors."""
    weak = [each for each in slices if each.cells[0].finding is Finding.WEAKER]
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


def hard_items(material: Material, chosen: Sequence[Slice], *, errors_only: bool) -> list[int]:
    """Return the places of the items that are in all the slices; with `errors_only`, those that no run gets right."""
    places = set.intersection(*(set(each.items) for each in chosen))
    if errors_only:
        places = {place for place in places if all(POINTS[rows[place].verdict] < 1 for rows in material.rows)}
    if not places:
        raise UsageError("No item is left to export. Name fewer slices with --slice, or leave out --errors-only.")
    return sorted(places)


def refuse_test(material: Material, *, allow_test: bool) -> None:
    """Stop before rows of a test split become training data."""
    tests = [split for split in material.splits if split.lower().startswith("test")]
    if tests and not allow_test:
        raise UsageError(
            f"The items are of the split {tests[0]!r}, and a model trained on them would spoil that test. "
            "Diagnose a run on another split, or say --allow-test."
        )


def write_hard(
    material: Material, chosen: Sequence[Slice], folder: Path, *, errors_only: bool = False, allow_test: bool = False
) -> dict[str, int]:
    """Write the dataset folder, and return how many rows went to each split.

    A fifth of the users, by a hash of their ids, becomes `validation`, so that `prbench train --data FOLDER` can stop
    early on people it has not seen.
    """
    refuse_test(material, allow_test=allow_test)
    examples = material.need_examples("--export")
    places = hard_items(material, chosen, errors_only=errors_only)
    rows = list(_dealt([examples[material.items[place].id] for place in places]))
    write_dataset(rows, folder, card=_card(material, chosen, len(rows), errors_only=errors_only))
    return {split: sum(row.split == split for row in rows) for split in sorted({row.split for row in rows})}


def _dealt(rows: Sequence[Example]) -> Iterator[Example]:
    folds = user_folds([row.user.id for row in rows]).tolist()
    can_hold_out = len(set(folds)) > 1
    for row, fold in zip(rows, folds, strict=True):
        yield replace(row, split="validation" if can_hold_out and fold == HELD_OUT else "train")


def _card(material: Material, chosen: Sequence[Slice], count: int, *, errors_only: bool) -> Card:
    first = material.runs[0]
    which = " and ".join(f"`{each.name}`" for each in chosen)
    figures = "; ".join(
        f"`{each.name}`: {100 * each.cells[0].accuracy.value:.1f} % of {each.cells[0].accuracy.n} pairs"
        for each in chosen
    )
    runs = "\n".join(f"- `{run.folder.name}`: {run.name}" for run in material.runs)
    only = " Only pairs that none of the runs gets right were kept." if errors_only else ""
    split = ", ".join(f"`{name}`" for name in material.splits) or "unnamed"
    text = (
        f"The {count} pairs of {which} in {first.summary['data']['name']} (split {split}, "
        f"data hash `{first.summary['data']['hash'][:12]}`), exported by `prbench diagnose` for training.{only} "
        f"Accuracy of the first run there: {figures}; on all {first.summary['n_items']} pairs "
        f"{100 * first.summary['accuracy']['value']:.1f} %.\n\nChosen by these runs:\n\n{runs}\n\n"
        "The pairs were chosen because models fail on them: an accuracy measured on them says little, and least of "
        "all about those runs. `validation` has a fifth of the users, by a hash of their ids. The licence is that of "
        "the source."
    )
    return Card(title="A hard slice", text=text)
