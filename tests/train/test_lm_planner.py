"""A language model that learns to plan: what it is taught on, and that the folder plans and scores."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("peft", reason="needs pip install 'prbench[train]'")

import torch
from tests.support.contexts import profile
from tests.support.tiny_llama import save_tiny_llama, word_tokenizer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from prbench.backends.llm.hf import TransformersLLM
from prbench.context import Ask, load_planner, make_context
from prbench.context.plan import plan_messages
from prbench.errors import DataError, UsageError
from prbench.prompts.replies import read_aspects
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import Aspect, Example, Post, RewardInput, User
from prbench.training import lm_planner
from prbench.training.data import TrainingData, make_training_data
from prbench.training.folder import no_progress
from prbench.training.lm_planner import LmPlannerConfig, rubric_as_plan, sft_examples
from prbench.training.lm_trainer import SftTokenizer, load_lm, make_trainer
from prbench.training.methods import load_method, run_method
from prbench.training.trainers import IGNORED, ReplyCollator, ReplyTrainer, knows_reply_loss, reply_loss

WORDS = ("cheap", "quick", "tea")


class Words:
    """An encoder that counts three words."""

    name = "words"
    identity = {"name": "words"}  # noqa: RUF012

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        counts = np.array([[text.lower().count(word) for word in WORDS] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)


def example(number: int, split: str) -> Example:
    return Example(
        id=f"{split}-{number}",
        user=User(id=f"{split}-{number}", profile=(Post(id="p", text=f"I count money {split} {number}"),)),
        question="What now ?",
        chosen="Take the cheap tea.",
        rejected="Take the quick tea.",
        rubric=(Aspect(aspect="cheap"),),
    )


@pytest.fixture(scope="module")
def data() -> TrainingData:
    return make_training_data([example(n, "train") for n in range(12)], [example(n, "held") for n in range(4)])


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [message.content for message in plan_messages("What now ?", ["I count money"])]
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"), [*texts, "- cheap quick"], max_position_embeddings=1024)


def config_for(backbone: Path, **changes: Any) -> LmPlannerConfig:
    settings = {
        "backbone": str(backbone),
        "max_length": 400,
        "lora_rank": 8,
        "lora_dropout": 0.0,
        "learning_rate": 3e-2,
        "warmup": 0.0,
        "epochs": 4,
        "batch_size": 4,
        "criteria_epochs": 2,
        "patience": 100,
    }
    return LmPlannerConfig(**{**settings, **changes})


@pytest.fixture(scope="module")
def trained(data: TrainingData, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm_planner, "load_encoder", lambda name: Words())
        run_method(load_method("lm-planner"), data, config_for(tiny), folder)
    return folder


def test_a_rubric_is_written_as_plans_are_read() -> None:
    rubric = [
        Aspect(aspect="Low cost", reason="They count\npennies: every one."),
        Aspect(aspect="Calm: no rush"),
        *(Aspect(aspect=f"More {n}") for n in range(5)),
    ]
    text = rubric_as_plan(rubric)
    assert text.splitlines()[:2] == ["- Low cost: They count pennies: every one.", "- Calm, no rush"]
    assert read_aspects(text)[:2] == (("Low cost", "They count pennies: every one."), ("Calm, no rush", ""))
    assert len(read_aspects(text)) == 5


def test_the_example_is_the_very_prompt_that_the_planner_gets(tiny: Path) -> None:
    planner = TransformersLLM(str(tiny))
    messages = plan_messages("What now ?", ["I count money train 0"])
    layout = SftTokenizer(planner._tokenizer, config_for(tiny))
    assert layout.prompt(messages) == planner._prompt(messages)
    (lesson,) = sft_examples(layout, [example(0, "train")], config_for(tiny), "rows")
    assert list(lesson.prompt) == planner._prompt(messages)
    assert planner._tokenizer.decode(lesson.reply) == "- cheap </s>"


def test_the_loss_is_that_of_the_reply_alone() -> None:
    rows = [
        {"input_ids": [5, 6, 7], "labels": [IGNORED, 6, 7]},
        {"input_ids": [5, 6], "labels": [IGNORED, 6]},
    ]
    batch = ReplyCollator(0)(rows)
    assert batch["labels"].tolist() == [[IGNORED, 6, 7], [IGNORED, 6, IGNORED]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["input_ids"].tolist() == [[5, 6, 7], [5, 6, 0]]


ROWS = [
    {"input_ids": [5, 6, 7, 8, 9], "labels": [IGNORED, IGNORED, IGNORED, 8, 9]},
    {"input_ids": [6, 7], "labels": [IGNORED, 7]},
]
TAUGHT = 3  # tokens


def test_the_loss_and_its_gradients_are_those_of_the_model_itself(tiny: Path) -> None:
    lm = AutoModelForCausalLM.from_pretrained(tiny)
    assert knows_reply_loss(lm, 0)
    batch = ReplyCollator(0)(ROWS)
    lm(**batch).loss.backward()
    own = [weight.grad.clone() for weight in lm.parameters()]
    lm.zero_grad()
    (reply_loss(lm, batch["input_ids"], batch["labels"]) / TAUGHT).backward()
    torch.testing.assert_close([weight.grad for weight in lm.parameters()], own, rtol=1e-4, atol=1e-6)


def test_the_logits_of_prompts_are_not_computed(tiny: Path) -> None:
    lm = AutoModelForCausalLM.from_pretrained(tiny)
    seen = []
    lm.get_output_embeddings().register_forward_hook(lambda *_: pytest.fail("all logits were computed"))
    linear = torch.nn.functional.linear

    def watched(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if weight.shape[0] == lm.config.vocab_size:
            seen.append(states.shape[0])
        return linear(states, weight, bias)

    batch = ReplyCollator(0)(ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", watched)
        reply_loss(lm, batch["input_ids"], batch["labels"])
    assert seen == [TAUGHT]


def test_nothing_is_learned_from_padding_or_of_a_first_token() -> None:
    rows = [{"input_ids": [5, 6, 7], "labels": [5, 6, 7]}, {"input_ids": [6, 7], "labels": [6, 7]}]
    assert ReplyCollator(0)(rows)["labels"].tolist() == [[IGNORED, 6, 7], [IGNORED, 7, IGNORED]]


@pytest.mark.parametrize("fault", ["sees what comes after", "does more with its logits", "has no decoder"])
def test_a_model_whose_loss_is_another_keeps_its_own(tiny: Path, fault: str) -> None:
    lm = AutoModelForCausalLM.from_pretrained(tiny)
    whole = lm.forward

    def more(**batch: Any) -> Any:
        found = whole(**batch)
        found.loss = 1.1 * found.loss
        return found

    if fault == "sees what comes after":
        for layer in lm.model.layers:
            layer.self_attn.is_causal = False
        lm.set_attn_implementation("eager")
        lm.model.forward = seeing_all(lm.model.forward)
    elif fault == "does more with its logits":
        lm.forward = more
    else:
        lm = torch.nn.Linear(1, 1)
    assert not knows_reply_loss(lm, 0)


def test_an_adapter_on_the_output_embedding_keeps_the_model_s_own_loss(tiny: Path) -> None:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=2, target_modules=["lm_head"], task_type="CAUSAL_LM")
    assert not knows_reply_loss(get_peft_model(AutoModelForCausalLM.from_pretrained(tiny), lora), 0)


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_a_step_learns_what_the_plain_trainer_would_learn(tiny: Path, tmp_path: Path, accumulate: int) -> None:
    """Ten lessons of different lengths: the last step is short, and passes have different numbers of tokens."""
    rows = [
        {"input_ids": [5, *[6 + place % 4 for place in range(size)]], "labels": [IGNORED] * 2 + [7] * (size - 1)}
        for size in (3, 9, 4, 12, 5, 2, 8, 6, 3, 7)
    ]
    found = []
    for kind in (Trainer, ReplyTrainer):
        arguments = TrainingArguments(
            output_dir=str(tmp_path / kind.__name__),
            per_device_train_batch_size=4 // accumulate,
            gradient_accumulation_steps=accumulate,
            optim="sgd",
            learning_rate=0.5,
            num_train_epochs=2,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        lm = AutoModelForCausalLM.from_pretrained(tiny)
        trainer = kind(model=lm, args=arguments, train_dataset=rows, eval_dataset=rows, data_collator=ReplyCollator(0))
        trainer.train()
        found.append(
            (trainer.evaluate()["eval_loss"], torch.cat([each.detach().flatten() for each in lm.parameters()]))
        )
    (plain_loss, plain), (own_loss, own) = found
    torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-5)
    assert own_loss == pytest.approx(plain_loss, rel=1e-4)
    start = torch.cat([each.flatten() for each in AutoModelForCausalLM.from_pretrained(tiny).parameters()])
    assert (own - start).abs().max() > 1e-2


def test_the_trainer_is_the_one_that_computes_replies_alone(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    config = config_for(tiny)
    backbone, layout = load_lm(config)
    lessons = sft_examples(layout, data.train, config, data.name)
    assert type(make_trainer(backbone, config, lessons, lessons, tmp_path, no_progress)) is ReplyTrainer


def seeing_all(forward: Any) -> Any:
    """Let all tokens see all that are no padding, as encoders do."""

    def seen(input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **rest: Any) -> Any:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        width = input_ids.shape[1]
        wide = mask[:, None, None, :].expand(-1, 1, width, width)
        added = torch.zeros(wide.shape).masked_fill(wide == 0, torch.finfo(torch.float32).min)
        return forward(input_ids=input_ids, attention_mask=added, **rest)

    return seen


def test_posts_beyond_the_length_are_dropped_and_counted(tiny: Path) -> None:
    tokenizer = word_tokenizer(["What now ?"])
    whole = SftTokenizer(tokenizer, config_for(tiny))
    posts = tuple(Post(id=str(n), text="word " * 20) for n in range(4))
    row = replace(example(0, "train"), user=User(id="u", profile=posts))
    (lesson,) = sft_examples(whole, [row], config_for(tiny), "rows")
    length = len(lesson.prompt) + len(lesson.reply)
    short = SftTokenizer(tokenizer, config_for(tiny, max_length=length - 30))  # 21 tokens a post, with its dash
    (cut,) = sft_examples(short, [row], config_for(tiny), "rows")
    assert (whole.posts_dropped, short.posts_dropped) == (0, 2)
    assert len(cut.prompt) == len(lesson.prompt) - 42
    small = config_for(tiny, max_length=50)
    with pytest.raises(DataError, match="does not fit 50 tokens even with one post"):
        sft_examples(SftTokenizer(tokenizer, small), [row], small, "rows")


def test_the_best_loss_so_many_epochs_ago_ends_training() -> None:
    assert not LmPlannerConfig(patience=2).stopping.is_over([3.0, 2.0, 2.5])
    assert LmPlannerConfig(patience=2).stopping.is_over([3.0, 2.0, 2.5, 2.1])
    assert not LmPlannerConfig(patience=1).stopping.is_over([])


def test_the_trained_adapter_plans(trained: Path) -> None:
    maker = make_context("plan", planner=load_planner(str(trained)))
    (plan,) = maker.contexts([Ask(user=example(0, "test").user, question="What now ?")])
    assert plan.segments == ("cheap",)


def test_the_plan_becomes_a_score(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prbench.backends.encoders._load_once", lambda name: Words())
    loaded = load_reward_model(f"planner:{trained}", ModelSettings())
    inputs = [
        RewardInput(question="What now ?", user=profile("I count money"), response=f"Take the {kind} tea.")
        for kind in ("cheap", "quick")
    ]
    cheap, quick = (score.value for score in loaded.model.score(inputs))  # type: ignore[union-attr]
    assert cheap > quick
    with pytest.raises(UsageError, match="has no tags or probabilities"):
        load_reward_model(f"planner:{trained}?weights=tags", ModelSettings())


def test_killed_and_taken_up_again_it_comes_to_the_same_weights(
    data: TrainingData, tiny: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm_planner, "load_encoder", lambda name: Words())

    class KilledError(Exception):
        pass

    def stop(done: int, total: int, text: str) -> None:
        if done == 8:  # in the third of four epochs
            raise KilledError

    folder = tmp_path / "model"
    with pytest.raises(KilledError):
        run_method(load_method("lm-planner"), data, config_for(tiny), folder, stop)
    run_method(load_method("lm-planner"), data, config_for(tiny), folder, no_progress)
    digests = [sha256((one / "adapter_model.safetensors").read_bytes()).hexdigest() for one in (folder, trained)]
    assert digests[0] == digests[1]
    assert not (folder / ".trainer").exists()


def test_a_backbone_without_chat_template_is_refused(tiny: Path) -> None:
    with pytest.raises(UsageError, match="has no chat template"):
        SftTokenizer(word_tokenizer(["a"], chat_template=None), config_for(tiny))


@pytest.mark.parametrize("changes", [{"epochs": 0}, {"accumulate": 3}, {"lora_rank": -1}, {"learning_rate": 0.0}])
def test_settings_that_train_nothing_are_refused(tiny: Path, changes: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        config_for(tiny, **changes)
