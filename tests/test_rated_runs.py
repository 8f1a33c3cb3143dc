"""Runs over rated rows: what each row says of its own rating, whom the tables name, and groups on the command line."""

import csv
import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from sklearn.isotonic import IsotonicRegression
from tests.support.command_line import prbench

import prbench as package
from prbench.errors import UsageError
from prbench.evaluation import evaluate
from prbench.evaluation.summary import load_runs
from prbench.metrics.estimate import user_folds
from prbench.people.forget import forget
from prbench.reward_models.base import LoadedModel
from prbench.schema import Problem, RatedRow, RewardInput, Score

__all__ = ["prbench"]  # a fixture
Data = list[dict[str, Any]]


def people(users: int = 40, each: int = 6) -> Data:
    """Users of two regions and two ages; in the north they rate by the length of a response, in the south not."""
    return [
        {
            "id": f"item-{user:02}-{place}",
            "user_id": f"user-{user:02}",
            "question": f"What shall I read, {place}?",
            "profile": [{"id": f"p{user}", "category": "", "text": f"Reader {user} of books."}],
            "response": "word " * (place + 1),
            "rating": (place if user % 2 else (place * 5 + user) % each) / (each - 1),
            "meta": {"region": "north" if user % 2 else "south", "age": "old" if user % 4 < 2 else "young"},
        }
        for user in range(users)
        for place in range(each)
    ]


@pytest.fixture
def rated(tmp_path: Path) -> Path:
    path = tmp_path / "rated.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in people()))
    return path


class Wavering:
    """Scores that depend on the response and on what is known of the user; some fail."""

    def __init__(
        self, failing: Callable[[RewardInput], bool] = lambda one: False, dies_after: int | None = None
    ) -> None:
        self.failing, self.left = failing, dies_after

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        if self.left is not None:
            self.left -= len(inputs)
            if self.left < 0:
                raise KeyboardInterrupt
        return [
            Score(value=None, problem=Problem.FAILED)
            if self.failing(one)
            else Score(value=int(sha256((one.response + one.context).encode()).hexdigest()[:6], 16) / 1e5)
            for one in inputs
        ]


def wavering(**settings: Any) -> LoadedModel:
    return LoadedModel(spec="wavering", kind="custom", model=Wavering(**settings), identity={"v": 1}, items_per_step=4)


def records(folder: Path | None) -> list[dict[str, Any]]:
    assert folder is not None
    return [json.loads(line) for line in (folder / "items.jsonl").read_text().splitlines()]


def test_every_row_has_its_alignment_by_a_map_fitted_on_other_users(rated: Path, tmp_path: Path) -> None:
    run = evaluate(rated, wavering(), out=tmp_path / "runs")
    rows = records(run.folder)
    assert len(rows) == 3 * 240
    for probe in ("own", "none", "swap"):
        side = [row for row in rows if row["probe"] == probe]
        folds = user_folds([row["user_id"] for row in side])
        for fold in set(folds.tolist()):
            others = [row for row, its in zip(side, folds, strict=True) if its != fold]
            curve = IsotonicRegression(out_of_bounds="clip")
            curve.fit([row["score"] for row in others], [row["rating"] for row in others])
            for row in (row for row, its in zip(side, folds, strict=True) if its == fold):
                (expected,) = curve.predict([row["score"]])
                assert row["predicted"] == pytest.approx(expected, abs=1e-6)
                assert row["alignment"] == pytest.approx(1 - abs(expected - row["rating"]), abs=1e-6)
    by_user: dict[str, list[float]] = {}
    for row in rows:
        if row["probe"] == "own":
            by_user.setdefault(row["user_id"], []).append(row["alignment"])
    headline = run.summary["ratings"]["alignment"]["value"]
    assert fmean(map(fmean, by_user.values())) == pytest.approx(headline, abs=1e-5)


def test_a_row_without_a_score_and_a_run_of_one_user_have_no_alignment(rated: Path, tmp_path: Path) -> None:
    data = people(4)
    run = evaluate(data, wavering(failing=lambda one: len(one.response) < 6))
    for row in run.rows():
        assert isinstance(row, RatedRow)
        assert (row.predicted is None) is (row.alignment is None) is (row.score is None)
    assert {row.score is None for row in run.items if isinstance(row, RatedRow)} == {True, False}
    alone = evaluate(data[:6], wavering())
    assert {(row.predicted, row.alignment) for row in alone.items if isinstance(row, RatedRow)} == {(None, None)}


