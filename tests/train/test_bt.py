"""`bt`: what the model is taught on, by which loss, and that what comes back from disk is what was trained."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs pip install 'prbench[train]'")

import torch
from tests.support.tiny_llama import save_tiny_llama

from prbench.context import make_context
from prbench.errors import DataError, UsageError
from prbench.evaluation import EvalSettings, evaluate
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.classifier import ClassifierOptions, ClassifierReward
from prbench.schema import Example, Post, Probe, RewardInput, Score, User
from prbench.training import bt
from prbench.training.backbones import CLASSIFIER, load_backbone
from prbench.training.bt import BtConfig, TokenizedPairs, chat_for, make_trainer, render_pairs, train_bt
from prbench.training.data import TrainingData, make_training_data
from prbench.training.folder import no_progress
from prbench.training.methods import load_method, make_config, run_method
from prbench.training.trainers import ByLength, PairTrainer, needs_mask

PLANTS = ("beans", "kale", "peas", "herbs", "leeks", "chard", "roses", "figs", "mint", "plums")


def make_example(number: int, split: str) -> Example:
    plant = PLANTS[number % len(PLANTS)]
    user = f"{split}-{number % 4}"
    return Example(
        id=f"{split}-{number}",
        user=User(id=user, profile=tuple(Post(id=f"{user}-{i}", text=f"{user} saw {i} birds") for i in range(3))),
        question=f"How do I grow {plant} ?",
        chosen=f"Sow cheap seeds of {plant} and wait",
        rejected=f"Buy a costly pot of {plant} , row {number} , from the finest shop",
    )


@pytest.fixture(scope="module")
def data() -> TrainingData:
    rows = {split: [make_example(number, split) for number in range(count)] for split, count in COUNTS.items()}
    return make_training_data(rows["train"], rows["held"])


COUNTS = {"train": 14, "held": 6}


def words(data: TrainingData) -> list[str]:
    rows = [*data.train, *data.validation]
    texts = [text for row in rows for text in (row.question, row.chosen, row.rejected)]
    return [
        *texts,
        *(post.text for row in rows for post in row.user.profile),
        "Posts that this person wrote before: -",
    ]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tiny(data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"), words(data))


@pytest.fixture(scope="module")
def tiny_without_template(data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its texts end in EOS, and it names no pad token: the usual stand-in would be EOS, too."""
    return save_tiny_llama(tmp_path_factory.mktemp("plain"), words(data), chat_template=None)


def config_for(backbone: Path, **changes: Any) -> BtConfig:
    settings = {
        "backbone": str(backbone),
        "max_length": 64,
        "lora_rank": 2,
        "lora_dropout": 0.2,
        "learning_rate": 1e-2,
        "epochs": 2,
        "batch_size": 4,
        "accumulate": 1,
        "patience": 100,
    }
    return BtConfig(**{**settings, **changes})


def digest(folder: Path) -> str:
    """The hash of the weights, without the folder's name, which adapters hold."""
    (path,) = [*folder.glob("adapter_model.safetensors"), *folder.glob("model.safetensors")]
    return sha256(path.read_bytes()).hexdigest()


def rendered(data: TrainingData, config: BtConfig, *, margin: float = 0.0) -> tuple[Any, TokenizedPairs]:
    backbone = load_backbone(config.backbone, CLASSIFIER, seed=config.seed)
    chat = chat_for(backbone, config)
    return backbone, render_pairs(data.train, chat, make_context("none"), data.name, margin=margin)


