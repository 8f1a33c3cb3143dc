"""Where our servers listen, and what they take from whom."""

from dataclasses import dataclass, field

from prbench.backends.llm.servers import is_loopback
from prbench.errors import UsageError

MOST_INPUTS = 512  # per request, unless the queue is shorter
SHORTEST_TOKEN, FEWEST_CHARACTERS = 16, 8


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """Where a server listens, and how large a body may be."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    max_body_bytes: int = 1 << 20
    body_seconds: float = 30.0  # for a body to arrive
    header_seconds: float = 10.0  # for the head of a request to arrive
    max_connections: int | None = None  # `None`: as many as leave file descriptors for all else

    def __post_init__(self) -> None:
        """Take an IPv6 address with or without its brackets."""
        object.__setattr__(self, "host", self.host.removeprefix("[").removesuffix("]"))

    @property
    def url(self) -> str:
        """The address without the port."""
        return f"http://[{self.host}]" if ":" in self.host else f"http://{self.host}"


@dataclass(frozen=True, kw_only=True)
class ServeSettings(HttpSettings):
    """How much a reward server takes at a time, and from whom."""

    port: int = 8000
    max_body_bytes: int = 8 << 20
    token: str = field(default="", repr=False)  # "": none is asked for
    max_queue: int = 1024  # inputs that may wait
    max_batch: int = 128  # inputs per call of the model
    max_wait_seconds: float = 0.01  # for the next batch to gather, and only while the server is busy
    max_inputs: int | None = None  # per request; `None`: 512, or the whole queue where it is shorter
    max_characters: int = 200_000  # per text
    wrong_tokens: int = 10  # per address and window; further wrong ones are told to wait
    window_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Refuse what cannot work, or would let anybody in."""
        super().__post_init__()
        if not self.token and not is_loopback(self.url):
            raise UsageError(
                f"--host {self.host} can be reached from other machines, so a token is needed. Put one into the "
                "environment variable that --token-env names, or listen on 127.0.0.1."
            )
        if not self.token.isascii() or self.token.split() != [self.token] * bool(self.token):
            raise UsageError(
                "The token holds spaces or characters beyond ASCII, which no header carries. Make another."
            )
        if self.token and (len(self.token) < SHORTEST_TOKEN or len(set(self.token)) < FEWEST_CHARACTERS):
            raise UsageError(
                f"The token can be guessed: give at least {SHORTEST_TOKEN} characters, {FEWEST_CHARACTERS} of them "
                "different, e.g. what this prints: python -c 'import secrets; print(secrets.token_urlsafe(24))'"
            )
        if self.max_inputs is not None and self.max_inputs > self.max_queue:
            raise UsageError(
                f"A request of {self.max_inputs} inputs never fits a queue of {self.max_queue}. "
                "Raise --max-queue or lower --max-inputs."
            )

    @property
    def inputs_per_request(self) -> int:
        """How many inputs one request may bring."""
        return self.max_inputs or min(MOST_INPUTS, self.max_queue)
