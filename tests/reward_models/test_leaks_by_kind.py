"""Rubric and narrative stay away from models that read tokens: what they encode is what they saw."""

from pathlib import Path
from typing import Any

import pytest

from prbench.evaluation import EvalSettings, as_loaded, evaluate
from prbench.reward_models import ModelSettings

MARKER = "ZQXJ77"


def rows() -> list[dict[str, Any]]:
    aspect = {"aspect": f"cost {MARKER}", "evidence": MARKER, "reason": MARKER}
    return [
        {
            "id": f"i{n}",
            "user_id": f"u{n}",
            "question": f"Why {n}?",
            "profile": [{"id": f"p{n}", "category": "", "text": f"I like tea {n}."}],
            "rubric_aspects": [aspect],
            "narrative": MARKER,
            "category": "c",
            "chosen": f"Tea {n}.",
            "rejected": f"Coffee {n}.",
        }
        for n in range(3)
    ]


@pytest.mark.parametrize("context", ["none", "profile", "plan", "oracle"])
@pytest.mark.parametrize("kind", ["classifier", "pmi", "implicit"])
def test_the_marker_is_encoded_under_oracle_only(
    kind: str, context: str, llama_classifier: Path, language_model: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    from transformers import PreTrainedTokenizerFast

    seen: list[str] = []
    plain = PreTrainedTokenizerFast.apply_chat_template

    def listen(self: Any, conversation: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(str(conversation))
        return plain(self, conversation, *args, **kwargs)

    monkeypatch.setattr(PreTrainedTokenizerFast, "apply_chat_template", listen)
    target = {"classifier": f"{llama_classifier}", "pmi": f"{language_model}"}
    target["implicit"] = f"{language_model},{language_model}"
    loaded = as_loaded(f"{kind}:{target[kind]}", ModelSettings())
    settings = EvalSettings(context=context, planner="fake:- tea: it matters" if context == "plan" else "")
    evaluate(rows(), loaded, settings=settings, out=tmp_path)
    assert any("Tea 1." in text for text in seen)
    assert any(MARKER in text for text in seen) is (context == "oracle")
    left = "".join(path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert MARKER not in left