def test_in_memory_on_disk_and_read_back_the_rows_are_the_same(rated: Path, tmp_path: Path) -> None:
    kept = evaluate(rated, wavering(), out=tmp_path / "runs")
    (loaded,) = package.load_runs(tmp_path / "runs")
    assert list(loaded.items) == list(evaluate(rated, wavering()).items)
    assert [row.alignment for row in kept.items if isinstance(row, RatedRow)] == [
        row.alignment for row in loaded.items if isinstance(row, RatedRow)
    ]


def test_an_interrupted_run_and_one_that_is_run_again_end_in_the_same_bytes(rated: Path, tmp_path: Path) -> None:
    whole = evaluate(rated, wavering(), out=tmp_path / "whole").folder
    assert whole is not None
    wanted = {name: (whole / name).read_bytes() for name in ("items.jsonl", "summary.json")}
    for stops in (8, 200, 500):
        with pytest.raises(KeyboardInterrupt):
            evaluate(rated, wavering(dies_after=stops), out=tmp_path / "cut")
    (folder,) = (tmp_path / "cut").iterdir()
    rows = records(folder)
    assert 0 < len(rows) < 720
    assert {row["alignment"] for row in rows} == {None}  # known only when all rows are
    with (folder / "items.jsonl").open("a") as file:
        file.write('{"id": "item-39-5", "probe": "sw')  # a row that was being written
    for _ in range(2):
        evaluate(rated, wavering(), out=tmp_path / "cut")
        assert {name: (folder / name).read_bytes() for name in wanted} == wanted


def test_rows_that_are_tried_again_change_the_columns_of_all(rated: Path, tmp_path: Path) -> None:
    whole = evaluate(rated, wavering(), out=tmp_path / "whole").folder
    first = evaluate(rated, wavering(failing=lambda one: len(one.response) > 20), out=tmp_path / "runs").folder
    assert first is not None
    assert whole is not None
    before = {(row["id"], row["probe"]): row for row in records(first)}
    assert {row["alignment"] is None for row in before.values()} == {True, False}
    evaluate(rated, wavering(), out=tmp_path / "runs")
    assert (first / "items.jsonl").read_bytes() == (whole / "items.jsonl").read_bytes()
    after = {(row["id"], row["probe"]): row for row in records(first)}
    assert any(after[key]["predicted"] != row["predicted"] for key, row in before.items() if row["score"] is not None)


def test_a_forgotten_persons_ratings_leave_no_trace_in_the_columns_of_others(rated: Path, tmp_path: Path) -> None:
    run = evaluate(rated, wavering(), out=tmp_path / "runs").folder
    before = {(row["id"], row["probe"]): row["predicted"] for row in records(run)}
    forget("user-03", [tmp_path])
    left = records(run)
    (loaded,) = load_runs([tmp_path / "runs"]).runs
    assert all(row["user_id"] != "user-03" for row in left)
    assert any(before[row["id"], row["probe"]] != row["predicted"] for row in left)
    own = [row for row in left if row["probe"] == "own"]
    means = [fmean(row["alignment"] for row in own if row["user_id"] == user) for user in {r["user_id"] for r in own}]
    assert fmean(means) == pytest.approx(loaded.summary["ratings"]["alignment"]["value"], abs=1e-5)


def test_a_table_has_the_columns_of_the_starter_code(rated: Path) -> None:
    pytest.importorskip("pandas")
    run = evaluate(rated, "control:longest")
    table = run.to_pandas()
    starter = table[["predicted_reward", "human_preference_score", "alignment_score"]]
    assert (1 - (starter["predicted_reward"] - starter["human_preference_score"]).abs()).tolist() == pytest.approx(
        starter["alignment_score"].tolist(), abs=2e-6
    )
    assert table["alignment_score"].tolist() == table["alignment"].tolist()
    assert "alignment_score" not in package.evaluate("lab", "control:longest", limit=2).to_pandas().columns


