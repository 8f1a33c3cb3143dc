"""Rankings: which posts come first, and that ids stay with their texts."""

from collections.abc import Sequence

import bm25s
import numpy as np
import pytest

from prbench.backends.encoders import load_encoder
from prbench.backends.packaged_weights import minilm_folder
from prbench.context.posts import Ask, make_ranker, rank_by_meaning, rank_by_words, rank_recent
from prbench.errors import UsageError
from prbench.schema import Post, User

POSTS = [
    "My tent leaked all night and the sleeping bag was soaked.",
    "Rye bread again, with caraway this time.",
    "A tent for two costs more than my old car. Tent prices are mad.",
    "Bach before breakfast.",
    "We camped by the lake, no tent, just stars.",
]


def ask(texts: Sequence[str], question: str) -> Ask:
    profile = tuple(Post(id=f"id of {text}", text=text) for text in texts)
    return Ask(user=User(id="u", profile=profile), question=question)


def ranked_texts(ranked: Sequence[Post]) -> list[str]:
    return [post.text for post in ranked]


class Axis:
    """A fake encoder: a text is a vector on the axis that its first letter names."""

    name = "axis"
    identity = {"name": "axis"}  # noqa: RUF012

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.batches.append(list(texts))
        return np.stack([np.eye(26, dtype=np.float32)[ord(text[0]) - ord("a")] for text in texts])


def test_recent_takes_the_newest_first() -> None:
    (ranked,) = rank_recent([ask(["old", "middle", "new"], "anything")])
    assert ranked_texts(ranked) == ["new", "middle", "old"]


@pytest.mark.parametrize("rank", ["recent", "bm25", "dense"])
def test_post_ids_stay_with_their_texts(rank: str) -> None:
    (ranked,) = make_ranker(rank, Axis())([ask([text.lower() for text in POSTS], "tent prices")])
    assert len(ranked) == len(POSTS)
    assert all(post.id == f"id of {post.text}" for post in ranked)


def test_bm25_equals_the_library_on_the_whole_profile() -> None:
    question = "Which tent should I buy? A tent for the lake."
    index = bm25s.BM25()
    index.index(bm25s.tokenize(POSTS, stopwords="en", show_progress=False), show_progress=False)
    (query,) = bm25s.tokenize([question], stopwords="en", return_ids=False, show_progress=False)
    scores = index.get_scores([word for word in query if word in index.vocab_dict])
    assert len(set(scores[[0, 2, 4]])) == 3
    expected = [POSTS[i] for i in np.argsort(-scores)[:3]]
    (ranked,) = rank_by_words([ask(POSTS, question)])
    assert ranked_texts(ranked)[:3] == expected
    assert ranked_texts(ranked)[3:] == [POSTS[3], POSTS[1]]  # no word in common: newest first


@pytest.mark.parametrize("question", ["zebra crossing", "", "the of and", "?!"])
def test_a_question_without_a_common_word_falls_back_to_the_newest(question: str) -> None:
    (ranked,) = rank_by_words([ask(POSTS, question)])
    assert ranked_texts(ranked) == POSTS[::-1]


def test_profiles_without_words_are_ranked_all_the_same() -> None:
    assert rank_by_words([ask([], "tent")]) == [()]
    (ranked,) = rank_by_words([ask(["the", "?!", "tent"], "tent")])
    assert ranked_texts(ranked) == ["tent", "?!", "the"]
    (ranked,) = rank_by_words([ask(["the", "?!"], "tent")])
    assert ranked_texts(ranked) == ["?!", "the"]


def test_bm25_of_one_user_does_not_depend_on_the_others() -> None:
    mine, other = ask(POSTS, "tent lake"), ask(["tent " * 50, "lake"], "tent")
    assert rank_by_words([mine]) == rank_by_words([other, mine])[1:]


def test_dense_ranks_by_cosine_and_breaks_ties_by_age() -> None:
    encoder = Axis()
    asks = [ask(["cost", "apple", "car", "ant"], "cheap"), ask(["apple", "cost"], "avocado"), ask([], "empty")]
    assert [ranked_texts(ranked) for ranked in rank_by_meaning(asks, encoder)] == [
        ["car", "cost", "ant", "apple"],
        ["apple", "cost"],
        [],
    ]
    assert len(encoder.batches) == 1  # one call for all, each text once
    assert len(encoder.batches[0]) == len(set(encoder.batches[0])) == 7


def test_dense_finds_meaning_without_common_words() -> None:
    pytest.importorskip("torch", reason="pip install 'prbench[hf]'")
    try:
        minilm_folder()
    except UsageError as error:
        pytest.skip(str(error))
    (ranked,) = rank_by_meaning([ask(POSTS, "Where can I sleep outdoors?")], load_encoder("minilm"))
    assert set(ranked_texts(ranked)[:3]) == {POSTS[0], POSTS[2], POSTS[4]}


def test_unknown_rankings_are_refused() -> None:
    with pytest.raises(UsageError, match="recent, bm25, dense"):
        make_ranker("bm52")
    with pytest.raises(UsageError, match="needs an encoder"):
        make_ranker("dense")
