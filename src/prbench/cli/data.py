"""`prbench data`: check a dataset, write the lab, convert between formats, forget a person."""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from prbench.cli import options
from prbench.construction.check import BAD, GOOD, LOOK, SKIPPED, TOO_FEW, check_store
from prbench.data import write_dataset
from prbench.data.export import Card, export_examples
from prbench.errors import UsageError
from prbench.lab import DEFAULT_SIZES, LAB, LABEL_SPLITS, SEED, LabSize, make_lab, make_labels, sizes
from prbench.pages.check import render
from prbench.pages.shell import prepare_place, write_page
from prbench.registry import EXPORTERS
from prbench.schema import Example

if TYPE_CHECKING:
    from prbench.people.forget import Forgotten, Search

COLORS = {GOOD: "green", LOOK: "yellow", BAD: "red", SKIPPED: "dim", TOO_FEW: "dim"}
CARD = (
    "A simulated population whose preferences are known, made by `prbench data lab` from texts written for "
    "prbench. `test` is balanced: every pair comes twice, mirrored for a user who wants the opposite, so that the "
    "responses alone say nothing. `train`, `validation` and `test_population` follow the population. In "
    "`test_general` and `train_general` the rejected response is off topic, rambling, repeated, shuffled or cut "
    "off, whoever asks. No sentence, question or user is in two of train, validation and test, but aspects have "
    "the same names and reasons everywhere; `test_population` and `test_general` use the sentences of `test`, "
    "`train_general` those of `train`. Where there are splits that end in `_labels`, they hold pairs that the "
    "users of another split compared before, with the questions and sentences of `train`: for `prbench eval "
    "--labels`. `meta` holds the truth; models under test never see it."
)

app = options.new_app(
    "data",
    help="Check a dataset, write the lab, convert between formats, or remove a person from everything.",
    no_args_is_help=True,
)