def test_users_and_groups_are_plain_tables(rated: Path, tmp_path: Path) -> None:
    run = evaluate(rated, "control:longest", group_by=["region"], out=tmp_path / "runs")
    users = run.users()
    assert list(users[0]) == ["user", "n", "alignment", "spearman", "kendall"]
    assert [(user["user"], user["n"]) for user in users] == [(f"user-{number:02}", 6) for number in range(40)]
    assert {user["spearman"] for user in users[1::2]} == {1.0}
    groups = run.groups()
    assert [(line["field"], line["figure"], line["group"], line["place"]) for line in groups] == [
        ("region", "alignment", "north", "best"),
        ("region", "alignment", "south", "worst"),
        ("region", "spearman", "north", "best"),
        ("region", "spearman", "south", "worst"),
    ]
    assert {(line["users"], line["n"], line["p_value"]) for line in groups} == {(20, 120, 0.0005)}
    (loaded,) = package.load_runs(tmp_path / "runs")
    assert loaded.groups() == groups
    assert [line["group"] for line in loaded.groups("age") if line["figure"] == "spearman"] == ["old", "young"]
    assert evaluate(rated, "control:longest").groups() == []
    with pytest.raises(UsageError, match="'height'"):
        loaded.groups("height")


def test_users_of_pairs_have_accuracy_gain_and_swap_gap() -> None:
    run = package.evaluate("lab", "control:overlap", limit=24, group_by="level")
    assert list(run.users()[0]) == ["user", "n", "accuracy", "gain", "swap_gap"]
    assert {line["figure"] for line in run.groups()} == {"accuracy", "gain", "swap_gap"}
    assert sum(user["n"] for user in run.users()) == 24


def test_group_by_works_for_ratings_on_the_command_line(prbench: Callable[..., Any], rated: Path) -> None:
    asked = (
        "eval",
        "--model",
        "control:longest",
        "--data",
        str(rated),
        "--group-by",
        "region",
        "--group-by",
        "region,age",
    )
    found = prbench(*asked, "--json").json["groups"]
    assert list(found) == ["region", "region,age"]
    region = found["region"]
    assert (region["figure"], region["worst"], region["best"]) == ("alignment", "south", "north")
    assert region["users"] == {"north": 20, "south": 20}
    assert region["gap"]["low"] > 0
    assert region["p_value"] == region["spearman"]["p_value"] == 0.0005
    assert set(found["region,age"]["groups"]) == {
        f"region={region}, age={age}" for region in ("north", "south") for age in ("old", "young")
    }
    printed = prbench(*asked).out
    assert "alignment: worst south" in printed
    assert "(n 120), best north" in printed
    assert "p < 0.001" in printed
    refused = prbench(*asked[:-1], "region,height")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--group-by region,height: no row has such a field" in refused.err


def test_report_writes_users_and_groups_beside_the_board(prbench: Callable[..., Any], rated: Path) -> None:
    assert prbench("eval", "--model", "control:longest", "--data", str(rated)).code == 0
    assert prbench("report", "runs", "--csv", "board.csv").code == 0
    assert not Path("board.groups.csv").exists()
    ended = prbench("report", "runs", "--csv", "made/board.csv", "--group-by", "region", "--html", "made/board.html")
    assert ended.code == 0, ended.err
    assert [line for line in ended.err.splitlines() if ".csv" in line] == [
        "board: made/board.csv",
        "users: made/board.users.csv",
        "groups: made/board.groups.csv",
    ]
    with Path("made/board.users.csv").open(encoding="utf-8", newline="") as file:
        users = list(csv.DictReader(file))
    assert [user["user"] for user in users] == [f"user-{number:02}" for number in range(40)]
    assert {user["model"] for user in users} == {"control:longest"}
    assert float(users[1]["spearman"]) == 1.0
    assert users[1]["accuracy"] == ""
    with Path("made/board.groups.csv").open(encoding="utf-8", newline="") as file:
        groups = list(csv.DictReader(file))
    worst = next(line for line in groups if line["figure"] == "alignment" and line["place"] == "worst")
    assert (worst["field"], worst["group"], worst["users"], worst["n"]) == ("region", "south", "20", "120")
    assert float(worst["gap_low"]) > 0 < float(worst["p_value"]) < 0.01
    page = Path("made/board.html").read_text()
    assert "<h3>By region</h3>" in page
    assert "its interval takes the two groups as given" in page
    assert "worst group" in page
