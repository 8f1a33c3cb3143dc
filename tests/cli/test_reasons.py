"""Why items have no verdict stands on the console, not only in the files of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

from tests.golden.stand_in import NO_TEMPLATE, stand_in, vllm_of_pairs

from prbench.pages.board import LONGEST_DETAIL, most_frequent


def test_eval_prints_the_reason_of_failed_items(prbench: Callable[..., Any], pairs: Path) -> None:
    with stand_in(vllm_of_pairs) as server:
        model = f"server:{server.url}?api=classify"
        ended = prbench("eval", "--model", model, "--data", str(pairs), "--probes", "own")
        (line,) = [line for line in ended.out.splitlines() if "unreadable" in line]
        assert f"failed, POST {server.url}/classify: HTTP 400: " in line
        assert NO_TEMPLATE["error"]["message"] in line


def test_bon_prints_the_reason_of_failed_questions(prbench: Callable[..., Any]) -> None:
    with stand_in(vllm_of_pairs) as server:
        model = f"server:{server.url}?api=classify"
        args = ("--policy", "lab", "--model", model, "--limit", "2", "--n", "2", "--posts", "3")
        ended = prbench("bon", *args)
    (line,) = [line for line in ended.out.splitlines() if "without a result" in line]
    assert line.startswith(model)
    assert NO_TEMPLATE["error"]["message"] in line


def test_the_most_frequent_reason_is_one_short_line() -> None:
    assert most_frequent(["", ""]) == ""
    assert most_frequent(["a\n b", "a b"]) == "a b"
    assert most_frequent(["b", "a", "b"]) == "most often (2): b"
    assert len(most_frequent(["x" * 1000])) == LONGEST_DETAIL
