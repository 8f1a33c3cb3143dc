import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.classifier import ClassifierOptions, ClassifierReward
from prbench.reward_models.hf_models import load_hf_model
from prbench.schema import Problem, RewardInput, UserContext

Make = Callable[..., Any]
CPU = {"device": "cpu"}


def inputs() -> list[RewardInput]:
    """Inputs of very different lengths, with two duplicates."""
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdef ", k=rng.randint(1, 120))) for _ in range(19)]
    made = [
        RewardInput(question="Q?", user=UserContext.from_text(text[: i * 3]), response=text)
        for i, text in enumerate(texts)
    ]
    return [*made, made[0], made[7]]


def values(model: ClassifierReward, asked: list[RewardInput]) -> list[float]:
    scores = model.score(asked)
    assert all(score.problem is Problem.NONE for score in scores)
    return [score.value for score in scores if score.value is not None]


def alone(folder: Path, asked: list[RewardInput]) -> list[float]:
    """What transformers itself gives for each input without any padding."""
    return list(_alone(folder, tuple(asked)))


@lru_cache
def _alone(folder: Path, asked: tuple[RewardInput, ...]) -> tuple[float, ...]:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for each in asked:
        turn = (
            f"{each.context}\n\nThe question that this person asks now:\n\n{each.question}"
            if each.context
            else each.question
        )
        if tokenizer.chat_template:
            messages = [{"role": "user", "content": turn}, {"role": "assistant", "content": each.response}]
            encoded = dict(tokenizer.apply_chat_template(messages, return_dict=True))
        elif tokenizer.cls_token:
            encoded = dict(tokenizer(turn, each.response))
        else:
            encoded = dict(tokenizer(f"{turn}\n\n{each.response}"))
            encoded = {"input_ids": [*encoded["input_ids"], tokenizer.eos_token_id]}
        with torch.inference_mode():
            output = model(**{name: torch.tensor([ids]) for name, ids in encoded.items() if name != "attention_mask"})
        found.append(output.logits[0, 0].item())
    return tuple(found)


@pytest.fixture(params=["llama_classifier", "bert_classifier"])
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_scores_do_not_depend_on_batch_size_or_order(folder: Path, batch_size: int) -> None:
    asked = inputs()
    expected = alone(folder, asked)
    assert max(expected) - min(expected) > 0.05
    model = ClassifierReward(str(folder), ModelSettings(batch_size=batch_size), ClassifierOptions(**CPU))
    assert values(model, asked) == pytest.approx(expected, abs=1e-4)
    order = random.Random(1).sample(range(len(asked)), len(asked))
    assert values(model, [asked[i] for i in order]) == pytest.approx([expected[i] for i in order], abs=1e-4)


def test_duplicates_are_computed_once(llama_classifier: Path) -> None:
    loaded = load_reward_model(f"classifier:{llama_classifier}?device=cpu", ModelSettings())
    each = inputs()[0]
    assert isinstance(loaded.model, ClassifierReward)
    first, second = loaded.model.score([each, each])
    assert first == second
    assert loaded.tokens is not None
    assert loaded.tokens()["total"] == 2 * loaded.tokens()["computed"] > 0


@pytest.mark.parametrize("pad", [None, "</s>", "<pad>"])
def test_score_is_read_at_the_last_token_also_when_eos_ends_the_text_and_there_is_no_pad_token(
    save_llama: Make, make_tokenizer: Make, pad: str | None
) -> None:
    # The plain layout ends in EOS. The model's config names no pad token; the tokenizer names none, EOS, or one.
    folder = save_llama("SequenceClassification", make_tokenizer(chat_template=None, pad=pad), num_labels=1)
    asked = inputs()
    model = ClassifierReward(str(folder), ModelSettings(batch_size=16), ClassifierOptions(**CPU))
    assert values(model, asked) == pytest.approx(alone(folder, asked), abs=1e-4)


