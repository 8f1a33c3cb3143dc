"""README and docs as a reader would type them: every line ends well.

Tutorials run as they stand, each in an empty folder; all other pages one after the other in one folder that holds what
a reader brings along.
"""

import io
import json
import runpy
import shlex
import socket
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.golden.docs_lines import NOT_RUN, PAGES, PPO, SMALLER, Block, blocks, made_smaller, reason_not_to_run
from tests.golden.extract import eval_cli, finished_runs, run_cli, serving
from tests.golden.people import population, write
from tests.golden.stand_in import StandIn, chat, judge, stand_in
from tests.golden.tiny_models import classifier, language_model, one_thread
from tests.golden.tutorials import NOT_RUN as NOT_RUN_IN_TUTORIALS
from tests.golden.tutorials import TUTORIALS, Newcomer, lines_of

QUALITIES = ("correctness", "relevance", "helpfulness")
RANKING = "model,score\na,0.9\nb,0.8\nc,0.6\nd,0.5\ne,0.4\n"


def answers(items: int) -> list[dict[str, Any]]:
    """What two people said about some pairs."""
    names = [row["id"] for row in population(items)]
    return [
        {
            "item": names[number],
            "annotator": annotator,
            "choice": "rejected" if number % 12 == turn else "chosen",
            "side_chosen": ("left", "right")[(number + turn) % 2],
            "ratings": {"chosen": dict.fromkeys(QUALITIES, 4), "rejected": dict.fromkeys(QUALITIES, 4 - turn % 2)},
        }
        for number in range(items)
        for turn, annotator in enumerate(("ann", "ben"))
    ]


def bring_files(folder: Path) -> None:
    """Write what a reader brings along: pairs, posts, answers, tables, and models of their own."""
    assert run_cli("data", "lab", "--users", "96", "--pairs", "96", "--out", "small_lab").code == 0
    pairs = population(60)
    write(folder / "pairs.jsonl", pairs)
    (folder / "pairs").mkdir()
    write(folder / "pairs" / "train.jsonl", pairs[:12])
    write(folder / "pairs" / "validation.jsonl", pairs[40:44])
    write(folder / "posts.jsonl", [{"user_id": row["user_id"], "posts": row["profile"]} for row in pairs[::2]])
    for name in ("rows", "more", "answers"):
        write(folder / f"{name}.jsonl", answers(24))
    labels = [f"item-{number},{name},{number % 2}" for number in range(12) for name in ("ann", "ben")]
    (folder / "labels.csv").write_text("\n".join(["item,annotator,label", *labels]) + "\n")
    for name in ("bench", "best_of_n", "board", "policies"):
        (folder / f"{name}.csv").write_text(RANKING)
    scores = [{"model": f"control:{name}", "score": 1 / len(name)} for name in ("overlap", "longest", "shortest")]
    (folder / "ppo.json").write_text(json.dumps(scores))
    (folder / "rewardbench2.csv").write_text("model,score\noverlap,0.5\nlongest,0.4\nshortest,0.6\n")
    (folder / "table.csv").write_text("model,one,two,gold\na,1,4,3\nb,2,3,4\nc,3,2,1\nd,4,1,2\n")
    bring_recorded(folder, pairs)
    classifier(folder / "tiny")
    language_model(folder / "tiny_lm", seed=2)


def bring_recorded(folder: Path, pairs: list[dict[str, Any]]) -> None:
    """Write what other programs said of the pairs, a pool of answers with its gold, and a table of odd columns."""
    sides = ("chosen", "rejected")
    scores = [f"{row['id']},{place},{1 - place},{place}" for row in pairs for place, _ in enumerate(sides)]
    (folder / "rm.csv").write_text("\n".join(["id,index,own,none", *scores]) + "\n")
    said = zip(sides, "AB", strict=True)
    picks = [(side, f"Result: {letter}") for side, letter in said]
    write(
        folder / "judge.jsonl",
        [{"id": row["id"], "order": f"{side}_first", "reply": reply} for row in pairs for side, reply in picks],
    )
    numbers = {"answers": ["Home.", "To the lake."], "gold": [0, 1], "scores": {"rm": [0.2, 0.7]}}
    write(
        folder / "pool.jsonl",
        [{"id": f"q{n}", "user_id": f"u{n}", "question": f"Where to on day {n}?", **numbers} for n in range(4)],
    )
    odd = [f"Why {n}?,So it is {n}.,It is not {n}.,A,user-{n % 4}" for n in range(8)]
    (folder / "odd.csv").write_text("\n".join(["ask,good,bad,winner,who", *odd]) + "\n")


