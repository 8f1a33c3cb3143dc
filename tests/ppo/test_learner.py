"""A policy learns by the logits it samples from, however a step is cut into passes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.ppo.conftest import COLOURS, ShareOfRed
from tests.support.tiny_llama import word_tokenizer

from prbench.downstream.ppo.learner import ActorCritic, experience_of, learn, make_batch, make_optimizer, measure
from prbench.downstream.ppo.loop import check_logprob_gap, read_steps
from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.training import load_policy_backbone, train_policy
from prbench.errors import RunError, UsageError
from prbench.schema import Example

Make = Callable[..., PpoSettings]


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Gemma2", {"head_dim": 8, "query_pre_attn_scalar": 8, "final_logit_softcapping": 1.0}),
        ("Granite", {"logits_scaling": 8.0}),
        ("Cohere", {"logit_scale": 0.0625}),
    ],
)
def test_a_family_learns_by_the_logits_it_samples_from(
    questions: list[Example], settings: Make, tmp_path: Path, family: str, changes: dict[str, Any]
) -> None:
    tokenizer = word_tokenizer(COLOURS)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        **changes,
    )
    torch.manual_seed(0)
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(tmp_path / "policy")
    tokenizer.save_pretrained(tmp_path / "policy")
    wanted = settings(policy=str(tmp_path / "policy"), steps=1, rollout_batch=16)
    train_policy(questions, wanted, tmp_path / "run", reward=ShareOfRed())
    assert all(row["sampling_gap"] < 1e-4 for row in read_steps(tmp_path / "run"))


def test_what_is_read_of_an_answer_does_not_depend_on_what_shares_its_batch(settings: Make, tiny_policy: Path) -> None:
    policy = ActorCritic(load_policy_backbone(str(tiny_policy)).model, settings())
    prompts, answers = [[3, 4, 5, 6, 7], [8], [9, 3]], [[4, 2], [5, 6, 7, 2], [3]]
    together = policy.read(make_batch(prompts, answers, 0, "cpu"))
    few = make_batch(prompts, answers, 0, "cpu").rows(torch.tensor([1, 2]))
    assert few.ids.shape == (2, 5)  # as wide as the longest of the two
    some = policy.read(few)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        with torch.no_grad():
            logits = policy.lm(torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
        by_hand = [float(logits[len(prompt) - 1 + place, token]) for place, token in enumerate(answer)]
        padded = [*by_hand, *[0.0] * (4 - len(answer))]
        assert together.logprobs[row].tolist() == pytest.approx(padded, abs=1e-5)
        if row:
            assert some.logprobs[row - 1].tolist() == pytest.approx(padded, abs=1e-5)


def test_rows_of_like_length_are_read_together_and_answered_in_their_order(settings: Make, tiny_policy: Path) -> None:
    policy = ActorCritic(load_policy_backbone(str(tiny_policy)).model, settings())
    prompts, answers = [[3, 4, 5, 6, 7], [8], [9, 3, 4, 5], [6]], [[4, 2], [5, 2], [3, 4], [7, 2]]
    batch = make_batch(prompts, answers, 0, "cpu")
    widths: list[int] = []
    policy.lm.get_decoder().register_forward_pre_hook(
        lambda module, args, named: widths.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    together = measure(policy, batch, microbatch=4, dtype=torch.float32)
    apart = measure(policy, batch, microbatch=2, dtype=torch.float32)
    assert widths == [7, 3, 7]  # 5 + 2 for all; then 1 + 2 for the short rows, and the long ones
    assert torch.allclose(apart.logprobs, together.logprobs, atol=1e-5)
    assert torch.allclose(apart.values, together.values, atol=1e-5)
    assert not torch.allclose(together.logprobs[0], together.logprobs[1], atol=1e-2)


def test_logits_that_are_changed_in_an_unknown_way_are_refused(settings: Make, tiny_policy: Path) -> None:
    lm = load_policy_backbone(str(tiny_policy)).model
    plain = lm.forward

    def louder(*args: Any, **kwargs: Any) -> Any:
        found = plain(*args, **kwargs)
        found.logits = 3 * found.logits
        return found

    ActorCritic(lm, settings())
    lm.forward = louder
    with pytest.raises(UsageError, match="LlamaForCausalLM changes its logits"):
        ActorCritic(lm, settings())


def test_sampling_that_disagrees_with_learning_stops_the_run() -> None:
    check_logprob_gap(1e-4)
    for gap in (0.01, float("nan")):
        with pytest.raises(RunError, match="step 0: sampling and learning disagree"):
            check_logprob_gap(gap)


PROMPTS = [[3, 4, 5, 6, 7], [8], [9, 3, 4, 5], [6], [4, 4], [7, 3, 9]]
ANSWERS = [[4, 2], [5, 6, 7, 2], [3, 4, 2], [7, 2], [9, 9, 9, 9, 2], [2]]
REWARDS = [1.0, -2.0, 0.5, 3.0, -1.0, 0.25]


def learned(settings: PpoSettings) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Take one step of plain gradient descent, whose size tells of the gradient's."""
    policy = ActorCritic(load_policy_backbone(settings.policy).model, settings)
    batch = make_batch(PROMPTS, ANSWERS, 0, "cpu")
    experience = experience_of(measure(policy, batch, microbatch=6, dtype=torch.float32), REWARDS, settings)
    assert experience is not None
    descent = torch.optim.SGD(make_optimizer(policy, settings).param_groups, lr=0.1)
    facts = learn(policy, descent, experience, settings, 0, torch.float32)
    return policy.copy_of_trained(), facts


@pytest.mark.parametrize("microbatch", [1, 2, 4])
def test_however_a_step_is_cut_into_passes_it_changes_the_weights_alike(
    settings: Make, tiny_policy: Path, microbatch: int
) -> None:
    how = {"rollout_batch": 6, "minibatches": 1, "epochs": 1, "learning_rate": 0.1, "max_grad_norm": 0.0}
    start = ActorCritic(load_policy_backbone(str(tiny_policy)).model, settings()).copy_of_trained()
    whole, seen = learned(settings(**how, microbatch=6))
    cut, seen_in_parts = learned(settings(**how, microbatch=microbatch))
    moved = max(float((whole[name] - start[name]).abs().max()) for name in start)
    assert moved > 1e-3
    for name, weight in whole.items():
        assert torch.allclose(cut[name], weight, atol=1e-4 * moved), name
    assert seen_in_parts == pytest.approx(seen, abs=1e-5)
