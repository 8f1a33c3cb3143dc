"""Pages as strings, from templates with autoescape: text from data and from people stays text."""

from collections import defaultdict
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from math import ceil
from platform import python_version
from time import gmtime, strftime

from jinja2 import Environment, PackageLoader, StrictUndefined

from prbench.metrics.number_format import NumberFormat
from prbench.people.annotate.exchange import FORMATS
from prbench.people.annotate.people import LONGEST_NAME
from prbench.people.annotate.progress import Figures
from prbench.people.annotate.records import (
    LONGEST_NOTE,
    LONGEST_POST,
    LONGEST_REASON,
    MOST_POSTS,
    MOST_REASONS,
    Annotator,
    AssignedItem,
    Mode,
    ProjectItem,
    ResponseSide,
    Status,
    form_fields,
)
from prbench.people.annotate.store import Store
from prbench.schema import Json

KINDS = {"annotate.css": "text/css", "annotate.js": "text/javascript", "icon.svg": "image/svg+xml"}
# Read once, by names that stand here: no request names a file.
_FOLDER = files("prbench.people.annotate").joinpath("static")
STATIC = {name: (_FOLDER.joinpath(name).read_bytes(), kind) for name, kind in KINDS.items()}
_TOKENS = _FOLDER.joinpath("tokens.css").read_bytes()  # the colors, which all pages of prbench share
STATIC["annotate.css"] = (_TOKENS + STATIC["annotate.css"][0], KINDS["annotate.css"])
STATIC_VERSION = sha256(b"".join(content for content, _ in STATIC.values())).hexdigest()[:8]
ITEMS_PER_PAGE = 50
TITLES = {
    400: "Not understood",
    401: "Please use your link",
    403: "Not allowed",
    404: "Not found",
    422: "Please check what you entered",
    429: "Please wait",
    503: "Please try again",
}
HOMES = {"/start": "Your list", "/owner": "Project"}
QUALITY_HELP = {
    "correctness": "Is what it says true and sound?",
    "relevance": "Does it answer the question that was asked?",
    "helpfulness": "Could somebody act on it?",
}
SCALE_WORDS = {1: "poor", 2: "weak", 3: "fair", 4: "good", 5: "excellent"}
_ENVIRONMENT = Environment(
    loader=PackageLoader("prbench.people.annotate"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_ENVIRONMENT.globals["version"] = STATIC_VERSION  # a browser's copy of another version is not used
_ENVIRONMENT.globals["made_by"] = f"prbench {version('prbench')}, Python {python_version()}"
_ENVIRONMENT.globals["today"] = lambda: strftime("%Y-%m-%d", gmtime())
_ENVIRONMENT.filters["share"] = lambda value: f"{NumberFormat(0, 100.0).number(value)} %"
_ENVIRONMENT.filters["number"] = NumberFormat(2).number


def render(template: str, **values: Json) -> str:
    return _ENVIRONMENT.get_template(template).render(**values)


def error(status: int, message: str, home: str) -> str:
    """Return the page of a refusal, with the way home; `""` where there is none."""
    title = TITLES.get(status, "Something went wrong")
    return render("error.html", title=title, message=message, home=home, words=HOMES.get(home))


def start(store: Store, person: Annotator, csrf: str) -> str:
    """Return an annotator's first page: what to do, how far they are, and their list."""
    tasks = [
        {"position": position, "status": status, "is_flagged": is_flagged}
        for position, status, is_flagged in store.positions(person.id)
    ]
    pending = [task for task in tasks if task["status"] in (Status.OPEN, Status.DRAFT)]
    about = store.about(person.id)
    return render(
        "start.html",
        title="Your work",
        project=store.project,
        person=person,
        tasks=tasks,
        done=sum(task["status"] is Status.DONE for task in tasks),
        skipped=sum(task["status"] is Status.SKIPPED for task in tasks),
        following=pending[0]["position"] if pending else None,
        posts=0 if about is None else len(about.answer.posts),
        csrf=csrf,
    )


def item(store: Store, person: Annotator, task: AssignedItem, *, csrf: str, tab: str, message: str = "") -> str:
    """Return the page on which an item is judged. It says nothing of which response is the chosen one."""
    order = store.positions(person.id)
    places = [position for position, _, _ in order]
    rank = places.index(task.position)
    texts = {task.side: task.item.chosen, task.side.other: task.item.rejected}
    return render(
        "item.html",
        title=f"Item {rank + 1} of {len(order)}",
        mode=store.project.mode,
        task=task,
        responses=[
            {"side": side, "number": number, "text": texts[side]} for number, side in enumerate(ResponseSide, 1)
        ],
        rank=rank + 1,
        total=len(order),
        done=sum(status is Status.DONE for _, status, _ in order),
        previous=places[rank - 1] if rank else None,
        following=places[rank + 1] if rank + 1 < len(places) else None,
        fields=defaultdict(str, {} if task.saved is None else form_fields(task.saved.answer, task.side)),
        seen=0 if task.saved is None else task.saved.version,
        qualities=QUALITY_HELP,
        scale=SCALE_WORDS,
        reasons=range(1, MOST_REASONS + 1),
        longest_note=LONGEST_NOTE,
        longest_reason=LONGEST_REASON,
        csrf=csrf,
        tab=tab,
        message=message,
    )


def next_place(store: Store, person: Annotator, position: int) -> str:
    """Return where to go after an item: the next one that waits, round the list, or the list when none does."""
    pending = [
        place
        for place, status, _ in store.positions(person.id)
        if status in (Status.OPEN, Status.DRAFT) and place != position
    ]
    later = [place for place in pending if place > position]
    return f"/items/{(later or pending)[0]}" if pending else "/start"


def about(store: Store, person: Annotator, csrf: str, tab: str) -> str:
    """Return the page on which a collecting annotator writes about themselves."""
    saved = store.about(person.id)
    return render(
        "about.html",
        title="About you",
        fields=defaultdict(str, post_fields(() if saved is None else saved.answer.posts)),
        seen=0 if saved is None else saved.version,
        numbers=range(1, MOST_POSTS + 1),
        longest=LONGEST_POST,
        csrf=csrf,
        tab=tab,
    )


def post_fields(posts: tuple[str, ...]) -> dict[str, str]:
    return {f"post_{number}": text for number, text in enumerate(posts, 1)}


def owner(store: Store, figures: Figures, csrf: str, *, page: int) -> str:
    """Return the owner's overview."""
    pages = max(1, ceil(len(figures.items) / ITEMS_PER_PAGE))
    page = min(max(page, 1), pages)
    first = (page - 1) * ITEMS_PER_PAGE
    collects = store.project.mode is Mode.COLLECT
    return render(
        "owner.html",
        title="Project",
        project=store.project,
        figures=figures,
        items=figures.items[first : first + ITEMS_PER_PAGE],
        page=page,
        pages=pages,
        exports=[(form, each.title) for form, each in FORMATS.items() if collects or form != "pairs"],
        longest_name=LONGEST_NAME,
        csrf=csrf,
    )


def owner_item(store: Store, found: ProjectItem, number: int) -> str:
    """Return one item with everything that was said about it."""
    names = {person.id: person.name for person in store.people.all()}
    answers = [{"name": names[saved.annotator], "saved": saved} for saved in store.answers(found.id)]
    return render(
        "owner_item.html",
        title=f"Item {number}",
        item=found,
        number=number,
        total=len(store.items()),
        answers=answers,
        mode=store.project.mode,
    )
