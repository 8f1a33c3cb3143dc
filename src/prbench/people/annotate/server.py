"""An annotation server: who asks, what they sent, and which of the pages they get.

Before every route stands a middleware with the size of a body, where a write comes from, and the headers of replies.
"""

import asyncio
import ipaddress
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prbench.errors import UsageError
from prbench.people.annotate import pages
from prbench.people.annotate.auth import Auth, Form, check_csrf, csrf_token, person_of
from prbench.people.annotate.database import WriteError
from prbench.people.annotate.exchange import FORMATS, export
from prbench.people.annotate.people import AnnotateSettings, Session, link_to
from prbench.people.annotate.progress import measure
from prbench.people.annotate.records import (
    AssignedItem,
    Mode,
    Status,
    form_fields,
    read_answer,
    read_posts,
)
from prbench.people.annotate.store import GoneError, Store
from prbench.serve.http import (
    ClientLeftError,
    QuietUvicorn,
    RefusedRequestError,
    catch_signals,
    listen,
    receive_body,
)

GRACE_SECONDS = 10
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: browsers would then hide the origin of our own forms, which is checked below.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex, nofollow",
    "Cache-Control": "no-store",
}
READING = frozenset({"GET", "HEAD"})
ACTIONS = {"draft": Status.DRAFT, "done": Status.DONE, "skip": Status.SKIPPED}
SEE_OTHER = 303
Number = Annotated[int, PathParameter(ge=1, le=10**9)]


