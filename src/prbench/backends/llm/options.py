"""What every chat model may be told besides its name."""

from dataclasses import dataclass
from typing import Annotated

from prbench.specs import Above, AtLeast, option


@dataclass(frozen=True, kw_only=True)
class LlmOptions:
    """How a chat model is asked."""

    window: Annotated[int, AtLeast(1)] | None = option(None, "tokens of prompt and reply; default: as the model says")
    concurrency: Annotated[int, AtLeast(1)] | None = option(None, "requests at once, or rows in a batch of hf:")
    timeout: Annotated[float, Above(0)] = option(120.0, "seconds for one reply of a server")
    seed: Annotated[int, AtLeast(0)] | None = option(None, "for requests without one")
    answers_as: str = option("", "the id in a server's replies, where it is an alias of the model")
    retries: Annotated[int, AtLeast(0)] = option(4, "further tries of a request to a server that failed")
