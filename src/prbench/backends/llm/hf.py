"""A chat model from the Hugging Face hub or a folder, run by transformers in this process."""

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from prbench.backends.hf import (
    from_pretrained,
    load_causal,
    one_line_errors,
    output_logits,
    quiet_loading,
    weights_of,
)
from prbench.backends.llm.client import (
    ChatRequest,
    Finish,
    LlmOptions,
    Message,
    Reply,
    system_in_first_user_turn,
    takes_system_turn,
    without_control_tokens,
)
from prbench.backends.llm.servers import as_dicts
from prbench.backends.shared_prefix.batching import TokenCount, Tokens, memory_errors
from prbench.errors import UsageError
from prbench.schema import NOTHING
from prbench.specs import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from prbench.backends.shared_prefix.prefixes import Pack

log = logging.getLogger(__name__)

LARGEST_WINDOW = 10_000_000  # tokenizers without a limit claim 1e30
GREEDY = 0.0
CPU_ROWS, MOST_ROWS = 8, 256  # in a batch, unless a number is given
GPU_TOKENS = 262_144  # of prompts and replies in a batch, if the GPU can hold them
LONGEST_ERROR = 300  # characters: torch explains its memory at length
LOGIT_ROWS = 64  # prompts whose logits are in memory together
# Short prompts that begin alike and one that does not: on these it is tried out whether prefixes can be shared.
TRIAL = ("Which is longer, a mile or a league?", "Which is longer?", "Name a river.")


def load(spec: Spec, options: LlmOptions) -> "TransformersLLM":
    """Return `hf:ID_OR_FOLDER`."""
    return TransformersLLM(spec.target, window=options.window, batch_size=options.concurrency, seed=options.seed)


