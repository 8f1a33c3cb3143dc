"""`prbench forget`: remove a person, and show that nothing of them is left."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prbench.cli import options

if TYPE_CHECKING:
    from prbench.people.forget import Forgotten, Search


def forget(
    user: Annotated[str, typer.Argument(help="The person's id, or their pseudonym.")],
    places: Annotated[
        list[Path],
        typer.Option("--in", help="File or folder to remove the person from; may be repeated."),
    ],
    texts: Annotated[
        list[Path] | None,
        typer.Option(help="File elsewhere with what the person wrote, to search for; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and change nothing.")] = False,
    json: options.Json = False,
) -> None:
    """Remove a person from datasets, builds, caches, runs and projects, then search for what is left.

    Exit code 1 if anything of them remains, if a file could not be read, or if there was nothing to look for.
    Pseudonyms are known by the key in the build's folder or in PRBENCH_PSEUDONYM_KEY.

    Example: `prbench forget anna_k --in my_build --in posts.jsonl --dry-run`
    """
    from prbench.people.forget import forget as forget_person

    report = forget_person(user, places, texts=texts or [], dry_run=dry_run)
    if json:
        options.print_json(report.as_json())
    else:
        _print(report)
    if not dry_run and not report.is_gone:
        raise typer.Exit(1)


def _print(report: "Forgotten") -> None:
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
