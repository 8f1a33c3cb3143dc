"""`prbench serve`: one reward model behind HTTP."""

import os
import sys
from dataclasses import dataclass
from json import dumps
from typing import Annotated

import typer

from prbench.cli import options
from prbench.errors import UsageError, needs
from prbench.reward_models import LoadedModel, check_not_gold, check_view_empty, load_reward_model, read_ref
from prbench.reward_models.requests import TOKEN_VARIABLE
from prbench.serve.settings import ServeSettings

MOST_MEMORY_MB = 2.0**40  # no machine has more, and infinity is no number of bytes


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Where the server listens, and what it takes."""

    host: options.Host = "127.0.0.1"
    port: options.Port = 8000
    token_env: Annotated[
        str | None,
        options.flag(
            f"Environment variable with the bearer token; default: {TOKEN_VARIABLE}, if it is set. "
            "Needed unless only this machine can reach the server.",
            options.SERVER,
        ),
    ] = None
    max_queue: Annotated[
        int, options.flag("Inputs that may wait; beyond it clients get 429.", options.SERVER, min=1)
    ] = 1024
    max_batch: Annotated[int, options.flag("Inputs per call of the model; 1: no batching.", options.SERVER, min=1)] = (
        128
    )
    max_wait_ms: Annotated[
        float, options.flag("How long a busy server lets the next batch gather.", options.SERVER, min=0)
    ] = 10.0
    max_inputs: Annotated[
        int | None, options.flag("Inputs per request; default: 512 or the queue.", options.SERVER, min=1)
    ] = None
    max_chars: Annotated[int, options.flag("Characters per text.", options.SERVER, min=1)] = 200_000
    max_body_mb: Annotated[float, options.flag("Size of a body.", options.SERVER, min=0.001)] = 8.0

    def settings(self) -> ServeSettings:
        """Return how to serve."""
        return ServeSettings(
            host=self.host,
            port=self.port,
            token=read_token(self.token_env),
            max_queue=self.max_queue,
            max_batch=self.max_batch,
            max_wait_seconds=self.max_wait_ms / 1000,
            max_inputs=self.max_inputs,
            max_characters=self.max_chars,
            max_body_bytes=round(self.max_body_mb * 2**20),
        )


def serve(
    model: options.RewardModel,
    listening: ListenOptions,
    running: options.ModelOptions,
    prefix_memory_mb: Annotated[
        float,
        options.flag(
            "Memory for prompts that were scored before, so that later candidates of them cost their own tokens "
            "only; 0: none.",
            options.SERVER,
            min=0,
        ),
    ] = 2048.0,
    seed: options.Seed = 0,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Serve one reward model over HTTP; what arrives together is scored together.

    SIGTERM or Ctrl-C ends it: what was accepted is still answered.

    Example: `prbench serve --model classifier:PATH --port 8000`
    """
    settings = listening.settings()
    kept = round(min(prefix_memory_mb, MOST_MEMORY_MB) * 2**20)
    model_settings = running.settings(seed=seed, keep_prefixes=kept)
    ref = read_ref(model)
    check_view_empty(ref)
    check_not_gold(ref, "a request")

    def load() -> LoadedModel:
        loaded = load_reward_model(model, model_settings)
        if loaded.note:
            options.notes.print(f"{model}: {loaded.note}", soft_wrap=True)
        return loaded

    with needs("serve", "prbench serve"):
        from prbench.serve.server import RewardServer

    server = RewardServer(load, settings)

    def announce(sender: dict[str, str]) -> None:
        plain = f"ready: {sender['model']} on {server.url} (template {sender['template_hash'] or 'none'})"
        sys.stdout.write((dumps({"url": server.url, **sender}) if json else plain) + "\n")
        sys.stdout.flush()  # whoever started the server in a script waits for this line

    if not server.run(announce):
        raise typer.Exit(1)


def read_token(variable: str | None) -> str:
    """Return the token of the environment; a variable that was named must hold one."""
    token = os.environ.get(variable or TOKEN_VARIABLE, "")
    if variable and not token:
        raise UsageError(f"--token-env {variable}: the variable is not set or empty. Put the token into it.")
    return token
