"""Model specs share prefixes where they can, and say so where they cannot."""

from pathlib import Path

import pytest

from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import RewardInput

INPUTS = [
    RewardInput(question=question, context=context, response=response)
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


def test_an_encoder_says_that_it_shares_nothing(bert_classifier: Path) -> None:
    loaded = load_reward_model(f"classifier:{bert_classifier}?device=cpu", ModelSettings())
    assert loaded.note.startswith("prefixes are not shared: the model is no decoder")
