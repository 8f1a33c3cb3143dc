"""A policy that learns to write: its prompts, what it learns, and that it is no reward model."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft", reason="needs pip install 'prbench[train]'")

import torch
from tests.support.contexts import profile
from tests.support.tiny_llama import save_tiny_llama, word_tokenizer

from prbench.backends.hf import base_named_by
from prbench.backends.llm.client import ChatRequest
from prbench.backends.llm.hf import TransformersLLM
from prbench.backends.policy import Prompt, messages_of
from prbench.cli import app
from prbench.errors import DataError, RunError, UsageError
from prbench.schema import Aspect, ContextKind, Example, Post, User, UserContext
from prbench.training.backbones import CLASSIFIER, load_backbone
from prbench.training.blend import BlendConfig, train_blend
from prbench.training.data import TrainingData, make_training_data
from prbench.training.folder import no_progress, read_trained
from prbench.training.lm_trainer import SftExample, SftTokenizer
from prbench.training.methods import load_method, run_method
from prbench.training.sft import SftConfig, context_of, sft_examples

QUESTION = "What now ?"


def example(number: int, split: str) -> Example:
    posts = tuple(Post(id=str(post), text=f"I count money {split} {number}") for post in range(2))
    user = User(id=f"{split}-{number}", profile=posts)
    return Example(id=f"{split}-{number}", user=user, question=QUESTION, chosen="Take tea .", rejected="Take a walk .")


def prompt(*posts: str) -> Prompt:
    return Prompt(id="one", question=QUESTION, context=profile(*posts).text)


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
    texts = [message.content for message in messages_of(prompt("I count money"))]
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"), [*texts, "Take tea . a walk"], max_position_embeddings=512)


def config_for(backbone: Path, **changes: Any) -> SftConfig:
    settings = {"backbone": str(backbone), "max_length": 200, "lora_rank": 8, "lora_dropout": 0.0, "warmup": 0.0}
    settings |= {"learning_rate": 3e-2, "epochs": 4, "batch_size": 4, "patience": 100}
    return SftConfig(**{**settings, **changes})


def learned(layout: SftTokenizer, config: SftConfig) -> list[SftExample]:
    return sft_examples(layout, [example(0, "train")], config, context_of(config), "rows")


def test_the_example_is_the_very_prompt_that_a_policy_gets(tiny: Path) -> None:
    llm = TransformersLLM(str(tiny))
    layout = SftTokenizer(llm._tokenizer, config_for(tiny))
    (lesson,) = learned(layout, config_for(tiny))
    # The newest post comes first.
    asked = messages_of(prompt("I count money train 0", "I count money train 0"))
    assert list(lesson.prompt) == llm._prompt(asked)
    assert llm._tokenizer.decode(lesson.reply) == "Take tea . </s>"


def test_it_may_be_told_the_rubric(tiny: Path) -> None:
    config = config_for(tiny, rubric=True)
    layout = SftTokenizer(TransformersLLM(str(tiny))._tokenizer, config)
    row = replace(example(0, "train"), rubric=(Aspect(aspect="tea", evidence="money", reason="count"),))
    (lesson,) = sft_examples(layout, [row], config, context_of(config), "rows")
    asked = Prompt(
        id="one",
        question=QUESTION,
        context=UserContext(kind=ContextKind.ORACLE, segments=("tea: count\nEvidence: money",)).text,
    )
    assert list(lesson.prompt) == layout.prompt(messages_of(asked))
    assert config.context == "oracle"
    with pytest.raises(DataError, match="has no rubric_aspects"):
        sft_examples(layout, [example(0, "train")], config, context_of(config), "rows")
    with pytest.raises(UsageError, match="told one of them"):
        config_for(tiny, rubric=True, planner="models/planner")


def test_both_answers_are_learned_where_users_must_not_show(tiny: Path) -> None:
    layout = SftTokenizer(word_tokenizer(["Take tea . a walk"]), config_for(tiny))
    lessons = learned(layout, config_for(tiny, answers="both"))
    assert len(lessons) == 2
    assert lessons[0].prompt == lessons[1].prompt
    assert lessons[0].reply != lessons[1].reply


def test_posts_that_do_not_fit_are_dropped_and_no_answer_is_cut(tiny: Path) -> None:
    tokenizer = word_tokenizer(["Take tea . a walk"])
    layout = SftTokenizer(tokenizer, config_for(tiny))
    (whole,) = learned(layout, config_for(tiny))
    length = len(whole.prompt) + len(whole.reply)
    short = config_for(tiny, max_length=length - 1)
    layout = SftTokenizer(tokenizer, short)
    (cut,) = learned(layout, short)
    assert (layout.posts_dropped, cut.reply) == (1, whole.reply)
    least = config_for(tiny, max_length=5)
    with pytest.raises(DataError, match="does not fit 5 tokens even without posts"):
        learned(SftTokenizer(tokenizer, least), least)


@pytest.mark.parametrize("rank", [8, 0])
def test_the_trained_policy_writes_what_it_was_taught(
    data: TrainingData, tiny: Path, tmp_path: Path, rank: int
) -> None:
    trained = run_method(load_method("sft"), data, config_for(tiny, lora_rank=rank, epochs=12), tmp_path / "policy")
    assert trained.spec == f"hf:{tmp_path / 'policy'}"
    assert trained.is_policy
    assert read_trained(tmp_path / "policy").is_policy
    (reply,) = TransformersLLM(str(tmp_path / "policy")).complete(
        [ChatRequest(messages=messages_of(prompt("I count money held 0")), max_tokens=8, temperature=0.0)]
    )
    assert reply.text.strip() == "Take tea ."


def test_a_policy_learns_on_as_one_adapter_over_the_same_base(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    method, first, second = load_method("sft"), tmp_path / "first", tmp_path / "second"
    run_method(method, data, config_for(tiny, epochs=12), first)
    swapped = [replace(row, chosen=row.rejected, rejected=row.chosen) for row in (*data.train, *data.validation)]
    other = make_training_data(swapped[:12], swapped[12:])
    run_method(method, other, config_for(first, epochs=24, learning_rate=1e-2), second)
    assert base_named_by(str(second)) == base_named_by(str(first)) == str(tiny)
    request = ChatRequest(messages=messages_of(prompt("I count money held 0")), max_tokens=8, temperature=0.0)
    replies = [TransformersLLM(str(folder)).complete([request])[0].text.strip() for folder in (first, second)]
    assert replies == ["Take tea .", "Take a walk ."]
    with pytest.raises(UsageError, match=r"is an adapter, and learns on as it is\. Give --set lora_rank=8"):
        run_method(method, data, config_for(first, lora_rank=4), tmp_path / "third")


def test_a_backbone_that_was_trained_anew_is_another_one(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    method, first, second = load_method("sft"), tmp_path / "first", tmp_path / "second"
    run_method(method, data, config_for(tiny), first)
    run_method(method, data, config_for(first), second)
    assert run_method(method, data, config_for(first), second).facts == read_trained(second).facts  # nothing changed
    run_method(method, data, config_for(tiny, learning_rate=1e-3), first, fresh=True)
    with pytest.raises(RunError, match=r"another weights\.backbone"):
        run_method(method, data, config_for(first), second)


def test_adapters_that_cannot_learn_on_are_refused(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    from peft import IA3Config, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    other = tmp_path / "other"
    model = AutoModelForCausalLM.from_pretrained(tiny)
    get_peft_model(model, IA3Config(task_type="CAUSAL_LM")).save_pretrained(other)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(other)
    with pytest.raises(UsageError, match="is no LoRA adapter of a language model"):
        run_method(load_method("sft"), data, config_for(other), tmp_path / "policy")
    with pytest.raises(UsageError, match="is an adapter; a classifier starts from a whole model"):
        load_backbone(str(other), CLASSIFIER)


def test_rubrics_are_asked_for_where_there_are_none(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    bare = make_training_data(*([replace(row, rubric=()) for row in rows] for rows in (data.train, data.validation)))
    with pytest.raises(DataError, match="no row of the train split has a rubric"):
        run_method(load_method("sft"), bare, config_for(tiny, rubric=True), tmp_path / "policy")


def test_killed_and_taken_up_again_it_comes_to_the_same_weights(
    data: TrainingData, tiny: Path, tmp_path: Path
) -> None:
    class KilledError(Exception):
        pass

    def stop(done: int, total: int, text: str) -> None:
        if done == 8:  # in the third of four epochs
            raise KilledError

    method = load_method("sft")
    run_method(method, data, config_for(tiny), tmp_path / "whole")
    with pytest.raises(KilledError):
        run_method(method, data, config_for(tiny), tmp_path / "killed", stop)
    run_method(method, data, config_for(tiny), tmp_path / "killed")
    files = [tmp_path / name / "adapter_model.safetensors" for name in ("whole", "killed")]
    assert len({sha256(file.read_bytes()).hexdigest() for file in files}) == 1


def test_a_policy_is_no_reward_model(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    run_method(load_method("sft"), data, config_for(tiny, epochs=1), tmp_path / "policy")
    run_method(load_method("match"), data, load_method("match").config(), tmp_path / "match")
    with pytest.raises(UsageError, match="writes answers and scores none"):
        train_blend(data, BlendConfig(models=f"{tmp_path / 'policy'},{tmp_path / 'match'}"), tmp_path, no_progress)
    with pytest.raises(UsageError, match="answers='neither' cannot be used"):
        config_for(tiny, answers="neither")


def test_without_posts_it_is_told_nothing_of_users(tiny: Path, data: TrainingData, tmp_path: Path) -> None:
    config = config_for(tiny, posts=0, epochs=1)
    layout = SftTokenizer(word_tokenizer(["Take tea . a walk"]), config)
    (lesson,) = learned(layout, config)
    assert list(lesson.prompt) == layout.prompt(messages_of(prompt()))
    assert run_method(load_method("sft"), data, config, tmp_path / "policy").context == "none"


def test_it_may_be_told_a_plan_in_place_of_posts(tiny: Path) -> None:
    config = config_for(tiny, planner="fake:- Money: They count it.")
    layout = SftTokenizer(word_tokenizer(["Take tea . a walk"]), config)
    (lesson,) = learned(layout, config)
    plan = Prompt(
        id="one",
        question=QUESTION,
        context=UserContext(kind=ContextKind.PLAN, segments=("Money: They count it.",)).text,
    )
    assert list(lesson.prompt) == layout.prompt(messages_of(plan))
    assert config.context == "plan"
    unplanned = config_for(tiny, planner="fake:I cannot say")
    with pytest.raises(DataError, match="Example train-0: has no context"):
        learned(layout, unplanned)
    with pytest.raises(UsageError, match="planner needs posts to plan from"):
        config_for(tiny, planner="fake:- Money: They count it.", posts=0)


def test_the_last_epoch_is_kept_where_that_is_asked_for(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    # Held-out answers that contradict the others: the longer it learns, the higher their loss.
    swapped = [replace(row, chosen=row.rejected, rejected=row.chosen) for row in data.validation]
    contrary = make_training_data(data.train, swapped)
    files = {}
    for keep in ("best", "last"):
        trained = run_method(load_method("sft"), contrary, config_for(tiny, keep=keep, epochs=6), tmp_path / keep)
        assert trained.facts["best_step"] < trained.facts["steps"]
        files[keep] = (tmp_path / keep / "adapter_model.safetensors").read_bytes()
    assert files["best"] != files["last"]
    with pytest.raises(UsageError, match="keep='first' cannot be used"):
        config_for(tiny, keep="first")


def test_a_loss_that_is_no_number_is_said_in_one_line(tiny: Path, data: TrainingData, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="The held-out loss is no number"):
        run_method(load_method("sft"), data, config_for(tiny, lora_rank=0, learning_rate=1e30), tmp_path / "policy")


def test_the_command_names_the_policy(tiny: Path, tmp_path: Path, data: TrainingData) -> None:
    import json

    from typer.testing import CliRunner

    from prbench.data.rows import as_row

    for split, some in (("train", data.train), ("validation", data.validation)):
        text = "".join(json.dumps(as_row(row)) + "\n" for row in some)
        (tmp_path / "rows").mkdir(exist_ok=True)
        (tmp_path / "rows" / f"{split}.jsonl").write_text(text)
    settings = [f"--set={each}" for each in ("epochs=1", "max_length=200", "batch_size=4")]
    command = ["train", "--method", "sft", "--data", str(tmp_path / "rows"), "--out", str(tmp_path / "policy")]
    shown = CliRunner().invoke(app, [*command, "--backbone", str(tiny), *settings])
    assert shown.exit_code == 0, shown.output
    assert "--policy hf:" in shown.output
    card = json.loads((tmp_path / "policy" / "card.json").read_text())
    assert card["kind"] == "policy"
    readme = (tmp_path / "policy" / "README.md").read_text()
    assert "prbench bon --policy hf:policy --policy-context profile --posts 30 --model" in readme
