"""Families that need no adapter: what their cards say to do is what a plain `classifier:` does."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch
import transformers

from prbench.reward_models.classifier import choose_adapter
from prbench.schema import RewardInput


def save(tiny: Any, kind: str, family: str, *, safe: bool = True, **changes: Any) -> tuple[Path, Any, Any]:
    torch.manual_seed(0)
    config = tiny.config(f"{kind}Config", num_labels=1, **changes)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    tokenizer = tiny.tokenizer(family)
    folder = tiny.folder / "model"
    model.save_pretrained(folder)
    if not safe:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


def conversation(each: RewardInput) -> list[dict[str, str]]:
    return [{"role": "user", "content": each.question}, {"role": "assistant", "content": each.response}]


def asked(tiny: Any) -> list[RewardInput]:
    return [RewardInput(question=each.question, response=each.response) for each in tiny.inputs()]


@pytest.mark.parametrize(("kind", "family"), [("Llama", "llama"), ("Gemma2", "gemma"), ("Qwen3", "chatml")])
def test_skywork_reward_is_the_logit_of_the_rendered_conversation_with_one_bos(
    tiny: Any, kind: str, family: str
) -> None:
    folder, model, tokenizer = save(tiny, kind, family)
    assert choose_adapter(str(folder)) == "none"

    def as_on_the_card(each: RewardInput) -> float:
        text = tokenizer.apply_chat_template(conversation(each), tokenize=False)
        if tokenizer.bos_token is not None and text.startswith(tokenizer.bos_token):
            text = text.removeprefix(tokenizer.bos_token)
        with torch.inference_mode():
            return float(model(**tokenizer(text, return_tensors="pt")).logits[0][0])

    want = [as_on_the_card(each) for each in asked(tiny)]
    assert tiny.scores(f"classifier:{folder}?device=cpu", asked(tiny)) == pytest.approx(want, abs=1e-4)


def test_offsetbias_pipeline_without_activation_gives_the_same_scores(tiny: Any) -> None:
    folder, model, tokenizer = save(tiny, "Llama", "llama")
    ask = transformers.pipeline("sentiment-analysis", model=model, tokenizer=tokenizer, device="cpu")

    def as_on_the_card(each: RewardInput) -> float:
        text = tokenizer.apply_chat_template(conversation(each), tokenize=False, add_generation_prompt=False)
        found = ask([text.replace(tokenizer.bos_token, "")], top_k=None, function_to_apply="none", batch_size=1)
        return float(found[0][0]["score"])

    want = [as_on_the_card(each) for each in asked(tiny)]
    assert tiny.scores(f"classifier:{folder}?device=cpu", asked(tiny)) == pytest.approx(want, abs=1e-4)


def test_rewardbench_2_classifiers_load_from_pytorch_files(tiny: Any) -> None:
    folder, model, tokenizer = save(tiny, "Llama", "llama", safe=False)

    def expected(each: RewardInput) -> float:
        ids = tokenizer.apply_chat_template(conversation(each), return_dict=True)["input_ids"]
        with torch.inference_mode():
            return float(model(input_ids=torch.tensor([ids])).logits[0][0])

    want = [expected(each) for each in asked(tiny)]
    assert tiny.scores(f"classifier:{folder}?device=cpu", asked(tiny)) == pytest.approx(want, abs=1e-4)
