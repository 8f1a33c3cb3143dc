"""A leaderboard from the run folders that others hand in: each is checked, and those that hold make a static site.

The site needs no server and no network: pages with everything in them, and the same figures as CSV and JSON.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prbench.data import DataSettings, ExampleStore
from prbench.errors import RunError, UsageError
from prbench.evaluation.summary import MAX_FAILED, FinishedRun, named_apart, probes_of, summarize
from prbench.evaluation.verify import Verification, same_rows, verify_run
from prbench.metrics.estimate import USERS
from prbench.pages.board import board_table, make_boards
from prbench.pages.leaderboard import render_index, render_submission
from prbench.pages.shell import csv_text
from prbench.runs import ITEMS, MANIFEST, SUMMARY
from prbench.runs.files import replacing
from prbench.schema import Json

INDEX, FIGURES, LISTING, RUNS = "index.html", "figures.csv", "leaderboard.json", "runs"
DEEPEST = 3  # SUBMISSIONS/team/model/run


@dataclass(frozen=True, kw_only=True)
class Submissions:
    """What was handed in."""

    accepted: tuple[Verification, ...]
    refused: tuple[Verification, ...]


def check_submissions(
    paths: Sequence[Path], store: ExampleStore | None = None, which: DataSettings | None = None
) -> Submissions:
    """Check every run folder in these folders, with the dataset as it is called by `which`.

    Of several with the same run the first is taken if all have the same rows. Which of others is true cannot be seen
    from here, so that all are refused: who comes first by name must not displace the rest.
    """
    folders = list(dict.fromkeys(each for path in paths for each in _submitted(path, DEEPEST)))
    if not folders:
        raise RunError(f"{paths[0]}: holds no submission. One is the whole folder of a run of `prbench eval`.")
    accepted: list[Verification] = []
    refused: list[Verification] = []
    same_id: dict[str, list[tuple[Verification, FinishedRun]]] = {}
    for folder in folders:
        found = verify_run(folder, store, which)
        if found.run is None:
            refused.append(found)
        else:
            same_id.setdefault(str(found.run.summary["run_id"]), []).append((found, found.run))
    for run_id, several in same_id.items():
        (first, run), *others = several
        if all(same_rows(run, other) for _, other in others):
            accepted.append(first)
            refused.extend(_with_fault(each, f"is the same run as {first.folder}: {run_id}.") for each, _ in others)
            continue
        named = ", ".join(str(each.folder) for each, _ in several)
        line = f"{named}: are the same run, {run_id}, with different rows. Ask who handed them in to run it again."
        refused.extend(_with_fault(each, line) for each, _ in several)
    return Submissions(accepted=tuple(accepted), refused=tuple(refused))


def _with_fault(found: Verification, line: str) -> Verification:
    return replace(found, faults=(line,), run=None)


def _submitted(path: Path, depth: int) -> Iterator[Path]:
    """Yield the folders that hold a run, or a part of one."""
    if not path.is_dir():
        raise UsageError(f"{path}: no such folder. Give run folders, or a folder of them.")
    if any((path / name).exists() for name in (MANIFEST, ITEMS, SUMMARY)):
        yield path
    elif depth:
        for child in sorted(path.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                yield from _submitted(child, depth - 1)


def build_site(found: Submissions, out: Path, *, title: str, has_data: bool, command: str = "") -> Path:
    """Write the site of the submissions that hold; return its first page. A site that is there is replaced whole."""
    if not found.accepted:
        raise RunError(
            f"{found.refused[0].folder}: {found.refused[0].faults[0]} No submission holds, so there is no site."
        )
    if out.exists() and not (out / LISTING).exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise UsageError(f"--out {out}: exists, and is no site of ours. Choose another folder.")
    runs = named_apart([_for_all(each.run) for each in found.accepted if each.run is not None])
    boards = make_boards(runs)
    pages = {str(run.summary["run_id"]): f"{RUNS}/{run.summary['run_id']}.html" for run in runs}
    with replacing(out) as site:
        (site / RUNS).mkdir(parents=True)
        for each, run in zip(found.accepted, runs, strict=True):
            run_id = str(run.summary["run_id"])
            page = render_submission(each, run, title=title, file=f"{run_id}.json", command=command)
            _write(site / pages[run_id], page)
            _write(site / RUNS / f"{run_id}.json", _json(dict(run.summary)))
        files = (("All figures as CSV", FIGURES), ("as JSON", LISTING))
        index = render_index(
            boards, found.refused, title=title, has_data=has_data, command=command, files=files, pages=pages
        )
        _write(site / INDEX, index)
        _write(site / FIGURES, csv_text(*board_table(boards)))
        listing = {
            "title": title,
            "compared_with_data": has_data,
            "runs": [
                {"letters": line.letters, "role": line.role, "page": pages[str(line.summary["run_id"])]}
                | {name: line.summary[name] for name in ("run_id", "model", "context", "data", "accuracy")}
                for board in boards
                for line in board.lines
            ],
            "refused": {str(each.folder.name): list(each.faults) for each in found.refused},
        }
        _write(site / LISTING, _json(listing))
    return out / INDEX


def _for_all(run: FinishedRun) -> FinishedRun:
    """Return a run with the figures that a leaderboard shows of everybody: intervals for new users, and no groups."""
    facts = {**run.manifest["facts"], "resample": USERS, "group_by": [], "max_failed": MAX_FAILED}
    if facts == run.manifest["facts"]:
        return run
    return replace(run, summary=summarize(run.rows, facts, probes_of(run.manifest)))


def _json(content: Json) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _write(path: Path, text: str) -> None:
    # The name of a folder may be no UTF-8.
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
