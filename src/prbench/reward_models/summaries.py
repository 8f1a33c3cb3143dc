"""Scores by a short summary of the user: a few statements of what they want, readable, kept in a file, open to edits.

Posts become statements out of a bank that was learned from training rubrics, or a chat model writes them. The score
reads the texts of the statements and nothing else of the user, so that whoever edits a summary changes the scores:

    about(x)  = softmax(8 (W x + c))                   one W, c each for posts, sentences and statements
    holds(u)  = sigmoid(average + mix' log(1 + 2 sum_p about(p)))         one share per statement of the bank
    wants(u)  = sum_i weight_i about(statement_i)                         of the statements in the summary
    score     = scale * mean_s about(s) . wants(u)

Posts and sentences may also be about nothing of the bank. Without posts, the summary is that of the average user.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from prbench.backends.encoders import Encoder
from prbench.backends.llm.asking import filled
from prbench.backends.llm.client import LLM, ChatRequest, LlmOptions, Message, Reply
from prbench.backends.npz_weights import NpzRecord, embed, open_encoder
from prbench.context import PromptWindow, fit_for
from prbench.context.aspect_planner import Floats, aspect_line, topics
from prbench.context.plan import read_points, whole_points
from prbench.data.rows import POST_DIGESTS, post_digest
from prbench.data.texts import sentences_of
from prbench.errors import UsageError
from prbench.prompts import load_template
from prbench.reward_models.base import EncoderOptions, LoadedModel, ModelSettings, as_loaded
from prbench.reward_models.generative import cached, open_llm
from prbench.reward_models.head import topics_of
from prbench.runs.files import write_json
from prbench.schema import ContextKind, Json, Problem, RewardInput, Score, UserContext, as_list
from prbench.specs import Spec, option

BANK, SUMMARIES = "bank.json", "summaries.jsonl"
MOST_WRITTEN = 8  # statements that are read from a chat model's reply
MAX_TOKENS = 512  # of such a reply

_WHO = "the summary model"  # in errors

Posts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that holds for a user, and how surely."""

    text: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is known of a user; without statements, `problem` says why."""

    statements: tuple[Statement, ...] = ()
    problem: Problem = Problem.NONE
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class SummaryWeights(NpzRecord):
    """The arrays of one model, for embeddings of size d and a bank of m statements."""

    FILE = "summary.npz"

    post_weight: Floats  # (d, m + 1)
    post_bias: Floats
    sentence_weight: Floats  # (d, m + 1)
    sentence_bias: Floats
    statement_weight: Floats  # (d, m)
    statement_bias: Floats
    mix: Floats  # (m, m)
    average: Floats  # (m,)
    scale: Floats  # ()
    least: Floats  # (): statements that hold less surely are left out
    most: Floats  # (): the longest summary

    def save_with(self, folder: Path, bank: Sequence[str], summarizer: str) -> None:
        """Write the arrays and the bank; `summarizer` is "bank" or the spec of a chat model."""
        self.save(folder)
        write_json(folder / BANK, {"summarizer": summarizer, "statements": list(bank)})


@dataclass(frozen=True, kw_only=True)
class SummaryOptions(EncoderOptions, LlmOptions):
    """Options of models that read a summary; most are for the chat model that writes them."""

    cache: str | None = option(None, "a file of summaries, to edit")


def load(spec: Spec, options: SummaryOptions, settings: ModelSettings) -> LoadedModel:
    """Return `summary:FOLDER`."""

    def ask(summarizer: str) -> LLM:
        return cached(open_llm(summarizer, options, settings)[0], settings)

    model = load_summary_reward(Path(spec.target), encoder=options.encoder, cache=options.cache, ask=ask)
    return as_loaded(spec, model, items_per_step=256)


def load_summary_reward(
    folder: Path, *, encoder: str | None = None, cache: str | None = None, ask: Callable[[str], LLM]
) -> "SummaryReward":
    """Read a trained folder; `ask` opens the chat model that wrote its summaries, where one did."""
    weights = SummaryWeights.load(folder)
    try:
        content = json.loads((folder / BANK).read_text(encoding="utf-8"))
        bank, who = [str(text) for text in content["statements"]], str(content["summarizer"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder / BANK}: cannot be read ({type(error).__name__}). Train the model again."
        ) from error
    if len(bank) != len(weights.average):
        raise UsageError(
            f"{folder}: {BANK} has {len(bank)} statements, trained were {len(weights.average)}. Train again."
        )
    loaded = open_encoder(folder, encoder)
    own = BankSummarizer(weights, bank, loaded)
    summarizer = own if who == "bank" else LLMSummarizer(ask(who))
    summaries = SummaryCache(summarizer.name, [folder / SUMMARIES], Path(cache) if cache else None)
    return SummaryReward(weights, loaded, own, summarizer, summaries)


class SummaryReward:
    """Looks up or makes each user's summary, and scores responses by it."""

    def __init__(
        self,
        weights: SummaryWeights,
        encoder: Encoder,
        bank: "BankSummarizer",
        summarizer: "BankSummarizer | LLMSummarizer",
        cache: "SummaryCache",
    ) -> None:
        self._weights = weights
        self._encoder = encoder
        self._bank = bank
        self._summarizer = summarizer
        self._summaries_cache = cache
        self.identity: Mapping[str, Json] = {
            "summary": weights.hash,
            "encoder": dict(encoder.identity),
            "summarizer": summarizer.name,
            "edited": cache.edits,  # what people edited changes scores as well
            "rule": 1,
        }

    def score(self, inputs: Sequence[RewardInput]) -> list[Score]:
        users = [each.user.segments for each in inputs]
        # From the cache, or made now; nobody's posts make the average user's summary.
        found = {user: self._summaries_cache.find(user) for user in dict.fromkeys(users) if user}
        new = [user for user, summary in found.items() if summary is None]
        made = dict(zip(new, self._summarizer.summarize(new) if new else [], strict=True))
        self._summaries_cache.add(made)
        summaries = {user: made[user] if summary is None else summary for user, summary in found.items()}
        summaries[()] = self._bank.summarize([()])[0]
        parts = [sentences_of(each.response) or (each.response,) for each in inputs]
        weights, encoder = self._weights, self._encoder
        said = sorted({one.text for summary in summaries.values() for one in summary.statements})
        about = topics_of(encoder, said, weights.statement_weight, weights.statement_bias, model=_WHO)
        sentences = sorted({text for group in parts for text in group})
        about_sentences = topics_of(encoder, sentences, weights.sentence_weight, weights.sentence_bias, model=_WHO)
        scores = []
        for summary, group in zip((summaries[user] for user in users), parts, strict=True):
            if not summary.statements:
                scores.append(Score(value=None, problem=summary.problem, detail=summary.detail))
                continue
            wants = np.sum([one.weight * about[one.text] for one in summary.statements], axis=0)
            worth = np.mean([about_sentences[text][:-1] for text in group], axis=0)
            # In float32: the last bits of a matrix product depend on how many rows it has.
            scores.append(Score(value=float(np.float32(weights.scale * (worth @ wants)))))
        return scores


