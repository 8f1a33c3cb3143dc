"""A run that adds up is on the leaderboard; what was changed by hand afterwards is refused, and a line says where."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sharing.conftest import MODELS, read_rows, write_rows

from prbench.evaluation.summary import summarize
from prbench.runs import run_id
from prbench.runs.rows import read_rows as rows_of

SCORED, JUDGED = "control:overlap", "judge:fake:Result: A"
Rows = list[dict[str, Any]]


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def change_rows(run: Path, change: Callable[[Rows], Rows | None]) -> None:
    rows = read_rows(run)
    write_rows(run, change(rows) or rows)


def with_summary_of_its_rows(run: Path) -> None:
    """Let the summary follow from the rows again, as a forger would who knows the program."""
    facts = json.loads((run / "manifest.json").read_text())["facts"]
    (run / "summary.json").write_text(json.dumps(summarize(rows_of(run), facts)))


def put(*keys: str, value: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


def summary_with(*keys: str, value: Any) -> Callable[[Path], None]:
    return lambda run: change_json(run / "summary.json", put(*keys, value=value))


def manifest_with(*keys: str, value: Any) -> Callable[[Path], None]:
    return lambda run: change_json(run / "manifest.json", put(*keys, value=value))


def flip_a_verdict(run: Path) -> None:
    def flip(rows: Rows) -> None:
        row = next(each for each in rows if each["probe"] == "own" and each["verdict"] == "rejected")
        row["verdict"] = "chosen"

    change_rows(run, flip)
    with_summary_of_its_rows(run)


def drop_lost_items(run: Path) -> None:
    def drop(rows: Rows) -> Rows:
        lost = {row["id"] for row in rows if row["probe"] == "own" and row["verdict"] == "rejected"}
        return [row for row in rows if row["id"] not in lost]

    change_rows(run, drop)
    with_summary_of_its_rows(run)


def drop_lost_items_and_say_so(run: Path) -> None:
    drop_lost_items(run)
    own = [row for row in read_rows(run) if row["probe"] == "own"]
    manifest_with("facts", "data", "rows", value=len(own))(run)
    manifest_with("facts", "data", "users", value=len({row["user_id"] for row in own}))(run)
    with_summary_of_its_rows(run)


def drop_swaps_that_won(run: Path) -> None:
    change_rows(run, lambda rows: [r for r in rows if r["probe"] != "swap" or r["verdict"] != "chosen"])
    with_summary_of_its_rows(run)


def double_a_row(run: Path) -> None:
    change_rows(run, lambda rows: [*rows, rows[0]])


def mix_probes(run: Path) -> None:
    def mix(rows: Rows) -> None:
        of_first = {row["probe"]: row for row in rows if row["id"] == rows[0]["id"]}
        of_first["own"]["probe"], of_first["none"]["probe"] = "none", "own"

    change_rows(run, mix)
    with_summary_of_its_rows(run)


def add_an_unknown_item(run: Path) -> None:
    def add(rows: Rows) -> Rows:
        return [*rows, *({**row, "id": "item-999"} for row in rows[:3])]

    change_rows(run, add)


def rename_items(run: Path) -> None:
    def rename(rows: Rows) -> None:
        for row in rows:
            row["id"] = f"other-{row['id']}"

    change_rows(run, rename)
    with_summary_of_its_rows(run)


def not_a_number(run: Path) -> None:
    text = (run / "items.jsonl").read_text()
    (run / "items.jsonl").write_text(re.sub(r'"score_chosen": [-\d.e]+', '"score_chosen": NaN', text, count=1))


def infinite_score(run: Path) -> None:
    change_rows(run, lambda rows: rows[0].update(score_chosen=1e308 * 10, verdict="chosen"))
    text = (run / "items.jsonl").read_text()
    (run / "items.jsonl").write_text(text.replace("Infinity", "1e999"))


def move_users(run: Path) -> None:
    def move(rows: Rows) -> None:
        for row in rows:
            row["user_id"] = {"user-0": "user-1", "user-1": "user-0"}.get(row["user_id"], row["user_id"])

    change_rows(run, move)
    with_summary_of_its_rows(run)


def summary_not_a_number(run: Path) -> None:
    text = (run / "summary.json").read_text()
    (run / "summary.json").write_text(re.sub(r'"coverage": \{\s*"value": [\d.]+', '"coverage": {"value": NaN', text))


def cut_off(run: Path) -> None:
    text = (run / "items.jsonl").read_text()
    (run / "items.jsonl").write_text(text[:-1])


def posts_without_a_profile(run: Path) -> None:
    def tell(rows: Rows) -> None:
        next(row for row in rows if row["probe"] == "none")["posts_used"] = 4

    change_rows(run, tell)


FORGERIES: dict[str, tuple[Callable[[Path], None], str]] = {
    "changed accuracy": (
        summary_with("accuracy", "value", value=0.9),
        r"accuracy.value is 0.9, and the rows give 0\.\d+",
    ),
    "another gain": (summary_with("personalization_gain", value=None), "personalization_gain is null, and the rows"),
    "impossible interval": (summary_with("accuracy", "low", value=0.99), "accuracy: its interval does not hold its"),
    "negative n": (
        summary_with("accuracy", "n", value=-3),
        "accuracy: its interval does not hold its value",
    ),
    "wrong n": (summary_with("n_items", value=240), "n_items is 240, and the rows give 24"),
    "a figure left out": (
        lambda run: change_json(run / "summary.json", lambda found: found.pop("tie_rate")),
        'tie_rate is "not there", and the rows give',
    ),
    "not a number in the summary": (summary_not_a_number, r"summary.json: not valid JSON \(NaN is no number\)"),
    "dropped rows": (drop_lost_items, r"has \d+ items with their own profile, and the manifest says 24"),
    "dropped swaps": (drop_swaps_that_won, "has no row of the probe 'swap'"),
    "duplicated rows": (double_a_row, "stands twice: item-000"),
    "flipped verdict": (flip_a_verdict, "its scores give another verdict than 'chosen': item-"),
    "mixed probes": (mix_probes, "was asked without a profile, and says that posts were shown: item-000"),
    "posts without a profile": (
        posts_without_a_profile,
        "was asked without a profile, and says that posts were shown",
    ),
    "rows of an unknown item": (add_an_unknown_item, "has 25 items with their own profile, and the manifest says 24"),
    "not a number": (not_a_number, r"items.jsonl:1: not a row of ours \(NaN is no number\)"),
    "infinite score": (infinite_score, "has a score that is no finite number"),
    "cut off": (cut_off, "its last line is cut off"),
    "wrong dataset hash": (
        manifest_with("facts", "data", "hash", value="0" * 64),
        "facts.data.hash is not the data_hash of its config",
    ),
    "edited config": (
        manifest_with("config", "model", value="classifier:org/best"),
        "its config is not the one that its run_id names",
    ),
    "edited model": (manifest_with("facts", "model", value="classifier:org/best"), "facts.model is 'classifier:org/"),
    "edited context": (
        manifest_with("facts", "context", value="none"),
        "facts.context is 'none', and its config",
    ),
    "any number may fail": (manifest_with("facts", "max_failed", value=1.0), "a leaderboard takes 0.5 at most"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused(prbench: Callable[..., Any], run_of: Callable[[str], Path], name: str) -> None:
    forge, fact = FORGERIES[name]
    run = run_of(SCORED)
    assert prbench("leaderboard", "check", str(run)).code == 0
    forge(run)
    ended = prbench("leaderboard", "check", str(run))
    assert ended.code == 1
    assert ended.out.startswith(f"refused: {run}\n")
    assert re.search(fact, ended.out), ended.out
    built = prbench("leaderboard", "build", str(run), "--out", "site")
    assert built.code == 2
    assert "No submission holds, so there is no site." in built.err
    assert not Path("site").exists()


def forge_whole(run: Path, change: Callable[[Any], None]) -> None:
    """Change the manifest, and give the run the id that follows."""
    change_json(run / "manifest.json", change)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["run_id"] = manifest["facts"]["run_id"] = run_id(manifest["config"])
    (run / "manifest.json").write_text(json.dumps(manifest))
    with_summary_of_its_rows(run)


def another_dataset(run: Path) -> None:
    def change(manifest: Any) -> None:
        manifest["config"]["data_hash"] = manifest["facts"]["data"]["hash"] = "0" * 64

    forge_whole(run, change)


AGAINST_THE_DATA: dict[str, tuple[Callable[[Path], None], str]] = {
    "dropped rows": (drop_lost_items_and_say_so, "an item of the dataset was left out: item-"),
    "unknown items": (rename_items, r"is of no item of the dataset: other-item-000 \(none\)"),
    "users": (move_users, "says another user, category, question or group than the dataset: item-"),
    "another dataset": (another_dataset, "is of the dataset 000000000000, and --data is"),
}


@pytest.mark.parametrize("name", AGAINST_THE_DATA)
def test_what_the_rows_alone_cannot_show_the_dataset_does(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], made: Path, name: str
) -> None:
    forge, fact = AGAINST_THE_DATA[name]
    run, data = run_of(SCORED), str(made / "pairs.jsonl")
    assert prbench("leaderboard", "check", str(run), "--data", data).code == 0
    forge(run)
    assert prbench("leaderboard", "check", str(run)).code == 0, "a forgery that is consistent in itself"
    ended = prbench("leaderboard", "check", str(run), "--data", data)
    assert ended.code == 1
    assert re.search(fact, ended.out), ended.out


def of_orders(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def forge(run: Path) -> None:
        change_rows(run, lambda rows: change(next(row for row in rows if row["probe"] == "own")) and None)
        with_summary_of_its_rows(run)

    return forge


@pytest.mark.parametrize(
    "forge, fact",
    [
        (of_orders(put("verdict", value="chosen")), "its orders give another verdict than 'chosen'"),
        (of_orders(lambda row: row["orders"].pop()), r"was not asked in the orders that the settings say \(both\)"),
        (
            of_orders(lambda row: [each.update(margin=2.0) for each in row["orders"]]),
            "its scores are not those of its",
        ),
        (of_orders(lambda row: row.update(score_chosen=1.0)), "its scores are not those of its orders"),
    ],
)
def test_the_verdict_of_a_judge_follows_from_its_picks(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], forge: Callable[[Path], None], fact: str
) -> None:
    run = run_of(JUDGED)
    assert prbench("leaderboard", "check", str(run)).code == 0
    forge(run)
    ended = prbench("leaderboard", "check", str(run))
    assert ended.code == 1
    assert re.search(fact, ended.out), ended.out


@pytest.mark.parametrize("name", ["manifest.json", "items.jsonl", "summary.json"])
def test_a_missing_file_is_named(prbench: Callable[..., Any], run_of: Callable[[str], Path], name: str) -> None:
    run = run_of(SCORED)
    (run / name).unlink()
    ended = prbench("leaderboard", "check", str(run))
    assert ended.code == 1
    assert name in ended.out


def test_what_is_missing_is_said_and_refuses_nothing(
    prbench: Callable[..., Any], run_of: Callable[[str], Path]
) -> None:
    run = run_of(JUDGED)
    (run / "timing.json").unlink()
    change_rows(run, lambda rows: [order.update(raw="") for row in rows for order in row["orders"]] and None)
    change_json(run / "manifest.json", put("environment", value={}))
    ended = prbench("leaderboard", "check", str(run))
    assert ended.code == 0
    for line in ("timing.json is missing", "names no environment", "own words were left out", "no --data was given"):
        assert line in ended.out


def test_true_runs_are_on_the_site_and_forged_ones_are_listed_with_the_reason(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], made: Path
) -> None:
    runs = {model: run_of(model) for model in MODELS}
    forged = shutil.copytree(runs[SCORED], runs[SCORED].parent / "team" / "forged")
    summary_with("accuracy", "value", value=0.9)(forged)
    again = shutil.copytree(runs[SCORED], runs[SCORED].parent / "team" / "again")
    folder = str(runs[SCORED].parent)
    ended = prbench("leaderboard", "build", folder, "--data", str(made / "pairs.jsonl"), "--out", "site", "--json")
    assert ended.code == 0, ended.err
    assert {Path(each["folder"]).name for each in ended.json["refused"]} == {"forged", "again"}
    site = Path("site")
    listing = json.loads((site / "leaderboard.json").read_text())
    assert {run["model"] for run in listing["runs"]} == set(MODELS)
    assert listing["compared_with_data"] is True
    index = (site / "index.html").read_text()
    assert "accuracy.value is 0.9, and the rows give" in index
    assert f"is the same run as {runs[SCORED]}" in index
    assert again.name in index
    for run in listing["runs"]:
        assert f'href="{run["page"]}"' in index
        assert run["model"] in (site / run["page"]).read_text()
        figures = json.loads((site / run["page"]).with_suffix(".json").read_text())
        submitted = json.loads((runs[run["model"]] / "summary.json").read_text())
        assert figures["accuracy"] == submitted["accuracy"] == run["accuracy"]
    assert prbench("leaderboard", "build", folder, "--out", "site").code == 0, "the site is replaced"
    other = Path("other")
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    ended = prbench("leaderboard", "build", folder, "--out", "other")
    assert (ended.code, (other / "letter.txt").read_text()) == (2, "mine")


def test_a_folder_without_a_submission_is_one_line(prbench: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = prbench("leaderboard", "check", "empty")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "holds no submission" in ended.err