@options.add(app, "check")
def check(
    data: options.DataOptions,
    audit_encoder: options.AuditEncoder = "minilm",
    seed: options.Seed = 0,
    html: options.Html = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Audit a dataset: rows, duplicates, leaks, style, and rules that must not solve it.

    Exit code 1 if any of them is bad.

    Example: `prbench data check --data pairs.jsonl --html check.html`
    """
    which = data.which()
    if html is not None:
        prepare_place(html, "check.html")
    with options.open_rows(which) as store, options.progress_of_steps(quiet=json) as progress:
        audit = check_store(store, which, encoder=audit_encoder, seed=seed, progress=progress)
    if json:
        options.print_json([finding.as_json() for finding in audit.findings])
    else:
        rows = [
            (
                finding.check,
                Text(finding.verdict, style=COLORS[finding.verdict]),
                f"{finding.figure}. {finding.remedy}" if finding.remedy else finding.figure,
            )
            for finding in audit.findings
        ]
        options.print_table(("check", "verdict", "figure"), rows)
    if html is not None:
        write_page(render(audit, command=options.command_line()), html)
        options.notes.print(f"page: {html}", soft_wrap=True)
    if audit.is_bad:
        raise typer.Exit(1)


@options.add(app, "convert")
def convert(
    target: Annotated[
        str, typer.Argument(help=f"What to write: `{'`, `'.join(row.example for row in EXPORTERS.rows)}`.")
    ],
    data: options.DataOptions,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Read any dataset that `--data` takes, also rows of other benchmarks, and write it in another format.

    Example: `prbench data convert jsonl:pairs.jsonl --data rewardbench.parquet`
    """
    with options.open_rows(data.which()) as store:
        path, rows = export_examples(store, target), len(store)
    if json:
        options.print_json({"out": str(path), "rows": rows})
    else:
        options.out_console.print(f"{rows} rows written to {path}", soft_wrap=True)


@options.add(app, "lab")
def lab(
    out: options.Out,
    users: options.Users = None,
    pairs: Annotated[int | None, options.flag("Pairs in all, dealt to the splits as in the default.")] = None,
    seed: options.Seed = SEED,
    labels_per_user: Annotated[
        int, options.flag("Labeled pairs per user of test, test_population and validation, to write as well.", min=0)
    ] = 0,
    format: Annotated[Literal["jsonl", "parquet"], options.flag("`jsonl` or `parquet`.")] = "jsonl",  # noqa: A002
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Write the embedded benchmark as a dataset folder that `--data` and `datasets.load_dataset` read.

    `--users` and `--pairs` are dealt to the splits as in the default lab. The folder must not exist yet.

    Example: `prbench data lab --users 5000 --pairs 20000 --seed 1 --out my_lab`
    """
    if (users is None) != (pairs is None):
        raise UsageError("Give --users and --pairs together, or neither for the default lab.")
    wanted = DEFAULT_SIZES if users is None or pairs is None else sizes(users, pairs)
    card = Card(title="The prbench lab", text=CARD, license="apache-2.0", judge=LAB)
    made: dict[str, dict[str, int]] = {}
    rows = chain(make_lab(wanted, seed=seed), _label_rows(wanted, labels_per_user, seed))
    write_dataset(_counted(rows, made), out, format=format, card=card)
    if json:
        options.print_json({"out": str(out), "seed": seed, "splits": made})
        return
    for split, counts in made.items():
        options.out_console.print(f"{split:<16} {counts['users']} users, {counts['pairs']} pairs")
    options.out_console.print(f"written to {out}", soft_wrap=True)


def _label_rows(wanted: Mapping[str, LabSize], per_user: int, seed: int) -> Iterator[Example]:
    """Yield labeled pairs for `--labels`; none where none are asked for."""
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


@options.add(app, "forget")
def forget(
    user: Annotated[str, typer.Argument(help="The person's id, or their pseudonym.")],
    places: Annotated[
        list[Path], options.flag("File or folder to remove the person from; may be repeated.", None, "--in")
    ],
    texts: Annotated[
        list[Path] | None, options.flag("File elsewhere with what the person wrote, to search for; may be repeated.")
    ] = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Remove a person from datasets, builds, caches, runs and projects, then search for what is left.

    Exit code 1 if anything of them remains, if a file could not be read, or if there was nothing to look for.
    Pseudonyms are known by the key in the build's folder or in PRBENCH_PSEUDONYM_KEY.

    Example: `prbench data forget anna_k --in my_build --in posts.jsonl --dry-run`
    """
    from prbench.people.forget import forget as forget_person

    report = forget_person(user, places, texts=texts or [], dry_run=dry_run)
    if json:
        options.print_json(report.as_json())
    else:
        _print_forgotten(report)
    if not dry_run and not report.is_gone:
        raise typer.Exit(1)


def _print_forgotten(report: "Forgotten") -> None:
    show = options.out_console.print
    person = report.person
    show(f"{report.user}: known as {', '.join(sorted(person.ids))}", soft_wrap=True)
    verb = "would go from" if report.is_dry_run else "went from"
    for path, count in report.removed.items():
        show(f"  {count:>6} {verb} {path}", soft_wrap=True)
    if not report.removed:
        show("  no row or reply of this person was found")
    for path, count in report.mentions.items():
        show(f"  {count:>6} rows of others named the person in {path}: struck out", soft_wrap=True)
    for run, items in report.swapped.items():
        show(f"  items of others that were asked with this profile in {run}: {', '.join(items)}", soft_wrap=True)
    for note in report.notes:
        show(f"  note: {note}", style="yellow", soft_wrap=True)
    for path, why in report.unread.items():
        show(f"  could not be read: {path} ({why})", style="red", soft_wrap=True)
    if report.search is not None:
        _print_search(report, report.search)


def _print_search(report: "Forgotten", found: "Search") -> None:
    show = options.out_console.print
    person = report.person
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.files.items()))
    show(f"searched {found.files.total()} files, {found.bytes:,} bytes ({kinds})", soft_wrap=True)
    show(
        f"  for {len(person.searchable_ids)} ids and {len(person.grams)} quotes of {len(person.texts)} texts "
        f"({person.shared_grams} more quotes are others' as well, {person.short_texts} texts are too short)",
        soft_wrap=True,
    )
    for trace in found.traces:
        show(f"  LEFT: {trace.path}, {trace.place}: {trace.what}", style="red", soft_wrap=True)
    show(_verdict(report, found), soft_wrap=True)


def _verdict(report: "Forgotten", found: "Search") -> str:
    if found.traces:
        return f"{len(found.traces)} traces are left"
    if not report.is_searchable:
        return "nobody to search for: no row has this id, and it is too short to look for. Check it, or give --texts"
    if report.unread:
        return f"nothing was found, but {len(report.unread)} files could not be read: this is no proof"
    if not report.is_known:
        return (
            "nobody here has this id, and it stands nowhere; what they wrote is not known. Check it, or give --texts"
        )
    return "nothing of this person was found"
