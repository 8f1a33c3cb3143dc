"""Model specs share prefixes where they can, and say so where they cannot."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import RewardInput, UserContext

INPUTS = [
    RewardInput(question=question, user=UserContext.from_text(context), response=response)
    for question, context in (("What to cook?", "I am in a hurry. " * 20), ("Where to walk?", ""))
    for response in ("Soup, in ten minutes.", "A stew that takes the whole day.", "Bread")
]


@pytest.mark.parametrize("kind", ["classifier", "pmi", "implicit"])
def test_specs_share_prefixes_and_can_be_told_not_to(kind: str, llama_classifier: Path, language_model: Path) -> None:
    target = {
        "classifier": str(llama_classifier),
        "pmi": str(language_model),
        "implicit": f"{language_model},{language_model}",
    }[kind]
    shared = load_reward_model(f"{kind}:{target}?device=cpu&dtype=float32", ModelSettings())
    apart = load_reward_model(f"{kind}:{target}?device=cpu&dtype=float32&share_prefixes=no", ModelSettings())
    assert shared.note == apart.note == ""
    ours = [score.value for score in shared.model.score(INPUTS)]  # type: ignore[union-attr]
    theirs = [score.value for score in apart.model.score(INPUTS)]  # type: ignore[union-attr]
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert shared.tokens is not None
    assert apart.tokens is not None
    assert shared.tokens()["computed"] < apart.tokens()["computed"]
    assert shared.tokens()["total"] == apart.tokens()["total"]


def test_a_decoder_that_cannot_share_says_why_and_an_encoder_has_nothing_to_share(
    bert_classifier: Path, make_tokenizer: Callable[..., Any], tmp_path: Path
) -> None:
    from transformers import BloomConfig, BloomForSequenceClassification

    config = BloomConfig(vocab_size=262, hidden_size=16, n_layer=1, n_head=2, num_labels=1, pad_token_id=0)
    BloomForSequenceClassification(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    for settings in (ModelSettings(), ModelSettings(keep_prefixes=1 << 24)):
        decoder = load_reward_model(f"classifier:{tmp_path}?device=cpu", settings)
        assert decoder.note.startswith("prefixes are not shared: the model is no decoder of transformers that takes")
        assert load_reward_model(f"classifier:{bert_classifier}?device=cpu", settings).note == ""


ENDS_IN_PAD = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@pytest.mark.parametrize("chat_template", [None, ENDS_IN_PAD])
def test_kept_prompts_change_no_score(
    chat_template: str | None, save_llama: Callable[..., Path], make_tokenizer: Callable[..., Any]
) -> None:
    options = {"chat_template": chat_template} if chat_template else {}
    folder = save_llama(
        "SequenceClassification", make_tokenizer(pad="<|end|>", **options), num_labels=1, pad_token_id=4
    )
    spec = f"classifier:{folder}?device=cpu&dtype=float32"
    plain = load_reward_model(spec, ModelSettings(share_prefixes=False))
    keeping = load_reward_model(spec, ModelSettings(keep_prefixes=1 << 24))
    assert keeping.note == ""
    empty = RewardInput(question="What to cook?", user=UserContext.from_text("I am in a hurry. " * 20), response="")
    for batch in (INPUTS[:1], INPUTS[:1], INPUTS, [empty], [empty, *INPUTS], INPUTS[3:]):
        ours = [score.value for score in keeping.model.score(batch)]  # type: ignore[union-attr]
        assert ours == pytest.approx([score.value for score in plain.model.score(batch)], abs=1e-4)  # type: ignore[union-attr]
    assert keeping.tokens is not None
    counted = keeping.tokens()
    assert counted["computed"] < 0.3 * counted["total"]


@pytest.mark.parametrize("rope_type", ["longrope", "dynamic"])
def test_long_texts_do_not_move_the_positions_of_short_ones(
    rope_type: str, save_llama: Callable[..., Path], make_tokenizer: Callable[..., Any]
) -> None:
    rope: dict[str, Any] = {"rope_type": rope_type, "rope_theta": 10000.0, "factor": 8.0}
    if rope_type == "longrope":
        rope |= {
            "original_max_position_embeddings": 200,
            "short_factor": [1.0] * 4,
            "long_factor": [1.0, 1.5, 3.0, 6.0],
        }
    folder = save_llama(
        "SequenceClassification",
        make_tokenizer(pad="<pad>"),
        num_labels=1,
        pad_token_id=5,
        max_position_embeddings=1600 if rope_type == "longrope" else 200,
        rope_parameters=rope,
    )
    settings = ModelSettings(max_length=None)
    spec = f"classifier:{folder}?device=cpu&dtype=float32"
    alone = load_reward_model(spec, ModelSettings(share_prefixes=False, batch_size=1))
    together = load_reward_model(spec, settings)
    padded = load_reward_model(spec, ModelSettings(share_prefixes=False))
    batch = [each for each in INPUTS if alone.fits is None or alone.fits(each)]
    expected = [score.value for score in alone.model.score(batch)]  # type: ignore[union-attr]
    for loaded in (together, padded):
        assert [score.value for score in loaded.model.score(batch)] == pytest.approx(expected, abs=1e-4)  # type: ignore[union-attr]
    keeping = load_reward_model(spec, ModelSettings(keep_prefixes=1 << 24))
    assert keeping.note.startswith("prompts are not kept between calls: the model looks back")
