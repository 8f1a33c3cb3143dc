"""`prbench annotate` on the command line."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from prbench.cli import main
from prbench.people.annotate.people import AnnotateSettings
from prbench.people.annotate.server import AnnotateServer

from .conftest import RATED, save


@pytest.fixture
def prbench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Call `prbench annotate ARGS`; return its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["prbench", "annotate", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return int(ended.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def data(tmp_path: Path, rows) -> str:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(12)))
    return str(path)


def token_of(link: str) -> str:
    return link.rpartition("/in/")[2]


def test_create_serve_answer_progress_export_import(prbench, data: str, tmp_path: Path) -> None:
    code, out, _ = prbench("create", "study.db", "--data", data, "--annotators", "ada,ben", "--items", "4", "--json")
    made = json.loads(out)
    assert (code, [each["name"] for each in made["annotators"]]) == (0, ["ada", "ben"])
    assert made["owner"].startswith("http://127.0.0.1:8100/in/")
    command = [sys.executable, "-m", "prbench", "annotate", "serve", "study.db", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            client.get("/in/" + token_of(made["annotators"][0]["link"]))
            for position in (1, 2, 3):
                assert save(client, position, "done", choice="left", **RATED).status_code == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(30)
    assert (process.returncode, out) == (0, "")
    assert err.startswith("note: the links of this project lead to http://127.0.0.1:8100, and it is served on"), err
    assert len(err.splitlines()) == 1
    code, out, _ = prbench("progress", "study.db", "--json")
    figures = json.loads(out)
    assert (figures["planned"], figures["done"]) == (8, 3)
    ada = figures["people"][0]
    assert (ada["name"], ada["planned"], ada["done"], ada["median_seconds"]) == ("ada", 4, 3, 5.0)
    assert "cannot be told yet" in prbench("progress", "study.db")[1], "one person alone agrees with nobody"
    assert prbench("export", "study.db", "--to", "answers.jsonl")[0] == 0
    assert len(Path("answers.jsonl").read_text().splitlines()) == 3
    code, out, _ = prbench("export", "study.db", "--to", "out/ls.json", "--as", "label-studio")
    assert [Path(line.removeprefix("written: ")).exists() for line in out.splitlines()] == [True, True]
    prbench("create", "other.db", "--data", data, "--seats", "2", "--json")
    assert json.loads(prbench("import", "other.db", "answers.jsonl", "--json")[1]) == {"added": 3, "known": 0}
    assert json.loads(prbench("import", "other.db", "out/ls.json", "--json")[1]) == {"added": 0, "known": 3}


def test_invite_adds_and_renews_and_only_the_last_link_is_good(prbench, data: str) -> None:
    from prbench.people.annotate.store import Store

    url = "https://annotate.example.org/"
    made = json.loads(prbench("create", "s.db", "--data", data, "--seats", "1", "--url", url, "--json")[1])
    first = made["annotators"][0]["link"]
    assert first.startswith("https://annotate.example.org/in/")
    cleo = json.loads(prbench("invite", "s.db", "cleo", "--json")[1])["link"]
    again = json.loads(prbench("invite", "s.db", "annotator-1", "--renew", "--json")[1])["link"]
    owner = json.loads(prbench("invite", "s.db", "--owner", "--json")[1])["link"]
    store = Store("s.db")
    good = {name: store.people.enter(token_of(link)) for name, link in (("c", cleo), ("a", again), ("o", owner))}
    assert {name: session.annotator and session.annotator.name for name, session in good.items()} == {
        "c": "cleo",
        "a": "annotator-1",
        "o": None,
    }
    assert store.people.enter(token_of(first)) is None
    assert store.people.enter(token_of(made["owner"])) is None


def test_links_stand_one_per_line_and_a_thin_panel_is_said(prbench, data: str) -> None:
    _, out, err = prbench("create", "s.db", "--data", data, "--annotators", "ada", "--overlap", "2")
    assert [line.split()[0] for line in out.splitlines()] == ["owner", "ada", "next:"]
    assert "invite more" in err


@pytest.mark.parametrize(
    "args,fact",
    [
        (("create", "s.db", "--data", "PAIRS"), "--annotators NAME,NAME or --seats"),
        (("create", "s.db", "--data", "PAIRS", "--annotators", "a,,b"), "1 to 80"),
        (("create", "s.db", "--data", "PAIRS", "--seats", "2", "--url", "ftp://x"), "--url ftp://x"),
        (("create", "s.db", "--data", "PAIRS", "--seats", "2", "--instructions", "no.txt"), "no.txt"),
        (("serve", "none.db"), "no such project"),
        (("export", "none.db", "--to", "x"), "no such project"),
        (("invite", "none.db"), "Give a name, or --owner"),
    ],
)
def test_what_is_wrong_gets_one_line_and_exit_code_2(prbench, data: str, args: tuple[str, ...], fact: str) -> None:
    code, out, err = prbench(*(data if each == "PAIRS" else each for each in args))
    assert (code, out) == (2, "")
    assert fact in err
    assert len(err.splitlines()) == 1
    assert not Path("s.db").exists()


def test_a_taken_port_is_said(make, start, prbench) -> None:
    running = start(make())
    port = running.url.rpartition(":")[2]
    code, _, err = prbench("serve", str(running.made.path), "--port", port)
    assert (code, "Cannot listen" in err) == (2, True)


@pytest.mark.parametrize(
    "links,served,is_said",
    [
        ("http://127.0.0.1:8100", {}, True),
        ("https://annotate.example.org", {"public_url": "https://annotate.example.org"}, False),
        ("https://annotate.example.org", {"public_url": "https://other.example.org"}, True),
        ("https://annotate.example.org", {}, True),
    ],
)
def test_links_that_lead_elsewhere_are_said(make, start, links: str, served: dict[str, str], is_said: bool) -> None:
    running = start(make(2, url=links), **served)
    assert bool(running.server.link_warning) is is_said
    if is_said:
        assert links in running.server.link_warning


def test_links_to_the_port_that_is_served_need_no_word(make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = AnnotateServer(make(2, url=f"http://localhost:{port}").path, AnnotateSettings(port=port))
    assert server.link_warning == ""
    server.stop()
    server.run()


def test_the_owners_instructions_are_kept_as_they_are(prbench, data: str) -> None:
    from prbench.people.annotate.store import Store

    Path("how.txt").write_text("Read <b>twice</b>.\n\nThen judge.")
    prbench("create", "s.db", "--data", data, "--seats", "1", "--overlap", "1", "--instructions", "how.txt")
    assert Store("s.db").project.instructions == "Read <b>twice</b>.\n\nThen judge."
