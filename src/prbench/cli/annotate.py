"""`prbench annotate`: people check the pairs, or give their own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from prbench.backends.llm.servers import is_loopback
from prbench.cli import options
from prbench.errors import UsageError, needs
from prbench.metrics.equivalence import Equivalence
from prbench.metrics.number_format import NumberFormat
from prbench.pages.agreement import annotator_cells, coefficient_cells, quality_cells, render, text
from prbench.pages.shell import origin_of, prepare_place, write_page
from prbench.people.agreement import PanelReport, QuestionReply, Settings
from prbench.people.agreement import agreement as measure_agreement
from prbench.people.annotate import Store
from prbench.people.annotate.exchange import import_answers, write_export
from prbench.people.annotate.people import AnnotateSettings, check_url, link_to
from prbench.people.annotate.progress import measure
from prbench.people.annotate.records import Mode
from prbench.people.annotate.store import DEFAULT_URL, Plan
from prbench.people.annotate.store import create as create_project
from prbench.schema import Estimate

app = options.new_app(
    "annotate",
    help="People check the pairs: a small web app on one SQLite file, with a personal link per annotator.",
    no_args_is_help=True,
)
PROJECT = "Project"
REPLY_COLORS = {QuestionReply.YES: "green", QuestionReply.NO: "red", QuestionReply.CANNOT_TELL: "yellow"}
ProjectFile = Annotated[Path, typer.Argument(metavar="PROJECT.db", help="The project's file.", show_default=False)]


@options.add(app, "create")
def create(
    project: ProjectFile,
    data: options.DataOptions,
    mode: Annotated[
        Literal["validate", "collect"],
        options.flag("`validate` others' pairs, or `collect` the annotators' own choices.", PROJECT),
    ] = "validate",
    items: Annotated[int | None, options.flag("Pairs to ask about; default: all.", PROJECT, min=1)] = None,
    annotators: Annotated[str | None, options.flag("Names, with commas.", options.PEOPLE)] = None,
    seats: Annotated[int | None, options.flag("Or: so many annotators without names.", options.PEOPLE, min=1)] = None,
    overlap: Annotated[int, options.flag("Annotators per item.", options.PEOPLE, min=1)] = 2,
    instructions: Annotated[
        Path | None, options.flag("Text file shown to annotators instead of ours.", PROJECT)
    ] = None,
    url: options.Url = None,
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
        data=data.data,
        instructions=_read_text(instructions),
        url=check_url(url or DEFAULT_URL),
    )
    with options.open_rows(data.which()) as store:
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


@options.add(app, "serve")
def serve(
    project: ProjectFile,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8100,
    url: options.Url = None,
    json: options.Json = False,
) -> None:
    """Serve a project until SIGTERM or Ctrl-C; nothing that was saved is lost, however it ends.

    Example: `prbench annotate serve study.db --port 8100`
    """
    settings = AnnotateSettings(host=host, port=port, public_url=check_url(url) if url else "")
    with needs("serve", "prbench annotate serve"):
        from prbench.people.annotate.server import AnnotateServer
    server = AnnotateServer(project, settings)
    if not url and not is_loopback(settings.url):
        options.notes.print(
            "note: plain HTTP beyond this machine; links can be read on the way. Put a proxy with TLS before it.",
            soft_wrap=True,
        )
    if warning := server.link_warning:
        options.notes.print(f"note: {warning}", soft_wrap=True)

    def announce(address: str) -> None:
        facts = {"url": address, "project": str(project)}
        sys.stdout.write((dumps(facts) if json else f"ready: {project} on {address}") + "\n")
        sys.stdout.flush()  # whoever started the server in a script waits for this line

    server.run(announce)


@options.add(app, "invite")
def invite(
    project: ProjectFile,
    name: Annotated[str | None, typer.Argument(help="The annotator's name.", show_default=False)] = None,
    renew: Annotated[bool, options.flag("A new link for a known name; the old one ends.", None, "--renew")] = False,
    owner: Annotated[bool, options.flag("A new link for the owner; the old one ends.", None, "--owner")] = False,
    url: options.Url = None,
    json: options.Json = False,
) -> None:
    """Invite one more annotator, who takes a share of what nobody has begun; or make a lost link anew.

    Example: `prbench annotate invite study.db cleo`
    """
    if (name is None) != owner:
        raise UsageError("Give a name, or --owner, and not both.")
    with _opened(project) as store:
        who = "owner" if name is None else " ".join(name.split())
        if name is not None and not renew:
            token = store.invite(name)
        else:
            token = store.people.renew(None if name is None else store.people.named(name).id)
        link = link_to(check_url(url) if url else store.project.url, token)
    if json:
        options.print_json({"name": who, "link": link})
    else:
        _print_links({who: link})


@options.add(app, "progress")
def progress(project: ProjectFile, json: options.Json = False) -> None:
    """Show how far everybody is, and how far they agree so far.

    Example: `prbench annotate progress study.db --json`
    """
    with _opened(project) as store:
        figures = measure(store)
    if json:
        options.print_json(figures.as_json())
    else:
        rows = []
        for person in figures.people:
            name = person.annotator.name + (" (paused)" if person.annotator.is_paused else "")
            seconds = "" if person.median_seconds is None else f"{person.median_seconds:.0f}"
            counts = (person.drafts, person.skipped, person.flagged)
            rows.append([name, f"{person.done}/{person.planned}", *map(str, counts), seconds])
        options.print_table(("annotator", "done", "drafts", "skipped", "flagged", "median s"), rows)
        agreement = figures.agreement
        for words, value in (
            ("pick the chosen response", agreement.with_label),
            ("two people say the same", agreement.raw),
            ("Krippendorff's alpha", agreement.alpha),
        ):
            found = NumberFormat(2).estimate(value) if value else "cannot be told yet"
            options.out_console.print(f"{words}: {found}")


@options.add(app, "export")
def export(
    project: ProjectFile,
    to: options.ToFile,
    layout: Annotated[
        Literal["rows", "pairs", "argilla", "label-studio"],
        options.flag(
            "`rows` (for `annotate agreement`), `pairs` (mode collect), `argilla` or `label-studio`.", None, "--as"
        ),
    ] = "rows",
) -> None:
    """Write the answers that are done.

    Example: `prbench annotate export study.db --to answers.jsonl`
    """
    with _opened(project) as store:
        for path in write_export(store, layout, to):
            options.out_console.print(f"written: {path}", soft_wrap=True)


@options.add(app, "import")
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


@options.add(app, "agreement")
def agreement(
    files: Annotated[
        list[Path], typer.Argument(help="Rows of `prbench annotate export` (.jsonl), or item,annotator,label (.csv).")
    ],
    judge_run: Annotated[
        list[Path], options.flag("Folder of a run, whose verdicts stand beside people's; may be repeated.")
    ] = [],  # noqa: B006
    margin: Annotated[float, options.flag("Points of 1 to 5 by which equal quality may differ.")] = 0.5,
    min_share: Annotated[float, options.flag("Share of answers with the label that the interval must exceed.")] = 0.75,
    alpha: Annotated[float, options.flag("Level of the tests.")] = 0.05,
    seed: options.Seed = 0,
    html: options.Html = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """How far do people agree, is the label what they find, and are both responses equally good?

    Example: `prbench annotate agreement rows.jsonl --judge-run runs/1a2b3c --html agreement.html`
    """
    settings = Settings(margin=margin, bar=min_share, alpha=alpha, seed=seed)
    if html is not None:
        prepare_place(html, "agreement.html")
    panel = measure_agreement(files, judge_runs=judge_run, settings=settings)
    if json:
        options.print_json(panel.as_json())
    else:
        _print_panel(panel)
    if html is not None:
        origin = origin_of(judge_run, options.command_line(), ", ".join(map(str, files)))
        write_page(render(panel, origin), html)
        options.notes.print(f"page: {html}", soft_wrap=True)


def _print_panel(panel: PanelReport) -> None:
    show = options.out_console.print
    show(f"{panel.answers} answers of {panel.people} people to {panel.items} items")
    for note in panel.notes:
        show(f"  {note}", style="dim", soft_wrap=True)
    for question in panel.questions:
        show()
        show(Text.assemble(question.text, " ", (question.reply.value, f"bold {REPLY_COLORS[question.reply]}")))
        show(f"  {question.because}", soft_wrap=True)
    if panel.caveats:
        show()
    for line in panel.caveats:
        show(f"caveat: {line}", style="yellow", soft_wrap=True)
    show()
    cells = coefficient_cells(panel)[1]
    rows = [(f"{about}: {name}", value if value != "–" else remark) for about, name, value, _, remark in cells]
    options.print_table(("agreement with each other", "value and 95 % interval"), rows)
    if isinstance(panel.position.difference, Estimate):
        show()
        left, gap = text(panel.position.left_share), text(panel.position.difference)
        show(f"left picks: {left} %; the label on the left minus on the right: {gap} points")
    if any(isinstance(quality.test, Equivalence) for quality in panel.qualities):
        show()
        head = ("quality", "chosen", "rejected", "p above", "p below", "equal?", "resolves")
        options.print_table(head, [[*row[:3], *row[4:]] for row in quality_cells(panel)[1]])
    show()
    # The values alone: the intervals are on the page and in the JSON.
    rows_of_people = [[cell.partition(" [")[0] for cell in row[:7]] for row in annotator_cells(panel)[1]]
    options.print_table(
        ("annotator", "answers", "label", "others", "alpha without", "seconds", "left"), rows_of_people
    )
    for each in panel.annotators:
        for flag in each.flags:
            show(f"worth a look: {each.name}: {flag}", style="yellow", soft_wrap=True)
