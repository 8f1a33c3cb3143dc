"""Where an annotation server listens, and how much it takes from whom."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from prbench.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class AnnotateSettings:
    """Every page needs a token, so any address may be listened on; TLS is a proxy's work."""

    host: str = "127.0.0.1"
    port: int = 8100  # 0: any free one
    public_url: str = ""  # what people type, where a proxy stands before the server; "": the server's own address
    max_body_bytes: int = 1 << 20
    body_seconds: float = 30.0  # for a body to arrive
    wrong_tokens: int = 10  # per address and window; beyond it no token of that address is looked at
    window_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Refuse an address that no link could lead to."""
        if self.public_url:
            check_url(self.public_url)

    @property
    def url(self) -> str:
        """Return the address without the port."""
        return f"http://[{self.host}]" if ":" in self.host else f"http://{self.host}"

    @property
    def is_https(self) -> bool:
        """Tell whether people come by TLS, so that cookies may insist on it."""
        return self.public_url.startswith("https:")


def check_url(url: str) -> str:
    """Return the address without a slash at its end, or refuse what no browser opens."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.path not in ("", "/"):
        raise UsageError(f"--url {url}: give a scheme and a host, such as https://annotate.example.org.")
    return url.rstrip("/")