@pytest.mark.parametrize("pad_token_id", [1, 5, -1])
def test_pad_token_of_the_models_own_config_is_kept(save_llama: Make, make_tokenizer: Make, pad_token_id: int) -> None:
    # 1 is EOS: the model then reads one token early, alone as in a batch, as it did in training. -1 is no token.
    tokenizer = make_tokenizer(chat_template=None)
    folder = save_llama("SequenceClassification", tokenizer, num_labels=1)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": pad_token_id}))
    asked = inputs()
    model = ClassifierReward(str(folder), ModelSettings(batch_size=16), ClassifierOptions(**CPU))
    assert values(model, asked) == pytest.approx(alone(folder, asked), abs=1e-4)


def test_input_over_the_window_has_no_score_and_the_others_keep_theirs(llama_classifier: Path) -> None:
    short = RewardInput(question="Q?", response="Yes.")
    long = RewardInput(question="Q?", response="x" * 600)
    model = ClassifierReward(str(llama_classifier), ModelSettings(), ClassifierOptions(**CPU))
    first, second, third = model.score([short, long, short])
    assert first == third
    assert first.value is not None
    assert (second.value, second.problem) == (None, Problem.TOO_LONG)
    assert not model.fits(long)


def test_newly_initialised_score_head_is_refused(language_model: Path) -> None:
    with pytest.raises(UsageError, match=r"score\.weight is not among the saved weights"):
        ClassifierReward(str(language_model), ModelSettings(), ClassifierOptions(**CPU))


@pytest.fixture(scope="module")
def three_logits(save_llama: Make, make_tokenizer: Make) -> Path:
    labels = {0: "honest", 1: "helpful", 2: "brief"}
    folder: Path = save_llama("SequenceClassification", make_tokenizer(), num_labels=3, id2label=labels)
    return folder


def test_several_logits_without_a_rule_are_refused_and_named(three_logits: Path) -> None:
    with pytest.raises(
        UsageError, match=r"3 logits \(0 = honest, 1 = helpful, 2 = brief\).*in quotes: 'classifier:.*\?logit=2'"
    ):
        ClassifierReward(str(three_logits), ModelSettings(), ClassifierOptions(**CPU))


def test_logit_is_chosen_by_index_or_by_name(three_logits: Path) -> None:
    asked = inputs()[:3]
    scores = {
        logit: values(
            ClassifierReward(str(three_logits), ModelSettings(), ClassifierOptions(logit=logit, **CPU)), asked
        )
        for logit in ("0", "1", "helpful")
    }
    assert scores["1"] == scores["helpful"] != scores["0"]
    assert scores["0"] == pytest.approx(alone(three_logits, asked), abs=1e-4)
    with pytest.raises(UsageError, match="no logit 'kind'"):
        ClassifierReward(str(three_logits), ModelSettings(), ClassifierOptions(logit="kind", **CPU))
    with pytest.raises(UsageError, match="log_odds needs two"):
        ClassifierReward(str(three_logits), ModelSettings(), ClassifierOptions(head="log_odds", **CPU))


def test_log_odds_of_two_logits_is_their_difference(save_llama: Make, make_tokenizer: Make) -> None:
    folder = save_llama("SequenceClassification", make_tokenizer(), num_labels=2)
    asked = inputs()[:3]
    bad, good, odds = (
        values(ClassifierReward(str(folder), ModelSettings(), ClassifierOptions(**CPU, **rule)), asked)
        for rule in ({"logit": "0"}, {"logit": "1"}, {"head": "log_odds"})
    )
    assert odds == pytest.approx([one - other for one, other in zip(good, bad, strict=True)], abs=1e-5)