class TransformersLLM:
    """A causal model with a chat template; prompts are padded on the left, with the attention mask set.

    A tokenizer without a pad token pads with its end token: the mask hides it, so replies do not change. Greedy
    replies come from batches; a sampled reply is drawn alone, so that its seed decides it whatever else was asked.
    Requests for the candidates of a single token need one forward pass, in which prompts that begin alike share work.
    """

    def __init__(
        self,
        target: str,
        *,
        window: int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        dtype: str = "auto",
    ) -> None:
        """`batch_size` is the most rows in a batch; `None`: what suits the device.

        `dtype` "auto" is the checkpoint's own on a GPU and float32 on a CPU, where half precision is slow.
        """
        self.name = f"hf:{target}"
        self._batch_size = batch_size
        self._held: int | None = None  # tokens of a batch beyond which the memory was too small; `None`: it never was
        self._seed = seed
        self._model, self._tokenizer = _load(target, dtype)
        # Taken once, when they are loaded: files that change later are not what replies.
        self._weights = weights_of(target) or str(getattr(self._model.config, "_commit_hash", None) or "")
        self.fingerprint = f"seed={seed} dtype={self._model.dtype} revision=None weights={self._weights}"
        if not self._tokenizer.chat_template:
            raise UsageError(f"{self.name}: the tokenizer has no chat template. Use an instruction-tuned model.")
        # What ends a reply: the tokens of the checkpoint's generation settings, and the tokenizer's own.
        configured = self._model.generation_config.eos_token_id
        listed = [*(configured if isinstance(configured, list) else [configured]), self._tokenizer.eos_token_id]
        self._ends = [int(token) for token in dict.fromkeys(listed) if token is not None]
        if not self._ends:
            raise UsageError(
                "The model names no end token, so no reply would ever end. Use an instruction-tuned model."
            )
        self._pad = self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else self._ends[0]
        self._has_system_role = takes_system_turn(self._tokenizer)
        limits = (getattr(self._model.config, "max_position_embeddings", None), self._tokenizer.model_max_length)
        own = min((int(limit) for limit in limits if limit is not None and limit < LARGEST_WINDOW), default=None)
        if window is not None and own is not None and window > own:
            raise UsageError(f"{self.name}: the model's window is {own} tokens. Ask for no more than that.")
        self.window = own if window is None else window
        self._first_tokens: FirstTokens | None = None  # made and tried out when it is first needed
        self._one_at_a_time = Lock()  # a pass over shared prefixes changes the model's attention while it runs

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return len(self._prompt(messages))

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Return one reply per request, in the same order; a prompt beyond the window is an error, never cut."""
        prompts = [self._prompt(request.messages) for request in requests]
        replies: dict[int, Reply] = {}
        fitting: list[int] = []
        for position, request in enumerate(requests):
            if request.json_schema:
                text = f"{self.name} cannot hold replies to a JSON schema; use a server (openai:) for that"
                replies[position] = Reply(finish=Finish.ERROR, error=text)
            elif self.window is not None and len(prompts[position]) >= self.window:
                text = f"the prompt has {len(prompts[position])} tokens, the window {self.window}"
                replies[position] = Reply(finish=Finish.ERROR, error=text)
            else:
                fitting.append(position)
        with self._one_at_a_time:
            one_token = [
                i
                for i in fitting
                if requests[i].top_logprobs and requests[i].temperature <= GREEDY
                if self._room(requests[i], prompts[i]) == 1
            ]
            replies.update(self._read_first_tokens(one_token, requests, prompts))
            for batch in self._batches([i for i in fitting if i not in replies], requests, prompts):
                rows = self._replies([requests[i] for i in batch], [prompts[i] for i in batch])
                replies.update(zip(batch, rows, strict=True))
        return [replies[position] for position in range(len(requests))]

    def tokens(self) -> Mapping[str, int]:
        """Return how many tokens the prompts of one-token requests had, and how many of them were computed."""
        return self._first_tokens.tokens() if self._first_tokens else {"total": 0, "computed": 0}

    def _read_first_tokens(
        self, positions: Sequence[int], requests: Sequence[ChatRequest], prompts: Sequence[Sequence[int]]
    ) -> dict[int, Reply]:
        """Return the replies that one pass over shared prefixes gives; none where the model cannot do that."""
        if not positions:
            return {}
        try:
            if self._first_tokens is None:
                trial = [self._prompt([Message("user", text)]) for text in TRIAL]
                self._first_tokens = FirstTokens(self._model, trial)
                if self._first_tokens.note:
                    log.warning("%s: %s", self.name, self._first_tokens.note)
            if self._first_tokens.note:
                return {}
            most = max(requests[i].top_logprobs for i in positions)
            found = self._first_tokens.read([prompts[i] for i in positions], most)
        except (RuntimeError, IndexError):
            return {}  # asked again in batches, which say what is wrong with which
        return {
            i: self._reply([each.taken], len(prompts[i]), each.texts(requests[i].top_logprobs, self._tokenizer))
            for i, each in zip(positions, found, strict=True)
            if not isinstance(each, MemoryError)
        }

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        turns = without_control_tokens(messages, self._tokenizer.all_special_tokens)
        if not self._has_system_role:
            turns = system_in_first_user_turn(turns)
        # Tokenized inside the template call: rendering first and tokenizing then would add a second BOS.
        ids = list(
            self._tokenizer.apply_chat_template(as_dicts(turns), add_generation_prompt=True, return_dict=True)[
                "input_ids"
            ]
        )
        start = self._tokenizer.bos_token_id
        if start is not None and ids[:2] == [start, start]:
            raise UsageError(f"{self.name}: the chat template yields two BOS tokens. Remove one from the template.")
        return ids

    def _room(self, request: ChatRequest, prompt: Sequence[int]) -> int:
        return request.max_tokens if self.window is None else min(request.max_tokens, self.window - len(prompt))

    def _batches(
        self, positions: Sequence[int], requests: Sequence[ChatRequest], prompts: Sequence[Sequence[int]]
    ) -> Iterator[list[int]]:
        """Yield positions that can be generated together: greedy, same reply length, similar prompt length."""
        groups: dict[int, list[int]] = defaultdict(list)
        for position in positions:
            if requests[position].temperature > GREEDY:
                yield [position]
            else:
                groups[self._room(requests[position], prompts[position])].append(position)
        for group in groups.values():
            left = sorted(group, key=lambda position: len(prompts[position]), reverse=True)
            while left:
                rows = self._rows_at_once(len(prompts[left[0]]) + self._room(requests[left[0]], prompts[left[0]]))
                yield left[:rows]
                del left[:rows]

    def _rows_at_once(self, tokens: int) -> int:
        """Return how many rows of so many tokens, prompt and reply, to answer together.

        A GPU takes many: as long as its cores are not busy, a step of many rows takes no longer than one of few.
        """
        on_gpu = self._model.device.type == "cuda"
        rows = self._batch_size or (min(MOST_ROWS, GPU_TOKENS // tokens) if on_gpu else CPU_ROWS)
        return max(1, rows if self._held is None else min(rows, self._held // tokens))

    def _replies(self, requests: Sequence[ChatRequest], prompts: Sequence[Sequence[int]]) -> list[Reply]:
        """Answer one batch; one that fails is tried in halves, so that no row fails by others."""
        try:
            with memory_errors():
                return self._generate(requests, prompts)
        except (MemoryError, RuntimeError, IndexError) as error:  # as torch says, e.g. of an id without embedding
            half = len(requests) // 2
            if not half:
                text = f"the forward pass failed: {' '.join(str(error).split())[:LONGEST_ERROR]}"
                return [Reply(finish=Finish.ERROR, error=text)]
            if isinstance(error, MemoryError):
                self._held = half * (max(map(len, prompts)) + self._room(requests[0], prompts[0]))
        return self._replies(requests[:half], prompts[:half]) + self._replies(requests[half:], prompts[half:])

    def _generate(self, requests: Sequence[ChatRequest], prompts: Sequence[Sequence[int]]) -> list[Reply]:
        """Generate for one batch that shares its temperature and its room for the reply."""
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        shape: dict[str, Any] = {"do_sample": False}
        if requests[0].temperature > GREEDY:
            # The stated temperature, and no further rule that reshapes the distribution.
            shape = {"do_sample": True, "temperature": requests[0].temperature, "top_k": 0, "top_p": 1.0}
        settings = GenerationConfig(
            max_new_tokens=self._room(requests[0], prompts[0]),
            pad_token_id=self._pad,
            eos_token_id=self._ends,
            num_beams=1,
            **shape,
        )
        width = max(map(len, prompts))
        rows = [[self._pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        masks = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        first = NoteFirstStep(max(request.top_logprobs for request in requests))
        seed = self._seed if requests[0].seed is None else requests[0].seed
        devices = [self._model.device] if self._model.device.type == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices=devices):
            if seed is not None:
                torch.manual_seed(seed)
            output = self._model.generate(
                input_ids=torch.tensor(rows, device=self._model.device),  # (batch, tokens)
                attention_mask=torch.tensor(masks, device=self._model.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList([first]),
            )
        news = output[:, width:].tolist()
        return [
            self._reply(new, len(prompt), candidates.texts(request.top_logprobs, self._tokenizer))
            for new, prompt, request, candidates in zip(news, prompts, requests, first.candidates, strict=True)
        ]

    def _reply(self, new: Sequence[int], prompt_tokens: int, candidates: Mapping[str, float]) -> Reply:
        end = next((place for place, token in enumerate(new) if token in self._ends), None)
        text = self._tokenizer.decode(new if end is None else new[:end], skip_special_tokens=True)
        return Reply(
            text=text,
            finish=Finish.LENGTH if end is None else Finish.STOP,
            prompt_tokens=prompt_tokens,
            completion_tokens=len(new) if end is None else end + 1,
            first_token=candidates,
        )


def _load(target: str, dtype: str) -> tuple[Any, Any]:
    try:
        import torch
        from transformers import GenerationConfig
    except ImportError as error:
        raise UsageError("hf: models need transformers. Install them with: pip install 'prbench[hf]'") from error
    device = "cuda" if torch.cuda.is_available() else "cpu"
    chosen = "float32" if dtype == "auto" and device == "cpu" else dtype
    with one_line_errors(f"hf:{target}", "Check the id or path, and the network."), quiet_loading():
        tokenizer = from_pretrained("AutoTokenizer", target)
        model = load_causal(target, dtype=chosen)
    # The checkpoint's own sampling rules (top_p, repetition_penalty) would apply without being asked for.
    ends = model.generation_config.eos_token_id
    model.generation_config = GenerationConfig(eos_token_id=ends)
    return model.to(device).eval(), tokenizer


@dataclass(frozen=True, slots=True)
class Candidates:
    """The likeliest first tokens after one prompt, and which of them greedy decoding takes."""

    taken: int
    tokens: Sequence[int]  # likeliest first
    values: Sequence[float]  # their log-probabilities

    def texts(self, count: int, tokenizer: Any) -> Mapping[str, float]:
        """Return text -> log-probability of the best candidates, summed where two tokens read alike."""
        if not count:
            return NOTHING
        found: dict[str, float] = {}
        for token, value in zip(self.tokens[:count], self.values[:count], strict=True):
            text = tokenizer.decode([token])
            found[text] = float(np.logaddexp(found.get(text, -math.inf), value))
        return found


def read_candidates(logits: "Tensor", count: int) -> list[Candidates]:
    """Return the best candidates of each row: (rows, vocabulary) in."""
    best = logits.float().log_softmax(dim=-1).topk(min(count, logits.shape[-1]), dim=-1)
    rows = zip(logits.argmax(dim=-1).tolist(), best.indices.tolist(), best.values.tolist(), strict=True)
    return [Candidates(taken, tokens, values) for taken, tokens, values in rows]


class NoteFirstStep:
    """Keeps the first step's best candidates while `generate` runs, and nothing of the other steps.

    (Asking `generate` for all its logits would hold steps x batch x vocabulary numbers in memory.)
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.candidates: list[Candidates] = []

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        if not self.candidates:
            self.candidates = read_candidates(scores, self._count)
        return scores


