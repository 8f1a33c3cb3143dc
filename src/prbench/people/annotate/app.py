"""The routes: who asks, what they sent, what they get. Pages are made in `pages.py`, answers kept in `store.py`."""

import secrets
import sqlite3
from typing import Annotated

from fastapi import Depends, FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from prbench.errors import UsageError
from prbench.people.annotate import pages
from prbench.people.annotate.answers import FormError, form_fields, read_answer, read_posts
from prbench.people.annotate.auth import Door, Form, RefusedError, check_csrf, csrf_token, person_of
from prbench.people.annotate.exchange import FORMATS, Export, export
from prbench.people.annotate.middleware import Gate
from prbench.people.annotate.people import Session, link_to
from prbench.people.annotate.progress import measure
from prbench.people.annotate.records import Mode, Outcome, Status, Task
from prbench.people.annotate.settings import AnnotateSettings
from prbench.people.annotate.store import GoneError, Store
from prbench.schema import Json

ACTIONS = {"draft": Status.DRAFT, "done": Status.DONE, "skip": Status.SKIPPED}
SEE_OTHER = 303
Number = Annotated[int, Path(ge=1, le=10**9)]


def make_app(store: Store, settings: AnnotateSettings) -> ASGIApp:
    """Return the application behind its gate."""
    # The pages that FastAPI offers load scripts from elsewhere.
    app = FastAPI(title="prbench annotate", docs_url=None, redoc_url=None, openapi_url=None)
    door = Door(store, settings)
    _add_errors(app)
    _add_open(app, store, door)
    _add_work(app, store, door)
    if store.project.mode is Mode.COLLECT:
        _add_about(app, store, door)
    _add_owner(app, store, door)
    _add_people(app, store, door)
    return Gate(app, settings)


