"""Every page that prbench writes, of runs and answers with long and hostile names, made once."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.agreement.conftest import panel
from tests.bon.conftest import ByWords, Counting, worth
from tests.check.conftest import make_pair
from tests.conftest import make_row
from tests.meta.conftest import make_item_board
from tests.ppo.test_page import evaluation_of, measured, steps, summary_of

from prbench.construction.check import check_dataset
from prbench.downstream.best_of_n.run import BonSettings, best_of_n
from prbench.evaluation import EvalSettings, evaluate
from prbench.evaluation.summary import load_runs
from prbench.insight.diagnose import diagnose
from prbench.insight.meta import Choices, compare_boards
from prbench.insight.meta.board import board_of_scores
from prbench.insight.meta.resolution import measure_resolution
from prbench.pages import agreement, check, meta, ppo, speed, write_report
from prbench.pages import best_of_n as bon_page
from prbench.pages import diagnose as diagnose_page
from prbench.pages.board import make_boards
from prbench.pages.shell import origin_of, render_page
from prbench.pages.site import build_site, check_submissions
from prbench.people.agreement import agreement as measure_agreement
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.fake import FakeReward

HOSTILE = "<script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
LONG = (
    "classifier:an-organization/a-reward-model-with-a-very-long-name_and_no_place_to_break_in_it?revision=0123456789ab"
)
COMMAND = "prbench report runs --html board.html"


def model(name: str, score: Callable[[Any], float | None]) -> LoadedModel:
    return LoadedModel(spec=name, kind="custom", model=FakeReward(score), identity={"fake": name})


def make_rows(count: int) -> list[dict[str, Any]]:
    kinds = ("Art_and_Entertainment", "Society_and_Culture", "=1+1")
    rows = []
    for number in range(count):
        sides = f"Short {HOSTILE}.", f"A response with many more words in it, number {number} {HOSTILE}."
        flip = number % 3 == 0
        rows.append(
            make_row(
                number,
                user_id=f"user-{number % 12}",
                question=f"{HOSTILE} What should I plant, case {number}?",
                category=kinds[number % 3 if number % 7 else 0],
                chosen=sides[flip],
                rejected=sides[not flip],
                meta={"kind": "a_kind_whose_name_has_no_place_to_break" + "_" * 24 if number % 4 else "<b>bold</b>"},
            )
        )
    return rows


def make_board(folder: Path, data: Path) -> list[Path]:
    runs = []
    for name, score in (("=cmd|' /C calc'!A0", lambda each: len(each.response)), (LONG, lambda each: 0.0)):
        runs.append(evaluate(data, model(name, score), out=folder / "runs").folder)
    for spec, context in (
        ("control:longest", "profile"),
        ("control:shortest", "profile"),
        ("control:overlap", "oracle"),
    ):
        runs.append(evaluate(data, spec, settings=EvalSettings(context=context), out=folder / "runs").folder)
    write_report(make_boards(load_runs([folder / "runs"]).runs), folder / "board.html", command=COMMAND)
    return [run for run in runs if run]


def make_leaderboard(folder: Path) -> dict[str, Path]:
    """A site of the runs of the board, of which one was forged; return its first page and one submission's."""
    submitted = shutil.copytree(folder / "runs", folder / "submissions")
    forged = sorted(submitted.glob("*/summary.json"))[0]
    forged.write_text(forged.read_text().replace('"n_items": 90', '"n_items": 900'))
    found = check_submissions([submitted])
    index = build_site(found, folder / "site", title="Ours <b>&amp; yours</b>", has_data=False, command=COMMAND)
    return {"leaderboard": index, "submission": sorted((folder / "site" / "runs").glob("*.html"))[0]}


def make_meta() -> str:
    names = [LONG, HOSTILE, *[f"m{place}" for place in range(2, 10)]]
    worths = np.linspace(0, 1, 10)
    board = make_item_board(worths).renamed({f"m{place}": name for place, name in enumerate(names[:2])})
    down = board_of_scores("downstream", dict(zip(names, worths**2, strict=True)))
    other = board_of_scores("other", dict(zip(names, np.cos(9 * worths).round(), strict=True)))  # many are equal
    found = compare_boards([board, other], [down], choices=Choices(draws=200))
    return meta.render(found, [measure_resolution(board)])


def make_agreement(folder: Path) -> str:
    rows = panel(40, ("ann", LONG, f"ben {HOSTILE}"), errors=0.25)
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return agreement.render(measure_agreement([path]))


def make_ppo(folder: Path) -> str:
    rows, answers = steps(truncated=0.25), measured({0: 0.1, 4: 0.2, 8: 0.2, 12: 0.25})
    for row in answers:
        row["gold"] += int(row["user_id"][1:]) / 100
    summary = summary_of(rows, policy=HOSTILE, reward_model=LONG)
    return render_page(ppo.TEMPLATE, ppo.page_of(summary, rows, evaluation_of(answers), answers))


def make_bench() -> str:
    points = [
        {
            "settings": {"candidates": 2**power},
            "naive_seconds": 0.1 * 2**power,
            "seconds": 0.08 * 1.2**power,
            "naive_tokens_per_second": 12_345,
            "tokens_per_second": 12_345 * 1.5**power,
            "ratio": 1.2**power,
            "token_ratio": 1.25**power,
            "parity_max_abs": 1e-7,
        }
        for power in range(1, 8)
    ]
    settings = {
        "shape": "30m",
        "dtype": "float32",
        "repeats": 3,
        "seed": 0,
        "prompts": 1,
        "prefix": 1000,
        "response": 9,
    }
    return speed.render({"settings": settings, "device": "cpu", "points": points}, command="prbench bench --sweep")


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages by name."""
    folder = tmp_path_factory.mktemp("pages_in_a_folder_with_a_name_that_has_no_place_to_break_and_is_long")
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in make_rows(90)))
    runs = make_board(folder, data)
    pool = [make_row(number, category=f"kind {number % 2}") for number in range(12)]
    models = [model(LONG, lambda each: worth(each.response)), *(model(name, lambda each: 0.0) for name in "ab")]
    bon = best_of_n(
        pool, Counting(), models, BonSettings(n=8), out=folder / "bon", judge=ByWords(), group_by=["category"]
    )
    doubtful = [
        make_pair(n, chosen=f"{HOSTILE} Take alpha{n}.", profile=[{"id": "p", "text": HOSTILE}]) for n in range(20)
    ]
    made = {
        "check": check.render(check_dataset([*doubtful, doubtful[0] | {"id": f"again {HOSTILE}"}], encoder="none")),
        "diagnose": diagnose_page.render(diagnose(runs[:1], label_next=5)),
        "diagnose_two": diagnose_page.render(diagnose(runs[:2], label_next=5), command=COMMAND),
        "agreement": make_agreement(folder),
        "meta": make_meta(),
        "bon": bon_page.render(bon.summary, origin_of([bon.folder], "prbench bon")),
        "ppo": make_ppo(folder),
        "bench": make_bench(),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in ("board", *made)} | make_leaderboard(folder)