class FirstTokens:
    """Reads the first token's candidates in one forward pass in which prompts that begin alike share the work.

    Both orders of a pair begin alike, and so do the prompts about one user. `note` says why where a model cannot do
    that; it is tried out on `trial`, a few short prompts.
    """

    def __init__(self, model: Any, trial: Sequence[Sequence[int]]) -> None:
        from prbench.backends.shared_prefix.packed import find_runner

        self._model = model
        self._count = TokenCount()
        self.tokens = self._count.as_mapping
        prompts = [Tokens(tuple(ids)) for ids in trial]
        backbone = getattr(model, model.base_model_prefix, None)
        self._runner, reason = find_runner(backbone, prompts, self._alone, self._surest, compiled=False)
        self._budget = self._runner.budget(None) if self._runner else None
        self.note = f"prefixes are not shared: {reason}" if reason else ""

    def read(self, prompts: Sequence[Sequence[int]], count: int) -> list[Candidates | MemoryError]:
        """Return the best `count` candidates after each prompt, in order."""
        from prbench.backends.shared_prefix.packed import compute_packed

        assert self._runner is not None, "callers look at `note` first"
        assert self._budget is not None
        sequences = [Tokens(tuple(ids)) for ids in prompts]

        def read(hidden: "Tensor", pack: "Pack") -> list[Candidates]:
            places = [each.last for each in pack.places()]
            parts = [places[start : start + LOGIT_ROWS] for start in range(0, len(places), LOGIT_ROWS)]
            return [
                each for part in parts for each in read_candidates(output_logits(self._model, hidden[part]), count)
            ]

        return compute_packed(sequences, self._budget, self._runner, read, self._count)

    def _surest(self, hidden: "Tensor", pack: "Pack") -> list[float]:
        logits = output_logits(self._model, hidden[[each.last for each in pack.places()]])
        return [each.values[0] for each in read_candidates(logits, 1)]

    def _alone(self, prompts: Sequence[Tokens]) -> list[float]:
        """Return what `_surest` must give, by the model's own forward pass, one prompt at a time."""
        import torch

        with torch.inference_mode():
            rows = [torch.tensor([each.ids], device=self._model.device) for each in prompts]
            logits = torch.stack([self._model(row).logits[0, -1] for row in rows])  # (prompts, vocabulary)
            return [each.values[0] for each in read_candidates(logits, 1)]