def _add_errors(app: FastAPI) -> None:
    def reply(request: Request, status: int, message: str, headers: dict[str, str] | None = None) -> Response:
        if _wants_json(request):
            return JSONResponse({"message": message}, status, headers)
        return HTMLResponse(pages.error(status, message, _home(request)), status, headers)

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return reply(request, error.status, str(error), error.headers)

    @app.exception_handler(UsageError)
    async def unusable(request: Request, error: UsageError) -> Response:
        return reply(request, 422, str(error))

    @app.exception_handler(FormError)
    async def unreadable(request: Request, error: FormError) -> Response:
        return reply(request, 422, str(error))

    @app.exception_handler(GoneError)
    async def gone(request: Request, _: GoneError) -> Response:
        return reply(request, 404, "This item is not on your list. Go back to your list.")

    @app.exception_handler(RequestValidationError)
    async def no_such(request: Request, _: RequestValidationError) -> Response:
        return reply(request, 404, "There is no such page.")

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        message = "There is no such page." if error.status_code == 404 else str(error.detail)
        return reply(request, error.status_code, message)

    @app.exception_handler(sqlite3.OperationalError)
    async def busy(request: Request, error: sqlite3.OperationalError) -> Response:
        message = f"The project cannot be written now ({error}). Nothing was saved; try again."
        return reply(request, 503, message, {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return reply(request, 500, f"The server failed ({type(error).__name__}). What was saved before is kept.")


def _add_open(app: FastAPI, store: Store, door: Door) -> None:
    """Add what needs no session: health, our own styles and scripts, and the links."""

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        # The names are those of a dictionary: no part of an address ever reaches the file system.
        if name not in pages.STATIC:
            raise RefusedError(404, "There is no such page.")
        content, kind = pages.STATIC[name]
        return Response(content, media_type=kind, headers={"Cache-Control": "max-age=3600"})

    @app.get("/")
    def front() -> Response:
        return HTMLResponse(pages.front())

    @app.get("/in/{token}")
    def enter(request: Request, token: str) -> Response:
        session = door.enter(request, token)
        is_owner = session.annotator is None
        # A browser that comes from a mail page does not send a strict cookie along a redirect, so the redirect leads
        # to a page that needs none, and that page leads on.
        response = RedirectResponse("/welcome/owner" if is_owner else "/welcome", SEE_OTHER)
        response.headers["Referrer-Policy"] = "no-referrer"
        door.set_cookie(response, session)
        return response

    @app.get("/welcome")
    def welcome() -> Response:
        return HTMLResponse(pages.welcome("/start"))

    @app.get("/welcome/owner")
    def welcome_owner() -> Response:
        return HTMLResponse(pages.welcome("/owner"))


def _add_work(app: FastAPI, store: Store, door: Door) -> None:
    """Add the annotator's pages."""
    Me = Annotated[Session, Depends(door.annotator)]  # noqa: N806 - a type

    @app.get("/start")
    def start(me: Me) -> Response:
        person = person_of(me)
        return HTMLResponse(pages.start(store, person, csrf_token(me)))

    @app.get("/items/{position}")
    def item(me: Me, position: Number) -> Response:
        task = store.task(person_of(me).id, position)
        return HTMLResponse(_item_page(store, me, task))

    @app.get("/items/{position}/saved")
    def saved(me: Me, position: Number) -> Response:
        return JSONResponse(_state(store.task(person_of(me).id, position)))

    @app.post("/items/{position}")
    def save(request: Request, me: Me, position: Number, form: Form) -> Response:
        check_csrf(me, form)
        person = person_of(me)
        task = store.task(person.id, position)
        answer = read_answer(form, store.project.mode, task.side)
        action = ACTIONS.get(form.get("do", ""), Status.DRAFT)
        missing = answer.missing(store.project.mode) if action is Status.DONE else []
        outcome = store.save(
            person.id,
            position,
            answer,
            Status.DRAFT if missing else action,
            seen=_whole(form.get("seen", "")),
            tab=form.get("tab", "")[:32],
            seconds=_seconds(form.get("seconds", "")),
        )
        message = f"Not done yet: {' and '.join(missing)} are missing. What you entered is saved." if missing else ""
        if _wants_json(request):
            facts = {"message": message, "next": pages.next_place(store, person, position)}
            return JSONResponse(_outcome(outcome, task) | facts, 422 if missing else 200)
        if missing:
            return HTMLResponse(_item_page(store, me, store.task(person.id, position), message), 422)
        return RedirectResponse(pages.next_place(store, person, position), SEE_OTHER)

    @app.post("/leave")
    def leave(me: Me, form: Form) -> Response:
        check_csrf(me, form)
        store.people.leave(me)
        response = RedirectResponse("/", SEE_OTHER)
        response.delete_cookie(door.cookie(is_owner=False), path="/")
        return response


def _add_about(app: FastAPI, store: Store, door: Door) -> None:
    """Add the page on which a collecting annotator says who they are."""
    Me = Annotated[Session, Depends(door.annotator)]  # noqa: N806 - a type

    @app.get("/about")
    def about(me: Me) -> Response:
        page = pages.about(store, person_of(me), csrf_token(me), secrets.token_hex(8))
        return HTMLResponse(page)

    @app.get("/about/saved")
    def saved_about(me: Me) -> Response:
        saved = store.about(person_of(me).id)
        fields = {} if saved is None else pages.post_fields(saved.answer.posts)
        return JSONResponse({"version": 0 if saved is None else saved.version, "fields": fields})

    @app.post("/about")
    def save_about(request: Request, me: Me, form: Form) -> Response:
        check_csrf(me, form)
        seen, tab = _whole(form.get("seen", "")), form.get("tab", "")[:32]
        outcome = store.save_about(person_of(me).id, read_posts(form), seen=seen, tab=tab)
        if not _wants_json(request):
            return RedirectResponse("/start", SEE_OTHER)
        replaced = outcome.replaced
        before = replaced and {"saved_at": replaced.saved_at, "fields": pages.post_fields(replaced.answer.posts)}
        return JSONResponse(
            {
                "version": outcome.saved.version,
                "saved_at": outcome.saved.saved_at,
                "replaced": before,
                "next": "/start",
            }
        )


def _add_owner(app: FastAPI, store: Store, door: Door) -> None:
    """Add the owner's pages."""
    Owner = Annotated[Session, Depends(door.owner)]  # noqa: N806 - a type

    @app.get("/owner")
    def overview(owner: Owner, page: int = 1) -> Response:
        figures = measure(store)
        return HTMLResponse(pages.owner(store, figures, csrf_token(owner), page=page))

    @app.get("/owner/items/{number}")
    def item(owner: Owner, number: Number) -> Response:
        found = store.item(number)
        if found is None:
            raise RefusedError(404, "There is no such item.")
        return HTMLResponse(pages.owner_item(store, found, number))

    @app.get("/owner/export/{form}", dependencies=[Depends(door.owner_or_bearer)])
    def download(form: str) -> Response:
        if form not in FORMATS:
            raise RefusedError(404, f"There is no such export. There are: {', '.join(FORMATS)}.")
        return _file(export(store, form))


def _add_people(app: FastAPI, store: Store, door: Door) -> None:
    """Add what the owner does about annotators."""
    Owner = Annotated[Session, Depends(door.owner)]  # noqa: N806 - a type

    @app.post("/owner/invite")
    def invite(request: Request, owner: Owner, form: Form) -> Response:
        check_csrf(owner, form)
        name = form.get("name", "")
        token = store.invite(name)
        return HTMLResponse(pages.invitation(" ".join(name.split()), link_to(_base(request, door), token)))

    @app.post("/owner/annotators/{number}/{action}")
    def change(request: Request, owner: Owner, number: Number, action: str, form: Form) -> Response:
        check_csrf(owner, form)
        person = store.people.find(number)
        if person is None:
            raise RefusedError(404, "There is no such annotator.")
        match action:
            case "pause":
                store.pause(person.id)
            case "reopen":
                store.reopen(person.id)
            case "release" if person.is_paused:
                store.release(person.id)
            case "renew":
                link = link_to(_base(request, door), store.people.renew(person.id))
                return HTMLResponse(pages.invitation(person.name, link))
            case _:
                raise RefusedError(404, "There is no such action.")
        return RedirectResponse("/owner", SEE_OTHER)


def _base(request: Request, door: Door) -> str:
    return door.settings.public_url or f"{request.url.scheme}://{request.url.netloc}"


def _item_page(store: Store, me: Session, task: Task, message: str = "") -> str:
    return pages.item(store, person_of(me), task, csrf=csrf_token(me), tab=secrets.token_hex(8), message=message)


def _state(task: Task) -> dict[str, Json]:
    """Return what counts now for an item, as the page's script takes it."""
    if task.saved is None:
        return {"version": 0, "status": Status.OPEN.value, "fields": {}}
    fields = form_fields(task.saved.answer, task.side)
    return {"version": task.saved.version, "status": task.saved.status.value, "fields": fields}


def _outcome(outcome: Outcome, task: Task) -> dict[str, Json]:
    saved, replaced = outcome.saved, outcome.replaced
    before = replaced and {
        "saved_at": replaced.saved_at,
        "status": replaced.status.value,
        "fields": form_fields(replaced.answer, task.side),
    }
    return {"version": saved.version, "status": saved.status.value, "saved_at": saved.saved_at, "replaced": before}


def _file(made: Export) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{made.name}"'}
    return PlainTextResponse(made.text, headers=headers, media_type=made.media_type)


def _home(request: Request) -> str:
    """Return where an error page leads: whoever's link was wrong has no page to go to."""
    path = request.url.path
    if path.startswith("/in/"):
        return ""
    return "/owner" if path.startswith("/owner") else "/start"


def _wants_json(request: Request) -> bool:
    return request.headers.get("accept", "").startswith("application/json")


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _seconds(text: str) -> float:
    digits = text.replace(".", "", 1)
    return float(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0.0
