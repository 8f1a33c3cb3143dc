"""`prbench serve`: one reward model behind HTTP."""

import os
import sys
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from prbench.cli import options
from prbench.errors import UsageError
from prbench.reward_models import (
    LoadedModel,
    ModelSettings,
    check_not_gold,
    check_view_empty,
    load_reward_model,
    read_ref,
)
from prbench.reward_models.server import TOKEN_VARIABLE
from prbench.serve.settings import ServeSettings

SERVER = "Server"
MOST_MEMORY_MB = 2.0**40  # no machine has more, and infinity is no number of bytes


def serve(
    model: Annotated[str, typer.Option(help="Reward model that scores, e.g. `classifier:PATH`.")],
    host: Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=SERVER)] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535, rich_help_panel=SERVER)
    ] = 8000,
    token_env: Annotated[
        str | None,
        typer.Option(
            help=f"Environment variable with the bearer token; default: {TOKEN_VARIABLE}, if it is set. "
            "Needed unless only this machine can reach the server.",
            rich_help_panel=SERVER,
        ),
    ] = None,
    max_queue: Annotated[
        int, typer.Option(help="Inputs that may wait; beyond it clients get 429.", min=1, rich_help_panel=SERVER)
    ] = 1024,
    max_batch: Annotated[
        int, typer.Option(help="Inputs per call of the model; 1: no batching.", min=1, rich_help_panel=SERVER)
    ] = 128,
    prefix_memory_mb: Annotated[
        float,
        typer.Option(
            help="Memory for prompts that were scored before, so that later candidates of them cost their own tokens "
            "only; 0: none.",
            min=0,
            rich_help_panel=SERVER,
        ),
    ] = 2048.0,
    max_wait_ms: Annotated[
        float,
        typer.Option(help="How long a busy server lets the next batch gather.", min=0, rich_help_panel=SERVER),
    ] = 10.0,
    max_inputs: Annotated[
        int | None,
        typer.Option(help="Inputs per request; default: 512 or the queue.", min=1, rich_help_panel=SERVER),
    ] = None,
    max_chars: Annotated[int, typer.Option(help="Characters per text.", min=1, rich_help_panel=SERVER)] = 200_000,
    max_body_mb: Annotated[float, typer.Option(help="Size of a body.", min=0.001, rich_help_panel=SERVER)] = 8.0,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = "auto",
    max_length: options.MaxLength = None,
    dtype: options.Dtype = "auto",
    compile: options.Compile = False,  # noqa: A002
    chat_template: options.ChatTemplate = None,
    trust_remote_code: options.TrustRemoteCode = False,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Serve one reward model over HTTP; what arrives together is scored together.

    SIGTERM or Ctrl-C ends it: what was accepted is still answered.

    Example: `prbench serve --model classifier:PATH --port 8000`
    """
    settings = ServeSettings(
        host=host,
        port=port,
        token=read_token(token_env),
        max_queue=max_queue,
        max_batch=max_batch,
        max_wait_seconds=max_wait_ms / 1000,
        max_inputs=max_inputs,
        max_characters=max_chars,
        max_body_bytes=round(max_body_mb * 2**20),
    )
    model_settings = ModelSettings(
        batch_size=options.parse_batch_size(batch_size),
        max_length=max_length,
        dtype=options.one_of("--dtype", dtype, ("auto", "float32", "bfloat16", "float16")),
        chat_template=_existing(chat_template),
        trust_remote_code=trust_remote_code,
        seed=seed,
        keep_prefixes=round(min(prefix_memory_mb, MOST_MEMORY_MB) * 2**20),
        compile=compile,
    )

    ref = read_ref(model)
    check_view_empty(ref)
    check_not_gold(ref, "a request")

    def load() -> LoadedModel:
        loaded = load_reward_model(model, model_settings)
        if loaded.note:
            options.notes.print(f"{model}: {loaded.note}", soft_wrap=True)
        return loaded

    try:
        from prbench.serve.server import RewardServer
    except ModuleNotFoundError as error:
        raise UsageError(
            f"prbench serve needs {error.name}. Install what it takes with: pip install 'prbench[serve]'"
        ) from error
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


def _existing(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise UsageError(f"--chat-template {path}: there is no such file.")
    return path
