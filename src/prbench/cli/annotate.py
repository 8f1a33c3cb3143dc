"""`prbench annotate`: people check the pairs, or give their own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from prbench.backends.llm.servers import is_loopback
from prbench.cli import options
from prbench.data import DataSettings, open_data
from prbench.errors import UsageError
from prbench.lab import LAB
from prbench.people.annotate import Store
from prbench.people.annotate.exchange import import_answers, write_export
from prbench.people.annotate.people import AnnotateSettings, check_url, link_to
from prbench.people.annotate.progress import Figures, measure
from prbench.people.annotate.records import Mode
from prbench.people.annotate.store import DEFAULT_URL, Plan
from prbench.people.annotate.store import create as create_project
from prbench.schema import Estimate

app = typer.Typer(
    name="annotate",
    help="People check the pairs: a small web app on one SQLite file, with a personal link per annotator.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
PROJECT, PEOPLE = "Project", "People"
ProjectFile = Annotated[Path, typer.Argument(metavar="PROJECT.db", help="The project's file.", show_default=False)]
Url = Annotated[str | None, typer.Option(help="Address that links lead to, e.g. https://annotate.example.org.")]


@app.command()
def create(
    project: ProjectFile,
    data: options.Data = LAB,
    subset: options.Subset = None,
    split: options.Split = None,
    revision: options.Revision = None,
    limit: options.Limit = None,
    skip_bad_rows: options.SkipBadRows = 0,
    mode: Annotated[
        Literal["validate", "collect"],
        typer.Option(
            help="`validate` others' pairs, or `collect` the annotators' own choices.", rich_help_panel=PROJECT
        ),
    ] = "validate",
    items: Annotated[
        int | None, typer.Option(help="Pairs to ask about; default: all.", min=1, rich_help_panel=PROJECT)
    ] = None,
    annotators: Annotated[str | None, typer.Option(help="Names, with commas.", rich_help_panel=PEOPLE)] = None,
    seats: Annotated[
        int | None, typer.Option(help="Or: so many annotators without names.", min=1, rich_help_panel=PEOPLE)
    ] = None,
    overlap: Annotated[int, typer.Option(help="Annotators per item.", min=1, rich_help_panel=PEOPLE)] = 2,
    instructions: Annotated[
        Path | None, typer.Option(help="Text file shown to annotators instead of ours.", rich_help_panel=PROJECT)
    ] = None,
    url: Url = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Make a project, and print the owner's link and one link per annotator. They are shown only this once.

    Example: `prbench annotate create study.db --data pairs.jsonl --annotators ada,ben --items 50`
    """
    plan = Plan(
        mode=Mode(mode),
        annotators=_names(annotators, seats),
        overlap=overlap,
        items=items,
        seed=seed,
        data=data,
        instructions=_read_text(instructions),
        url=check_url(url or DEFAULT_URL),
    )
    which = DataSettings(
        source=data, subset=subset, split=split, revision=revision, limit=limit, skip_bad_rows=skip_bad_rows
    )
    with open_data(which) as store:
        for line in store.bad_rows:
            options.notes.print(f"skipped: {line}", soft_wrap=True)
        links = create_project(project, store, plan)
    owner = link_to(plan.url, links.owner)
    people = {name: link_to(plan.url, token) for name, token in links.annotators.items()}
    if overlap > len(people):
        options.notes.print(f"{len(people)} annotators for an overlap of {overlap}: invite more.", soft_wrap=True)
    if json:
        named = [{"name": name, "link": link} for name, link in people.items()]
        options.print_json({"project": str(project), "mode": mode, "owner": owner, "annotators": named})
        return
    _print_links({"owner": owner, **people})
    options.out_console.print(f"next: prbench annotate serve {project}", soft_wrap=True)


