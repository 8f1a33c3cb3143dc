"""`prbench demo`: the full pipeline on the built-in lab."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prbench.cli import options
from prbench.data import DataSettings, open_data
from prbench.evaluation import EvalSettings, Run, as_loaded, evaluate_store
from prbench.evaluation.summary import load_runs
from prbench.lab import LAB
from prbench.pages import write_report
from prbench.pages.board import make_boards, print_boards
from prbench.reward_models import ModelSettings
from prbench.schema import Progress


@dataclass(frozen=True)
class Entry:
    """One line of the demo's board."""

    model: str
    context: str


ENTRIES = (
    Entry("control:random", "profile"),
    Entry("control:longest", "profile"),
    Entry("control:shortest", "profile"),
    Entry("control:question", "profile"),
    Entry("control:overlap", "profile"),
    Entry("control:embed", "profile"),
    Entry("head:lab-average", "profile"),  # trained on the same pairs, knows no users
    Entry("head:lab-user", "none"),
    Entry("head:lab-user", "profile"),
    Entry("control:overlap", "oracle"),
    Entry("control:embed", "oracle"),
    Entry("head:lab-user", "oracle"),
    Entry("control:gold", "oracle"),
)
POSTS = 30  # the whole profile of every user of the lab


def demo(
    out: options.Out = Path("runs/demo"),
    html: options.Html = Path("runs/demo/board.html"),
    limit: options.Limit = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Evaluate the controls and small models on the lab, print the board, write one HTML page.

    Needs no network, no accelerator and no key. A second call only reads the finished runs.

    Example: `prbench demo`
    """
    started = time.monotonic()

    def watch(entry: Entry) -> Progress | None:
        if not json:
            options.notes.print(f"{entry.model} · {entry.context}", style="dim")
        return None

    runs = run_demo(out, limit=limit, seed=seed, watch=watch)
    finished = load_runs([run.folder for run in runs if run.folder]).runs
    boards = make_boards(finished)
    if html is not None:
        write_report(boards, html)
    if json:
        options.print_json([run.summary for run in finished])
        return
    print_boards(boards, options.out_console)
    options.out_console.print(f"\npage: {html}", soft_wrap=True)
    options.notes.print(f"took {time.monotonic() - started:.0f} s", style="dim")


def run_demo(
    out: Path, *, limit: int | None = None, seed: int = 0, watch: Callable[[Entry], Progress | None] = lambda _: None
) -> list[Run]:
    """Evaluate the entries on the lab, into run folders under `out`; finished ones are only read back."""
    which = DataSettings(source=LAB, limit=limit)
    runs = []
    with open_data(which) as store:
        for entry in ENTRIES:
            loaded = as_loaded(entry.model, ModelSettings(seed=seed))
            settings = EvalSettings(context=entry.context, posts=POSTS, seed=seed)
            command = f"prbench eval --model {entry.model} --context {entry.context} --posts {POSTS} --seed {seed}"
            runs.append(
                evaluate_store(store, loaded, settings, which, out=out, command=command, progress=watch(entry))
            )
    return runs