class SecurityMiddleware:
    """Wraps the routes: limits and checks what writes, and gives every reply its headers."""

    def __init__(self, app: ASGIApp, settings: AnnotateSettings, url: str) -> None:
        self._app = app
        self._settings = settings
        named = (urlsplit(one).hostname or "" for one in (settings.public_url, url))
        self._names = frozenset({*named, settings.host.lower(), "localhost", ""})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check_host(headers.get("host", ""))
            if scope["method"] not in READING:
                # A write must come from our own page; the CSRF token is checked apart from this.
                origin = headers.get("origin")
                ours = {headers.get("host", ""), urlsplit(self._settings.public_url).netloc} - {""}
                is_same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
                if not is_same_site or (origin is not None and urlsplit(origin).netloc not in ours):
                    raise RefusedRequestError(403, "This request came from another site.")
                receive = await receive_body(scope, receive, self._settings)
        except RefusedRequestError as refusal:
            await PlainTextResponse(str(refusal), refusal.status)(scope, receive, send_with_headers)
        except ClientLeftError:
            return
        else:
            await self._app(scope, receive, send_with_headers)

    def _check_host(self, host: str) -> None:
        """Refuse a name that is not ours: pages show links that begin with it. An address of digits names no site."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            raise RefusedRequestError(400, "The Host of this request cannot be read.") from None
        if name in self._names:
            return
        try:
            ipaddress.ip_address(name)
        except ValueError:
            line = "This server does not go by that name. Serve it with --url to give it one."
            raise RefusedRequestError(421, line) from None


def make_app(store: Store, settings: AnnotateSettings) -> ASGIApp:
    """Return the routes behind the middleware."""
    # The pages that FastAPI offers load scripts from elsewhere.
    app = FastAPI(title="prbench annotate", docs_url=None, redoc_url=None, openapi_url=None)
    auth = Auth(store, settings)
    _add_errors(app)
    _add_open(app, store, auth)
    _add_work(app, store, auth)
    if store.project.mode is Mode.COLLECT:
        _add_about(app, store, auth)
    _add_owner(app, store, auth)
    _add_people(app, store, auth)
    return SecurityMiddleware(app, settings, store.project.url)


def _add_errors(app: FastAPI) -> None:
    """Say what went wrong, as a page or as JSON, and never more than the one who asks may know."""

    @app.exception_handler(RefusedRequestError)
    @app.exception_handler(UsageError)
    @app.exception_handler(GoneError)
    @app.exception_handler(RequestValidationError)
    @app.exception_handler(HTTPException)
    @app.exception_handler(WriteError)
    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        headers: dict[str, str] = {}
        status, message = 404, "There is no such page."
        match error:
            case RefusedRequestError():
                status, message, headers = error.status, str(error), error.headers
            case UsageError():
                status, message = 422, str(error)
            case GoneError():
                message = "This item is not on your list. Go back to your list."
            case HTTPException() if error.status_code != 404:
                status, message = error.status_code, str(error.detail)
            case WriteError():
                status, headers = 503, {"Retry-After": "5"}
                message = f"The project cannot be written now ({error.__cause__}). Nothing was saved; try again."
            case HTTPException() | RequestValidationError():
                pass
            case _:
                status, message = 500, f"The server failed ({type(error).__name__}). What was saved before is kept."
        if _wants_json(request):
            return JSONResponse({"message": message}, status, headers)
        path, home = request.url.path, "/start"
        if path.startswith("/in/"):
            home = ""  # whoever's link was wrong has no page to go to
        elif path.startswith("/owner"):
            home = "/owner"
        return HTMLResponse(pages.error(status, message, home), status, headers)


def _add_open(app: FastAPI, store: Store, auth: Auth) -> None:
    """Add what needs no session: health, our own styles and scripts, and the links."""

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        # The names are those of a dictionary: no part of an address ever reaches the file system.
        if name not in pages.STATIC:
            raise RefusedRequestError(404, "There is no such page.")
        content, kind = pages.STATIC[name]
        return Response(content, media_type=kind, headers={"Cache-Control": "max-age=3600"})

    @app.get("/")
    def front() -> Response:
        return HTMLResponse(pages.render("front.html", title="Annotation"))

    @app.get("/in/{token}")
    def enter(request: Request, token: str) -> Response:
        session = auth.enter(request, token)
        is_owner = session.annotator is None
        # A browser that comes from a mail page does not send a strict cookie along a redirect, so the redirect leads
        # to a page that needs none, and that page leads on.
        response = RedirectResponse("/welcome/owner" if is_owner else "/welcome", SEE_OTHER)
        response.headers["Referrer-Policy"] = "no-referrer"
        auth.set_cookie(response, session)
        return response

    @app.get("/welcome")
    @app.get("/welcome/owner")
    def welcome(request: Request) -> Response:
        to = "/owner" if request.url.path.endswith("/owner") else "/start"
        return HTMLResponse(pages.render("welcome.html", title="Welcome", to=to))


def _add_work(app: FastAPI, store: Store, auth: Auth) -> None:
    """Add the annotator's pages."""
    Me = Annotated[Session, Depends(auth.annotator)]  # noqa: N806 - a type

    @app.get("/start")
    def start(me: Me) -> Response:
        return HTMLResponse(pages.start(store, person_of(me), csrf_token(me)))

    @app.get("/items/{position}")
    def item(me: Me, position: Number) -> Response:
        return HTMLResponse(_item_page(store, me, store.task(person_of(me).id, position)))

    @app.get("/items/{position}/saved")
    def saved(me: Me, position: Number) -> Response:
        task = store.task(person_of(me).id, position)
        version = 0 if task.saved is None else task.saved.version
        fields = {} if task.saved is None else form_fields(task.saved.answer, task.side)
        return JSONResponse({"version": version, "status": task.status.value, "fields": fields})

    @app.post("/items/{position}")
    def save(request: Request, me: Me, position: Number, form: Form) -> Response:
        check_csrf(me, form)
        person = person_of(me)
        task = store.task(person.id, position)
        answer = read_answer(form, store.project.mode, task.side)
        action = ACTIONS.get(form.get("do", ""), Status.DRAFT)
        missing = answer.missing(store.project.mode) if action is Status.DONE else []
        seconds = form.get("seconds", "")
        digits = seconds.replace(".", "", 1)
        result = store.save(
            person.id,
            position,
            answer,
            Status.DRAFT if missing else action,
            seen=_whole(form.get("seen", "")),
            tab=form.get("tab", "")[:32],
            seconds=float(seconds) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0.0,
        )
        message = f"Not done yet: {' and '.join(missing)} are missing. What you entered is saved." if missing else ""
        if _wants_json(request):
            saved, replaced = result.saved, result.replaced
            before = replaced and {
                "saved_at": replaced.saved_at,
                "status": replaced.status.value,
                "fields": form_fields(replaced.answer, task.side),
            }
            facts = {"version": saved.version, "status": saved.status.value, "saved_at": saved.saved_at}
            after = {"replaced": before, "message": message, "next": pages.next_place(store, person, position)}
            return JSONResponse(facts | after, 422 if missing else 200)
        if missing:
            return HTMLResponse(_item_page(store, me, store.task(person.id, position), message), 422)
        return RedirectResponse(pages.next_place(store, person, position), SEE_OTHER)

    @app.post("/leave")
    def leave(me: Me, form: Form) -> Response:
        check_csrf(me, form)
        store.people.leave(me)
        response = RedirectResponse("/", SEE_OTHER)
        response.delete_cookie(auth.cookie(is_owner=False), path="/")
        return response


def _add_about(app: FastAPI, store: Store, auth: Auth) -> None:
    """Add the page on which a collecting annotator says who they are."""
    Me = Annotated[Session, Depends(auth.annotator)]  # noqa: N806 - a type

    @app.get("/about")
    def about(me: Me) -> Response:
        return HTMLResponse(pages.about(store, person_of(me), csrf_token(me), secrets.token_hex(8)))

    @app.get("/about/saved")
    def saved_about(me: Me) -> Response:
        saved = store.about(person_of(me).id)
        fields = {} if saved is None else pages.post_fields(saved.answer.posts)
        return JSONResponse({"version": 0 if saved is None else saved.version, "fields": fields})

    @app.post("/about")
    def save_about(request: Request, me: Me, form: Form) -> Response:
        check_csrf(me, form)
        seen, tab = _whole(form.get("seen", "")), form.get("tab", "")[:32]
        result = store.save_about(person_of(me).id, read_posts(form), seen=seen, tab=tab)
        if not _wants_json(request):
            return RedirectResponse("/start", SEE_OTHER)
        replaced = result.replaced
        before = replaced and {"saved_at": replaced.saved_at, "fields": pages.post_fields(replaced.answer.posts)}
        return JSONResponse(
            {
                "version": result.saved.version,
                "saved_at": result.saved.saved_at,
                "replaced": before,
                "next": "/start",
            }
        )


