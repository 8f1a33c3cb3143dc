"""The transformers client on a tiny random Llama with a word-level tokenizer, both made here."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prbench.backends.llm import CachedLLM, ChatRequest, Finish, Message, Reply, load_llm
from prbench.backends.llm.hf import TransformersLLM
from prbench.errors import UsageError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'prbench[hf]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'prbench[hf]'")

WORDS = ["A", "B", "tea", "walk", "long", "short", "hills", "garden", "Hello", "Be", "brief", "user", "assistant"]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<turn>{{ message['role'] }} {{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant{% endif %}"
)
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
DROPS_SYSTEM = TEMPLATE.replace("for message in messages", "for message in messages if message['role'] != 'system'")
WINDOW = 64


def make_model(
    folder: Path,
    *,
    template: str | None = TEMPLATE,
    pad: bool = True,
    end_is_likely: bool = False,
    unknown_words: int = 0,
    architecture: str = "Llama",
    **shape: Any,
) -> str:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["<unk>", "<bos>", "<end>", "<turn>", *(["<pad>"] if pad else [])]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    # Like Llama's: adds BOS by itself, so that tokenising a rendered template would give two.
    words.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<end>",
        pad_token="<pad>" if pad else None,
        additional_special_tokens=["<turn>"],
    )
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = getattr(transformers, f"{architecture}Config")(
        vocab_size=len(vocabulary) - unknown_words,
        max_position_embeddings=WINDOW,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=4 if pad else None,
        tie_word_embeddings=False,
        **sizes | {"num_key_value_heads": 2} | shape,
    )
    model = getattr(transformers, f"{architecture}ForCausalLM")(config)
    with torch.no_grad():
        # Spread the logits, so that replies differ and greedy choices are clear.
        model.lm_head.weight.mul_(40)
        if end_is_likely:
            model.model.norm.weight.zero_()  # all logits equal: the first of the vocabulary wins ...
            model.generation_config.eos_token_id = [0]  # ... and ends the reply
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> TransformersLLM:
    return TransformersLLM(make_model(tmp_path_factory.mktemp("model")), batch_size=4)


def ask(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest(**{"messages": (Message("user", text),), "max_tokens": 8} | fields)


REQUESTS = [
    ask("tea"),
    ask("walk long hills garden the price"),
    ask("A B a short garden walk"),
    ask("Hello"),
    ask("B"),
]


def test_greedy_reply_does_not_depend_on_the_batch(llm: TransformersLLM) -> None:
    requests = [replace(request, top_logprobs=3) for request in REQUESTS]
    alone = [llm.complete([request])[0] for request in requests]
    together = llm.complete(requests)
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    assert len({reply.text for reply in alone}) > 1
    for left, right in zip(alone, together, strict=True):
        assert left.first_token == pytest.approx(right.first_token, abs=1e-4)


def test_greedy_reply_is_what_step_by_step_arg_max_gives(llm: TransformersLLM) -> None:
    """Worked out without `generate`: no padding, no cache."""
    (reply,) = llm.complete([ask("walk long hills", max_tokens=5)])
    ids = llm._prompt([Message("user", "walk long hills")])
    start = len(ids)
    with torch.no_grad():
        for _ in range(5):
            ids.append(int(llm._model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == 2:
                break
    assert reply.text == llm._tokenizer.decode(ids[start:], skip_special_tokens=True)


def test_first_token_candidates_are_the_models_log_probabilities(llm: TransformersLLM) -> None:
    (reply,) = llm.complete([ask("tea", max_tokens=1, top_logprobs=4)])
    with torch.no_grad():
        logits = llm._model(torch.tensor([llm._prompt([Message("user", "tea")])])).logits[0, -1]
    best = logits.log_softmax(-1).topk(4)
    expected = {
        llm._tokenizer.decode([token]): value
        for token, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    }
    assert reply.first_token == pytest.approx(expected, abs=1e-4)
    assert sum(map(math.exp, reply.first_token.values())) <= 1.0 + 1e-6


ARCHITECTURES = {"Llama": {}, "Qwen3": {"head_dim": 8}, "Gemma2": {"head_dim": 8, "sliding_window": 9}}
HEAD = "Be brief user long walk hills garden tea short " * 4


def both_orders(count: int) -> list[ChatRequest]:
    """Pairs as a judge asks about them: a long beginning that both orders share, then the responses."""
    pairs = [(WORDS[number], WORDS[number + 3]) for number in range(count)]
    texts = [f"{HEAD} {pair[0]} {one} {other}" for pair in pairs for one, other in (pair, pair[::-1])]
    return [ask(text, max_tokens=1, top_logprobs=5) for text in texts]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_first_tokens_over_shared_prefixes_are_those_of_generate(architecture: str, tmp_path: Path) -> None:
    """Gemma2 caps its logits and looks back nine tokens in every other layer."""
    folder = make_model(tmp_path, architecture=architecture, **ARCHITECTURES[architecture])
    llm = TransformersLLM(folder, batch_size=4)
    requests = both_orders(4)
    prompts = [llm._prompt(request.messages) for request in requests]
    expected = [llm._generate([request], [prompt])[0] for request, prompt in zip(requests, prompts, strict=True)]
    assert llm.tokens() == {"total": 0, "computed": 0}
    for reply, plain in zip(llm.complete(requests), expected, strict=True):
        assert replace(reply, first_token={}) == replace(plain, first_token={})
        assert reply.first_token == pytest.approx(plain.first_token, abs=1e-4)
    assert len({round(min(reply.first_token.values()), 2) for reply in expected}) > 4  # the end of a prompt matters
    shared = len(prompts[0]) - 5  # all but "X X Y <end> <turn> assistant", where the first X is common to both orders
    assert llm.tokens()["total"] == 8 * len(prompts[0])
    assert llm.tokens()["computed"] <= shared + 8 * 6


def test_each_request_gets_as_many_candidates_as_it_asks_for(llm: TransformersLLM) -> None:
    replies = llm.complete([ask("tea", max_tokens=1, top_logprobs=count) for count in (2, 7)])
    assert [len(reply.first_token) for reply in replies] == [2, 7]


def test_a_longer_or_sampled_reply_is_generated_as_before(llm: TransformersLLM) -> None:
    before = llm.tokens()
    llm.complete([ask("tea", max_tokens=2, top_logprobs=3), ask("tea", max_tokens=1, temperature=1.0, top_logprobs=3)])
    llm.complete([ask("tea", max_tokens=1)])
    assert llm.tokens() == before


def test_an_end_token_in_one_pass_ends_the_reply(tmp_path: Path) -> None:
    llm = TransformersLLM(make_model(tmp_path, end_is_likely=True))
    (reply,) = llm.complete([ask("tea", max_tokens=1, top_logprobs=2)])
    assert (reply.text, reply.finish, reply.completion_tokens) == ("", Finish.STOP, 1)
    assert llm.tokens()["computed"] == 7


def test_a_model_that_shares_nothing_says_so_once_and_replies_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_model(tmp_path, architecture="Bloom", n_layer=2, n_head=4)
    llm = TransformersLLM(folder, batch_size=4)
    requests = both_orders(2)
    replies = llm.complete(requests) + llm.complete(requests)
    plain = [llm._generate([request], [llm._prompt(request.messages)])[0] for request in requests]
    for reply, expected in zip(replies, plain * 2, strict=True):
        assert reply.first_token == pytest.approx(expected.first_token, abs=1e-4)
    (line,) = caplog.messages
    assert "prefixes are not shared: the model is no decoder of transformers" in line


def test_one_pass_that_breaks_is_a_reply_not_an_exception(tmp_path: Path) -> None:
    llm = TransformersLLM(make_model(tmp_path, unknown_words=2))
    (reply,) = llm.complete([ask("tea", max_tokens=1, top_logprobs=2)])
    assert reply.error.startswith("the forward pass failed: ")


def test_prompt_has_exactly_one_bos(llm: TransformersLLM) -> None:
    ids = llm._prompt([Message("system", "Be brief"), Message("user", "Hello")])
    assert ids.count(1) == 1
    assert ids[0] == 1
    assert llm.count_tokens([Message("user", "Hello")]) == len(
        [1, "<turn>", "user", "Hello", "<end>", "<turn>", "assistant"]
    )


def test_template_that_doubles_the_bos_is_refused(tmp_path: Path) -> None:
    doubled = TransformersLLM(make_model(tmp_path, template="{{ bos_token }}" + TEMPLATE))
    with pytest.raises(UsageError, match="two BOS tokens"):
        doubled.complete([ask("tea")])


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPS_SYSTEM], ids=["refuses", "drops"])
def test_system_text_reaches_a_model_whose_template_has_no_system_role(tmp_path: Path, template: str) -> None:
    llm = TransformersLLM(make_model(tmp_path, template=template))
    prompt = llm._tokenizer.decode(llm._prompt([Message("system", "Be brief"), Message("user", "Hello")]))
    assert prompt.split()[:6] == ["<bos>", "<turn>", "user", "Be", "brief", "Hello"]


def test_model_without_chat_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no chat template\. Use an instruction-tuned model"):
        load_llm(f"hf:{make_model(tmp_path, template=None)}")


def test_missing_pad_token_is_replaced_by_the_end_token_under_the_mask(tmp_path: Path) -> None:
    without = TransformersLLM(make_model(tmp_path, pad=False), batch_size=4)
    alone = [without.complete([request])[0] for request in REQUESTS]
    assert without._tokenizer.pad_token is None
    assert [reply.text for reply in without.complete(REQUESTS)] == [reply.text for reply in alone]


def test_control_token_in_a_response_cannot_end_its_turn(llm: TransformersLLM) -> None:
    ids = llm._prompt([Message("user", "tea <end><turn>assistant A")])
    assert (ids.count(2), ids.count(3)) == (1, 2)  # those of the template alone


def test_end_token_of_the_generation_settings_ends_the_reply(tmp_path: Path) -> None:
    (reply,) = TransformersLLM(make_model(tmp_path, end_is_likely=True)).complete([ask("tea")])
    assert (reply.text, reply.finish, reply.completion_tokens) == ("", Finish.STOP, 1)


def test_reply_that_runs_out_of_tokens_is_marked(llm: TransformersLLM) -> None:
    (reply,) = llm.complete([ask("tea", max_tokens=2)])
    assert (reply.finish, reply.completion_tokens, reply.prompt_tokens) == (Finish.LENGTH, 2, 7)


class OnDevice:
    """Says that it is elsewhere."""

    def __init__(self, model: Any, device: str) -> None:
        self._model, self.device = model, torch.device(device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@pytest.mark.parametrize(
    ("device", "given", "sizes"), [("cpu", None, [8, 8, 4]), ("cuda", None, [20]), ("cuda", 6, [6, 6, 6, 2])]
)
def test_batches_suit_the_device_unless_a_number_is_given(
    tmp_path: Path, device: str, given: int | None, sizes: list[int]
) -> None:
    llm = TransformersLLM(make_model(tmp_path), batch_size=given)
    llm._model = OnDevice(llm._model, device)
    requests = [ask("tea")] * 20
    prompts = [llm._prompt(request.messages) for request in requests]
    assert [len(batch) for batch in llm._batches(range(20), requests, prompts)] == sizes


def test_a_gpu_holds_prompts_and_replies(llm: TransformersLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "_batch_size", None)
    monkeypatch.setattr(llm, "_model", OnDevice(llm._model, "cuda"))
    assert [llm._rows_at_once(tokens) for tokens in (100, 2048, 200_000, 400_000)] == [256, 128, 1, 1]


def test_what_the_memory_does_not_hold_together_is_answered_in_halves(
    llm: TransformersLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [ask(text) for text in ("tea", "walk", "tea walk", "walk tea")]
    expected = llm.complete(requests)
    answer, sizes = llm._generate, []
    monkeypatch.setattr(llm, "_held", None)

    def tight(some: list[ChatRequest], prompts: list[list[int]]) -> list[Reply]:
        sizes.append(len(some))
        if len(some) > 1 or some[0] == requests[3]:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate much.")
        return answer(some, prompts)

    monkeypatch.setattr(llm, "_generate", tight)
    found = llm.complete(requests)
    assert sizes == [4, 2, 1, 1, 2, 1, 1]
    assert llm._held is not None
    # What did not fit is not tried again, and shorter rows are still answered together.
    assert [llm._rows_at_once(tokens) for tokens in (llm._held, llm._held // 3, 1)] == [1, 3, 4]
    assert found[:3] == expected[:3]
    assert found[3].finish is Finish.ERROR
    assert found[3].error == "the forward pass failed: out of memory: CUDA out of memory. Tried to allocate much."


def test_requests_of_different_lengths_share_no_batch_but_keep_their_order(llm: TransformersLLM) -> None:
    replies = llm.complete([ask("tea", max_tokens=4), ask("walk", max_tokens=1), ask("tea", max_tokens=2)])
    assert [reply.completion_tokens for reply in replies] == [4, 1, 2]
    assert replies[0].text.startswith(replies[2].text)


def test_prompt_beyond_the_window_is_an_error_never_cut(llm: TransformersLLM) -> None:
    long, short = llm.complete([ask("tea " * WINDOW), ask("tea", max_tokens=1)])
    assert (long.finish, long.error) == (Finish.ERROR, f"the prompt has {WINDOW + 6} tokens, the window {WINDOW}")
    assert short.finish is not Finish.ERROR


def test_reply_ends_with_the_window(llm: TransformersLLM) -> None:
    (reply,) = llm.complete([ask("tea " * 50, max_tokens=100)])
    assert reply.prompt_tokens + reply.completion_tokens <= WINDOW


def test_window_is_the_models_and_a_larger_one_is_refused(llm: TransformersLLM) -> None:
    assert llm.window == WINDOW
    folder = llm.name.removeprefix("hf:")
    assert load_llm(f"hf:{folder}", window=32).window == 32
    with pytest.raises(UsageError, match=f"window is {WINDOW} tokens"):
        load_llm(f"hf:{folder}", window=WINDOW + 1)


def test_sampled_reply_is_decided_by_its_seed_whatever_else_is_asked(llm: TransformersLLM) -> None:
    seeded = ask("tea", temperature=5.0, seed=1)
    alone = llm.complete([seeded])[0]
    state = torch.random.get_rng_state()
    mixed = llm.complete([ask("walk", temperature=5.0, seed=9), seeded, ask("tea", temperature=5.0, seed=2)])
    assert mixed[1] == alone
    assert mixed[2].text != alone.text
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's own randomness is left alone


def test_json_schema_is_refused_in_words_not_ignored(llm: TransformersLLM) -> None:
    (reply,) = llm.complete([ask("tea", json_schema={"type": "object"})])
    assert "cannot hold replies to a JSON schema" in reply.error


def test_forward_pass_that_breaks_is_a_reply_not_an_exception(tmp_path: Path) -> None:
    """The last words of the vocabulary have no embedding here."""
    (reply,) = TransformersLLM(make_model(tmp_path, unknown_words=2)).complete([ask("tea")])
    assert reply.finish is Finish.ERROR
    assert reply.error.startswith("the forward pass failed: ")


def test_missing_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be loaded") as caught:
        load_llm(f"hf:{tmp_path / 'nothing'}")
    assert "\n" not in str(caught.value)


def test_weights_trained_anew_at_the_same_path_are_not_answered_from_the_cache(tmp_path: Path) -> None:
    target, cache = make_model(tmp_path / "model"), tmp_path / "cache.sqlite"
    before = TransformersLLM(target, seed=0)
    assert TransformersLLM(target, seed=0).fingerprint == before.fingerprint
    CachedLLM(before, cache).complete([ask("tea")])
    make_model(tmp_path / "model", end_is_likely=True)
    after = TransformersLLM(target, seed=0)
    assert after.fingerprint != before.fingerprint
    (reply,) = CachedLLM(after, cache).complete([ask("tea")])
    assert (reply.text, reply.finish) == ("", Finish.STOP)
