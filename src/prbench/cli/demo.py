"""`prbench demo`: the full pipeline on the built-in lab."""

import time
from pathlib import Path

from prbench.cli import options
from prbench.data import DataSettings, open_data
from prbench.evaluation import EvalSettings, as_loaded, evaluate_store
from prbench.evaluation.summary import load_runs
from prbench.lab import LAB
from prbench.pages import write_report
from prbench.pages.board import make_boards, print_boards
from prbench.reward_models import ModelSettings

ENTRIES = (  # model and context of each line of the board
    ("control:random", "profile"),
    ("control:longest", "profile"),
    ("control:shortest", "profile"),
    ("control:question", "profile"),
    ("control:overlap", "profile"),
    ("control:embed", "profile"),
    ("head:lab-average", "profile"),  # trained on the same pairs, knows no users
    ("head:lab-user", "none"),
    ("head:lab-user", "profile"),
    ("control:overlap", "oracle"),
    ("control:embed", "oracle"),
    ("head:lab-user", "oracle"),
    ("control:gold", "oracle"),
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

    which = DataSettings(source=LAB, limit=limit)
    folders = []
    with open_data(which) as store:
        for model, context in ENTRIES:
            if not json:
                options.notes.print(f"{model} · {context}", style="dim")
            loaded = as_loaded(model, ModelSettings(seed=seed))
            settings = EvalSettings(context=context, posts=POSTS, seed=seed)
            command = f"prbench eval --model {model} --context {context} --posts {POSTS} --seed {seed}"
            folders.append(evaluate_store(store, loaded, settings, which, out=out, command=command).folder)
    finished = load_runs([folder for folder in folders if folder]).runs
    boards = make_boards(finished)
    if html is not None:
        write_report(boards, html, command=options.command_line())
    if json:
        options.print_json([run.summary for run in finished])
        return
    print_boards(boards, options.out_console)
    options.out_console.print(f"\npage: {html}", soft_wrap=True)
    options.notes.print(f"took {time.monotonic() - started:.0f} s", style="dim")
