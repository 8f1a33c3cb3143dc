"""What must hold before this run starts: `launch.sh` calls it, and takes the lines that it prints as overrides.

    python preflight.py [overrides of verl's configuration]

It asks the reward server who it is, and for one score; names the run after everything that can change its result; and
lets verl resume only a run of exactly that name and content. It needs the standard library alone.
"""

import hashlib
import json
import math
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOKEN_VARIABLE = "PRBENCH_SERVER_TOKEN"
URL_VARIABLE = "PRBENCH_SERVER_URL"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
COUNTED = ("config.yaml", "reward.py", "sampler.py", "train.parquet", "validation.parquet")
# These make the run what it is, and belong to the export.
OURS = (
    "custom_reward_function",
    "data.train_files",
    "data.val_files",
    "hydra.",
    "prbench.",
    "reward.",
    "reward_model",
    "trainer.default_local_dir",
    "trainer.experiment_name",
    "trainer.resume",
    "trainer.use_v1",
    "trainer.v1",
)
FREE = ("prbench.policy",)  # where the weights lie on this machine
LOADING_SECONDS = 600.0
PROBE = {"question": "Is anybody there?", "context": "", "response": "Yes."}


class NotReadyError(Exception):
    """Why the run must not start, in one line."""


def main(overrides: Sequence[str]) -> int:
    """Print the overrides that the run needs, and return the exit code."""
    folder = Path(__file__).resolve().parent
    try:
        export = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        url = (os.environ.get(URL_VARIABLE) or export["server"]).rstrip("/")
        check_overrides(overrides, url)
        check_server(url, export["model"], export["template_hash"])
        run, resumes = claim_run(folder, export["name"], overrides)
        lines = planned(folder, run, url, resumes)
    except NotReadyError as reason:
        sys.stderr.write(f"launch: {reason}\n")
        return 2
    sys.stderr.write(f"launch: {'resuming' if resumes else 'starting'} {run.name}, rewarded by {export['model']}\n")
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def check_overrides(overrides: Sequence[str], url: str) -> None:
    """Refuse what would undo the guards of the export, or could not work."""
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if name.startswith(OURS) and name not in FREE:
            raise NotReadyError(f"{name} belongs to the export. Change the settings, and export again.")
        if name == "trainer.nnodes" and value != "1" and urllib.parse.urlsplit(url).hostname in LOOPBACK:
            raise NotReadyError(f"{url} is this machine alone, and {value} are to ask it. Set {URL_VARIABLE}.")


def check_server(url: str, model: str, template_hash: str) -> None:
    """Refuse a server that is not there, or is not the one that this run learns from."""
    ready = ask(url, "/ready")
    for key, expected in (("model", model), ("template_hash", template_hash)):
        if ready.get(key) != expected:
            raise NotReadyError(f"{url} has {key} {ready.get(key)!r}, and this run learns from {expected!r}.")
    try:
        (row,) = ask(url, "/score", PROBE)["scores"]
        value = row["value"]
    except (KeyError, TypeError, ValueError):
        raise NotReadyError(f"{url}/score is not that of a reward server.") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NotReadyError(f"{url} is ready, but gives no score: {row}.")


def ask(url: str, path: str, body: Any = None) -> dict[str, Any]:
    """Return the server's reply; while it loads its model, wait."""
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get(TOKEN_VARIABLE):
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    is_near = urllib.parse.urlsplit(url).hostname in LOOPBACK  # where no proxy leads
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_near else []))
    give_up_at = time.monotonic() + LOADING_SECONDS
    while True:
        try:
            with opener.open(urllib.request.Request(url + path, data=data, headers=headers), timeout=60) as reply:
                content = json.load(reply)
        except urllib.error.HTTPError as error:
            text = " ".join(error.read(400).decode(errors="replace").split())
            if error.code not in (429, 503) or time.monotonic() > give_up_at:
                remedy = f" Set {TOKEN_VARIABLE} to the server's token." if error.code == 401 else ""
                raise NotReadyError(f"{url}{path} says {error.code}: {text}.{remedy}") from None
            time.sleep(2)
        except (OSError, ValueError) as error:
            raise NotReadyError(
                f"{url}{path} cannot be read: {error}. Start `prbench serve`, or set {URL_VARIABLE}."
            ) from None
        else:
            if not isinstance(content, dict):
                raise NotReadyError(f"{url}{path} is not that of a reward server.")
            return content


def claim_run(folder: Path, name: str, overrides: Sequence[str]) -> tuple[Path, bool]:
    """Return the run's folder, and whether it goes on with a run that has exactly this content."""
    content: dict[str, Any] = {each: hashlib.sha256((folder / each).read_bytes()).hexdigest() for each in COUNTED}
    content["overrides"] = sorted(overrides)
    full = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    run = folder / "runs" / f"{name}-{full[:12]}"
    record = run / "run.json"
    if record.exists():
        if json.loads(record.read_text(encoding="utf-8")).get("hash") != full:
            raise NotReadyError(f"{record} is of another configuration. Move {run} away.")
        return run, True
    if any(run.glob("global_step_*")):
        raise NotReadyError(f"{run} holds checkpoints of an unknown configuration. Move it away.")
    run.mkdir(parents=True, exist_ok=True)
    scratch = record.with_suffix(".tmp")
    scratch.write_text(json.dumps({"hash": full, **content}, indent=1) + "\n", encoding="utf-8")
    scratch.replace(record)
    return run, False


def planned(folder: Path, run: Path, url: str, resumes: bool) -> list[str]:
    """Return the overrides that only this start knows."""
    number = len(list(run.glob("metrics-*.jsonl"))) + 1  # verl's file logger would empty an older file
    variables = "+ray_kwargs.ray_init.runtime_env.env_vars"
    values = {
        "prbench.folder": str(folder),
        "prbench.run": run.name,
        "prbench.server": url,
        "trainer.resume_mode": "auto" if resumes else "disable",
        "hydra.run.dir": str(run / "hydra"),
        f"{variables}.TENSORBOARD_DIR": str(run / "tensorboard"),
        f"{variables}.VERL_FILE_LOGGER_PATH": str(run / f"metrics-{number}.jsonl"),
    }
    return [f"{name}={quoted(value)}" for name, value in values.items()]


def quoted(value: str) -> str:
    """Return the text as the grammar of verl's configuration quotes it."""
    if any(part in value for part in ("'", "\\", "\n", "${")):
        raise NotReadyError(f"{value!r} has characters that verl's configuration cannot carry. Move the folder.")
    return f"'{value}'"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