def _add_owner(app: FastAPI, store: Store, auth: Auth) -> None:
    """Add the owner's pages."""
    Owner = Annotated[Session, Depends(auth.owner)]  # noqa: N806 - a type

    @app.get("/owner")
    def overview(owner: Owner, page: int = 1) -> Response:
        return HTMLResponse(pages.owner(store, measure(store), csrf_token(owner), page=page))

    @app.get("/owner/items/{number}")
    def item(owner: Owner, number: Number) -> Response:
        found = store.item(number)
        if found is None:
            raise RefusedRequestError(404, "There is no such item.")
        return HTMLResponse(pages.owner_item(store, found, number))

    @app.get("/owner/export/{form}", dependencies=[Depends(auth.owner_or_bearer)])
    def download(form: str) -> Response:
        if form not in FORMATS:
            raise RefusedRequestError(404, f"There is no such export. There are: {', '.join(FORMATS)}.")
        headers = {"Content-Disposition": f'attachment; filename="{FORMATS[form].file}"'}
        return PlainTextResponse(export(store, form), headers=headers, media_type=FORMATS[form].media_type)


def _add_people(app: FastAPI, store: Store, auth: Auth) -> None:
    """Add what the owner does about annotators."""
    Owner = Annotated[Session, Depends(auth.owner)]  # noqa: N806 - a type

    def invitation(request: Request, name: str, token: str) -> Response:
        base = auth.settings.public_url or f"{request.url.scheme}://{request.url.netloc}"
        return HTMLResponse(pages.render("invitation.html", title="A new link", name=name, link=link_to(base, token)))

    @app.post("/owner/invite")
    def invite(request: Request, owner: Owner, form: Form) -> Response:
        check_csrf(owner, form)
        name = form.get("name", "")
        token = store.invite(name)
        return invitation(request, " ".join(name.split()), token)

    @app.post("/owner/annotators/{number}/{action}")
    def change(request: Request, owner: Owner, number: Number, action: str, form: Form) -> Response:
        check_csrf(owner, form)
        person = next((each for each in store.people.all() if each.id == number), None)
        if person is None:
            raise RefusedRequestError(404, "There is no such annotator.")
        match action:
            case "pause":
                store.pause(person.id)
            case "reopen":
                store.reopen(person.id)
            case "release" if person.is_paused:
                store.release(person.id)
            case "renew":
                return invitation(request, person.name, store.people.renew(person.id))
            case _:
                raise RefusedRequestError(404, "There is no such action.")
        return RedirectResponse("/owner", SEE_OTHER)


def _item_page(store: Store, me: Session, task: AssignedItem, message: str = "") -> str:
    return pages.item(store, person_of(me), task, csrf=csrf_token(me), tab=secrets.token_hex(8), message=message)


def _wants_json(request: Request) -> bool:
    return request.headers.get("accept", "").startswith("application/json")


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


class AnnotateServer:
    """One project behind one address. It listens from the start."""

    def __init__(self, path: str | Path, settings: AnnotateSettings) -> None:
        self._settings = settings
        self.store = Store(path)
        try:
            self._socket = listen(settings.host, settings.port)
        except UsageError:
            self.store.close()
            raise
        self._uvicorn = QuietUvicorn(
            make_app(self.store, settings),
            settings,
            # Only a proxy on this machine may say who really asks, and only where one was announced.
            proxy_headers=bool(settings.public_url),
            forwarded_allow_ips="127.0.0.1,::1",
            timeout_graceful_shutdown=GRACE_SECONDS,
        )

    @property
    def url(self) -> str:
        """The address that people use, with the port that was really taken."""
        return self._settings.public_url or f"{self._settings.url}:{self._socket.getsockname()[1]}"

    @property
    def link_warning(self) -> str:
        """A warning that the links that were made lead to another address or port; `""` if they lead here."""
        links = self.store.project.url
        is_here = links == self.url if self._settings.public_url else _port(links) == _port(self.url)
        if is_here:
            return ""
        return (
            f"the links of this project lead to {links}, and it is served on {self.url}. "
            "Serve it there, or make new links with: prbench annotate invite --renew --url"
        )

    def run(self, announce: Callable[[str], None] = lambda url: None) -> None:
        """Serve until SIGTERM, SIGINT or `stop`; `announce` hears the address. A second signal ends it at once."""
        try:
            asyncio.run(self._run(announce))
        finally:
            self.store.close()

    def stop(self) -> None:
        """Accept nothing more, answer the rest, and end; called from another thread."""
        self._uvicorn.should_exit = True

    async def _run(self, announce: Callable[[str], None]) -> None:
        catch_signals(self._on_signal)
        announce(self.url)
        await self._uvicorn.serve(sockets=[self._socket])

    def _on_signal(self) -> None:
        self._uvicorn.force_exit = self._uvicorn.should_exit
        self._uvicorn.should_exit = True


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