class Reader:
    """Types one line after the other, and fills in what the pages leave open."""

    def __init__(self, folder: Path, server: StandIn, served: str) -> None:
        self.folder = folder
        self.known = {"chat": server.chat, "server": served}
        self.used: set[str] = set()
        self.failures: list[str] = []

    def read(self, block: Block) -> None:
        """Run a block, and note how it failed if it did."""
        self.prepare(block)
        if block.is_python:
            self.run_python(block)
        elif reason_not_to_run(block.text):
            return
        else:
            line = made_smaller(block.text, self.used, self.put)
            command, *arguments = shlex.split(line)
            if command != "prbench":
                self.failures.append(f"{block.place}\n  neither run nor in NOT_RUN")
                return
            ended = run_cli(*arguments)
            if ended.code != 0:
                self.failures.append(f"{block.place}\n  as: {line}\n  exit code {ended.code}: {ended.err[-400:]}")

    def run_python(self, block: Block) -> None:
        script = self.folder / "block.py"
        script.write_text(block.text, encoding="utf-8")
        try:
            with redirect_stdout(io.StringIO()):
                runpy.run_path(str(script))
        except Exception as error:  # noqa: BLE001 (whatever a page's own code raises is what is reported)
            self.failures.append(f"{block.place}\n  {type(error).__name__}: {error}")

    def prepare(self, block: Block) -> None:
        """Do what a reader does between two lines."""
        text = block.text
        if "create study.db" in text or 'create("study.db"' in text:
            (self.folder / "study.db").unlink(missing_ok=True)  # every page begins a project of that name
        if text == "prbench annotate agreement answers.jsonl":
            write(self.folder / "answers.jsonl", answers(24))  # people have answered in the meantime
        if "--judge-run" in text:  # of a judge of the same pairs
            eval_cli(Path("runs"), f"judge:{self.known['chat']}", "--data", "pairs.jsonl", "--limit", "24")
        if text.startswith("prbench eval-planner --planner DIR"):  # which the page trains further down
            self.read(Block(block.page, block.line, "prbench train --method planner --data lab --out DIR"))
        if text.startswith("prbench meta --benchmark runs --downstream"):
            self.compare_four_models()
        if text.startswith("prbench diagnose runs/a runs/b --by"):
            for model in ("control:overlap", "control:question"):  # the page speaks of three runs
                eval_cli(Path("runs"), model, "--data", "small_lab", "--split", "validation")

    def compare_four_models(self) -> None:
        """Leave runs of four models on the same rows, and the best of a few candidates by each of them."""
        models = [f"control:{name}" for name in ("overlap", "longest", "shortest", "question")]
        for model in models:
            eval_cli(Path("runs_of_four"), model, "--data", "pairs.jsonl")
        chosen = [part for model in models for part in ("--model", model)]
        ended = run_cli("bon", "--policy", "lab", "--n", "4", "--users", "4", "--posts", "3", *chosen)
        assert ended.code == 0, ended.err

    def put(self, name: str) -> str:
        """Return what stands for a placeholder."""
        if name in self.known:
            return self.known[name]
        runs = [str(run.relative_to(self.folder)) for run in finished_runs(self.folder / "runs")]
        bon = sorted((self.folder / "runs" / "bon").glob("*/summary.json"), key=lambda path: path.stat().st_mtime_ns)
        found = {"run": runs[-1:], "runs2": runs[-2:], "runs3": runs[-3:]}
        return " ".join(found[name]) if name in found else str(bon[-1].parent)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRBENCH_PSEUDONYM_KEY", "a key for tests alone")
    with one_thread():
        bring_files(tmp_path)
        with stand_in(chat(judge)) as server, serving("classifier:tiny") as served:
            yield Reader(tmp_path, server, served)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_pages_run_one_after_the_other(reader: Reader) -> None:
    for page in PAGES:
        for block in blocks(page):
            reader.read(block)
    assert not reader.failures, "\n".join(reader.failures)
    idle = [each.pattern for each in SMALLER if each.pattern not in reader.used]
    assert not idle, f"no line needs these any more: {idle}"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    newcomer = Newcomer(tmp_path, monkeypatch, {"8430": free_port(), "8431": free_port()})
    try:
        with one_thread():
            for line in lines_of(page):
                newcomer.paste(line)
    finally:
        newcomer.end()
    assert not newcomer.failures, "\n".join(newcomer.failures)


def test_tutorials_leave_out_no_line_without_a_reason() -> None:
    lines = [line.text for page in TUTORIALS for line in lines_of(page) if not line.file]
    needed = {start for start in NOT_RUN_IN_TUTORIALS if any(line.startswith(start) for line in lines)}
    assert needed == set(NOT_RUN_IN_TUTORIALS)


@pytest.mark.slow
def test_the_board_of_a_folder_in_which_ppo_left_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pairs.jsonl", population(8))
    with one_thread():
        language_model(tmp_path / "tiny_lm", seed=2)
        common = ("--model", "control:longest", "--data", "pairs.jsonl")
        assert run_cli("eval", *common).code == 0
        trained = run_cli("ppo", "--policy", "tiny_lm", *common, *PPO.split(), "--out", "runs/ppo")
        assert trained.code == 0, trained.err
    reported = run_cli("report", "runs")
    assert reported.code == 0, reported.err


def test_every_command_line_is_run_or_has_its_reason() -> None:
    lines = [block for page in PAGES for block in blocks(page) if not block.is_python]
    unknown = [
        line.place for line in lines if not reason_not_to_run(line.text) and not line.text.startswith("prbench ")
    ]
    assert not unknown
    needed = {reason_not_to_run(line.text) for line in lines}
    assert not NOT_RUN.keys() - needed, "no page has these lines any more"
