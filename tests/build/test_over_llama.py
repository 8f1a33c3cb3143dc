"""The build end to end: over HTTP, against a real llama.cpp server with the packaged model."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.build.test_build import assert_counts_add_up, lines
from tests.llm.conftest import llama_server, smollm2  # noqa: F401

from prbench.backends.llm import FakeLLM, load_llm
from prbench.construction.build import BuildSettings, BuildStage, ClientOptions, build

MEANS = ClientOptions(concurrency=2, timeout_seconds=120)


@pytest.mark.slow
def test_a_small_model_in_all_roles_loses_much_and_explains_it(
    tmp_path: Path,
    llama_server: str,  # noqa: F811
    lab_settings: Callable[..., BuildSettings],
    posts_file: Callable[[int], Path],
) -> None:
    spec = f"openai:smollm2@{llama_server}"
    models = {"generator": spec, "judge": spec, "quality_judge": spec}
    settings = lab_settings(
        data=str(posts_file(2)), users=None, aspects=1, words=20, retries=0, reply_tokens=60, **models
    )
    built = build(settings, tmp_path / "set", last=BuildStage.PARITY, options=MEANS)
    assert_counts_add_up(built, 2)
    assert built.failed == 0
    assert built.manifest["stages"]["draw"]["requests"] == 2
    assert built.manifest["stages"]["draw"]["completion_tokens"] > 0


@pytest.mark.slow
def test_real_judges_answer_in_the_form_that_is_read(
    tmp_path: Path,
    llama_server: str,  # noqa: F811
    scripted: Callable[..., dict[str, FakeLLM]],
    lab_settings: Callable[..., BuildSettings],
) -> None:
    real = load_llm(f"openai:smollm2@{llama_server}", concurrency=2, timeout_seconds=120)
    models = {"generator": scripted()["generator"], "judge": real, "quality_judge": real}
    settings = lab_settings(users=1, retries=0, batched_verification=True, reply_tokens=60)
    built = build(settings, tmp_path / "set", last=BuildStage.PARITY, options=MEANS, models=models)
    assert_counts_add_up(built, 1)
    assert built.failed == 0
    (first, *_) = lines(tmp_path / "set/4_verify.jsonl")
    # What the model says may be wrong, but it is either a verdict with its quote or a fault with its reason.
    assert first["ok"] or all(fault["reason"] and fault["detail"] for fault in first["faults"])
    again = build(settings, tmp_path / "set", last=BuildStage.PARITY, options=MEANS, models=models)
    assert again.manifest == built.manifest
