"""Start a reward server, and end it so that everything it accepted is answered."""

import asyncio
import signal
import threading
from collections.abc import Callable

import uvicorn

from prbench.reward_models.base import Loaded
from prbench.serve.app import make_app
from prbench.serve.service import Service
from prbench.serve.settings import ServeSettings
from prbench.serve.sockets import QuietUvicorn, listen

KEEP_ALIVE_SECONDS = 30


class RewardServer:
    """One model behind one address. It listens from the start and answers scores once the model is loaded."""

    def __init__(self, load: Callable[[], Loaded], settings: ServeSettings) -> None:
        self._settings = settings
        self._load = load
        self._socket = listen(settings.host, settings.port)
        self._is_stopped = False  # before it ran, perhaps
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: Service | None = None
        self._uvicorn: QuietUvicorn | None = None

    @property
    def url(self) -> str:
        """Return the address, with the port that was really taken."""
        return f"{self._settings.url}:{self._socket.getsockname()[1]}"

    def run(self, announce: Callable[[dict[str, str]], None] = lambda sender: None) -> bool:
        """Serve until SIGTERM, SIGINT or `stop`; `announce` hears which model is ready.

        Return whether everything that was accepted has been answered; only a second signal prevents it.
        """
        return asyncio.run(self._run(announce))

    def stop(self) -> None:
        """Accept nothing more, answer the rest, and end; called from another thread."""
        self._is_stopped = True
        if self._loop is not None and self._service is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._service.drain)

    async def _run(self, announce: Callable[[dict[str, str]], None]) -> bool:
        self._loop = asyncio.get_running_loop()
        service = self._service = Service(self._load, self._settings)
        server = self._uvicorn = QuietUvicorn(
            uvicorn.Config(
                make_app(service),
                lifespan="off",
                ws="none",
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )
        self._catch_signals()
        if self._is_stopped:
            service.drain()
        service.worker.start()
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        loading = asyncio.wrap_future(service.worker.loaded)
        draining = asyncio.create_task(service.drained.wait())
        try:
            await asyncio.wait((loading, draining), return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()  # what went wrong with the model ends the server
                announce(service.sender)
            await draining
        finally:
            loading.cancel()
            draining.cancel()
            service.queue.close()
            server.should_exit = True
            await serving
        if service.loaded is not None and not server.force_exit:
            service.worker.join()
        return not server.force_exit

    def _catch_signals(self) -> None:
        """End gently at the first signal, and at once at the second."""
        if threading.current_thread() is not threading.main_thread():
            return
        assert self._loop is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        assert self._service is not None
        assert self._uvicorn is not None
        if self._service.is_draining:
            self._uvicorn.force_exit = True
            self._service.drained.set()
        self._service.drain()
