"""Compare the speed of two checkouts: the same commands, one after the other in turn, each in an empty folder.

    git worktree add /tmp/before REVISION
    python benchmarks/side_by_side.py --before /tmp/before --after . --rounds 5

Each round runs every command once with each checkout; who goes first changes from round to round. Medians count, and
beside the seconds on the clock stand those of all threads, which other work on the machine changes less. Prints JSON.
Both checkouts run in the environment of the Python that runs this, and read the same 10,000 pairs.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

PAIRS = 10_000
MAKE_PAIRS = f"""
import json
from prbench.data.rows import as_row
from prbench.lab import LabSize, make_split
with open("pairs.jsonl", "w") as file:
    for example in make_split("test", LabSize(users={PAIRS // 4}, pairs={PAIRS})):
        file.write(json.dumps(as_row(example)) + "\\n")
"""
OPEN_LAB = """
import time
try:
    from prbench.data import DataSettings, open_data
except ImportError:  # where they were at 00a38b2
    from prbench.evaluation import DataSettings, open_data
started, used = time.perf_counter(), time.process_time()
store = open_data(DataSettings(source="lab"))
list(store)
store.content_hash
print(time.perf_counter() - started, time.process_time() - used)
"""
PRBENCH = ("-m", "prbench")
JOBS = {
    "version": (*PRBENCH, "--version"),
    "open the lab": ("-c", OPEN_LAB),
    "bench, 16 candidates": (*PRBENCH, "bench", "--candidates", "16", "--prefix", "400", "--repeats", "1"),
    "bench, pairs": (*PRBENCH, "bench", "--candidates", "2", "--prefix", "400", "--repeats", "1"),
    "head, 9,600 responses": (*PRBENCH, "eval", "--model", "head:lab-user", "--posts", "30", "--out", "runs"),
    "overlap, 10,000 pairs": (*PRBENCH, "eval", "--model", "control:overlap", "--data", "PAIRS", "--out", "runs"),
    "best of 64": (*PRBENCH, "bon", "--policy", "lab", "--n", "64", "--users", "40", "--model", "control:overlap"),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="checkout to compare with")
    parser.add_argument("--after", type=Path, default=Path(), help="checkout that was changed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=sorted(JOBS), default=list(JOBS))
    arguments = parser.parse_args()
    sides = {"before": arguments.before.resolve(), "after": arguments.after.resolve()}
    times: dict[str, dict[str, list[tuple[float, float]]]] = {
        name: {side: [] for side in sides} for name in arguments.only
    }
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-c", MAKE_PAIRS], cwd=work, env=environment(sides["after"]), check=True)
        pairs = str(Path(work) / "pairs.jsonl")
        for round_number in range(arguments.rounds):
            order = list(sides) if round_number % 2 == 0 else list(reversed(sides))
            for name in arguments.only:
                for side in order:
                    command = [pairs if part == "PAIRS" else part for part in JOBS[name]]
                    times[name][side].append(run(command, sides[side]))
                    print(round_number, name, side, times[name][side][-1], file=sys.stderr, flush=True)
    report = {
        "command": shlex.join(["python", "benchmarks/side_by_side.py", *sys.argv[1:]]),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "rounds": arguments.rounds,
        "jobs": {name: figures(by_side) for name, by_side in times.items()},
    }
    print(json.dumps(report, indent=2))


def run(command: list[str], checkout: Path) -> tuple[float, float]:
    """Return the seconds on the clock and those of all threads that one command takes in an empty folder.

    Code (`-c`) prints both itself, without the time that Python and its imports take.
    """
    with tempfile.TemporaryDirectory() as folder:
        used, started = cpu_of_children(), time.perf_counter()
        ended = subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment(checkout), check=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        whole = time.perf_counter() - started, cpu_of_children() - used
        seconds, cpu = map(float, ended.stdout.split()) if command[0] == "-c" else whole
        return round(seconds, 3), round(cpu, 3)


def cpu_of_children() -> float:
    """Return the seconds that ended child processes have used, of all threads."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def environment(checkout: Path) -> dict[str, str]:
    """Return the environment in which a checkout's own code is imported."""
    return {**os.environ, "PYTHONPATH": str(checkout / "src")}


def figures(by_side: dict[str, list[tuple[float, float]]]) -> dict[str, object]:
    """Return medians of both sides, their ratios (below 1: faster), and all measurements."""
    seconds, cpu = (
        {side: median(each[place] for each in found) for side, found in by_side.items()} for place in (0, 1)
    )
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "ratio": round(seconds["after"] / seconds["before"], 3),
        "cpu_ratio": round(cpu["after"] / cpu["before"], 3),
        "measured": by_side,
    }


if __name__ == "__main__":
    main()
