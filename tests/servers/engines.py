"""Real engines on loopback, and what an evaluation through them has to do with one in this process.

    python -m tests.servers.engines --out results/servers    # run all, and write what was measured

Each engine runs in an environment of its own (`make servers-env`), as it needs other versions than we do.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden.extract import run_cli
from tests.golden.people import population
from tests.servers.models import CHAT_WINDOW, save_chat, save_decoder, save_pair_encoder

ROOT = Path(__file__).resolve().parents[2]
VLLM = Path(os.environ.get("PRBENCH_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
INFINITY = Path(os.environ.get("PRBENCH_INFINITY_PYTHON") or ROOT / ".venv-infinity" / "bin" / "python")
START_SECONDS = 240
REPEATED = 8  # times that every post says the same: the windows are too small for all posts of a person
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "DO_NOT_TRACK": "1",
    "INFINITY_ANONYMOUS_USAGE_STATS": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; by default it takes most of the memory
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


@contextmanager
def vllm(folder: Path, *options: str) -> Iterator[str]:
    """Run `vllm serve` on a folder; the address."""
    command = [str(VLLM.parent / "vllm"), "serve", str(folder), "--served-model-name", folder.name]
    with _engine([*command, "--dtype", "float32", "--enforce-eager", *options], "/health") as url:
        yield url


@contextmanager
def infinity(folder: Path) -> Iterator[str]:
    """Run `infinity_emb v2` on a folder; the address. Its transformers does not know the class of our tokenizers."""
    settings = folder / "tokenizer_config.json"
    settings.write_text(settings.read_text().replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"'))
    command = [
        str(INFINITY.parent / "infinity_emb"),
        "v2",
        "--model-id",
        str(folder),
        "--served-model-name",
        folder.name,
    ]
    options = (
        "--engine",
        "torch",
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--no-bettertransformer",
        "--no-model-warmup",
    )
    with _engine([*command, *options], "/health") as url:
        yield url


@contextmanager
def _engine(command: list[str], health: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(port)],
                env={**environment, **QUIET},
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=scratch,
                start_new_session=True,  # its workers are of this group, and end with it
            )
            try:
                _wait_for(process, url + health, log)
                yield url
            finally:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(20)


def _wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    asking = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at:
        assert process.poll() is None, f"the engine ended: {log.read_text()[-3000:]}"
        try:
            with asking.open(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"the engine is not ready after {START_SECONDS} s: {log.read_text()[-3000:]}")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One evaluation through an engine beside the same in this process."""

    rows: int  # items under all probes
    shortened: int  # of them, those whose context did not fit whole
    unreadable: int
    other_posts: int  # rows that were shown other posts
    verdicts_that_differ: int
    largest_difference: float | None  # of two scores, or of a judge's margins; `None` where there are none
    other_replies: int  # of a judge


def compare(folder: Path, served: str, here: str, *options: str) -> Compared:
    """Evaluate the same pairs through both."""
    pairs = folder / "pairs.jsonl"
    if not pairs.exists():
        pairs.write_text("".join(json.dumps(_wordy(row)) + "\n" for row in population(12)))
    first, second = (_rows(folder, model, pairs, *options) for model in (served, here))
    assert first.keys() == second.keys()
    both = [(first[key], second[key]) for key in first]
    differences = [
        abs(one[name] - other[name])
        for one, other in both
        for name in ("score_chosen", "score_rejected")
        if one[name] is not None and other[name] is not None
    ]
    return Compared(
        rows=len(both),
        shortened=sum(other["posts_dropped"] > 0 for _, other in both),
        unreadable=sum(one["verdict"] == "unreadable" for one, _ in both),
        other_posts=sum(one["posts_used"] != other["posts_used"] for one, other in both),
        verdicts_that_differ=sum(one["verdict"] != other["verdict"] for one, other in both),
        largest_difference=max(differences, default=None),
        other_replies=sum(_said(one) != _said(other) for one, other in both),
    )


