"""Uploads: listed first, sent only with --yes, and without texts of people unless those were asked for."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import make_row
from tests.support.stand_in_hub import StandInHub, stand_in_hub

pytest.importorskip("huggingface_hub", reason="needs pip install 'prbench[hf]'")

from prbench.evaluation import evaluate

POST = "wrote post"  # in every profile
JUDGED = "judge:fake:Result: A"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    with stand_in_hub() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_TOKEN", "hf_stand_in")
        yield served


def test_nothing_is_sent_before_it_was_listed_and_confirmed(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], hub: StandInHub
) -> None:
    run = run_of(JUDGED)
    listed = prbench("export", str(run), "--to", "hub:org/results")
    assert listed.code == 0
    assert hub.asked == []
    assert "Nothing was sent. Add --yes to send these files." in listed.err
    for name in ("manifest.json", "summary.json", "items.jsonl"):
        assert f"runs/{run.name}/{name}, " in listed.err
    confirmed = prbench("export", str(run), "--to", "hub:org/results", "--yes")
    assert confirmed.code == 0, confirmed.err
    assert f"sent: {hub.url}/" in confirmed.err
    assert hub.repos["datasets/org/results"]["is_private"] is True
    assert hub.tokens == {"Bearer hf_stand_in"}
    home = f"datasets/org/results/runs/{run.name}"
    assert {f"{home}/{name}" for name in ("manifest.json", "summary.json", "items.jsonl")} <= set(hub.files)
    assert hub.files[f"{home}/summary.json"] == (run / "summary.json").read_bytes()


def test_rows_go_without_the_words_of_models_and_still_hold(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], hub: StandInHub, tmp_path: Path
) -> None:
    run = run_of(JUDGED)
    rows = [json.loads(line) for line in (run / "items.jsonl").read_text().splitlines()]
    for row in rows:  # a judge that quotes a post
        row["orders"] = [{**order, "raw": f"They {POST} 3. Result: A"} for order in row["orders"]]
    (run / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert prbench("export", str(run), "--to", "hub:org/results", "--yes").code == 0
    assert not any(POST.encode() in content for content in hub.files.values())
    taken = tmp_path / "taken"
    taken.mkdir()
    for place, content in hub.files.items():
        (taken / Path(place).name).write_bytes(content)
    checked = prbench("leaderboard", "check", str(taken))
    assert checked.code == 0, checked.out
    assert "the judge's own words were left out" in checked.out
    assert prbench("export", str(run), "--to", "hub:org/results", "--yes", "--with-data").code == 0
    assert any(POST.encode() in content for content in hub.files.values())


def test_a_dataset_goes_with_its_own_flag_alone(prbench: Callable[..., Any], made: Path, hub: StandInHub) -> None:
    assert prbench("data", "convert", "folder:ours", "--data", str(made / "pairs.jsonl")).code == 0
    refused = prbench("export", "ours", "--to", "hub:org/pairs", "--yes")
    assert (refused.code, hub.asked) == (2, [])
    assert "holds people's posts. Add --with-data to send it." in refused.err
    ended = prbench("export", "ours", "--to", "hub:org/pairs?private=false", "--yes", "--with-data")
    assert ended.code == 0, ended.err
    assert "PUBLIC if it is new" in ended.err
    assert hub.repos["datasets/org/pairs"]["is_private"] is False
    for name in ("README.md", "eval.yaml", "Art_and_Entertainment/test.jsonl"):
        assert hub.files[f"datasets/org/pairs/{name}"] == (Path("ours") / name).read_bytes()


def make_model(folder: Path, **more: str) -> Path:
    """A folder as `prbench train` leaves it."""
    folder.mkdir()
    manifest = {"kind": "train", "run_id": "x", "config": {}, "facts": {}, "data": {}, "command": ""}
    files = {"manifest.json": json.dumps(manifest), "summary.json": "{}", "head.npz": "weights", **more}
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_model_goes_whole_and_its_texts_with_their_own_flag(
    prbench: Callable[..., Any], hub: StandInHub, tmp_path: Path
) -> None:
    make_model(tmp_path / "my-head")
    assert prbench("export", "my-head", "--to", "hub:org/my-head", "--yes").code == 0
    assert hub.files["models/org/my-head/head.npz"] == b"weights"
    make_model(tmp_path / "my-planner", **{"bank.json": json.dumps([POST])})
    refused = prbench("export", "my-planner", "--to", "hub:org/my-planner", "--yes")
    assert refused.code == 2
    assert "bank.json holds texts of the data that the model learned from" in refused.err
    assert "models/org/my-planner" not in hub.repos
    assert prbench("export", "my-planner", "--to", "hub:org/my-planner", "--yes", "--with-data").code == 0
    assert "models/org/my-planner/bank.json" in hub.files


def test_a_password_in_an_address_is_not_sent(prbench: Callable[..., Any], hub: StandInHub, tmp_path: Path) -> None:
    run = evaluate([make_row(n) for n in range(6)], "control:longest", out=tmp_path / "runs").folder
    assert run is not None
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["command"] = "prbench eval --model judge:openai:m@http://me:secret@127.0.0.1/v1"
    (run / "manifest.json").write_text(json.dumps(manifest))
    ended = prbench("export", str(run), "--to", "hub:org/results", "--yes")
    assert (ended.code, hub.asked) == (2, [])
    assert "names an address with a password" in ended.err


def test_what_the_hub_refuses_is_one_line(
    prbench: Callable[..., Any], run_of: Callable[[str], Path], hub: StandInHub
) -> None:
    run = run_of("control:overlap")
    hub.refuses = True
    ended = prbench("export", str(run), "--to", "hub:org/results", "--yes")
    assert ended.code == 2
    assert "the hub did not take it: " in ended.err.splitlines()[-1]
    assert "Check the name, the network and the token" in ended.err
    assert prbench("export", str(run), "--to", "hub:results").code == 2
    empty = prbench("export", "nowhere", "--to", "hub:org/results")
    assert "nowhere: is neither a run, a folder of runs" in empty.err
