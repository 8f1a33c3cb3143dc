"""Build pairs with the packaged 135M model in all three roles, over HTTP, and record what came of it.

    python experiments/build_smollm2.py --users 20 --folder scratch/build --out results/build/smollm2.json

The model is far too small for the task: the point is that the whole build runs against a real server, that its losses
are explained, and that what it cannot do does not reach the set. Interrupted, the same command goes on in the same
folder (and on the same port, which is part of the model's name).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from prbench.backends.packaged_weights import smollm2_gguf
from prbench.construction.build import BuildSettings, BuildStage, ClientOptions, PublishSettings, build
from prbench.lab.gold import GoldInstrument

WINDOW = 4096
SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[2]) * 2, 2
params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[3])
params.verbosity, params.warmup = 0, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def run(folder: Path, url: str, users: int, retries: int, data: str) -> dict[str, object]:
    """Build once, and say what came of it."""
    spec = f"openai:smollm2@{url}"
    settings = BuildSettings(
        data=data,
        users=users if data == "lab" else None,
        generator=spec,
        judge=spec,
        quality_judge=spec,
        words=60,
        retries=retries,
        aspects=2,
    )
    started = time.monotonic()
    built = build(
        settings,
        folder,
        publishing=PublishSettings(private=True),
        last=BuildStage.PUBLISH,
        options=ClientOptions(concurrency=2, timeout_seconds=300),
        audit_encoder="none",
        note=lambda line: print(line, flush=True),
    )
    seconds = round(time.monotonic() - started, 1)
    rejects = [json.loads(line) for line in (folder / "rejects.jsonl").read_text().splitlines()]
    return {
        "data": data if data == "lab" else "posts of the lab's users, without questions or rubrics",
        "pairs": built.manifest["pairs"],
        "seconds": seconds,
        "stages": {name: _public(stage) for name, stage in built.manifest["stages"].items()},
        "lost_at": dict(Counter(f"{row['stage']}: {row['reason']}" for row in rejects).most_common()),
        "gold_prefers_chosen": _by_gold(folder),
    }


def _public(stage: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in stage.items() if name != "model"}


def _by_gold(folder: Path) -> str:
    """Of the pairs that passed, those in which the lab's own truth prefers the chosen response."""
    gold = GoldInstrument()
    rows = [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]
    known = [row for row in rows if "lab" in row.get("meta", {})]
    right = 0
    for row in known:
        truth = row["meta"]["lab"]
        chosen, rejected = (
            gold.value(row[side], truth["subject"], set(truth["wanted"])) for side in ("chosen", "rejected")
        )
        right += chosen > rejected
    return f"{right} of {len(known)}"


def write_posts(path: Path, users: int) -> None:
    """Write the posts of as many users of the lab, as a team that has nothing but posts would hold them."""
    from prbench.lab import LabSize, make_split

    profiles = {e.user.id: e.user.profile for e in make_split("validation", LabSize(users=max(16, users), pairs=400))}
    with path.open("w") as file:
        for user, posts in list(profiles.items())[:users]:
            row = {"user_id": user, "posts": [{"id": post.id, "text": post.text} for post in posts]}
            file.write(json.dumps(row) + "\n")


def main() -> None:
    """Run both kinds of source and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--retries", type=int, default=1)
    parser.add_argument("--port", type=int, default=8137)
    parser.add_argument("--folder", type=Path, required=True, help="where the builds are kept")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = [sys.executable, "-c", SERVE, str(smollm2_gguf()), str(WINDOW), str(options.port)]
    options.folder.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url = f"{server.stdout.readline().strip()}/v1"
        posts = options.folder / "posts.jsonl"
        write_posts(posts, options.users)
        runs = [
            run(options.folder / name, url, options.users, options.retries, data)
            for name, data in (("lab", "lab"), ("posts", str(posts)))
        ]
        server.stdin.close()
    figures = {
        "model": "SmolLM2-135M-Instruct (GGUF) in all three roles, llama.cpp server over HTTP",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "users": options.users,
        "retries": options.retries,
        "runs": runs,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
