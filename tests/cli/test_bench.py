"""`prbench bench`: figures that belong together, and a plot of them."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

LOAD = ("--shape", "tiny", "--prefix", "60", "--response", "5", "--repeats", "1", "--device", "cpu")
KEYS = {
    "device",
    "flops",
    "matmul_flops_per_second",
    "naive_seconds",
    "naive_tokens_per_second",
    "parity_max_abs",
    "peak_memory_bytes",
    "ratio",
    "seconds",
    "settings",
    "share_of_matmul_rate",
    "token_ratio",
    "tokens",
    "tokens_per_second",
    "unique_tokens",
    "unique_tokens_per_second",
}


def test_the_figures_fit_each_other(prbench) -> None:
    ended = prbench("bench", *LOAD, "--candidates", "4", "--json")
    assert ended.code == 0
    found = ended.json
    assert set(found) == KEYS
    assert found["tokens"] == 4 * 65
    assert found["unique_tokens"] == 60 + 4 * 5
    assert found["token_ratio"] == 260 / 80
    assert found["parity_max_abs"] < 1e-4
    assert abs(found["ratio"] - found["naive_seconds"] / found["seconds"]) < 0.01 * found["ratio"] + 0.01
    assert found["peak_memory_bytes"] > 0
    assert found["tokens_per_second"] > 0
    assert found["naive_tokens_per_second"] > 0


def test_a_sweep_doubles_the_candidates_and_is_drawn(prbench) -> None:
    ended = prbench("bench", *LOAD, "--candidates", "6", "--sweep", "--out", "speed", "--json")
    assert ended.code == 0
    found = ended.json
    assert json.loads(Path("speed/bench.json").read_text(encoding="utf-8")) == found
    assert [each["settings"]["candidates"] for each in found["points"]] == [2, 4, 6]
    assert [each["unique_tokens"] for each in found["points"]] == [70, 80, 90]
    assert all(set(each) == KEYS for each in found["points"])
    drawing = ElementTree.parse("speed/bench.svg").getroot()
    words = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    for word in ("Seconds", "Tokens per second", "Times as fast", "measured", "by number of tokens", "6"):
        assert word in words
    lines = list(drawing.iter("{http://www.w3.org/2000/svg}polyline"))
    assert [len(line.attrib["points"].split()) for line in lines] == [3] * 6


def test_without_json_a_sweep_is_a_table(prbench) -> None:
    ended = prbench("bench", *LOAD, "--candidates", "2", "--sweep")
    heading, row = ended.out.splitlines()
    assert heading.split() == ["candidates", "naive", "s", "shared", "s", "ratio", "tokens", "allow"]
    assert row.split()[0] == "2"
    assert row.split()[-1] == "1.857"  # 2 x 65 tokens against 60 + 2 x 5


@pytest.mark.slow
def test_a_compiled_decoder_gives_the_scores_of_the_plain_one() -> None:
    """In a process of its own: compiling leaves the interpreter's limit of recursion changed."""
    command = [sys.executable, "-m", "prbench", "bench", *LOAD, "--candidates", "3", "--compile", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert found["settings"]["compile"] is True
    assert found["unique_tokens"] == 60 + 3 * 5
    assert found["parity_max_abs"] < 1e-5


def test_bad_input_is_one_line(prbench) -> None:
    assert "Use one of: tiny, 30m, 3b" in prbench("bench", "--shape", "huge").err
    assert "--dtype" in prbench("bench", "--dtype", "int8").err