def test_loss_is_bradley_terry_with_margin_and_nothing_else(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    config = config_for(tiny, lora_rank=0)
    backbone, rows = rendered(data, config, margin=0.7)
    trainer = make_trainer(backbone, config, rows, rows, tmp_path, no_progress)
    assert trainer.args.center_rewards_coefficient is None
    assert not trainer.data_collator.masked  # a decoder's tokens see nothing of the padding behind them
    some = rows.pairs[:3]  # of two lengths, so that there is padding
    batch = trainer.data_collator([trainer.train_dataset[place] for place in range(3)])
    trainer.model.eval()

    def alone(ids: tuple[int, ...]) -> float:
        return float(trainer.model(input_ids=torch.tensor([ids])).logits[0, 0])

    with torch.no_grad():
        loss = trainer.compute_loss(trainer.model, batch).item()
        margins = [alone(pair.chosen.ids) - alone(pair.rejected.ids) - 0.7 for pair in some]
    assert loss == pytest.approx(sum(math.log1p(math.exp(-margin)) for margin in margins) / 3, abs=1e-5)
    assert len({len(pair.chosen.ids) for pair in some} | {len(pair.rejected.ids) for pair in some}) > 1


@pytest.mark.parametrize("layout", ["tiny", "tiny_without_template"])
def test_token_ids_are_those_that_an_evaluation_scores(
    data: TrainingData, layout: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = config_for(request.getfixturevalue(layout), epochs=1, max_length=48)
    asked: list[RewardInput] = []

    class Recorder:
        def score(self, inputs: list[RewardInput]) -> list[Score]:
            asked.extend(inputs)
            return [Score(value=0.0) for _ in inputs]

    backbone = load_backbone(config.backbone, CLASSIFIER)
    found = render_pairs(data.validation, chat_for(backbone, config), make_context("profile", posts=3), "here")
    train_bt(data, config, tmp_path / "model", no_progress)
    model = ClassifierReward(str(tmp_path / "model"), ModelSettings(), ClassifierOptions(device="cpu"))
    recorder = load_reward_model(f"classifier:{tmp_path / 'model'}?device=cpu", ModelSettings())
    recorder = replace(recorder, model=Recorder())  # keeps the window, by which posts are dropped
    evaluate(data.validation, recorder, "profile", settings=EvalSettings(posts=3, probes=(Probe.OWN,)))
    scored = {model._chat.encode(each).ids for each in asked}
    assert scored == {tokens.ids for pair in found.pairs for tokens in (pair.chosen, pair.rejected)}
    assert 0 < found.posts_dropped < 3 * len(data.validation)


CASES = [("tiny", 0), ("tiny", 2), ("tiny_without_template", 2), ("tiny_without_template", 0)]


@pytest.mark.parametrize("layout,lora_rank", CASES)
def test_classifier_gives_the_scores_of_the_trainers_own_model(
    data: TrainingData,
    layout: str,
    lora_rank: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One evaluation, so that the trainer's model is the best one.
    config = config_for(request.getfixturevalue(layout), lora_rank=lora_rank, evaluations=1, epochs=1)
    trainers: list[PairTrainer] = []

    def make(*args: Any) -> PairTrainer:
        trainers.append(make_trainer(*args))
        return trainers[0]

    monkeypatch.setattr(bt, "make_trainer", make)
    trained = train_bt(data, config, tmp_path, no_progress)
    backbone = load_backbone(config.backbone, CLASSIFIER)
    held_out = render_pairs(data.validation, chat_for(backbone, config), make_context("none"), "here").pairs
    loaded = load_reward_model(f"{trained.spec}?device=cpu", ModelSettings(share_prefixes=False))
    assert isinstance(loaded.model, ClassifierReward)
    scores = {
        side: loaded.model.score(
            [RewardInput(question=row.question, response=getattr(row, side)) for row in data.validation]
        )
        for side in ("chosen", "rejected")
    }
    margins = [
        (good.value or 0.0) - (bad.value or 0.0)
        for good, bad in zip(scores["chosen"], scores["rejected"], strict=True)
    ]
    assert margins == pytest.approx(trainers[0].margins(held_out).tolist(), abs=1e-4)
    assert trained.facts["validation_accuracy"] == pytest.approx(sum(each > 0 for each in margins) / 6, abs=1e-4)
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.suffix in (".bin", ".pt", ".pth")) == [".pt"]


class _InterruptedError(Exception):
    pass


def stop_at(step: int) -> Callable[[int, int, str], None]:
    def say(done: int, total: int, text: str) -> None:
        if done == step:
            raise _InterruptedError

    return say


@pytest.mark.parametrize("lora_rank,step", [(2, 4), (2, 5), (0, 7)])  # checkpoints are after 2, 4, 6 and 8
def test_interrupted_and_resumed_training_comes_to_the_same_weights(
    data: TrainingData, tiny: Path, tmp_path: Path, lora_rank: int, step: int
) -> None:
    method, config = load_method("bt"), config_for(tiny, lora_rank=lora_rank)
    calm = run_method(method, data, config, tmp_path / "calm")
    with pytest.raises(_InterruptedError):
        run_method(method, data, config, tmp_path / "cut", stop_at(step))
    torn = tmp_path / "cut" / ".trainer" / "checkpoint-99"  # killed while it was being written
    torn.mkdir()
    (torn / "trainer_state.json").write_text('{"global_step": 9')
    steps: list[int] = []
    resumed = run_method(method, data, config, tmp_path / "cut", lambda done, total, text: steps.append(done))
    assert steps[0] == step // 2 * 2 + (1 if step % 2 else -1)
    assert digest(tmp_path / "cut") == digest(tmp_path / "calm")
    assert resumed.facts["validation_history"] == calm.facts["validation_history"]
    assert not torn.parent.exists()


def test_fresh_starts_over_and_other_settings_are_refused(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    method, config = load_method("bt"), config_for(tiny)
    with pytest.raises(_InterruptedError):
        run_method(method, data, config, tmp_path, stop_at(5))
    from prbench.errors import RunError

    with pytest.raises(RunError, match=r"another settings\.seed"):
        run_method(method, data, replace(config, seed=1), tmp_path)
    steps: list[int] = []
    run_method(method, data, config, tmp_path, lambda done, total, text: steps.append(done), fresh=True)
    assert steps[0] == 1


def test_training_that_had_stopped_early_is_not_taken_up_again(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    config = config_for(tiny, learning_rate=1e-9, patience=1, evaluations=4)  # learns nothing, so it stops
    method = load_method("bt")
    calm = run_method(method, data, config, tmp_path / "calm")
    assert (calm.facts["steps"], calm.facts["steps_planned"]) == (2, 8)

    def die(*args: object) -> None:
        raise _InterruptedError

    cut = tmp_path / "cut"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bt, "keep_checkpoint", die)  # killed right after the last step
        with pytest.raises(_InterruptedError):
            run_method(method, data, config, cut)
    steps: list[int] = []
    assert run_method(method, data, config, cut, lambda done, total, text: steps.append(done)).facts["steps"] == 2
    assert steps == []
    assert digest(cut) == digest(tmp_path / "calm")


def test_seed_decides_the_weights(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    folders = {}
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        train_bt(data, config_for(tiny, epochs=1, seed=seed), tmp_path / name, no_progress)
        folders[name] = digest(tmp_path / name)
    assert folders["one"] == folders["again"] != folders["two"]


def test_rows_that_trl_would_drop_are_refused_and_counted(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"14 of 14 pairs, train-0 first, do not fit 12 tokens .* Raise max_length"):
        train_bt(data, config_for(tiny, max_length=12), tmp_path, no_progress)


@pytest.mark.parametrize(
    "change,says",
    [
        ({"accumulate": 3}, "accumulate=3 does not divide"),
        ({"epochs": 0}, "epochs=0"),
        ({"max_length": 4096}, "over this model's limit of 256"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    data: TrainingData, tiny: Path, tmp_path: Path, change: dict[str, int], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        train_bt(data, config_for(tiny, **change), tmp_path, no_progress)


def test_accumulated_steps_give_the_weights_of_whole_ones(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    weights = []
    for accumulate in (1, 2):
        folder = tmp_path / str(accumulate)
        # Two steps of seven pairs of equal lengths: both ways see the same pairs in a step.
        config = config_for(tiny, lora_dropout=0.0, batch_size=14, accumulate=accumulate, epochs=1)
        train_bt(data, config, folder, no_progress)
        weights.append(load_file(folder / "adapter_model.safetensors"))
    for name, value in weights[0].items():
        assert torch.allclose(value, weights[1][name], atol=1e-5), name


class Decoder(torch.nn.Module):
    """States and scores of a classifier that may look ahead, or read its score where the mask says."""

    base_model_prefix = "states"

    def __init__(self, *, looks_ahead: bool = False, reads_by_mask: bool = False) -> None:
        super().__init__()
        self.config = SimpleNamespace(is_encoder_decoder=False, get_text_config=lambda: SimpleNamespace(vocab_size=50))
        self.device = torch.device("cpu")
        self._ahead, self._by_mask = looks_ahead, reads_by_mask

    def states(self, input_ids: torch.Tensor) -> Any:
        values = input_ids.float()
        seen = values.sum(1, keepdim=True).expand_as(values) if self._ahead else values.cumsum(1)
        return SimpleNamespace(last_hidden_state=seen.unsqueeze(-1))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        last = attention_mask.sum(1) - 1 if self._by_mask else (input_ids != PAD).sum(1) - 1
        ends = input_ids.float().cumsum(1).gather(1, last.unsqueeze(1))
        return SimpleNamespace(logits=ends)


PAD = 9


def test_padding_is_hidden_where_it_would_be_seen() -> None:
    assert not needs_mask(Decoder(), PAD)
    assert needs_mask(Decoder(looks_ahead=True), PAD)
    assert needs_mask(Decoder(reads_by_mask=True), PAD)


def test_an_encoder_decoder_keeps_its_mask() -> None:
    model = Decoder()
    model.config.is_encoder_decoder = True
    assert needs_mask(model, PAD)


def test_order_of_rows_depends_on_seed_and_epoch_alone_and_keeps_equal_lengths_together() -> None:
    lengths = [10 * (row % 5) for row in range(103)]
    order = ByLength(lengths, 4, seed=3)
    first = list(order)
    assert sorted(first) == list(range(103))
    assert list(order) == first == list(ByLength(lengths, 4, seed=3))
    order.set_epoch(1)
    assert list(order) != first != list(ByLength(lengths, 4, seed=4))
    mixed = sum(len({lengths[row] for row in first[at : at + 4]}) > 1 for at in range(0, 103, 4))
    assert mixed <= 5  # one batch at each border between two lengths, and the short one at the end


@pytest.mark.parametrize(
    "history,patience,over",
    [
        ([], 1, False),
        ([0.5], 1, False),
        ([0.5, 0.5], 1, True),
        ([0.5, 0.4, 0.6], 2, False),
        ([0.6, 0.5, 0.6], 2, True),
    ],
)
def test_patience_counts_from_the_first_of_the_best(history: list[float], patience: int, over: bool) -> None:
    assert BtConfig(patience=patience).stopping.is_over(history) is over


def test_encoder_with_segments_is_trained_as_it_is_scored(data: TrainingData, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    vocabulary = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "one", "two", "three"]
    vocabulary += sorted({word for text in words(data) for word in text.split()})
    raw = Tokenizer(models.WordLevel({word: place for place, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        initializer_range=0.1,
        pad_token_id=0,
        num_labels=1,
    )
    BertForSequenceClassification(shape).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    config = config_for(tmp_path / "bert", epochs=4)
    backbone, rows = rendered(data, config)
    assert make_trainer(backbone, config, rows, rows, tmp_path, no_progress).data_collator.masked
    trained = train_bt(data, config, tmp_path / "model", no_progress)
    assert trained.facts["validation_accuracy"] == 1.0
    run = evaluate(data.validation, f"{trained.spec}?device=cpu", "none", settings=EvalSettings(context="none"))
    assert run.summary["accuracy"]["value"] == 1.0


SCRIPT = """
import sys, torch
from pathlib import Path
from prbench.training.data import load_training_data
from prbench.training.methods import load_method, make_config, run_method
torch.set_num_threads(1)
method = load_method("bt")
config = make_config(method, sys.argv[3:])
say = lambda done, total, text: print(done, flush=True)
run_method(method, load_training_data(sys.argv[1]), config, Path(sys.argv[2]), say)
"""


@pytest.mark.slow
def test_kill_nine_and_resume_give_the_same_weights(data: TrainingData, tiny: Path, tmp_path: Path) -> None:
    from prbench.data.rows import as_row
    from prbench.training.data import load_training_data

    rows = tmp_path / "rows"
    rows.mkdir()
    for split, examples in (("train", data.train), ("validation", data.validation)):
        lines = "".join(json.dumps(as_row(example)) + "\n" for example in examples)
        (rows / f"{split}.jsonl").write_text(lines)
    settings = [f"{name}={value}" for name, value in vars(config_for(tiny, lora_rank=2)).items()]
    command = [sys.executable, "-c", SCRIPT, str(rows), str(tmp_path / "cut"), *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "5":
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "cut" / "adapter_model.safetensors").exists()
    method = load_method("bt")
    config = make_config(method, settings)
    loaded = load_training_data(str(rows))
    run_method(method, loaded, config, tmp_path / "cut")
    run_method(method, loaded, config, tmp_path / "calm")
    assert digest(tmp_path / "cut") == digest(tmp_path / "calm")
