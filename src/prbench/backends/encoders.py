"""Sentence encoders: texts in, unit vectors out."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prbench.backends.hf import from_pretrained, one_line_errors, quiet_loading
from prbench.backends.packaged_weights import MINILM, minilm_folder
from prbench.errors import UsageError
from prbench.schema import Json

Vectors = NDArray[np.float32]  # (texts, dimensions), every row of length 1
Doubles = NDArray[np.float64]

MINILM_WINDOW = 256  # tokens that all-MiniLM-L6-v2 was trained on; its position table is longer
LONGEST_WINDOW = 512
BATCH_SIZE = 32  # windows in one forward pass
CACHE_SIZE = 50_000  # texts; about 80 MB with 384 dimensions
# A vector's numbers are whole multiples of 1 / STEPS. Sums in float64 depend on the batch by 3e-16 (measured), so the
# same multiple is found in any batch unless a number lies that close to the border between two.
STEPS = 2.0**26
TOO_CLOSE = 1e-14 * STEPS


class Encoder(Protocol):
    """Turns texts into vectors whose dot product says how close the texts are in meaning."""

    @property
    def name(self) -> str:
        """As on the command line: `minilm`, a hub id or a path."""
        ...

    @property
    def identity(self) -> Mapping[str, Json]:
        """All that changes the vectors; goes into a run's id."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector per text, in the same order."""
        ...


def load_encoder(name: str = "minilm") -> Encoder:
    """Build the encoder called `minilm` (packaged weights), or one with mean pooling from a hub id or a folder."""
    return _load_once(name)


@cache  # one copy of the weights, and one store of vectors, per process
def _load_once(name: str) -> Encoder:
    if name == "minilm":
        return MeanPoolingEncoder(name, source_of(name), window=MINILM_WINDOW, digest=MINILM.sha256)
    return MeanPoolingEncoder(name, source_of(name))


def source_of(name: str) -> str | Path:
    """Return where the weights of an encoder are: a folder, or a hub id."""
    return minilm_folder() if name == "minilm" else name


class MeanPoolingEncoder:
    """A `transformers` model whose token vectors are averaged, then scaled to length 1.

    A text longer than the window is split into consecutive windows, and the average is taken over the tokens of all
    of them: nothing is cut off, and a short last window weighs no more than its tokens do.

    A text's vector is the same to the last bit whatever else is encoded with it: sums are in float64 and the result is
    rounded; where rounding could go either way, the text is computed again, alone.
    """

    def __init__(
        self,
        name: str,
        source: str | Path,
        *,
        window: int | None = None,
        digest: str | None = None,
        batch_size: int = BATCH_SIZE,
        cache_size: int = CACHE_SIZE,
    ) -> None:
        self._tokenizer, self._model = load_pretrained(name, source)
        # Tokens that go through the model at once, by what tokenizer and model say of themselves.
        positions = getattr(self._model.config, "max_position_embeddings", LONGEST_WINDOW)
        self._window = window or int(min(LONGEST_WINDOW, self._tokenizer.model_max_length, positions))
        self._batch_size = batch_size
        self.cache_size = cache_size  # texts that are remembered; may be raised where memory allows
        self._cache: OrderedDict[str, Vectors] = OrderedDict()
        self.name = name
        self.identity: Mapping[str, Json] = {
            "name": name,
            "weights": (digest or weights_digest(self._model))[:12],
            "pooling": "mean",
            "window": self._window,
            "arithmetic": "float64",
        }

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector per text, in the same order; a text seen before costs nothing."""
        if not texts:
            return np.zeros((0, self._model.config.hidden_size), dtype=np.float32)
        new = [text for text in dict.fromkeys(texts) if text not in self._cache]
        vectors = dict(zip(new, self._compute(new), strict=True)) if new else {}
        for text in texts:
            if text not in vectors:
                self._cache.move_to_end(text)  # the cache drops what was not asked for longest
                vectors[text] = self._cache[text]
        self._cache.update({text: vectors[text] for text in new})
        while len(self._cache) > self.cache_size:
            self._cache.popitem(last=False)
        return np.stack([vectors[text] for text in texts])

    def _compute(self, texts: Sequence[str]) -> Vectors:
        """Vectors of distinct texts, rounded so that they do not depend on the company."""
        steps = self._unit_vectors(texts, self._batch_size) * STEPS
        # How near the numbers of a text come to a half, where rounding changes direction.
        distances = np.abs(steps - np.floor(steps) - 0.5).min(axis=1)
        for index in np.flatnonzero(distances < TOO_CLOSE).tolist():
            steps[index] = self._unit_vectors([texts[index]], 1)[0] * STEPS
        vectors: Vectors = (np.rint(steps) / STEPS).astype(np.float32)
        return vectors

    def _unit_vectors(self, texts: Sequence[str], batch_size: int) -> Doubles:
        """Sums over the tokens, scaled to length 1, in batches of windows of similar length."""
        import torch

        tokens = self._tokenizer(
            list(texts), truncation=True, max_length=self._window, return_overflowing_tokens=True, padding=False
        )
        windows, owners = tokens["input_ids"], np.asarray(tokens["overflow_to_sample_mapping"])
        sums = np.zeros((len(texts), self._model.config.hidden_size))
        by_length = sorted(range(len(windows)), key=lambda index: len(windows[index]))
        for start in range(0, len(by_length), batch_size):
            batch = by_length[start : start + batch_size]
            inputs = {"input_ids": [windows[index] for index in batch]}
            padded = self._tokenizer.pad(inputs, return_tensors="pt").to(self._model.device)
            with torch.inference_mode():
                hidden = self._model(**padded).last_hidden_state  # (windows, tokens, dimensions)
            summed = (hidden * padded["attention_mask"].unsqueeze(-1)).sum(dim=1)  # (windows, dimensions)
            np.add.at(sums, owners[batch], summed.cpu().numpy())
        # Scaling to length 1 makes the number of tokens drop out: the sum points where the mean does.
        vectors: Doubles = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return vectors


def load_pretrained(name: str, source: str | Path, dtype: str = "float64") -> tuple[Any, Any]:
    """Return the tokenizer and the model of an encoder, on a GPU if there is one."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"The encoder {name!r} needs PyTorch and transformers. Install them with: pip install 'prbench[hf]'"
        ) from error
    remedy = "Use minilm, a model folder, or a hub id within reach."
    with one_line_errors(f"The encoder {name!r}", remedy), quiet_loading():
        tokenizer = from_pretrained("AutoTokenizer", source)
        model, report = from_pretrained("AutoModel", source, dtype=getattr(torch, dtype), output_loading_info=True)
    # A pooler is not used here, so it may be missing; any other gap would be filled with random numbers.
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise UsageError(
            f"The encoder {name!r} lacks {len(missing)} of its weights, {missing[0]} for one. Use a complete model."
        )
    if not tokenizer.is_fast:
        raise UsageError(f"The encoder {name!r} has no fast tokenizer, which splitting long texts needs. Use minilm.")
    return tokenizer, model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def weights_digest(model: Any) -> str:
    """A digest of the weights as loaded, the same for a hub id and for a copy in a folder."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
