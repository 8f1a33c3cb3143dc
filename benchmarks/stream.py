"""Time and peak memory of `prbench eval` as the number of pairs grows.

    python benchmarks/stream.py --pairs 1000 4000 16000 --out results/speed/stream.json

Each size runs in a process of its own; the peak is what the kernel says of that process. Texts are random words, so
that no cache makes long rows cheap.
"""

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORDS = [
    f"{a}{b}{c}" for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "ai") for c in ("n", "r", "st", "lk", "m")
]


def write_pairs(path: Path, pairs: int, posts: int) -> None:
    """Write rows with `posts` posts of 80 words each, five rows per user."""
    dice = random.Random(0)

    def text(words: int) -> str:
        return " ".join(dice.choices(WORDS, k=words))

    with path.open("w") as file:
        for number in range(pairs):
            if number % 5 == 0:
                profile = [{"id": f"{number}-{i}", "category": "", "text": text(80)} for i in range(posts)]
            row = {
                "id": f"pair-{number}",
                "user_id": f"user-{number // 5}",
                "question": text(20) + "?",
                "profile": profile,
                "rubric_aspects": [],
                "narrative": "",
                "category": f"category-{number % 3}",
                "chosen": text(100),
                "rejected": text(100),
            }
            file.write(json.dumps(row) + "\n")


def measure(pairs: int, posts: int, model: str) -> dict[str, float]:
    """Run one evaluation from an empty folder, and return what it cost."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "pairs.jsonl"
        write_pairs(data, pairs, posts)
        command = [sys.executable, "-m", "prbench", "eval", "--model", model, "--data", str(data)]
        started = time.monotonic()
        # A fresh interpreter in between, so that `ru_maxrss` of children is this evaluation's alone.
        inner = (
            "import json, resource, subprocess, sys;"
            "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode;"
            "print(json.dumps([code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))"
        )
        ended = subprocess.run(
            [sys.executable, "-c", inner, *command, "--out", f"{folder}/runs"],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds = time.monotonic() - started
        code, peak = json.loads(ended.stdout)
        if code != 0:
            raise SystemExit(f"the evaluation of {pairs} pairs ended with {code}: {ended.stderr}")
        megabytes = data.stat().st_size / 1e6
    return {
        "pairs": pairs,
        "data_mb": round(megabytes, 1),
        "seconds": round(seconds, 2),
        "peak_mb": round(peak / 1024, 1),
    }


def main() -> None:
    """Measure every size and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--posts", type=int, default=30)
    parser.add_argument("--model", default="control:overlap")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    rows = [measure(pairs, arguments.posts, arguments.model) for pairs in arguments.pairs]
    for row in rows:
        print("{pairs:>7} pairs  {data_mb:>7.1f} MB of rows  {seconds:>6.1f} s  peak {peak_mb:>6.1f} MB".format(**row))
    grown = (rows[-1]["peak_mb"] - rows[0]["peak_mb"]) * 1e6 / max(1, rows[-1]["pairs"] - rows[0]["pairs"])
    print(f"growth: {grown:.0f} bytes of peak memory per pair")
    if arguments.out:
        command = (
            f"python benchmarks/stream.py --pairs {' '.join(map(str, arguments.pairs))} --posts {arguments.posts}"
        )
        facts = {"command": command, "model": arguments.model, "python": platform.python_version(), "rows": rows}
        arguments.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
