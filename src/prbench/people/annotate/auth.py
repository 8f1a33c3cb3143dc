"""Who asks: cookies, tokens, how many wrong ones an address may try, and the forms that a session may send."""

import hmac
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import Response

from prbench.people.annotate.people import AnnotateSettings, Session
from prbench.people.annotate.records import Annotator
from prbench.people.annotate.store import Store
from prbench.serve.http import RefusedRequestError, WrongTokens

MOST_FIELDS = 64
FORM = "application/x-www-form-urlencoded"
LOST = "Open your personal link again: it brings you back to where you were."


class Auth:
    """Knows who asks: cookies, tokens, and how many wrong ones an address has tried."""

    def __init__(self, store: Store, settings: AnnotateSettings) -> None:
        self._store = store
        self.settings = settings
        self._wrong = WrongTokens(settings.wrong_tokens, settings.window_seconds)

    def enter(self, request: Request, token: str) -> Session:
        """Begin a session for a token, or refuse it."""
        session = self._store.people.enter(token)
        if session is None:
            wrong = RefusedRequestError(404, "This link is not valid. Ask whoever sent it for a new one.")
            raise self._wrong.refusal(_address(request), wrong)
        return session

    def annotator(self, request: Request) -> Session:
        session = self._store.people.session(request.cookies.get(self.cookie(is_owner=False), ""), is_owner=False)
        if session is None:
            raise RefusedRequestError(401, f"You are not signed in. {LOST}")
        if person_of(session).is_paused:
            raise RefusedRequestError(403, "Your link is paused. What you saved is kept; ask the owner to reopen it.")
        return session

    def owner(self, request: Request) -> Session:
        session = self._store.people.session(request.cookies.get(self.cookie(is_owner=True), ""), is_owner=True)
        if session is None:
            raise RefusedRequestError(401, f"Only the owner of the project sees this page. {LOST}")
        return session

    def owner_or_bearer(self, request: Request) -> None:
        """Let the owner in by cookie, or a script by the owner's token."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            self.owner(request)
            return
        if not self._store.people.holder(token.strip())[0]:
            raise self._wrong.refusal(_address(request), RefusedRequestError(401, "This is not the owner's token."))

    def set_cookie(self, response: Response, session: Session) -> None:
        """Let the browser keep the session: no script reads it, no other site sends it."""
        response.set_cookie(
            self.cookie(is_owner=session.annotator is None),
            session.secret,
            httponly=True,
            samesite="strict",
            secure=self.settings.public_url.startswith("https:"),
            path="/",
        )

    def cookie(self, *, is_owner: bool) -> str:
        """Return the cookie's name. Browsers do not tell ports apart, so each project has its own."""
        return f"prbench_{self._store.project.id}_{'owner' if is_owner else 'annotator'}"


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; each may come once."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise RefusedRequestError(415, "Send the form as the page does.")
    try:
        body = (await request.body()).decode("ascii")
        pairs = parse_qsl(body, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise RefusedRequestError(422, "The form cannot be read.") from None
    if len(dict(pairs)) < len(pairs):
        raise RefusedRequestError(422, "A field came twice.")
    return dict(pairs)


Form = Annotated[dict[str, str], Depends(read_form)]


def csrf_token(session: Session) -> str:
    """Return what a form of this person must carry; another site cannot know it.

    It hangs on the person's link and not on one session: who opens their link again, in another tab or from a mail,
    gets a new session, and the tabs that were open go on saving.
    """
    return hmac.new(session.link_hash.encode(), b"csrf", "sha256").hexdigest()


def check_csrf(session: Session, form: dict[str, str]) -> None:
    """Refuse a form that this person was not given."""
    if not hmac.compare_digest(form.get("csrf", "").encode(), csrf_token(session).encode()):
        raise RefusedRequestError(403, f"This page is of another link, so nothing was saved. {LOST}")


def person_of(session: Session) -> Annotator:
    assert session.annotator is not None, "sessions of annotators have one"
    return session.annotator


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
