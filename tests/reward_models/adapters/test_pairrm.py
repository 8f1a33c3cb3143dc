import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs pip install 'prbench[hf]'")

import torch
from typer.testing import CliRunner

from prbench.cli import app
from prbench.errors import UsageError
from prbench.reward_models import LoadedModel, ModelSettings, PairJudge, load_reward_model
from prbench.reward_models.classifier import choose_adapter
from prbench.schema import Comparison, PairInput, Pick, Problem, RewardInput, UserContext

WIDTH = 32
SPECIAL = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "[MASK]",
    "<|source|>",
    "<|candidate1|>",
    "<|candidate2|>",
    "<|candidate|>",
]
CLS, SEP, SOURCE, FIRST, SECOND = 1, 2, 5, 6, 7


def build_tokenizer() -> Any:
    """Single bytes, with DeBERTa's special tokens and PairRM's marks."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*SPECIAL, *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        extra_special_tokens=SPECIAL[5:],
    )


def save(tiny: Any, tokenizer: Any, **changes: Any) -> tuple[Path, Any, dict[str, torch.Tensor]]:
    """A checkpoint in the layout of llm-blender/PairRM-hf."""
    from transformers import DebertaV2Config, DebertaV2Model

    torch.manual_seed(0)
    config = DebertaV2Config(
        vocab_size=270,
        hidden_size=WIDTH,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,  # relative positions go on after it, as in the published model
        relative_attention=True,
        position_buckets=16,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        initializer_range=0.3,
        pad_token_id=0,
    )
    encoder = DebertaV2Model(config).eval()
    head = {
        "head_layer.1.weight": torch.randn(WIDTH, 2 * WIDTH),
        "head_layer.1.bias": torch.randn(WIDTH),
        "head_layer.4.weight": torch.randn(2, WIDTH),
        "head_layer.4.bias": torch.randn(2),
    }
    described = {
        **config.to_dict(),
        "architectures": ["DebertaV2PairRM"],
        "n_tasks": 2,
        "drop_out": 0.05,
        "source_prefix_id": SOURCE,
        "cand1_prefix_id": FIRST,
        "cand2_prefix_id": SECOND,
        "cand_prefix_id": 8,
        **changes,
    }
    encoder_weights = {f"pretrained_model.{name}": weight for name, weight in encoder.state_dict().items()}
    return tiny.save(described, {**encoder_weights, **head}, tokenizer), encoder, head


def expected(encoder: Any, head: dict[str, torch.Tensor], tokenizer: Any, pair: PairInput) -> float:
    """The difference of both candidates' scores, for one pair without padding."""
    parts = [(SOURCE, pair.question), (FIRST, pair.first), (SECOND, pair.second)]
    ids = [
        token
        for mark, text in parts
        for token in (
            CLS,
            mark,
            *tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"],
            SEP,
        )
    ]
    with torch.inference_mode():
        hidden = encoder(input_ids=torch.tensor([ids])).last_hidden_state[0]

    def score(mark: int) -> torch.Tensor:
        both = torch.cat([hidden[ids.index(SOURCE)], hidden[ids.index(mark)]])
        inner = torch.tanh(head["head_layer.1.weight"] @ both + head["head_layer.1.bias"])
        return head["head_layer.4.weight"] @ inner + head["head_layer.4.bias"]

    return float((score(FIRST) - score(SECOND)).mean())


def pairs() -> list[PairInput]:
    texts = [("Why?", "Because.", "No."), ("How do I cook rice for six people?", "a" * 80, "b" * 7), ("Q?", "x", "yy")]
    made = [PairInput(question=q, first=one, second=other) for q, one, other in texts]
    return [
        *made,
        *(PairInput(question=p.question, first=p.second, second=p.first) for p in made),
        made[0],
    ]


def prefer(loaded: LoadedModel, asked: list[PairInput]) -> list[Comparison]:
    assert isinstance(loaded.model, PairJudge)
    return loaded.model.prefer(asked)


@pytest.fixture
def pairrm(tiny: Any) -> LoadedModel:
    folder, *_ = save(tiny, build_tokenizer())
    return load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())


def test_margin_is_the_difference_of_the_candidates_scores(tiny: Any) -> None:
    tokenizer = build_tokenizer()
    folder, encoder, head = save(tiny, tokenizer)
    assert choose_adapter(str(folder)) == "pairrm"
    want = [expected(encoder, head, tokenizer, pair) for pair in pairs()]
    assert max(want) - min(want) > 0.01
    for batch_size in (1, 4):
        loaded = load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings(batch_size=batch_size))
        found = prefer(loaded, pairs())
        assert [each.margin for each in found] == pytest.approx(want, abs=1e-4)
        assert [each.pick for each in found] == [Pick.FIRST if value > 0 else Pick.SECOND for value in want]


