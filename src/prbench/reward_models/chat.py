"""The one place that turns a RewardInput into token ids for a Hugging Face model."""

import inspect
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from prbench.backends.shared_prefix.batching import Tokens, common_prefix
from prbench.errors import UsageError
from prbench.prompts import load_template
from prbench.reward_models.base import ModelSettings, UnknownTokens, failed, one_by_one, too_long
from prbench.schema import Json, PairInput, Problem, RewardInput, Score, UserContext

CACHED_INPUTS = 512  # inputs whose tokens are kept for a second asking
CACHED_PROMPTS = 64  # likewise, without their responses
_NO_LIMIT = 10**9  # tokenizers without a limit report about 1e30
# Their position table begins after the padding index, so two of its rows are never used for text.
_OFFSET_POSITIONS = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "mpnet"})


class CannotEncodeError(ValueError):
    """This input cannot be put into token ids without changing what it says."""


class Chat:
    """Lays out question, context and response for one tokenizer; it never truncates.

    Three layouts: the chat template (the turn, then the response as the assistant's turn); for encoders without one,
    the tokenizer's own text pair (turn, response); otherwise plain text: the turn, a blank line, the response, and the
    tokenizer's EOS. Control tokens that stand in a text are encoded as the text they are.
    """

    def __init__(
        self,
        tokenizer: Any,
        model_config: Any,
        settings: ModelSettings,
        *,
        bos: str = "one",  # "none": this chat template leaves the BOS out on purpose
        may_pair: bool = False,
        mark_response: bool = False,  # also find where the response begins, for models that count its tokens alone
        end_id: int | None = None,  # a token that the model reads its score from, put at the very end
    ) -> None:
        self._tokenizer = tokenizer
        self._turn = load_template(settings.template or "turn").require("question", "context", answer="text")
        if self._turn.system:
            raise UsageError(f"Template {self._turn.name!r} has a system part; here the user's turn is all there is.")
        self.template_hash = self._turn.hash
        self._chat_template = _chat_template(tokenizer, settings.chat_template)
        self._mark_response = mark_response
        self._end_ids = () if end_id is None else (end_id,)
        self._bos = bos
        # A tokenizer would obey the added tokens wherever they stand in a text; longer ones are found first.
        added = {str(token.content) for token in tokenizer.added_tokens_decoder.values()}
        controls = sorted((token for token in added if token.strip()), key=lambda token: (-len(token), token))
        self._control_token = re.compile("|".join(map(re.escape, controls)) or r"(?!)")
        self._can_sanitize = "sanitize_control_tokens" in inspect.signature(tokenizer.apply_chat_template).parameters
        if self._chat_template:
            self.layout = "chat"
        elif may_pair and tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None:
            self.layout = "pair"
        else:
            self.layout = "plain"
        self.limit = window(model_config, tokenizer, settings.max_length)
        # An evaluation asks whether an input fits, then scores it: the second time costs nothing.
        self._encoded: OrderedDict[RewardInput, Tokens] = OrderedDict()
        self._prompts: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self.identity: Mapping[str, Json] = {  # all of the layout that changes token ids
            "layout": self.layout,
            "turn": self._turn.hash,
            "chat_template": sha256((self._chat_template or "").encode()).hexdigest()[:12],
            "max_length": self.limit,
            "bos": bos,
        }
        self._check()

    def fits(self, each: RewardInput | PairInput) -> bool:
        """Does the model's window hold this input?"""
        if self.limit is None:
            return True
        # What cannot be encoded counts as fitting: its score will say why it has none.
        encoded = (self.try_encode(one) for one in one_by_one(each))
        return not any(isinstance(one, Score) and one.problem is Problem.TOO_LONG for one in encoded)

    def holds(self, user: UserContext, *, question: str, responses: Sequence[str], reserve_tokens: int) -> bool:
        return all(self.fits(RewardInput(question=question, user=user, response=response)) for response in responses)

    def try_encode(self, each: RewardInput) -> Tokens | Score:
        """Return the input as tokens, or the score that says why it has none."""
        try:
            tokens = self.encode(each)
        except CannotEncodeError as error:
            return failed(str(error))
        if self.limit is not None and len(tokens.ids) > self.limit:
            return too_long(len(tokens.ids), self.limit)
        return tokens

    def try_encode_all(self, inputs: Sequence[RewardInput]) -> list[Tokens | Score]:
        """Return every input as `try_encode` does; several at once take the tokenizer's threads."""
        found: list[Tokens | Score] = []
        for start in range(0, len(inputs), CACHED_INPUTS // 2):
            some = inputs[start : start + CACHED_INPUTS // 2]
            new = [each for each in some if each not in self._encoded] if self.layout == "chat" else []
            chats = {each: self._chat(each) for each in new}
            # What holds a control token takes care, one by one.
            plain = {each: chat for each, chat in chats.items() if not self._find_control_token(chat)}
            if len(plain) > 1:
                # One that cannot be encoded spoils them all; asked one by one, it says why.
                with suppress(TypeError, ValueError):
                    encoded = self._tokenizer.apply_chat_template(
                        list(plain.values()), chat_template=self._chat_template, return_dict=True, tokenize=True
                    )
                    for (each, chat), ids in zip(plain.items(), encoded["input_ids"], strict=True):
                        self._keep(each, self._marked((*ids, *self._end_ids), chat))
            found += [self.try_encode(each) for each in some]
        return found

    def encode(self, each: RewardInput) -> Tokens:
        """Return the input as tokens."""
        if each not in self._encoded:
            self._keep(each, self._encode(each))
        return self._encoded[each]

    def _keep(self, each: RewardInput, tokens: Tokens) -> None:
        self._encoded[each] = tokens
        if len(self._encoded) > CACHED_INPUTS:
            self._encoded.popitem(last=False)

    def _chat(self, each: RewardInput) -> list[dict[str, str]]:
        turn = self._turn.fill(question=each.question, context=each.context)[0][1]
        return [{"role": "user", "content": turn}, {"role": "assistant", "content": each.response}]

    def _encode(self, each: RewardInput) -> Tokens:
        chat = self._chat(each)
        if self.layout == "chat":
            return self._marked(self._render(chat, header=False) + self._end_ids, chat)
        turn = chat[0]["content"]
        if self.layout == "pair":
            encoded = self._tokenizer(turn, each.response, truncation=False, split_special_tokens=True)
            return Tokens(ids=tuple(encoded["input_ids"]), types=tuple(encoded.get("token_type_ids", ())))
        begun = f"{turn}\n\n"
        full = self._plain(begun + each.response)
        eos = self._tokenizer.eos_token_id
        if eos is not None and full[-1:] != (eos,):
            full += (eos,)
        full += self._end_ids
        return Tokens(ids=full, prompt=common_prefix(full, self._plain(begun)) if self._mark_response else 0)

    def unknown_tokens(self, texts: Sequence[str]) -> UnknownTokens:
        """Count the tokens of these texts that stand for words which the tokenizer does not know.

        Some tokenizers have no token for what they do not know, and leave it out: a text of which nothing is left
        counts by its words.
        """
        unknown = total = 0
        for text in texts:
            options = {"add_special_tokens": False, "truncation": False, "split_special_tokens": True}
            ids = self._tokenizer(text, **options)["input_ids"]
            lost = [] if ids else text.split()
            unknown += len(lost) + ids.count(self._tokenizer.unk_token_id)
            total += len(lost) + len(ids)
        return UnknownTokens(
            unknown=unknown,
            total=total,
            written_as=self._tokenizer.unk_token or "",
            where=str(self._tokenizer.name_or_path),
        )

    def trial(self) -> list[Tokens]:
        """Return a few inputs, two of them with a common beginning, to try a model out on."""
        asked = "one"
        longer = " ".join(f"word {number}" for number in range(40))  # a slip in positions shows on longer texts
        if self.fits(RewardInput(question=longer, response="three and four")):
            asked = longer
        texts = ((asked, "two"), (asked, "three and four"), ("five", "six"))
        return [self.encode(RewardInput(question=asked, response=said)) for asked, said in texts]

    def _marked(self, full: tuple[int, ...], chat: list[dict[str, str]]) -> Tokens:
        """Return the tokens with the place where the response begins, if that is wanted."""
        if not self._mark_response:
            return Tokens(ids=full)
        turn = chat[0]["content"]
        if turn not in self._prompts:  # candidates of one prompt share it
            self._prompts[turn] = self._render(chat[:1], header=True)
            if len(self._prompts) > CACHED_PROMPTS:
                self._prompts.popitem(last=False)
        return Tokens(ids=full, prompt=common_prefix(full, self._prompts[turn]))

    def _find_control_token(self, messages: Sequence[Mapping[str, str]]) -> re.Match[str] | None:
        return self._control_token.search("\0".join(message["content"] for message in messages))

    def _render(self, messages: list[dict[str, str]], *, header: bool) -> tuple[int, ...]:
        # Tokenized inside the template call: a rendered text would get a second BOS from the tokenizer.
        options: dict[str, Any] = {"add_generation_prompt": header, "return_dict": True, "tokenize": True}
        if found := self._find_control_token(messages):
            if not self._can_sanitize:
                raise CannotEncodeError(
                    f"the text holds the control token {found[0]!r}, which this version of transformers would obey; "
                    "pip install --upgrade transformers"
                )
            options["sanitize_control_tokens"] = True
        try:
            encoded = self._tokenizer.apply_chat_template(messages, chat_template=self._chat_template, **options)
        except (TypeError, ValueError) as error:  # what tokenizers raise on half a surrogate pair
            raise CannotEncodeError(str(error)) from error
        return tuple(encoded["input_ids"])

    def _plain(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer(text, truncation=False, split_special_tokens=True)["input_ids"])

    def _check(self) -> None:
        """Refuse a layout that loses part of the input, or that begins with no BOS or with two."""
        from jinja2 import TemplateError

        try:
            plain, asked, answered = (
                self._encode(RewardInput(question=question, response=response)).ids
                for question, response in (("one", "two"), ("three", "two"), ("one", "three"))
            )
        except (CannotEncodeError, TemplateError) as error:
            raise UsageError(
                f"The chat template cannot be used: {error}. Give another with --chat-template FILE."
            ) from error
        for lost, other in (("question", asked), ("response", answered)):
            if plain != other:
                continue
            found = self.unknown_tokens(["one two three"])
            if found.unknown:
                raise found.refusal("'one two three'")
            raise UsageError(f"The chat template leaves out the {lost}. Give another with --chat-template FILE.")
        bos = self._tokenizer.bos_token_id
        if self.layout == "pair" or bos is None:
            return
        if plain[:2] == (bos, bos):
            raise UsageError(
                "The chat template begins with two BOS tokens, which shifts every score. "
                "Remove one bos_token from it and give it with --chat-template FILE."
            )
        expected = self._plain("one")[:1] == (bos,)
        if expected and plain[0] != bos and self._bos != "none":
            raise UsageError(
                "The chat template has no BOS, which this tokenizer puts before plain texts. Add {{ bos_token }} and "
                "give it with --chat-template FILE, or say ?bos=none if the model was trained without."
            )


def window(model_config: Any, tokenizer: Any, asked: int | None) -> int | None:
    """Return how many tokens an input may have: `asked`, or the model's own limit, or `None` where there is none."""
    text_config = model_config.get_text_config()
    limit: int | None = getattr(text_config, "max_position_embeddings", None)
    if limit is not None and limit < 1:  # some configs write -1 for "no table of positions"
        limit = None
    if limit is not None and text_config.model_type in _OFFSET_POSITIONS:
        limit -= 2
    declared = tokenizer.model_max_length if tokenizer.model_max_length < _NO_LIMIT else None
    hard = limit or declared
    if asked is None:
        return min((each for each in (limit, declared) if each), default=None)
    if asked < 1:
        raise UsageError(f"--max-length {asked} holds no text. Give a number of tokens, or leave it out.")
    if hard and asked > hard:
        raise UsageError(f"--max-length {asked} is over this model's limit of {hard} tokens. Use {hard} or less.")
    return asked


def _chat_template(tokenizer: Any, path: Path | None) -> str | None:
    try:
        if path is None:
            # Some tokenizers carry several by name; this gives the default one.
            return tokenizer.get_chat_template() if tokenizer.chat_template else None
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no such file, broken UTF-8, or several templates and no default
        which = f"--chat-template {path}" if path else "The tokenizer's chat template"
        fact = " ".join(str(error).split())
        raise UsageError(f"{which} cannot be read: {fact} Give another with --chat-template FILE.") from error
