import subprocess
import sys

import pytest

from prbench.backends.llm import load_llm
from prbench.errors import UsageError


def test_vllm_says_how_to_serve_the_model() -> None:
    with pytest.raises(UsageError, match=r"vllm serve org/name.*openai:org/name@http://127\.0\.0\.1:8000/v1"):
        load_llm("vllm:org/name")


def test_unknown_kind_names_the_nearest_and_all_known_ones() -> None:
    with pytest.raises(UsageError, match=r"Known kinds: openai, local, hf, vllm, fake\. Did you mean 'openai'\?"):
        load_llm("opneai:gpt@http://127.0.0.1/v1")


def test_kind_far_from_all_others_gets_no_guess() -> None:
    with pytest.raises(UsageError) as caught:
        load_llm("xyz:model")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("kind", ["openai", "local", "hf", "fake"])
def test_kind_without_a_model_is_refused_with_an_example(kind: str) -> None:
    with pytest.raises(UsageError, match=f"names no chat model. Write {kind}:<target>, e.g. {kind}:"):
        load_llm(kind)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"timeout_seconds": 0.0}, {"window": 0}])
def test_options_that_cannot_work_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="must be positive"):
        load_llm("fake:A", **options)


def test_window_is_handed_on() -> None:
    assert load_llm("fake:A", window=77).window == 77


def test_heavy_packages_load_only_when_used() -> None:
    """A run over HTTP must not need torch, and a dry run must not need the OpenAI client."""
    code = (
        "import sys; from prbench.backends.llm import load_llm; load_llm('fake:A');"
        "import prbench.reward_models.generative;"
        "print([name for name in ('torch', 'transformers', 'openai', 'xllamacpp') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
