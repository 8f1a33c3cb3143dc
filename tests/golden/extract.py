"""The only code of the golden suite that knows commands' outputs, files and field names of prbench.

When the shape of a file changes and its values do not, this is the place to edit; the recorded values stay.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prbench
from prbench.cli import main
from prbench.prompts.replies import read_aspects, read_json, read_pick, read_score

Json = Any
Facts = dict[str, Json]

# Neutral names of a run's figures, and where each stands in the summary.
FIGURES: Mapping[str, str] = {
    "items": "n_items",
    "coverage": "coverage",
    "accuracy": "accuracy",
    "accuracy of readable": "accuracy_readable",
    "accuracy by category": "accuracy_by_category",
    "accuracy by user": "macro_user_accuracy",
    "accuracy of the worst users": "worst_decile_accuracy",
    "swap": "swap",
    "gain": "personalization_gain",
    "minority": "minority_accuracy",
    "majority": "majority_accuracy",
    "order": "order",
    "ties": "tie_rate",
    "calibration": "calibration",
    "cut items": "truncated_items",
    "cut posts": "dropped_posts",
    "unreadable": "unreadable",
    "sensitivity": "profile_sensitivity",
    "same as without user": "own_none_agreement",
    "dose response": "dose_response",
    "groups": "groups",
    "ratings": "ratings",
    "context": "context",
    "seed": "seed",
}
READY = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """One evaluation: its rows and its figures, under neutral names."""

    rows: list[Facts]
    figures: Facts


def run_cli(*args: str | Path) -> Ended:
    """Run `prbench ARGS` in this process and in the current folder."""
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["prbench", *map(str, args)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        return Ended(code=int(ended.code or 0), out=out.getvalue(), err=err.getvalue())
    finally:
        sys.argv = argv
    raise AssertionError("the command line ends with an exit code")


def eval_cli(out: Path, model: str, *args: str | Path, code: int = 0) -> Evaluated:
    """Run `prbench eval` into the folder `out`."""
    ended = run_cli("eval", "--model", model, *args, "--out", out, "--json")
    assert ended.code == code, ended.err
    summary = json.loads(ended.out)
    return Evaluated(rows=rows_of(out / summary["run_id"]), figures=figures_of(summary))


def rows_of(folder: Path) -> list[Facts]:
    """Return the rows of a run, by item and probe."""
    lines = (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted(map(row_of, map(json.loads, lines)), key=lambda row: (row["item"], row["probe"]))


def interrupt(out: Path, keep: int) -> None:
    """Leave the first rows of the run in a folder, and one that was being written."""
    (path,) = out.glob("*/items.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:keep]) + lines[keep][:30])


def row_of(record: Mapping[str, Json]) -> Facts:
    """Return one row under neutral names; what is empty is left out."""
    row: Facts = {"item": record["id"], "probe": record["probe"], "user": record["user_id"]}
    if "rating" in record:
        row |= {"rating": record["rating"], "score": record["score"], "said": record["raw"]}
    else:
        row |= {"verdict": record["verdict"], "scores": [record["score_chosen"], record["score_rejected"]]}
        row["orders"] = [
            {
                "chosen first": order["order"] == "chosen_first",
                "pick": order["pick"],
                "problem": order["reason"],
                "margin": order["margin"],
                "said": order["raw"],
            }
            for order in record.get("orders", ())
        ]
        row["said"] = dict(record.get("replies", {}))
    row |= {"problem": record["reason"], "posts": [record["posts_used"], record["posts_dropped"]]}
    return {name: value for name, value in row.items() if value not in ("", {}, [], [None, None])}


def figures_of(summary: Mapping[str, Json]) -> Facts:
    """Return the figures of a summary, each estimate as [value, low, high, n]; what does not apply is left out."""
    found = {name: plain(summary[key]) for name, key in FIGURES.items()}
    return {name: value for name, value in found.items() if value is not None}


def plain(value: Json) -> Json:
    """Return a figure with its estimates as lists."""
    if isinstance(value, dict):
        if value.keys() >= {"value", "low", "high", "n"}:
            estimate = [value[key] for key in ("value", "low", "high", "n")]
            rest = {key: plain(inner) for key, inner in value.items() if key not in ("value", "low", "high", "n")}
            return {"estimate": estimate, **rest} if rest else estimate
        return {key: plain(inner) for key, inner in value.items() if inner is not None}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def results_of(run: Evaluated) -> Facts:
    """Return all that a golden value holds of one evaluation."""
    return {"rows": run.rows, "figures": run.figures}


def evaluate(
    data: Any,
    model: Any,
    context: str,
    *,
    probes: Sequence[str] = (),
    limit: int | None = None,
    labels: Any = None,
    shots: int | None = None,
    **settings: Any,
) -> Evaluated:
    """Call `prbench.evaluate`, the public function."""
    if probes:
        settings["probes"] = probes
    if shots is not None:
        settings["shots"] = shots
    run = prbench.evaluate(data, model, context, limit=limit, labels=labels, **settings)
    return Evaluated(rows=[in_memory(row) for row in run.items], figures=figures_of(run.summary))


def in_memory(row: Any) -> Facts:
    """Return a row that `prbench.evaluate` gave, under the same names as one of a run folder."""
    facts: Facts = {"id": row.id, "probe": row.probe.value, "user_id": row.user_id, "reason": row.problem.value}
    facts |= {"posts_used": row.posts_used, "posts_dropped": row.posts_dropped}
    if hasattr(row, "rating"):
        return row_of(facts | {"rating": row.rating, "score": row.score, "raw": row.raw})
    facts |= {"verdict": row.verdict.value, "score_chosen": row.score_chosen, "score_rejected": row.score_rejected}
    return row_of(facts | {"orders": list(row.orders), "replies": row.replies})


class Recorder:
    """A reward model in Python that scores by length, and keeps what it was shown."""

    def __init__(self, window: int | None = None) -> None:
        """`window` is the most characters of question, context and response together."""
        self.shown: list[tuple[str, str, str]] = []
        if window is not None:
            self.fits: Callable[[Any], bool] = lambda each: len(each.question + each.context + each.response) <= window

    def score(self, inputs: Sequence[Any]) -> list[float]:
        """Return the number of characters of each response."""
        self.shown += [(each.question, each.context, each.response) for each in inputs]
        return [float(len(each.response)) for each in inputs]

    @property
    def contexts(self) -> list[list[str]]:
        """Every (question, context) that it was shown, once, in order."""
        return [list(pair) for pair in dict.fromkeys((question, context) for question, context, _ in self.shown)]


class PairRecorder:
    """A judge in Python that prefers the longer response, and ties on equal lengths; it keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[list[str]] = []

    def prefer(self, pairs: Sequence[Any]) -> list[str]:
        """Return one pick per pair."""
        self.shown += [[each.question, each.first, each.second] for each in pairs]
        return [_longer(len(each.first), len(each.second)) for each in pairs]


