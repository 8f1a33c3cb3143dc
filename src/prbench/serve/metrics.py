"""Counters and histograms of a running server, in Prometheus' text format (version 0.0.4)."""

import os
import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)

COUNTERS = {
    "prbench_requests_total": "Requests that came in.",
    "prbench_responses_total": "Replies by status code; 499: the client left before its reply.",
    "prbench_scores_total": "Answers by problem; an empty one is a number.",
    "prbench_dropped_inputs_total": "Inputs that left the queue with their client.",
    "prbench_model_errors_total": "Batches on which the model raised an error.",
}
HISTOGRAMS = {
    "prbench_batch_inputs": ("Inputs per call of the model.", _SIZES),
    "prbench_batch_groups": ("Distinct pairs of context and question per call of the model.", _SIZES),
    "prbench_queue_seconds": ("Seconds that an input waited for the model.", _SECONDS),
    "prbench_compute_seconds": ("Seconds per call of the model.", _SECONDS),
}
GAUGES = {
    "prbench_info": "The model that is served.",
    "prbench_ready": "1 when the model is loaded and requests are accepted.",
    "prbench_queue_inputs": "Inputs that wait.",
    "prbench_queue_limit": "Inputs that may wait.",
    "prbench_accepted_requests": "Requests that are being answered.",
    "process_resident_memory_bytes": "Memory of the server process.",
}
TOKENS = "prbench_tokens_total"
TOKENS_HELP = "Tokens read by the model: as a naive forward pass would count them, and as computed."

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What the threads of a server count together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, int]] = {name: {} for name in COUNTERS}
        self._buckets = {name: [0] * (len(bounds) + 1) for name, (_, bounds) in HISTOGRAMS.items()}
        self._sums = dict.fromkeys(HISTOGRAMS, 0.0)

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        key = tuple(sorted(labels.items()))
        with self._lock:
            self._counters[name][key] = self._counters[name].get(key, 0) + amount

    def observe(self, name: str, value: float) -> None:
        with self._lock:
            self._buckets[name][bisect_left(HISTOGRAMS[name][1], value)] += 1
            self._sums[name] += value

    def text(
        self, gauges: Mapping[str, float], info: Mapping[str, str], tokens: Mapping[str, int] | None = None
    ) -> str:
        """Return everything as one page; `tokens` are those that the model itself has counted."""
        lines: list[str] = []

        def section(name: str, help_text: str, kind: str, rows: Iterable[tuple[Labels, float]]) -> None:
            lines.extend((f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"))
            lines.extend(_line(name, labels, value) for labels, value in rows)

        with self._lock:
            for name, help_text in COUNTERS.items():
                section(name, help_text, "counter", sorted(self._counters[name].items()))
            for name, (help_text, bounds) in HISTOGRAMS.items():
                section(name, help_text, "histogram", ())
                counts = list(accumulate(self._buckets[name]))  # each bucket holds those below it, too
                for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
                    lines.append(_line(f"{name}_bucket", (("le", bound),), count))
                lines += [f"{name}_sum {self._sums[name]!r}", f"{name}_count {counts[-1]}"]
        if tokens is not None:
            section(TOKENS, TOKENS_HELP, "counter", (((("kind", kind),), n) for kind, n in sorted(tokens.items())))
        for name, value in gauges.items():
            section(name, GAUGES[name], "gauge", [((), value)])
        section("prbench_info", GAUGES["prbench_info"], "gauge", [(tuple(info.items()), 1)])
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """Return the memory of this process, where the system says it (Linux)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _line(name: str, labels: Labels, value: float) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    inside = ",".join(f'{key}="{text.translate(escapes)}"' for key, text in labels)
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"