@app.command()
def serve(
    project: ProjectFile,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 8100,
    url: Annotated[
        str | None, typer.Option(help="Address that people use, where a proxy on this machine stands before it.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Serve a project until SIGTERM or Ctrl-C; nothing that was saved is lost, however it ends.

    Example: `prbench annotate serve study.db --port 8100`
    """
    settings = AnnotateSettings(host=host, port=port, public_url=check_url(url) if url else "")
    try:
        from prbench.people.annotate.server import AnnotateServer
    except ModuleNotFoundError as error:
        raise UsageError(
            f"prbench annotate serve needs {error.name}. Install what it takes with: pip install 'prbench[serve]'"
        ) from error
    server = AnnotateServer(project, settings)
    if not url and not is_loopback(settings.url):
        options.notes.print(
            "note: plain HTTP beyond this machine; links can be read on the way. Put a proxy with TLS before it.",
            soft_wrap=True,
        )
    if elsewhere := server.links_lead_elsewhere:
        options.notes.print(f"note: {elsewhere}", soft_wrap=True)

    def announce(address: str) -> None:
        facts = {"url": address, "project": str(project)}
        sys.stdout.write((dumps(facts) if json else f"ready: {project} on {address}") + "\n")
        sys.stdout.flush()  # whoever started the server in a script waits for this line

    server.run(announce)


@app.command()
def invite(
    project: ProjectFile,
    name: Annotated[str | None, typer.Argument(help="The annotator's name.", show_default=False)] = None,
    renew: Annotated[bool, typer.Option("--renew", help="A new link for a known name; the old one ends.")] = False,
    owner: Annotated[bool, typer.Option("--owner", help="A new link for the owner; the old one ends.")] = False,
    url: Url = None,
    json: options.Json = False,
) -> None:
    """Invite one more annotator, who takes a share of what nobody has begun; or make a lost link anew.

    Example: `prbench annotate invite study.db cleo`
    """
    if (name is None) != owner:
        raise UsageError("Give a name, or --owner, and not both.")
    with _opened(project) as store:
        who = "owner" if name is None else " ".join(name.split())
        if name is None:
            token = store.people.renew_owner()
        else:
            token = store.people.renew(store.people.named(name).id) if renew else store.invite(name)
        link = link_to(check_url(url) if url else store.project.url, token)
    if json:
        options.print_json({"name": who, "link": link})
    else:
        _print_links({who: link})


@app.command()
def progress(project: ProjectFile, json: options.Json = False) -> None:
    """Show how far everybody is, and how far they agree so far.

    Example: `prbench annotate progress study.db --json`
    """
    with _opened(project) as store:
        figures = measure(store)
    if json:
        options.print_json(figures.as_json())
    else:
        _print_progress(figures)


@app.command()
def export(
    project: ProjectFile,
    to: Annotated[Path, typer.Option(help="File to write.")],
    format: Annotated[  # noqa: A002
        Literal["rows", "pairs", "argilla", "label-studio"],
        typer.Option(help="`rows` (for prbench agreement), `pairs` (mode collect), `argilla` or `label-studio`."),
    ] = "rows",
) -> None:
    """Write the answers that are done.

    Example: `prbench annotate export study.db --to answers.jsonl`
    """
    with _opened(project) as store:
        for path in write_export(store, format, to):
            options.out_console.print(f"written: {path}", soft_wrap=True)


@app.command("import")
def import_answer(
    project: ProjectFile,
    file: Annotated[Path, typer.Argument(help="Rows of ours, Argilla's records or Label Studio's tasks.")],
    json: options.Json = False,
) -> None:
    """Add the answers of a file to a project of the same data; what is here already, or newer, stays.

    Example: `prbench annotate import study.db argilla.json`
    """
    with _opened(project) as store:
        taken = import_answers(store, file)
    if json:
        options.print_json({"added": taken.added, "known": taken.known})
    else:
        options.out_console.print(f"{taken.added} answers added, {taken.known} known already")


@contextmanager
def _opened(project: Path) -> Iterator[Store]:
    store = Store(project)
    try:
        yield store
    finally:
        store.close()


def _names(annotators: str | None, seats: int | None) -> list[str]:
    if (annotators is None) == (seats is None):
        raise UsageError("Give --annotators NAME,NAME or --seats N.")
    if annotators is not None:
        return [" ".join(name.split()) for name in annotators.split(",")]
    return [f"annotator-{number}" for number in range(1, (seats or 0) + 1)]


def _read_text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--instructions {path}: cannot be read as UTF-8 text ({error}).") from None


def _print_links(links: dict[str, str]) -> None:
    width = max(map(len, links))
    for name, link in links.items():
        options.out_console.print(f"{name:<{width}}  {link}", soft_wrap=True)


def _print_progress(figures: Figures) -> None:
    table = Table("annotator", "done", "drafts", "skipped", "flagged", "median s", box=None, pad_edge=False)
    for person in figures.people:
        name = person.annotator.name + (" (paused)" if person.annotator.is_paused else "")
        seconds = "" if person.median_seconds is None else f"{person.median_seconds:.0f}"
        counts = (f"{person.done}/{person.planned}", str(person.drafts), str(person.skipped), str(person.flagged))
        table.add_row(name, *counts, seconds)
    options.out_console.print(table)
    agreement = figures.agreement
    for words, value in (
        ("pick the chosen response", agreement.with_label),
        ("two people say the same", agreement.raw),
        ("Krippendorff's alpha", agreement.alpha),
    ):
        options.out_console.print(f"{words}: {_estimate(value)}")


def _estimate(value: Estimate | None) -> str:
    return "cannot be told yet" if value is None else f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"