class BankSummarizer:
    """Picks from a bank the statements that hold, judging by embeddings of the posts."""

    def __init__(self, weights: SummaryWeights, bank: Sequence[str], encoder: Encoder) -> None:
        self._weights = weights
        self._bank = tuple(bank)
        self._encoder = encoder
        # Who made a summary: two summarizers that may differ have different names.
        self.name = f"bank {sha256(f'{weights.hash} {self._bank}'.encode()).hexdigest()[:12]}"

    def summarize(self, users: Sequence[Posts]) -> list[Summary]:
        """Return the statements that hold most surely; their weights are rounded, as they stand in a file."""
        weights = self._weights
        texts = sorted({text for user in users for text in user})
        vectors = embed(self._encoder, texts, len(weights.post_weight), model=_WHO)
        about = topics(vectors, weights.post_weight, weights.post_bias)[:, :-1]  # (texts, m): without small talk
        place = {text: index for index, text in enumerate(texts)}
        least, made = round(100 * float(weights.least)), []
        for user in users:
            odds = weights.average + np.log1p(2 * about[[place[text] for text in user]].sum(axis=0)) @ weights.mix
            percent = np.round(100 / (1 + np.exp(-odds)))  # whole numbers: 0.1 is not the same in every precision
            best = np.argsort(-percent, kind="stable")[: int(weights.most)]
            kept = [at for at in best if percent[at] >= least] or best[:1]
            made.append(Summary(statements=tuple(Statement(self._bank[at], float(percent[at]) / 100) for at in kept)))
        return made


class LLMSummarizer:
    """Asks a chat model for plain statements; each counts the same."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._template = load_template("summarize_user").require("posts", answer="aspects")
        self.name = f"{llm.name} {self._template.hash}"

    def summarize(self, users: Sequence[Posts]) -> list[Summary]:
        """Return what the replies state; the newest posts that fit the model's window are shown."""
        shown = {user: self._messages(user) for user in users}
        asked = [user for user in users if shown[user]]
        requests = [
            ChatRequest(
                messages=shown[user],
                max_tokens=MAX_TOKENS,
                cut_is_enough=lambda text: len(whole_points(text)) >= MOST_WRITTEN,
            )
            for user in asked
        ]
        replies = dict(zip(asked, self._llm.complete(requests) if requests else [], strict=True))
        return [read_summary(replies[user]) if user in replies else _TOO_LONG for user in users]

    def _messages(self, posts: Posts) -> tuple[Message, ...]:
        """Return the prompt with as many of the posts as fit; () where not even one does."""

        def prompt(user: UserContext) -> tuple[Message, ...]:
            return filled(self._template, posts=as_list(user.segments))

        window = PromptWindow(count_tokens=lambda user: self._llm.count_tokens(prompt(user)), limit=self._llm.window)
        profile = UserContext(kind=ContextKind.PROFILE, segments=posts)
        shown = fit_for(window, profile, question="", reserve_tokens=MAX_TOKENS)
        return prompt(shown) if shown.segments else ()


