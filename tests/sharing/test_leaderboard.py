"""A run that adds up is on the leaderboard; what was changed by hand afterwards is refused, and a line says where."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import make_row
from tests.sharing.conftest import MODELS, read_rows, write_rows

from prbench import evaluate
from prbench.evaluation.summary import probes_of, summarize
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
    manifest = json.loads((run / "manifest.json").read_text())
    summary = summarize(rows_of(run), manifest["facts"], probes_of(manifest))
    (run / "summary.json").write_text(json.dumps(summary))


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


def drop_all_swaps(run: Path) -> None:
    change_rows(run, lambda rows: [row for row in rows if row["probe"] != "swap"])
    with_summary_of_its_rows(run)


AGAINST_THE_DATA: dict[str, tuple[Callable[[Path], None], str]] = {
    "dropped rows": (drop_lost_items_and_say_so, "an item of the dataset was left out: item-"),
    "unknown items": (rename_items, r"is of no item of the dataset: other-item-000 \(none\)"),
    "users": (move_users, "says another user, category, question or group than the dataset: item-"),
    "dropped swaps": (drop_all_swaps, "has no row of the probe 'swap': item-"),
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


def same_posts(number: int, **changes: Any) -> dict[str, Any]:
    return make_row(number, profile=[{"id": "p", "text": "Everybody wrote this."}], **changes)


TRUE_RUNS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "users with the same posts": ([same_posts(number, user_id=f"user-{number}") for number in range(6)], "profile"),
    "users without posts": ([make_row(n, user_id=f"user-{n}", profile=[]) for n in range(6)], "profile"),
    "a user who is alone": (
        [make_row(number, category="rest" if number else "alone") for number in range(6)],
        "profile",
    ),
    "nobody is shown": ([same_posts(number, user_id=f"user-{number}") for number in range(6)], "none"),
    "one user": ([make_row(number, user_id="user-0") for number in range(4)], "profile"),
}


@pytest.mark.parametrize("name", TRUE_RUNS)
def test_a_run_in_which_not_everybody_can_be_swapped_holds(
    prbench: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    rows, context = TRUE_RUNS[name]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluate(tmp_path / "pairs.jsonl", SCORED, context, out=tmp_path / "runs")
    for more in ((), ("--data", "pairs.jsonl")):
        ended = prbench("leaderboard", "build", "runs", "--out", "site", "--json", *more)
        assert (ended.code, len(ended.json["accepted"])) == (0, 1), ended.out + ended.err
        (run,) = Path("runs").glob("*/summary.json")
        assert ended.json["accepted"][0]["summary"]["unswapped"] == json.loads(run.read_text())["unswapped"]


def test_replies_that_were_recorded_in_one_order_hold(prbench: Callable[..., Any], tmp_path: Path) -> None:
    rows = [make_row(number) for number in range(6)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = [
        {"id": row["id"], "probe": probe, "first": "chosen", "reply": f"Result: {'AB'[number % 2]}"}
        for number, row in enumerate(rows)
        for probe in ("own", "none", "swap")
    ]
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in said))
    assert prbench("eval", "--model", "replies:said.jsonl", "--data", "pairs.jsonl", "--out", "runs").code == 0
    (run,) = (path.parent for path in Path("runs").glob("*/summary.json"))
    assert {len(row["orders"]) for row in read_rows(run)} == {1}
    assert prbench("leaderboard", "check", "runs", "--data", "pairs.jsonl").code == 0
    of_orders(lambda row: row["orders"].append({**row["orders"][0], "order": "rejected_first"}))(run)
    ended = prbench("leaderboard", "check", "runs")
    assert (ended.code, "was not asked in the orders that the settings say (one)" in ended.out) == (1, True)


def without_picks(rows: Rows) -> None:
    for row in rows:
        del row["orders"]
        row.update(score_chosen=1.0, score_rejected=0.0, verdict="chosen")


@pytest.mark.parametrize("where", [slice(None), slice(1)])
def test_a_judge_cannot_hide_its_picks(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], where: slice
) -> None:
    run = run_of(JUDGED)
    change_rows(run, lambda rows: without_picks(rows[where]))
    with_summary_of_its_rows(run)
    ended = prbench("leaderboard", "check", str(run))
    assert (ended.code, "has a verdict and no picks, and its model compares: item-" in ended.out) == (1, True)


def test_a_judge_cannot_call_itself_another_kind(prbench: Callable[..., Any], run_of: Callable[[str], Path]) -> None:
    run = run_of(JUDGED)
    change_rows(run, without_picks)

    def change(manifest: Any) -> None:
        manifest["config"]["model_kind"] = manifest["facts"]["kind"] = "custom"

    forge_whole(run, change)
    ended = prbench("leaderboard", "check", str(run))
    assert (ended.code, "has a verdict and no picks, and its model compares" in ended.out) == (1, True)


class Half:
    """A judge of somebody's own, whose picks are no less needed."""

    name = "half"

    def prefer(self, pairs: Any) -> list[str]:
        return ["first"] * len(pairs)


