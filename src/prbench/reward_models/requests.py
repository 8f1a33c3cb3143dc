"""Asking one reward server: patiently, and not more at once than it can answer in time."""

import json
import os
import random
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from prbench.backends.http_limits import ReplyTooLargeError, bounded
from prbench.backends.llm.servers import asked_seconds, is_loopback, wait_seconds
from prbench.backends.llm.throttle import Outcome, Throttle
from prbench.errors import UsageError
from prbench.schema import Json

if TYPE_CHECKING:
    import httpx

TOKEN_VARIABLE = "PRBENCH_SERVER_TOKEN"
_TRY_AGAIN = frozenset({429, 502, 503, 504})
_ABOUT_CONTENT = frozenset({400, 413, 422})  # no JSON, too much, or not of the right form
LONGEST_ASKED_WAIT_SECONDS = 60.0  # of a Retry-After: whoever asks for more is asked sooner
TRIES_AT_START = 5  # for a server that is not there at all
PAGES_AT_START = 3  # of something else than JSON: a proxy's for a moment, or those of a wrong address
LONGEST_REPLY = 200  # characters of a refusal that are repeated
MOST_AT_ONCE = 16


class RequestFailedError(Exception):
    """A request that got no usable answer, after all its tries."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        """`status` is that of a reply by which the server refused; `None` where there was no reply."""
        super().__init__(message)
        self.status = status
        self.is_about_content = status in _ABOUT_CONTENT


class Requests:
    """Asks one server, patiently: connection errors and busy replies are tried again, later and later.

    It gives up when `patience_seconds` have passed since the first failure, or after `tries` where that is given. A
    try's time counts from when it is sent: see `Throttle`.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        patience_seconds: float = 120.0,
        tries: int | None = None,
        first_wait_seconds: float = 0.5,
        at_once: int = MOST_AT_ONCE,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise UsageError("A reward server needs httpx. Install it with: pip install 'prbench[serve]'") from error
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"server:{url} is not an address. Write server:http://host:port.")
        token = os.environ.get(TOKEN_VARIABLE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self.at_once = at_once
        # A proxy of the environment cannot reach this machine's loopback; redirects are not followed, token and all.
        # No request waits for a connection: the throttle lets in no more than there may be.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=at_once)
        self._client = bounded(httpx.Client)(
            total_seconds=timeout_seconds,
            headers=headers,
            timeout=timeout_seconds,
            trust_env=not is_loopback(url),
            limits=limits,
        )
        self._transport_error, self._timeout_error = httpx.TransportError, (httpx.ReadTimeout, httpx.WriteTimeout)
        self._patience_seconds = patience_seconds
        self._tries = tries
        self._first_wait_seconds = first_wait_seconds
        self._throttle = Throttle(f"server:{self.url}", at_once, timeout_seconds)

    def get(self, path: str) -> Any:
        """Return the JSON at the path; this is asked first, so a server that is not there is soon given up."""
        return self._ask(lambda: self._client.get(self.url + path), TRIES_AT_START, PAGES_AT_START)

    def post(self, path: str, body: Mapping[str, Json]) -> Any:
        """Return the JSON that the server answers to the body."""
        # Escaped, half a surrogate pair in a text is still JSON; as UTF-8 it could not be sent at all.
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return self._ask(lambda: self._client.post(self.url + path, content=content, headers=headers))

    def _ask(
        self,
        send: "Callable[[], httpx.Response]",
        unreachable_tries: int | None = None,
        unreadable_tries: int | None = None,
    ) -> Any:
        number, give_up_at = self._throttle.number(), float("inf")
        for attempt in count(1):
            headers: Mapping[str, str] = {}
            most_tries, outcome = self._tries, Outcome.OTHER
            self._throttle.enter(number)
            try:
                reply = send()
                if reply.is_success:
                    try:
                        content = reply.json()
                        outcome = Outcome.ANSWERED
                        return content
                    except (ValueError, RecursionError):  # half a reply, or a proxy's page: the next may be one
                        problem = "the reply is not JSON"
                        most_tries = self._tries or unreadable_tries
                else:
                    problem = f"HTTP {reply.status_code}: {' '.join(reply.text.split())[:LONGEST_REPLY]}"
                    if reply.status_code not in _TRY_AGAIN:
                        raise RequestFailedError(problem, status=reply.status_code)
                    outcome, headers = Outcome.BUSY, reply.headers
            except ReplyTooLargeError as error:
                raise RequestFailedError(str(error)) from error
            except self._transport_error as error:
                problem = f"{type(error).__name__}: {error}"
                if isinstance(error, self._timeout_error):
                    outcome = Outcome.TIMED_OUT
                else:
                    most_tries = self._tries or unreachable_tries
            finally:
                self._throttle.leave(number, outcome)
            give_up_at = min(give_up_at, time.monotonic() + self._patience_seconds)
            # Not before the server asks for, up to a minute. Who was refused together does not come back together.
            asked = min(asked_seconds(headers) or 0.0, LONGEST_ASKED_WAIT_SECONDS)
            wait = max(wait_seconds(attempt, {}, first=self._first_wait_seconds), asked)
            wait *= random.uniform(1.0, 1.25)
            is_last = most_tries is not None and attempt >= most_tries
            if is_last or time.monotonic() + wait > give_up_at:
                raise RequestFailedError(problem)
            time.sleep(wait)
        raise AssertionError("the tries have no end of their own")