_TOO_LONG = Summary(problem=Problem.TOO_LONG, detail="no post fits the window of the model that sums up")


def read_summary(reply: Reply) -> Summary:
    """Return the statements of a reply, or the reason why it has none."""
    points, problem, detail = read_points(reply, MOST_WRITTEN, "statement")
    if problem:
        return Summary(problem=problem, detail=detail)
    return Summary(statements=tuple(Statement(aspect_line(*point)) for point in points))


class SummaryCache:
    """Summaries in JSONL files, one per line: those of the model's folder, and a cache that may be written.

    A line has a digest of the statements as they were made. Where it no longer matches, a person edited the line, and
    it counts whoever made it; any other line counts for the summarizer that made it alone.
    """

    def __init__(self, maker: str, files: Sequence[Path], cache: Path | None = None) -> None:
        self._maker = maker
        self._cache = cache
        self._known: dict[str, Summary] = {}
        edited: dict[str, Summary] = {}
        for path in (*files, *([cache] if cache else [])):
            for key, summary, made_by, is_edited in _read_lines(path):
                if is_edited:
                    edited[key] = summary
                elif made_by == maker:
                    self._known[key] = summary
        self._known |= edited
        listed = [[key, [[one.text, one.weight] for one in edited[key].statements]] for key in sorted(edited)]
        self.edits = sha256(json.dumps(listed).encode()).hexdigest()[:12] if listed else ""

    def find(self, posts: Posts) -> Summary | None:
        """Return the summary of the user who wrote these posts, in any order."""
        return self._known.get(posts_key(posts))

    def add(self, made: Mapping[Posts, Summary]) -> None:
        """Keep new summaries: on disk only where a cache was named."""
        readable = {posts: summary for posts, summary in made.items() if summary.statements}
        self._known |= {posts_key(posts): summary for posts, summary in readable.items()}
        if self._cache and readable:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            with self._cache.open("a", encoding="utf-8") as file:
                file.write("".join(as_line(posts, one, self._maker) for posts, one in readable.items()))


def posts_key(posts: Sequence[str]) -> str:
    """Return the name of a set of posts; order and white space do not matter."""
    return sha256("\0".join(sorted({" ".join(post.split()) for post in posts})).encode()).hexdigest()[:16]


def as_line(posts: Posts, summary: Summary, made_by: str) -> str:
    """Return a summary as one line of a file; `prbench data forget` finds it by the digests of the posts."""
    row = {
        "key": posts_key(posts),
        "statements": [{"text": one.text, "weight": one.weight} for one in summary.statements],
        "made_by": made_by,
        "digest": _digest(summary.statements),
        POST_DIGESTS: sorted({post_digest(post) for post in posts}),
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def _read_lines(path: Path) -> list[tuple[str, Summary, str, bool]]:
    """Return the lines of a file: key, summary, who made it, and whether a person edited it since."""
    if not path.is_file():
        return []
    found = []
    # People edit these files, so there may be blank lines, and no end of the last one: `read_lines` takes neither.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{place}: not JSON ({error}). Mend the line or remove it.") from error
        if not isinstance(row, dict) or not isinstance(row.get("key"), str):
            raise UsageError(f"{place}: has no key, so nobody knows whose it is. Mend the line or remove it.")
        listed = row.get("statements")
        if not isinstance(listed, list) or not listed:
            raise UsageError(
                f"{place}: needs a list of statements, at least one. Remove the line to have a new one made."
            )
        statements = tuple(_statement(one, place) for one in listed)
        is_edited = row.get("digest") != _digest(statements)
        found.append((row["key"], Summary(statements=statements), str(row.get("made_by", "")), is_edited))
    return found


def _statement(one: Json, place: str) -> Statement:
    """Read a statement: a text, which then counts fully, or an object with text and weight."""
    text, weight = (one, 1.0) if isinstance(one, str) else (None, None)
    if isinstance(one, dict):
        text, weight = one.get("text"), one.get("weight", 1.0)
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{place}: a statement must be a text, or an object with `text` and `weight`. Mend the line.")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not -1 <= weight <= 1:
        raise UsageError(f"{place}: a weight of {weight!r} is none. Give a number from -1 to 1.")
    return Statement(text, float(weight))


def _digest(statements: Sequence[Statement]) -> str:
    listed = json.dumps([[one.text, one.weight] for one in statements])
    return sha256(listed.encode()).hexdigest()[:8]