def test_one_order_of_a_judge_that_is_asked_is_that_of_the_coin(prbench: Callable[..., Any], made: Path) -> None:
    evaluate(made / "pairs.jsonl", Half(), out="runs", orders="one")
    (run,) = (path.parent for path in Path("runs").glob("*/summary.json"))
    assert prbench("leaderboard", "check", "runs").code == 0
    turned = {"chosen_first": "rejected_first", "rejected_first": "chosen_first"}
    of_orders(lambda row: row["orders"][0].update(order=turned[row["orders"][0]["order"]]))(run)
    ended = prbench("leaderboard", "check", "runs")
    assert (ended.code, "was not asked in the orders that the settings say (one)" in ended.out) == (1, True)


def make_up_scores(run: Path) -> None:
    def win(rows: Rows) -> None:
        for row in rows:
            if row["probe"] == "own":
                row.update(score_chosen=1.0, score_rejected=0.0, verdict="chosen")

    change_rows(run, win)
    with_summary_of_its_rows(run)


def test_made_up_scores_do_not_displace_the_run_whose_id_they_bear(
    prbench: Callable[..., Any], run_of: Callable[[str], Path]
) -> None:
    true, other = run_of(SCORED), run_of("control:longest")
    forged = shutil.copytree(true, true.parent / "0-first")
    again = shutil.copytree(true, true.parent / "zz-again")
    make_up_scores(forged)
    assert prbench("leaderboard", "check", str(forged)).code == 0, "a forgery that is consistent in itself"
    ended = prbench("leaderboard", "check", str(true.parent), "--json")
    assert {Path(each["folder"]).name for each in ended.json["accepted"]} == {other.name}
    assert {Path(each["folder"]).name for each in ended.json["refused"]} == {forged.name, true.name, again.name}
    for each in ended.json["refused"]:
        (line,) = each["faults"]
        assert all(str(run) in line for run in (forged, true, again))
        assert "with different rows" in line
    shutil.rmtree(forged)
    change_rows(again, lambda rows: [row.update(score_chosen=row["score_chosen"] + 1e-9) for row in rows] and None)
    ended = prbench("leaderboard", "check", str(true.parent), "--json")
    assert {Path(each["folder"]).name for each in ended.json["accepted"]} == {other.name, true.name}


def test_pages_call_the_data_what_the_dataset_is_called(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], made: Path
) -> None:
    run, data = run_of(SCORED), str(made / "pairs.jsonl")
    manifest_with("facts", "data", "name", value="org/hardest")(run)
    manifest_with("data", "source", value="org/hardest")(run)
    manifest_with("data", "split", value="secret")(run)
    with_summary_of_its_rows(run)
    ended = prbench("leaderboard", "build", str(run), "--out", "site")
    assert ended.code == 0
    assert "The name of the data is what the submitter says." in Path("site/index.html").read_text()
    ended = prbench("leaderboard", "build", str(run), "--data", data, "--out", "site", "--json")
    assert ended.code == 0
    (accepted,) = ended.json["accepted"]
    assert accepted["summary"]["data"]["name"] == data
    assert any('name of the data, "org/hardest", is not shown' in line for line in accepted["missing"])
    assert any('split of the data, "secret", is not shown' in line for line in accepted["missing"])
    (listed,) = json.loads(Path("site/leaderboard.json").read_text())["runs"]
    assert listed["data"]["name"] == data
    assert "org/hardest" not in Path("site/index.html").read_text()
    manifest_with("facts", "data", "users", value=5)(run)
    with_summary_of_its_rows(run)
    assert prbench("leaderboard", "check", str(run), "--data", data).code == 1