def _longer(first: int, second: int) -> str:
    return "tie" if first == second else "first" if first > second else "second"


def report_cli(*folders: Path, group_by: Sequence[str] = ()) -> list[Facts]:
    """Return the model and the figures of every run on the boards of `prbench report`, in an order of their own."""
    ended = run_cli("report", *folders, *_each("--group-by", group_by), "--json")
    assert ended.code == 0, ended.err
    found = [{"model": summary["model"], **figures_of(summary)} for summary in json.loads(ended.out)]
    return sorted(found, key=lambda one: (one["model"], json.dumps(one, sort_keys=True)))


def board_cli(*folders: Path, models: Sequence[str]) -> list[list[str]]:
    """Return [letters, model, cells…] of every line of the printed board, from the top; equal ones by name."""
    ended = run_cli("report", *folders)
    assert ended.code == 0, ended.err
    # Behind the model stand settings that tell the run from others, as name=value.
    lines = [[word for word in line.split() if "=" not in word] for line in ended.out.splitlines()]
    found = [["", *line] if line and line[0] in models else line for line in lines]
    board = [line for line in found if len(line) > 1 and line[1] in models]
    places = {line[3]: place for place, line in reversed(list(enumerate(board)))}  # by accuracy, as printed
    return sorted(board, key=lambda line: (line[0] == "", places[line[3]], line))


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def train_cli(method: str, data: Path, out: Path, **settings: Json) -> str:
    """Train a model with a third of the users held out, and return the spec that `--model` takes."""
    chosen = _each("--set", (f"{name}={value}" for name, value in settings.items()))
    ended = run_cli("train", "--method", method, "--data", data, "--hold-out", "0.34", "--out", out, *chosen, "--json")
    assert ended.code == 0, ended.err
    return str(json.loads(ended.out)["spec"])


@contextlib.contextmanager
def serving(model: str, *args: str) -> Iterator[str]:
    """Run `prbench serve` on a free port of this machine, and yield its address once it is ready."""
    command = [sys.executable, "-m", "prbench", "serve", "--model", model, "--port", "0", *args]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            ready = next((found[0] for line in process.stdout if (found := READY.search(line))), None)
            assert ready, "the server said no address"
            yield ready
        finally:
            process.terminate()
            process.wait(60)


def server_scores(reply: Mapping[str, Json]) -> list[list[Json]]:
    """Return [value, problem] of every score in a reply of `POST /score`."""
    return [[row["value"], row["problem"]] for row in reply["scores"]]


def readings(text: str, shape: Mapping[str, Json]) -> Facts:
    """Return what each reader makes of a reply; what reads nothing is left out."""
    found = {
        "pick": read_pick(text).value,
        "score of 10": read_score(text, 1, 10),
        "score of 100": read_score(text, 0, 100),
        "json": read_json(text, shape),
        "aspects": [list(pair) for pair in read_aspects(text)],
    }
    return {name: value for name, value in found.items() if value not in (None, [], "unreadable")}


def finished_runs(out: Path) -> list[Path]:
    """Return the folders of the evaluations in `out`, the latest last."""
    found = [path.parent for path in out.glob("*/summary.json") if (path.parent / "items.jsonl").exists()]
    return sorted(found, key=lambda folder: (folder / "summary.json").stat().st_mtime_ns)