def test_not_a_number_is_a_failure(llama_classifier: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(llama_classifier, broken)
    weights = load_file(broken / "model.safetensors")
    weights["score.weight"].fill_(float("nan"))
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    (score,) = ClassifierReward(str(broken), ModelSettings(), ClassifierOptions(**CPU)).score(inputs()[:1])
    assert (score.value, score.problem, score.detail) == (None, Problem.FAILED, "not a finite number")


def test_identity_changes_with_the_weights_the_dtype_and_the_template_but_not_with_path_or_batch(
    llama_classifier: Path, save_llama: Make, make_tokenizer: Make, tmp_path: Path
) -> None:
    def identity(folder: Path, **settings: Any) -> Any:
        return ClassifierReward(str(folder), ModelSettings(**settings), ClassifierOptions(**CPU)).identity

    moved = tmp_path / "moved"
    shutil.copytree(llama_classifier, moved)
    own = identity(llama_classifier)
    assert identity(moved, batch_size=2) == own
    assert str(tmp_path) not in json.dumps(identity(moved))
    retrained = save_llama("SequenceClassification", make_tokenizer(), seed=5, num_labels=1)
    turn = tmp_path / "turn.md"
    turn.write_text("---\nslots: question, context\nanswer: text\n---\n## user\n{context} | {question}\n")
    others = [
        identity(retrained),
        identity(llama_classifier, dtype="bfloat16"),
        identity(llama_classifier, template=turn),
        identity(llama_classifier, max_length=100),
    ]
    assert all(other != own for other in others)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtype_is_what_was_asked_for(llama_classifier: Path, dtype: str) -> None:
    asked = inputs()[:4]
    model = ClassifierReward(str(llama_classifier), ModelSettings(dtype=dtype), ClassifierOptions(**CPU))
    assert model.identity["dtype"] == dtype
    assert values(model, asked) == pytest.approx(alone(llama_classifier, asked), abs=0.2)


@pytest.mark.parametrize(
    "target,fact",
    [
        ("./no/such/folder", "there is no such folder"),
        ("a/b/c", "there is no such folder"),
        ("{file}", "is a file"),
        ("{empty}", "cannot be loaded"),
    ],
)
def test_model_that_is_not_there_is_refused_in_one_line(tmp_path: Path, target: str, fact: str) -> None:
    (tmp_path / "file.bin").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    spec = target.format(file=tmp_path / "file.bin", empty=tmp_path / "empty")
    with pytest.raises(UsageError, match=fact) as caught:
        load_reward_model(f"classifier:{spec}", ModelSettings())
    assert "\n" not in str(caught.value)


def test_weights_that_were_cut_off_are_refused_in_one_line(llama_classifier: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(llama_classifier, cut)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UsageError, match="cannot be loaded"):
        ClassifierReward(str(cut), ModelSettings(), ClassifierOptions(**CPU))


def test_unknown_dtype_head_and_batch_size_are_refused(llama_classifier: Path) -> None:
    for option in ("dtype=int3", "head=best", "loader=mine", "device=moon", "bos=two", "head=log_odds&logit=1"):
        with pytest.raises(UsageError, match=option.split("=")[0]):
            load_reward_model(f"classifier:{llama_classifier}?{option}", ModelSettings())
    with pytest.raises(UsageError, match="--batch-size -1"):
        load_reward_model(f"classifier:{llama_classifier}", ModelSettings(batch_size=-1))


def save_adapter(base: Path, folder: Path, *, with_head: bool) -> Any:
    """Save a LoRA adapter on a causal language model, with random weights that matter; return its model."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(3)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    head = {"modules_to_save": ["score"]} if with_head else {}
    model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, **head))
    model.save_pretrained(folder)
    return model.eval()


def test_adapter_loads_with_its_base_and_its_score_head(language_model: Path, tmp_path: Path) -> None:
    import torch

    trained = save_adapter(language_model, tmp_path / "adapter", with_head=True)
    model = ClassifierReward(str(tmp_path / "adapter"), ModelSettings(), ClassifierOptions(**CPU))
    each = inputs()[4]
    with torch.inference_mode():
        ids = torch.tensor([model._chat.encode(each).ids])
        expected = trained(input_ids=ids).logits.item()
    assert values(model, [each]) == pytest.approx([expected], abs=1e-4)
    assert {"adapter", "base"} <= set(model.identity)
    assert not hasattr(model._loaded.model, "peft_config")  # it is merged
    rounded = ClassifierReward(str(tmp_path / "adapter"), ModelSettings(dtype="bfloat16"), ClassifierOptions(**CPU))
    assert values(rounded, [each]) == pytest.approx([expected], abs=0.2)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_an_adapter_of_weights_that_two_layers_share_is_not_merged(
    language_model: Path, tmp_path: Path, target: str
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(3)
    tied = AutoModelForCausalLM.from_pretrained(language_model, tie_word_embeddings=True)
    tied.save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(language_model).save_pretrained(tmp_path / "base")
    tied = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    lora = LoraConfig(r=2, target_modules=[target], init_lora_weights=False, task_type="CAUSAL_LM")
    trained = get_peft_model(tied, lora).eval()
    trained.save_pretrained(tmp_path / "adapter")
    loaded = load_hf_model(str(tmp_path / "adapter"), "AutoModelForCausalLM", ModelSettings(), device="cpu")
    ids = torch.tensor([[3, 4, 5]])
    with torch.inference_mode():
        torch.testing.assert_close(loaded.model(input_ids=ids).logits, trained(input_ids=ids).logits)


def test_adapter_without_its_score_head_is_refused(language_model: Path, tmp_path: Path) -> None:
    save_adapter(language_model, tmp_path / "adapter", with_head=False)
    with pytest.raises(UsageError, match=r"score\.weight.*modules_to_save"):
        ClassifierReward(str(tmp_path / "adapter"), ModelSettings(), ClassifierOptions(**CPU))


CUSTOM_CODE = '''
from dataclasses import dataclass
import torch
from transformers import LlamaConfig, LlamaModel, LlamaPreTrainedModel
from transformers.utils import ModelOutput

class CustomConfig(LlamaConfig):
    model_type = "custom_reward"

@dataclass
class Output(ModelOutput):
    logits: torch.Tensor = None
    score: torch.Tensor = None

class CustomReward(LlamaPreTrainedModel):
    """Reads its reward at a token of its own, which must end the text."""
    config_class = CustomConfig
    reward_token_id = 5
    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.v_head = torch.nn.Linear(config.hidden_size, 1, bias=False)
        self.post_init()
    def forward(self, input_ids, attention_mask=None):
        hidden = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        is_end = input_ids == self.reward_token_id
        assert torch.all(is_end.sum(1) >= 1)
        logits = self.v_head(hidden[is_end][:, :]).reshape(len(input_ids), -1)[:, :1]
        return Output(logits=logits, score=logits * 2)
'''


def test_reward_model_with_code_of_its_own(
    save_llama: Make, make_tokenizer: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch
    import transformers.dynamic_module_utils
    from safetensors.torch import load_file, save_file

    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = save_llama("SequenceClassification", make_tokenizer(), num_labels=1)
    (folder / "modeling_custom.py").write_text(CUSTOM_CODE)
    config = json.loads((folder / "config.json").read_text())
    auto_map = {"AutoConfig": "modeling_custom.CustomConfig", "AutoModel": "modeling_custom.CustomReward"}
    config |= {"auto_map": auto_map, "architectures": ["CustomReward"], "model_type": "custom_reward"}
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    weights["v_head.weight"] = weights.pop("score.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = ModelSettings(trust_remote_code=True)
    asked = inputs()[:5]
    logits = values(ClassifierReward(str(folder), settings, ClassifierOptions(loader="auto", **CPU)), asked)
    doubled = values(
        ClassifierReward(str(folder), settings, ClassifierOptions(loader="auto", head="score", **CPU)), asked
    )
    assert doubled == pytest.approx([2 * value for value in logits], abs=1e-4)
    assert len({round(value, 4) for value in logits}) == 5
    assert torch.is_inference_mode_enabled() is False
    with pytest.raises(UsageError, match="To run it, pass --trust-remote-code"):
        ClassifierReward(str(folder), ModelSettings(), ClassifierOptions(loader="auto", **CPU))


@pytest.mark.slow
def test_hub_model_is_known_by_its_commit_and_a_missing_one_is_one_line(
    llama_classifier: Path, tmp_path: Path
) -> None:
    """A cache laid out like the hub's own, read offline in a process of its own."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--org--tiny"
    shutil.copytree(llama_classifier, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    script = (
        "import json\n"
        "from prbench.errors import UsageError\n"
        "from prbench.reward_models import ModelSettings, load_reward_model\n"
        "print(json.dumps(dict(load_reward_model('classifier:org/tiny?device=cpu', ModelSettings()).identity)))\n"
        "try:\n"
        "    load_reward_model('classifier:org/missing?device=cpu', ModelSettings())\n"
        "except UsageError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    identity, problem = done.stdout.splitlines()
    assert json.loads(identity)["hub"] == "org/tiny"
    assert json.loads(identity)["commit"] == commit
    assert problem.startswith("org/missing cannot be loaded")
