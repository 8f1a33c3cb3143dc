"""Write a lab of 100,000 pairs of 25,000 users as JSONL, and record seconds and peak memory.

    python benchmarks/lab_speed.py

Record: results/speed/lab_speed.json. The bars are 60 seconds and 2 GiB on 2 cores.
"""

import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

USERS, PAIRS = 25_000, 100_000
RESULTS = Path(__file__).parent / "results" / "lab_speed.json"


def main() -> None:
    """Measure, print and record."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "big"
        command = ["data", "lab", "--users", str(USERS), "--pairs", str(PAIRS), "--seed", "1", "--out", str(out)]
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "prbench", *command], check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - started
        rows = sum(len(path.read_bytes().splitlines()) for path in out.rglob("*.jsonl"))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # KiB on Linux
    result = {
        "command": "prbench data lab --users 25000 --pairs 100000 --seed 1 --out DIR",
        "rows": rows,
        "seconds": round(seconds, 1),
        "peak_mib": round(peak, 1),
        "python": platform.python_version(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
