"""A causal model as a policy, on a tiny Llama made here."""

import shutil
from pathlib import Path

import pytest
from tests.support.tiny_llama import save_tiny_llama

from prbench.backends.policy import FailedSample, Policy, Prompt
from prbench.downstream.policies import HFPolicy, HfPolicyOptions, load_policy

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'prbench[hf]'")
transformers = pytest.importorskip("transformers", reason="needs pip install 'prbench[hf]'")

WORDS = ["tea walk long short hills garden what about this one question"]
PROMPTS = [Prompt(id=name, question=f"what about {name} hills", context="") for name in ("tea", "walk", "long")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("policy"), WORDS)


def test_samples_do_not_depend_on_batches_or_company(folder: Path) -> None:
    policy = load_policy(f"hf:{folder}", max_tokens=6)
    assert isinstance(policy, Policy)
    samples = policy.sample(PROMPTS, n=4, seed=0)
    assert [len(some) for some in samples] == [4, 4, 4]
    assert (
        HFPolicy(str(folder), HfPolicyOptions(temperature=1.0, max_tokens=6, batch_size=1)).sample(
            PROMPTS, n=4, seed=0
        )
        == samples
    )
    assert policy.sample(PROMPTS[2:], n=4, seed=0) == samples[2:]
    assert policy.sample(PROMPTS, n=4, seed=1) != samples
    assert len({sample.text for some in samples for sample in some}) > 1
    assert all(sample.finish in ("stop", "length") and sample.tokens is not None for sample in samples[0])


def test_temperature_zero_says_the_same_each_time(folder: Path) -> None:
    samples = HFPolicy(str(folder), HfPolicyOptions(temperature=0.0, max_tokens=6)).sample(PROMPTS[:1], n=3, seed=0)[0]
    assert len(set(samples)) == 1


def test_dtype_and_top_p_are_used_and_are_another_policy(folder: Path) -> None:
    plain = load_policy(f"hf:{folder}", max_tokens=6)
    half = load_policy(f"hf:{folder}", max_tokens=6, dtype="bfloat16", batch_size=3)
    narrow = load_policy(f"hf:{folder}", max_tokens=6, top_p=1e-6)
    assert (plain.identity["dtype"], half.identity["dtype"]) == ("torch.float32", "torch.bfloat16")
    assert isinstance(half, HFPolicy)
    assert half.at_once == 3
    assert narrow.identity == {**plain.identity, "top_p": 1e-6}
    greedy = HFPolicy(str(folder), HfPolicyOptions(temperature=0.0, max_tokens=6))
    texts = [[sample.text for sample in policy.sample(PROMPTS, n=2, seed=0)[0]] for policy in (narrow, greedy)]
    assert texts[0] == texts[1]  # of the likely tokens, only the first is left


def test_a_prompt_beyond_the_window_fails_alone(folder: Path) -> None:
    policy = HFPolicy(str(folder), HfPolicyOptions(temperature=1.0, max_tokens=6))
    long = Prompt(id="long", question="tea " * 300, context="")
    good, bad = policy.sample([PROMPTS[0], long], n=2, seed=0)
    assert good == policy.sample(PROMPTS[:1], n=2, seed=0)[0]
    assert all(isinstance(sample, FailedSample) and "window of 256" in sample.error for sample in bad)


def test_weights_trained_anew_are_another_policy(folder: Path, tmp_path: Path) -> None:
    other = save_tiny_llama(tmp_path / "other", WORDS, seed=1)
    first, second = (
        HFPolicy(str(each), HfPolicyOptions(temperature=1.0, max_tokens=6)).identity["weights"]
        for each in (folder, other)
    )
    assert first != second


def test_an_adapter_over_a_base_trained_anew_is_another_policy(folder: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="needs pip install 'prbench[hf]'")
    base = Path(shutil.copytree(folder, tmp_path / "base"))
    adapter = tmp_path / "adapter"
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules="all-linear")
    peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), lora).save_pretrained(adapter)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(adapter)
    before = HFPolicy(str(adapter), HfPolicyOptions(temperature=1.0, max_tokens=6))
    save_tiny_llama(base, WORDS, seed=1)
    after = HFPolicy(str(adapter), HfPolicyOptions(temperature=1.0, max_tokens=6))
    assert after.sample(PROMPTS, n=4, seed=0) != before.sample(PROMPTS, n=4, seed=0)
    assert after.identity != before.identity
