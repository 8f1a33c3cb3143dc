"""`prbench leaderboard`: check runs that others hand in, and make a static site of those that hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from prbench.cli import options
from prbench.data import DataSettings, ExampleStore
from prbench.pages.site import Submissions, build_site, check_submissions

TITLE = "Leaderboard"
FOLDERS = typer.Argument(help="Run folders of `prbench eval`, or folders that hold them.")
app = options.new_app(
    "leaderboard",
    help="Check submitted runs, every figure anew from the rows, and build a site of those that hold.\n\n"
    "Example: `prbench leaderboard build submissions --out site`",
    no_args_is_help=True,
)


@dataclass(frozen=True, kw_only=True)
class AgainstData:
    """The dataset that the rows must be of."""

    data: options.DataIfMoved = None
    subset: options.Subset = None
    split: options.Split = None
    revision: options.Revision = None
    limit: options.Limit = None

    @contextmanager
    def open(self) -> Iterator[ExampleStore | None]:
        """Open the rows; nothing where no dataset was named."""
        if self.which is None:
            yield None
            return
        with options.open_rows(self.which) as store:
            yield store

    @property
    def which(self) -> DataSettings | None:
        """Which rows these are, by the names that pages call them."""
        if self.data is None:
            return None
        return DataSettings(
            source=self.data, subset=self.subset, split=self.split, revision=self.revision, limit=self.limit
        )


@options.add(app, "check")
def check(
    folders: Annotated[list[Path], FOLDERS],
    against: AgainstData,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Recompute every figure from the rows, refuse what does not add up, and say what is missing.

    Exit code 1 if a submission is refused. With `--data`, items, users, questions and categories are compared with
    the dataset as well.

    Example: `prbench leaderboard check runs/1a2b3c4d5e6f --data lab`
    """
    with against.open() as store:
        found = check_submissions(folders, store, against.which)
    if json:
        options.print_json(_as_json(found))
    else:
        for each in found.accepted:
            figure = each.run.summary["accuracy"] if each.run else None
            said = f", accuracy {100 * figure['value']:.1f}" if figure else ""
            options.out_console.print(f"holds: {each.folder}{said}", style="green", soft_wrap=True)
            for line in each.missing:
                options.out_console.print(f"  missing: {line}", soft_wrap=True)
        _print_refused(found)
    if found.refused:
        raise typer.Exit(1)


@options.add(app, "build")
def build(
    folders: Annotated[list[Path], FOLDERS],
    against: AgainstData,
    title: options.Title = "",
    out: options.Out = Path("site"),
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Check submissions, and build a static site of those that hold; those that do not are listed with the reason.

    The site needs no network: one page with the boards, one per submission, and the figures as CSV and JSON.

    Example: `prbench leaderboard build submissions --out site --data lab`
    """
    with against.open() as store:
        found = check_submissions(folders, store, against.which)
    page = build_site(
        found, out, title=title or TITLE, has_data=against.data is not None, command=options.command_line()
    )
    if json:
        options.print_json({"page": str(page), **_as_json(found)})
        return
    _print_refused(found)
    options.out_console.print(f"{len(found.accepted)} submissions: {page}", soft_wrap=True)


def _print_refused(found: Submissions) -> None:
    for each in found.refused:
        options.out_console.print(f"refused: {each.folder}", style="red", soft_wrap=True)
        for line in each.faults:
            options.out_console.print(f"  {line}", soft_wrap=True)


def _as_json(found: Submissions) -> dict[str, object]:
    return {
        "accepted": [
            {"folder": str(each.folder), "summary": each.run.summary, "missing": each.missing}
            for each in found.accepted
            if each.run
        ],
        "refused": [{"folder": str(each.folder), "faults": each.faults} for each in found.refused],
    }
