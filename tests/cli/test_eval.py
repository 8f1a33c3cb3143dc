"""`prbench eval`: figures out, one clear line for what is wrong, nothing lost."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_server import scripted_server

Command = Callable[..., "object"]


def test_it_prints_the_figures_and_where_the_rows_are(prbench, pairs: Path) -> None:
    ended = prbench("eval", "--model", "control:longest", "--data", str(pairs))
    assert ended.code == 0
    assert "accuracy" in ended.out
    assert "swap gap" in ended.out
    folder = next(Path("runs").iterdir())
    assert str(folder) in ended.out
    assert {path.name for path in folder.iterdir()} >= {"manifest.json", "items.jsonl", "summary.json", "timing.json"}


def test_json_is_the_summary_and_nothing_else(prbench, pairs: Path) -> None:
    ended = prbench("eval", "--model", "control:longest", "--data", str(pairs), "--json")
    assert ended.json["accuracy"]["value"] == 0.0  # in these rows the rejected response is the longer one
    assert ended.json["n_items"] == 12


def test_underscores_and_dashes_are_the_same_option(prbench, pairs: Path) -> None:
    ended = prbench(
        "eval",
        "--model",
        "control:longest",
        "--data",
        str(pairs),
        "--batch_size",
        "2",
        "--group_by",
        "category",
        "--json",
    )
    assert ended.code == 0
    assert set(ended.json["groups"]) == {"category"}


def test_a_config_file_gives_defaults_and_flags_override_it(prbench, pairs: Path) -> None:
    Path("eval.yaml").write_text(f"model: [control:longest]\ndata: {pairs}\ncontext: none\nbatch-size: 4\n")
    assert prbench("eval", "--config", "eval.yaml", "--json").json["context"] == "none"
    assert prbench("eval", "--config", "eval.yaml", "--context", "profile", "--json").json["context"] == "profile"


def test_an_unknown_name_in_a_config_file_is_refused(prbench) -> None:
    Path("eval.yaml").write_text("modle: control:longest\n")
    ended = prbench("eval", "--config", "eval.yaml")
    assert ended.code == 2
    assert "unknown option 'modle'" in ended.err


@pytest.mark.parametrize(
    "arguments,line",
    [
        (["--model", "control:nonsense"], "nonsense"),
        (["--model", "clasifier:x"], "classifier"),
        (["--model", "control:longest", "--context", "profil"], "--context profil: unknown"),
        (["--model", "control:longest", "--probes", "none,swap"], "'own' is missing"),
        (["--model", "control:longest", "--probes", "own,all"], "--probes: 'all' is unknown"),
        (["--model", "control:longest", "--rank", "newest"], "--rank newest: unknown"),
        (["--model", "control:longest", "--limit", "0"], "limit"),
        (["--model", "control:longest", "--context", "plan"], "needs a planner"),
        (["--model", "judge:nonsense:x"], "nonsense"),
        (["--model", "classifier:./no/such/folder"], "no/such/folder"),
    ],
)
def test_a_wrong_option_is_one_line_with_exit_code_two(prbench, pairs: Path, arguments: list[str], line: str) -> None:
    ended = prbench("eval", "--data", str(pairs), *arguments)
    assert ended.code == 2
    assert line in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not list(Path().glob("runs/*/summary.json"))


def test_a_missing_model_option_is_one_line(prbench, pairs: Path) -> None:
    ended = prbench("eval", "--data", str(pairs))
    assert ended.code == 2
    assert "--model" in ended.err
    assert len(ended.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "bad,field",
    [
        ({"chosen": ""}, "chosen"),
        ({"question": "  "}, "question"),
        ({"rejected": 7}, "rejected"),
        ({"profile": "none"}, "profile"),
        ({"chosen": "same", "rejected": "same"}, "chosen"),
        ({"id": "item-000"}, "id"),
    ],
)
def test_a_bad_row_names_file_line_and_field_and_writes_nothing(
    prbench, pairs: Path, bad: dict[str, object], field: str
) -> None:
    lines = pairs.read_text().splitlines()
    pairs.write_text("\n".join([*lines[:3], json.dumps(json.loads(lines[3]) | bad), *lines[4:]]) + "\n")
    ended = prbench("eval", "--model", "control:longest", "--data", str(pairs))
    assert ended.code == 2
    assert f"{pairs.name}:4:" in ended.err
    assert field in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_skipped_rows_are_named_and_counted(prbench, pairs: Path) -> None:
    pairs.write_text(pairs.read_text() + "{broken\n")
    ended = prbench("eval", "--model", "control:longest", "--data", str(pairs), "--skip-bad-rows", "1")
    assert ended.code == 0
    assert "skipped:" in ended.err
    assert f"{pairs.name}:13" in ended.err.replace("\n", "")
    again = prbench("eval", "--model", "control:longest", "--data", str(pairs), "--skip-bad-rows", "1", "--json")
    assert again.json["data"]["bad_rows"] == 1


def test_too_many_failures_end_with_exit_code_one(prbench, pairs: Path) -> None:
    ended = prbench(
        "eval",
        "--model",
        "judge:openai:m@http://127.0.0.1:9/v1?timeout=1",
        "--data",
        str(pairs),
        "--limit",
        "1",
        "--probes",
        "own",
        "--json",
    )
    assert ended.code == 1
    assert ended.json["unreadable"] == {"failed": 1}


def test_several_models_in_one_command(prbench, pairs: Path) -> None:
    ended = prbench(
        "eval", "--model", "control:longest", "--model", "control:shortest", "--data", str(pairs), "--json"
    )
    assert [summary["accuracy"]["value"] for summary in ended.json] == [0.0, 1.0]


def test_help_says_what_is_needed_with_an_example(prbench) -> None:
    for command in ("eval", "report", "data check", "models", "ppo compare", "demo"):
        ended = prbench(*command.split(), "-h")
        assert ended.code == 0
        assert f"prbench {command}" in ended.out


def test_models_and_their_check_speak_json(prbench) -> None:
    kinds = {entry["kind"] for entry in prbench("models", "--json").json}
    assert {"control", "classifier", "judge", "rating", "implicit", "pmi", "server"} <= kinds
    assert {"python", "torch", "SmolLM2-135M"} <= {
        entry["name"] for entry in prbench("models", "--check", "--json").json
    }


def test_check_finds_a_length_shortcut_and_exits_with_one(prbench, tmp_path: Path, rows) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(60)))
    ended = prbench("data", "check", "--data", str(path), "--json")
    verdicts = {finding["check"]: finding["verdict"] for finding in ended.json}
    assert ended.code == 1
    assert verdicts["floor: the longer response"] == "bad"
    assert verdicts["rows"] == "good"


@pytest.mark.parametrize("out", ["afile", "afile/below", "/proc/nowhere"])
def test_an_out_folder_that_cannot_be_made_is_one_line(prbench, pairs: Path, out: str) -> None:
    Path("afile").write_text("")
    ended = prbench("eval", "--model", "control:longest", "--data", str(pairs), "--out", out)
    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert out.split("/")[-1] in ended.err


def test_a_page_that_cannot_be_written_is_one_line(prbench, pairs: Path) -> None:
    prbench("eval", "--model", "control:longest", "--data", str(pairs))
    Path("folder").mkdir()
    ended = prbench("report", "runs", "--html", "folder")
    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1
    assert [path.name for path in Path().iterdir() if path.name.endswith(".tmp")] == []


def test_a_config_file_takes_single_values_for_options_that_may_be_repeated(prbench, pairs: Path) -> None:
    Path("eval.yaml").write_text(f"model: control:longest\ndata: {pairs}\ngroup-by: category\nprobes: [own, none]\n")
    ended = prbench("eval", "--config", "eval.yaml", "--json")
    assert ended.code == 0
    assert set(ended.json["groups"]) == {"category"}
    assert ended.json["swap"] is None


@pytest.mark.parametrize(
    "content,line",
    [
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"model: {a: b}", "model: must be a value"),
        (b"config: other.yaml", "unknown"),
        (b"posts: 3\nposts: 4", "posts stands twice"),
        (b"batch-size: 3\nbatch_size: 4", "batch_size: is given twice"),
        (b"context: no", "Put the value in quotes"),
        (b"limit: many", "limit: "),
        (b"limit: 0", "limit: "),
        (b"[eval]\nlimit = 3", "YAML"),
    ],
)
def test_a_broken_config_file_is_one_line(prbench, content: bytes, line: str) -> None:
    Path("eval.yaml").write_bytes(content)
    ended = prbench("eval", "--config", "eval.yaml")
    assert ended.code == 2
    assert line in ended.err
    assert prbench("eval", "--config", ".").code == 2


def test_a_negative_seed_is_refused_before_anything_runs(prbench, pairs: Path) -> None:
    ended = prbench("eval", "--model", "control:longest", "--data", str(pairs), "--seed", "-1")
    assert ended.code == 2
    assert not Path("runs").exists()


def test_markup_and_control_characters_in_data_are_shown_as_text(prbench, tmp_path: Path, rows) -> None:
    path = tmp_path / "we[bold]ird.jsonl"
    path.write_text("".join(json.dumps(row | {"category": "[/b]\x1b[31m"}) + "\n" for row in rows(6)))
    ended = prbench(
        "eval", "--model", "control:longest", "--data", str(path), "--group-by", "category", "--out", "mk[x]"
    )
    assert ended.code == 0
    assert "[/b]" in ended.out
    assert "\x1b[31m" not in ended.out
    assert "we[bold]ird.jsonl" in prbench("report", "mk[x]").out.replace("\n", "")


def test_interrupting_says_how_to_continue(pairs: Path, tmp_path: Path) -> None:
    asked = threading.Event()

    def answer(body: dict[str, Any]) -> str:
        asked.set()
        return "Result: A"

    with scripted_server(answer, delay_seconds=1.0) as server:
        # Where tests run in the background of a shell, their children would ignore it.
        heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        heed += "from prbench.cli import main; main()"
        command = [sys.executable, "-c", heed, "eval", "--model", f"judge:{server.spec}", "--data", str(pairs)]
        with subprocess.Popen([*command, "--out", str(tmp_path / "r")], stderr=subprocess.PIPE, text=True) as process:
            assert asked.wait(60)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to continue" in said
    assert "Traceback" not in said


def test_meta_that_is_nested_too_deeply_is_a_bad_row(prbench, pairs: Path) -> None:
    deep = "[" * 900 + "]" * 900
    first = pairs.read_text().splitlines()[0]
    pairs.write_text(first[:-1] + f', "meta": {{"x": {deep}}}}}\n')
    ended = prbench("eval", "--model", "control:longest", "--data", str(pairs))
    assert ended.code == 2
    assert "nested too deeply" in ended.err


@pytest.mark.parametrize("chosen,rejected", [("\u200b", "b"), ("same", "sa\u200bme")])
def test_text_without_visible_characters_is_empty(prbench, pairs: Path, chosen: str, rejected: str) -> None:
    row = json.loads(pairs.read_text().splitlines()[0]) | {"chosen": chosen, "rejected": rejected}
    pairs.write_text(json.dumps(row) + "\n")
    assert prbench("eval", "--model", "control:longest", "--data", str(pairs)).code == 2


def test_a_spec_says_what_its_own_model_is_shown(prbench: Callable[..., Any], pairs: Path) -> None:
    asked = ("eval", "--data", str(pairs), "--json")
    both = prbench(*asked, "--model", "control:overlap?context=none", "--model", "control:overlap").json
    assert [(each["model"], each["context"]) for each in both] == [
        ("control:overlap", "none"),
        ("control:overlap", "profile"),
    ]
    assert both[0]["run_id"] == prbench(*asked, "--model", "control:overlap", "--context", "none").json["run_id"]
    labelled = prbench(*asked, "--model", f"fake:length?labels={pairs}&shots=2")
    assert labelled.json["context"] == "profile, 2 labels"
    assert "there are no labeled pairs" in prbench(*asked, "--model", "fake:length?shots=2").err


def test_the_truth_sees_the_rubric_unasked_and_may_be_noisy(prbench: Callable[..., Any]) -> None:
    asked = ("eval", "--limit", "12", "--probes", "own", "--json", "--model")
    gold, noisy = (prbench(*asked, spec).json for spec in ("control:gold", "control:gold?noise=2"))
    assert (gold["context"], gold["accuracy"]["value"]) == ("oracle", 1.0)
    assert noisy["model"] == "control:gold?noise=2"
    assert noisy["run_id"] != gold["run_id"]
    assert noisy["accuracy"]["value"] < 1.0


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (("serve", "--model", "fake:length?context=none"), "context=none means nothing here: its inputs say"),
        (
            ("bench", "parity", "--model", "fake:length?shots=3", "--model", "fake:length"),
            "shots=3 means nothing here",
        ),
        (("eval", "--model", "judge:fake:A?noise=1"), "noise= or fail= needs a score for each response"),
        (("eval", "--model", "fake:length?nosie=1"), "Did you mean 'noise'?"),
    ],
)
def test_what_makes_no_sense_for_a_command_is_refused(
    prbench: Callable[..., Any], command: tuple[str, ...], line: str
) -> None:
    ended = prbench(*command)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert line in ended.err


def test_an_unknown_key_of_a_config_names_the_nearest(prbench: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("modle: control:overlap\n")
    assert "Did you mean 'model'?" in prbench("eval", "--config", "c.yaml").err


def test_a_config_file_has_the_names_of_the_flags(prbench: Callable[..., Any], pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "bench.yaml").write_text("set: [epochs=9]\nmethod: match\nlimit: 2\n")
    ended = prbench("train", "--config", str(tmp_path / "bench.yaml"), "--out", "m")
    assert "unknown option 'set'" not in ended.err
    assert "epochs" in ended.err
