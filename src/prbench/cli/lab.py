"""`prbench lab`: write a simulated population of any size, with its truth."""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import typer

from prbench.cli import options
from prbench.data import write_dataset
from prbench.data.export import Card
from prbench.errors import UsageError
from prbench.lab import DEFAULT_SIZES, LAB, LABEL_SPLITS, SEED, LabSize, make_lab, make_labels, sizes
from prbench.schema import Example

CARD = (
    "A simulated population whose preferences are known, made by `prbench lab` from texts written for prbench. `test` "
    "is balanced: every pair comes twice, mirrored for a user who wants the opposite, so that the responses alone say "
    "nothing. `train`, `validation` and `test_population` follow the population. In `test_general` and "
    "`train_general` the rejected response is off topic, rambling, repeated, shuffled or cut off, whoever asks. No "
    "sentence, question or user is in two of train, validation and test, but aspects have the same names and reasons "
    "everywhere; `test_population` and `test_general` use the sentences of `test`, `train_general` those of `train`. "
    "Where there are splits that end in `_labels`, they hold pairs that the users of another split compared before, "
    "with the questions and sentences of `train`: for `prbench eval --labels`. "
    "`meta` holds the truth; models under test never see it."
)


def lab(
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist yet.", rich_help_panel=options.OUTPUT)],
    users: Annotated[int | None, typer.Option(help="Users in all, dealt to the splits as in the default.")] = None,
    pairs: Annotated[int | None, typer.Option(help="Pairs in all, dealt to the splits as in the default.")] = None,
    seed: options.Seed = SEED,
    labels: Annotated[
        int,
        typer.Option(help="Labelled pairs per user of test, test_population and validation, to write as well.", min=0),
    ] = 0,
    format: Annotated[Literal["jsonl", "parquet"], typer.Option(help="`jsonl` or `parquet`.")] = "jsonl",  # noqa: A002
    json: options.Json = False,
) -> None:
    """Write the embedded benchmark as a dataset folder that `--data` and `datasets.load_dataset` read.

    Example: `prbench lab --users 5000 --pairs 20000 --seed 1 --out my_lab`
    """
    if (users is None) != (pairs is None):
        raise UsageError("Give --users and --pairs together, or neither for the default lab.")
    wanted = DEFAULT_SIZES if users is None or pairs is None else sizes(users, pairs)
    card = Card(title="The prbench lab", text=CARD, licence="apache-2.0", judge=LAB)
    made: dict[str, dict[str, int]] = {}
    rows = chain(make_lab(wanted, seed=seed), _label_rows(wanted, labels, seed))
    write_dataset(_counted(rows, made), out, format=format, card=card)
    if json:
        options.print_json({"out": str(out), "seed": seed, "splits": made})
        return
    for split, counts in made.items():
        options.out_console.print(f"{split:<16} {counts['users']} users, {counts['pairs']} pairs")
    options.out_console.print(f"written to {out}", soft_wrap=True)


def _label_rows(wanted: Mapping[str, LabSize], per_user: int, seed: int) -> Iterator[Example]:
    """Yield labelled pairs for `--labels`; none where none are asked for."""
    for split, owners in LABEL_SPLITS.items() if per_user else ():
        yield from make_labels(split, wanted[owners].users, per_user=per_user, seed=seed)


def _counted(examples: Iterator[Example], made: dict[str, dict[str, int]]) -> Iterator[Example]:
    """Pass the rows on, and count what they are."""
    users: dict[str, set[str]] = {}
    for example in examples:
        users.setdefault(example.split, set()).add(example.user.id)
        counts = made.setdefault(example.split, {"users": 0, "pairs": 0})
        counts["users"], counts["pairs"] = len(users[example.split]), counts["pairs"] + 1
        yield example
