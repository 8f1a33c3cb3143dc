"""Encoders, on the real packaged weights; expected vectors are pooled by hand here, one text at a time."""

from pathlib import Path

import numpy as np
import pytest

from prbench.backends.encoders import STEPS, MeanPoolingEncoder, load_encoder
from prbench.backends.packaged_weights import minilm_folder
from prbench.errors import UsageError

torch = pytest.importorskip("torch", reason="pip install 'prbench[hf]'")
transformers = pytest.importorskip("transformers", reason="pip install 'prbench[hf]'")

TEXTS = ["A cheap tent.", "Low-cost shelter for camping", "", "Bach's cello suites", "naïve café ☕", "word " * 200]


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return minilm_folder()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model(folder: Path):
    return transformers.AutoModel.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def tokenizer(folder: Path):
    return transformers.AutoTokenizer.from_pretrained(folder)


def token_vectors(model, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0].double().numpy()


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def test_vectors_are_normalised_means_over_the_tokens(folder: Path, model, tokenizer) -> None:
    encoder = load_encoder("minilm")
    expected = np.stack([unit(token_vectors(model, tokenizer(text)["input_ids"]).mean(axis=0)) for text in TEXTS])
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), 384)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_long_text_is_read_to_its_end_in_windows(folder: Path, model, tokenizer) -> None:
    text = "sailing boats at dawn " * 150 + "and then a recipe for rye bread with caraway seeds " * 3
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    assert len(ids) > 2 * 254
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    windows = [[cls, *ids[start : start + 254], sep] for start in range(0, len(ids), 254)]
    expected = unit(np.concatenate([token_vectors(model, window) for window in windows]).mean(axis=0))
    encoder = load_encoder("minilm")
    np.testing.assert_allclose(encoder.encode([text])[0], expected, atol=1e-5)
    assert np.abs(encoder.encode([text])[0] - encoder.encode(["sailing boats at dawn " * 150])[0]).max() > 1e-3


def test_vectors_are_the_same_bits_in_any_batch_company_and_history(folder: Path) -> None:
    texts = [f"{'very ' * count}good number {count}" for count in (0, 40, 3, 300, 9, 1, 77)]
    together = MeanPoolingEncoder("minilm", folder, window=256).encode(texts)
    one_by_one = MeanPoolingEncoder("minilm", folder, window=256, batch_size=1).encode(texts)
    in_pieces = MeanPoolingEncoder("minilm", folder, window=256, batch_size=3)
    in_pieces.encode(texts[4:])
    assert together.tobytes() == one_by_one.tobytes() == in_pieces.encode(texts).tobytes()
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_a_vector_on_the_border_of_rounding_is_computed_again_alone(folder: Path) -> None:
    """In company the second number comes out just below ten and a half steps, alone just above."""

    class Noisy(MeanPoolingEncoder):
        def _unit_vectors(self, texts, batch_size):
            asked.append((list(texts), batch_size))
            nudge = 3e-16 if batch_size == 1 else -3e-16
            return np.array([[0.25, (10.5 if text == "border" else 7.2) / STEPS + nudge] for text in texts])

    asked: list[tuple[list[str], int]] = []
    vectors = Noisy("minilm", folder, batch_size=32).encode(["plain", "border"])
    assert asked == [(["plain", "border"], 32), (["border"], 1)]
    assert (vectors * STEPS).tolist() == [[0.25 * STEPS, 7.0], [0.25 * STEPS, 11.0]]


def test_order_and_duplicates_are_kept(folder: Path) -> None:
    encoder = load_encoder("minilm")
    vectors = encoder.encode(["b", "a", "b"])
    assert (vectors[0] == vectors[2]).all()
    assert (vectors[1] == encoder.encode(["a"])[0]).all()
    assert encoder.encode([]).shape == (0, 384)


class CountingTokenizer:
    """Counts the texts that are really encoded; everything else is the tokenizer's own."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.seen: list[str] = []

    def __call__(self, texts: list[str], **options: object) -> object:
        self.seen += texts
        return self.inner(texts, **options)

    def pad(self, *arguments: object, **options: object) -> object:
        return self.inner.pad(*arguments, **options)


def test_repeated_texts_are_free_until_the_cache_is_full(folder: Path) -> None:
    encoder = MeanPoolingEncoder("minilm", folder, window=256, cache_size=2)
    counting = CountingTokenizer(encoder._tokenizer)
    encoder._tokenizer = counting
    first = encoder.encode(["a", "b", "a"])
    assert counting.seen == ["a", "b"]
    assert (encoder.encode(["a"]) == first[:1]).all()
    encoder.encode(["c"])  # drops "b", which was not asked for longest
    encoder.encode(["a", "c"])
    assert counting.seen == ["a", "b", "c"]
    encoder.encode(["b"])
    assert counting.seen == ["a", "b", "c", "b"]
    assert encoder.encode(["x", "y", "z"]).shape == (3, 384)  # more than the cache holds


def test_encoding_leaves_the_number_of_threads_alone(folder: Path) -> None:
    before = torch.get_num_threads()
    load_encoder("minilm").encode(["quiet"])
    assert torch.get_num_threads() == before


def test_identity_names_weights_pooling_and_window(folder: Path) -> None:
    assert load_encoder("minilm") is load_encoder("minilm")
    assert dict(load_encoder("minilm").identity) == {
        "name": "minilm",
        "weights": "53aa51172d14",
        "pooling": "mean",
        "window": 256,
        "arithmetic": "float64",
    }


def test_a_folder_is_an_encoder_too_with_its_own_window(folder: Path) -> None:
    encoder = load_encoder(str(folder))
    assert encoder.identity["window"] == 512
    assert len(encoder.identity["weights"]) == 12
    np.testing.assert_allclose(encoder.encode(["same"]), load_encoder("minilm").encode(["same"]), atol=1e-5)


def test_an_encoder_that_cannot_be_loaded_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be loaded") as caught:
        load_encoder(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_an_encoder_with_missing_weights_is_refused(folder: Path, tmp_path: Path, tokenizer) -> None:
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tiny = transformers.BertModel(transformers.BertConfig(vocab_size=len(tokenizer), **size))
    tokenizer.save_pretrained(tmp_path)
    tiny.save_pretrained(tmp_path)
    assert MeanPoolingEncoder("tiny", tmp_path).encode(["a"]).shape == (1, 16)
    weights = {key: value for key, value in tiny.state_dict().items() if key != "encoder.layer.0.output.dense.bias"}
    tiny.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(UsageError, match=r"lacks 1 of its weights, encoder\.layer\.0\.output\.dense\.bias"):
        MeanPoolingEncoder("tiny", tmp_path)
