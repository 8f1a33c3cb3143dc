"""Run jobs on one GPU, as many at once as its memory is said to hold: for a machine that is lent by the minute.

    python experiments/gpu_jobs.py JOBS.jsonl --state FOLDER --memory 130 --processes 10

A line of the file is a job:

    {"name": …, "command": …, "memory": GIB, "priority": 1, "after": [names], "env": {…}}

Those with a lower priority number go first; one that does not fit waits, and all behind it wait with it, unless
`--fill`. The file is read again all the time, so jobs can be added and changed while others run. In the folder:
`NAME.log`, and `NAME.done` or `NAME.failed` with exit code and seconds; a job with such a file, or `NAME.skip`, is not
run again. `events.log` says what began and ended when. It ends when `stop` is there and nothing runs.
"""

import argparse
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENDED = ("done", "failed", "skip")


@dataclass(frozen=True)
class Running:
    """A job that has begun."""

    process: subprocess.Popen[bytes]
    memory: float
    began: float


class Queue:
    """The jobs of one file, and what became of them."""

    def __init__(self, jobs: Path, state: Path, *, memory: float, processes: int, fill: bool) -> None:
        self._jobs, self._state = jobs, state
        self._memory, self._processes, self._fill = memory, processes, fill
        self._running: dict[str, Running] = {}
        self._began = time.monotonic()

    def turn(self) -> bool:
        """Note what has ended and start what fits; tell whether there is more to wait for."""
        for name, running in list(self._running.items()):
            if (code := running.process.poll()) is not None:
                seconds = time.monotonic() - running.began
                (self._state / f"{name}.{'failed' if code else 'done'}").write_text(f"{code} {seconds:.0f}\n")
                self._note(f"{name} ended with {code} after {seconds:.0f} s")
                del self._running[name]
        for job in sorted(self._waiting(), key=lambda job: job.get("priority", 5)):
            free = self._memory - sum(each.memory for each in self._running.values())
            if job["memory"] <= free and len(self._running) < self._processes:
                self._start(job)
            elif not self._fill:
                break
        (self._state / "running").write_text("\n".join(self._running) + "\n")
        return bool(self._running) or not (self._state / "stop").exists()

    def _waiting(self) -> list[dict[str, Any]]:
        lines = filter(str.strip, self._jobs.read_text(encoding="utf-8").splitlines())
        try:
            jobs = [json.loads(line) for line in lines]
        except json.JSONDecodeError:
            return []  # somebody is writing the file; it is read again at the next turn
        return [job for job in jobs if self._may_start(job)]

    def _may_start(self, job: dict[str, Any]) -> bool:
        name = job["name"]
        is_new = name not in self._running and not any((self._state / f"{name}.{end}").exists() for end in ENDED)
        return is_new and all((self._state / f"{each}.done").exists() for each in job.get("after", []))

    def _start(self, job: dict[str, Any]) -> None:
        with (self._state / f"{job['name']}.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", job["command"]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **job.get("env", {})},
            )
        self._running[job["name"]] = Running(process, job["memory"], time.monotonic())
        self._note(f"{job['name']} began")

    def _note(self, text: str) -> None:
        with (self._state / "events.log").open("a", encoding="utf-8") as log:
            log.write(f"{time.monotonic() - self._began:.0f} {text}\n")


def main() -> None:
    """Run what is there and what is added."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--memory", type=float, default=130, help="GiB to share among jobs")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--fill", action="store_true", help="start small jobs while a larger one waits")
    asked = parser.parse_args()
    asked.state.mkdir(parents=True, exist_ok=True)
    queue = Queue(asked.jobs, asked.state, memory=asked.memory, processes=asked.processes, fill=asked.fill)
    while queue.turn():
        time.sleep(0.5)


if __name__ == "__main__":
    main()