def test_marks_inside_a_text_are_text(tiny: Any) -> None:
    tokenizer = build_tokenizer()
    folder, encoder, head = save(tiny, tokenizer)
    pair = PairInput(question="Is <|candidate2|> a mark?", first="[SEP]<|source|>", second="plain")
    (found,) = prefer(load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings()), [pair])
    assert found.margin == pytest.approx(expected(encoder, head, tokenizer, pair), abs=1e-4)


def test_context_moves_the_margin(pairrm: LoadedModel) -> None:
    pair = PairInput(question="Q?", first="one", second="two")
    known = PairInput(question="Q?", user=UserContext.from_text("I like tea."), first="one", second="two")
    without, with_context = prefer(pairrm, [pair, known])
    assert without.margin != with_context.margin


def test_pair_over_the_published_lengths_has_no_verdict_and_nothing_is_cut(pairrm: LoadedModel) -> None:
    short = PairInput(question="Q?", first="one", second="two")
    # CLS, mark and SEP stand around every text.
    longest_source = PairInput(question="q" * (1224 - 3), first="one", second="two")
    over_source = PairInput(question="q" * (1224 - 2), first="one", second="two")
    over_all = PairInput(question="q" * 100, first="a" * 1000, second="b" * (2048 - 1100 - 9 + 1))
    found = prefer(pairrm, [short, over_source, over_all])
    assert [each.problem for each in found] == [Problem.NONE, Problem.TOO_LONG, Problem.TOO_LONG]
    assert "1225 tokens of question and context" in found[1].detail
    assert "2049 tokens" in found[2].detail
    assert pairrm.fits is not None
    assert [pairrm.fits(each) for each in (short, longest_source, over_source, over_all)] == [True, True, False, False]
    with pytest.raises(TypeError, match="PairInput"):
        pairrm.fits(RewardInput(question="Q?", response="one"))


def test_eval_asks_in_both_orders_and_the_mean_margin_decides(tiny: Any, tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    folder, encoder, head = save(tiny, tokenizer)
    row = {"id": "a", "user_id": "u", "question": "Why?", "category": "c", "narrative": "", "rubric_aspects": []}
    row |= {"profile": [{"id": "p", "category": "", "text": "I like tea."}], "chosen": "Because.", "rejected": "No."}
    data = tmp_path / "pairs.jsonl"
    data.write_text(json.dumps(row) + "\n")
    command = ["eval", "--model", f"classifier:{folder}?device=cpu", "--data", str(data), "--context", "none"]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in next((tmp_path / "runs").glob("*/items.jsonl")).read_text().splitlines()]
    (found,) = (each for each in rows if each["probe"] == "own")
    orders = [
        PairInput(question="Why?", first="Because.", second="No."),
        PairInput(question="Why?", first="No.", second="Because."),
    ]
    one, other = (expected(encoder, head, tokenizer, pair) for pair in orders)
    assert found["score_chosen"] - found["score_rejected"] == pytest.approx((one - other) / 2, abs=1e-4)
    assert found["verdict"] == ("chosen" if one > other else "rejected")


def test_not_a_number_is_a_failure(tiny: Any) -> None:
    folder, encoder, head = save(tiny, build_tokenizer())
    head["head_layer.4.bias"] = torch.tensor([float("nan"), 0.0])
    weights = {f"pretrained_model.{name}": weight for name, weight in encoder.state_dict().items()}
    from safetensors.torch import save_file

    save_file({**weights, **head}, folder / "model.safetensors", {"format": "pt"})
    (found,) = prefer(load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings()), pairs()[:1])
    assert (found.pick, found.problem, found.margin) == (Pick.UNREADABLE, Problem.FAILED, None)


def test_head_that_was_not_saved_is_refused(tiny: Any) -> None:
    from safetensors.torch import load_file, save_file

    folder, *_ = save(tiny, build_tokenizer())
    weights = load_file(folder / "model.safetensors")
    del weights["head_layer.4.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=r"head_layer\.4\.weight is not among the saved weights"):
        load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())


def test_tokenizer_without_the_marks_is_refused(tiny: Any) -> None:
    folder, *_ = save(tiny, build_tokenizer(), cand2_prefix_id=200)
    with pytest.raises(UsageError, match="no token for cand2_prefix_id 200"):
        load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())


def test_plain_deberta_classifiers_are_loaded_as_before(tiny: Any) -> None:
    from transformers import AutoModelForSequenceClassification, DebertaV2ForSequenceClassification

    folder, encoder, _ = save(tiny, build_tokenizer())
    load_reward_model(f"classifier:{folder}?device=cpu", ModelSettings())
    plain = tiny.folder / "plain"
    encoder.config.num_labels = 1
    DebertaV2ForSequenceClassification(encoder.config).save_pretrained(plain)
    build_tokenizer().save_pretrained(plain)
    found = AutoModelForSequenceClassification.from_pretrained(plain)
    assert type(found) is DebertaV2ForSequenceClassification
    (score,) = tiny.scores(f"classifier:{plain}?device=cpu", [RewardInput(question="Q?", response="one")])
    assert isinstance(score, float)