def in_items(old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / "items.jsonl").read_text()
        (run / "items.jsonl").write_text(re.sub(old, lambda _: new, text, count=1))

    return change


def deep_summary(run: Path) -> None:
    change_json(run / "summary.json", put("accuracy", value=None))
    text = (run / "summary.json").read_text()
    (run / "summary.json").write_text(text.replace('"accuracy": null', f'"accuracy": {"[" * 700 + "]" * 700}'))


def surrogate_category(run: Path) -> None:
    def change(rows: Rows) -> None:
        for row in rows:
            row["category"] = "\ud800"

    change_rows(run, change)


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "rows nested too deep": (
        lambda run: (run / "items.jsonl").write_text("[" * 200_000 + "\n") and None,
        "not a row of ours",
    ),
    "summary nested deep": (deep_summary, "accuracy"),
    "manifest nested too deep": (
        lambda run: (run / "manifest.json").write_text("[" * 200_000) and None,
        "not valid JSON",
    ),
    "huge score": (in_items(r'"score_chosen": [-\d.e]+', f'"score_chosen": 1{"0" * 400}'), "not a row of ours"),
    "huge count": (in_items(r'"posts_used": \d+', f'"posts_used": 1{"0" * 400}'), "not a row of ours"),
    "huge number in the manifest": (manifest_with("facts", "max_failed", value=10**400), "not valid JSON"),
    "infinity in the manifest": (
        lambda run: (
            (run / "manifest.json").write_text(
                (run / "manifest.json").read_text().replace('"bad_rows": 0', '"bad_rows": 1e999')
            )
            and None
        ),
        "not valid JSON",
    ),
    "half a surrogate pair in the command": (manifest_with("command", value="\ud800"), "not valid JSON"),
    "half a surrogate pair in the config": (manifest_with("config", "model", value="\ud800"), "not valid JSON"),
    "half a surrogate pair in a category": (surrogate_category, "not a row of ours"),
    "settings of another type": (manifest_with("config", "settings", value=[]), "its config is not the one"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_submission_is_one_line_and_the_others_go_on(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], name: str
) -> None:
    breaks, fact = BROKEN[name]
    broken, true = run_of(SCORED), run_of("control:longest")
    breaks(broken)
    ended = prbench("leaderboard", "check", str(true.parent), "--json")
    assert ended.code == 1, ended.err
    (refused,), (accepted,) = ended.json["refused"], ended.json["accepted"]
    assert (refused["folder"], accepted["folder"]) == (f"{broken}", f"{true}")
    (line,) = refused["faults"]
    assert fact in line
    assert len(line) < 400
    assert prbench("leaderboard", "check", str(true.parent)).code == 1
    assert prbench("leaderboard", "build", str(true.parent), "--out", "site").code == 0
    assert broken.name in Path("site/index.html").read_text()


@pytest.mark.parametrize(
    "change", [put("run_id", value="0" * 12), put("facts", "resample", value=3), put("facts", value=None)]
)
def test_a_refusal_names_no_option_that_a_leaderboard_lacks(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], change: Callable[[Any], None]
) -> None:
    run = run_of(SCORED)
    change_json(run / "manifest.json", change)
    ended = prbench("leaderboard", "check", str(run))
    assert (ended.code, "--fresh" in ended.out) == (1, False)
    assert "Submit the folder as `prbench eval` wrote it." in ended.out
