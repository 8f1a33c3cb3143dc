"""Start an annotation server, and end it so that everything it accepted is saved and answered."""

import asyncio
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from prbench.errors import UsageError
from prbench.people.annotate.app import make_app
from prbench.people.annotate.settings import AnnotateSettings
from prbench.people.annotate.store import Store
from prbench.serve.sockets import QuietUvicorn, listen

GRACE_SECONDS = 10


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
        self._is_stopped = False  # before it ran, perhaps
        self._uvicorn: QuietUvicorn | None = None

    @property
    def url(self) -> str:
        """Return the address that people use, with the port that was really taken."""
        return self._settings.public_url or f"{self._settings.url}:{self._socket.getsockname()[1]}"

    @property
    def links_lead_elsewhere(self) -> str:
        """Say that the links that were made lead to another address or port; `""` if they lead here."""
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
        self._is_stopped = True
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    async def _run(self, announce: Callable[[str], None]) -> None:
        self._uvicorn = QuietUvicorn(
            uvicorn.Config(
                make_app(self.store, self._settings),
                lifespan="off",
                ws="none",
                log_level="error",
                access_log=False,  # it would hold the tokens of the links
                server_header=False,
                # Only a proxy on this machine may say who really asks, and only where one was announced.
                proxy_headers=bool(self._settings.public_url),
                forwarded_allow_ips="127.0.0.1,::1",
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._uvicorn.should_exit = self._is_stopped
        self._catch_signals()
        announce(self.url)
        await self._uvicorn.serve(sockets=[self._socket])

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        assert self._uvicorn is not None
        self._uvicorn.force_exit = self._uvicorn.should_exit
        self._uvicorn.should_exit = True


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
