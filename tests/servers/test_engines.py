"""The engines themselves, each in its own environment, against the same model in this process: `make test-servers`."""

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs pip install 'prbench[hf]'")
pytest.importorskip("openai", reason="needs pip install 'prbench[llm]'")
pytest.importorskip("httpx", reason="needs pip install 'prbench[serve]'")

from tests.servers.engines import EVERY

pytestmark = [pytest.mark.slow, pytest.mark.servers, pytest.mark.timeout(500)]


@pytest.mark.parametrize("name", EVERY)
def test_an_engine_gives_the_scores_verdicts_and_contexts_of_this_process(name: str, tmp_path: Path) -> None:
    python, run = EVERY[name]
    if not python.exists():
        pytest.skip(f"needs {python}: run `make servers-env`")
    for way, found in run(tmp_path).items():
        assert found.rows == 72, way
        assert found.shortened > 10, way  # contexts longer than the window are among them
        assert (found.unreadable, found.other_posts, found.verdicts_that_differ, found.other_replies) == (
            0,
            0,
            0,
            0,
        ), way
        assert way.endswith("reply") or (found.largest_difference is not None and found.largest_difference < 1e-5), way