def _rows(folder: Path, model: str, pairs: Path, *options: str) -> dict[tuple[str, str], dict[str, Any]]:
    ended = run_cli("eval", "--model", model, "--data", pairs, *options, "--out", folder / "runs", "--json", "--fresh")
    assert ended.code == 0, ended.err
    lines = (folder / "runs" / json.loads(ended.out)["run_id"] / "items.jsonl").read_text().splitlines()
    return {(row["id"], row["probe"]): row for row in map(json.loads, lines)}


def _said(row: Mapping[str, Any]) -> list[str]:
    """Return a judge's replies without white space: tokens that are whole words say nothing of it."""
    return ["".join(order["raw"].split()) for order in row.get("orders", ())]


def _wordy(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "profile": [{**post, "text": " ".join([post["text"]] * REPEATED)} for post in row["profile"]]}


def vllm_decoder(folder: Path) -> dict[str, Compared]:
    """A classifier over a decoder: conversations, by both of vLLM's ways."""
    here = f"classifier:{save_decoder(folder / 'decoder')}"
    with vllm(folder / "decoder", "--runner", "pooling") as url:
        return {
            "vllm classify": compare(folder, f"server:{url}", here, "--dtype", "float32"),
            "vllm pooling": compare(folder, f"server:{url}/v1?api=pooling", here, "--dtype", "float32"),
        }


def vllm_encoder(folder: Path) -> dict[str, Compared]:
    """A classifier over an encoder: pairs of texts, by both of vLLM's ways."""
    here = f"classifier:{save_pair_encoder(folder / 'encoder')}"
    with vllm(folder / "encoder", "--runner", "pooling") as url:
        return {
            "vllm score": compare(folder, f"server:{url}/v1", here, "--dtype", "float32"),
            "vllm rerank": compare(folder, f"server:{url}?api=rerank", here, "--dtype", "float32"),
        }


def vllm_chat(folder: Path) -> dict[str, Compared]:
    """A judge: the letters' log-probabilities, and the verdict in the reply."""
    place = save_chat(folder / "chat")
    found = {}
    with vllm(place, "--max-model-len", str(CHAT_WINDOW), "--generation-config", "vllm") as url:
        for name, options in (("logits", "mode=logits"), ("reply", "max_tokens=8")):
            served = f"judge:openai:chat@{url}/v1?{options}"
            here = f"judge:hf:{place}?{options}&window={CHAT_WINDOW}"
            found[f"vllm chat, by {name}"] = compare(folder, served, here, "--dtype", "float32")
    return found


def infinity_encoder(folder: Path) -> dict[str, Compared]:
    """A classifier over an encoder as a reranker; it is told nothing of the window, so the tokenizer is named."""
    place = save_pair_encoder(folder / "encoder")
    here = f"classifier:{place}"
    with infinity(place) as url:
        return {"infinity rerank": compare(folder, f"server:{url}?tokenizer={place}", here, "--dtype", "float32")}


EVERY: Mapping[str, tuple[Path, Callable[[Path], dict[str, Compared]]]] = {
    "vllm_decoder": (VLLM, vllm_decoder),
    "vllm_encoder": (VLLM, vllm_encoder),
    "vllm_chat": (VLLM, vllm_chat),
    "infinity_encoder": (INFINITY, infinity_encoder),
}


def _versions(python: Path) -> dict[str, str]:
    package = "vllm-cpu" if python == VLLM else "infinity-emb"
    ask = f"from importlib.metadata import version as v; print(v({package!r}), v('torch'), v('transformers'))"
    said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    return {"engine": f"{package} {said[0]}", "torch": said[1], "transformers": said[2]}


def main() -> None:
    """Run every engine and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for vllm.json and infinity.json")
    parser.add_argument("--only", choices=EVERY, action="append", help="measure this, and keep the rest of the files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[Path, dict[str, Any]] = {}
    for name in options.only or EVERY:
        python, run = EVERY[name]
        with TemporaryDirectory() as folder:
            measured = {way: asdict(each) for way, each in run(Path(folder)).items()}
        print(json.dumps(measured, indent=1), flush=True)
        path = options.out / f"{name.partition('_')[0]}.json"
        if path not in found:
            found[path] = json.loads(path.read_text())["compared"] if options.only and path.exists() else {}
        found[path] |= measured
        content = {"versions": _versions(python), "compared": found[path]}
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
