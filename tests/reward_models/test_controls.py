import random
import time
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
import pytest
from tests.support.contexts import profile

from prbench.errors import UsageError
from prbench.registry import MODELS
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.controls import EmbedReward, load_control
from prbench.schema import RewardInput


def ask(response: str, *, question: str = "How do I brew tea?", posts: Sequence[str] = ()) -> RewardInput:
    return RewardInput(question=question, user=profile(*posts), response=response)


def values(name: str, inputs: Sequence[RewardInput], *, seed: int = 0) -> list[float | None]:
    return [score.value for score in load_control(name, seed=seed).score(inputs)]


def test_random_depends_on_seed_question_and_response_and_on_nothing_else() -> None:
    inputs = [ask(f"response {i}") for i in range(50)]
    alone = [values("random", [each])[0] for each in inputs]
    assert values("random", inputs) == alone
    assert values("random", inputs[::-1]) == alone[::-1]
    assert values("random", [ask("response 0", posts=["I love tea."])]) == alone[:1]
    assert values("random", [ask("response 0", question="Why?")]) != alone[:1]
    assert values("random", inputs[:1], seed=1) != alone[:1]


def test_random_is_uniform() -> None:
    drawn = np.array(values("random", [ask(str(i)) for i in range(4000)]), dtype=float)
    shares = np.histogram(drawn, bins=10, range=(0, 1))[0] / 4000
    assert np.all(np.abs(shares - 0.1) < 0.02)  # 0.02 is over four standard errors


def test_question_and_response_are_kept_apart_in_the_coin() -> None:
    assert values("random", [ask("bc", question="a")]) != values("random", [ask("c", question="ab")])


def test_longest_and_shortest_count_characters_and_keep_ties() -> None:
    inputs = [ask("éé"), ask("ab"), ask("abc")]
    assert values("longest", inputs) == [2.0, 2.0, 3.0]
    assert values("shortest", inputs) == [-2.0, -2.0, -3.0]


def test_overlap_is_bm25_summed_over_the_posts_of_the_context() -> None:
    bm25s = pytest.importorskip("bm25s")
    posts = ["Green tea wants cooler water.", "My kettle is old; the tea gets cold.", "Walks by the river."]
    response = "Use cooler water for green tea, and tea again: warm the kettle first."
    retriever = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    retriever.index(bm25s.tokenize(posts, stopwords="en", show_progress=False), show_progress=False)
    words = sorted(set(bm25s.tokenize([response], stopwords="en", return_ids=False, show_progress=False)[0]))
    expected = float(np.sum(retriever.get_scores(words)))
    assert expected > 0
    (value,) = values("overlap", [ask(response, posts=posts)])
    assert value == pytest.approx(expected, rel=1e-5)


def test_overlap_without_context_ties() -> None:
    assert values("overlap", [ask("Green tea"), ask("Black tea, and much more of it.")]) == [0.0, 0.0]


def test_overlap_sees_the_context_and_not_the_question() -> None:
    tea, coffee = "Try tea.", "Try coffee."
    posts = ["I grow tea plants.", "My dog is old."]
    first, second = values("overlap", [ask(tea, posts=posts), ask(coffee, posts=posts)])
    assert first is not None
    assert first > 0.0
    assert second == 0.0


def test_question_control_is_the_share_of_question_words_repeated() -> None:
    # Question words without stop words: how, do, brew, tea.
    assert values("question", [ask("Brew the tea."), ask("No idea."), ask("How to do: brew, tea")]) == [0.5, 0.0, 1.0]


def test_overlap_scores_three_probes_of_a_thousand_pairs_at_under_three_seconds() -> None:
    rng = random.Random(0)
    vocabulary = [f"word{i}" for i in range(3000)]
    inputs = []
    for _ in range(200):
        responses = [" ".join(rng.choices(vocabulary, k=150)) for _ in range(2)]
        own, other = ([" ".join(rng.choices(vocabulary, k=60)) for _ in range(10)] for _ in range(2))
        inputs += [ask(response, posts=posts) for posts in (own, [], other) for response in responses]
    control = load_control("overlap")
    control.score(inputs[:1])
    start = time.process_time()  # not the clock on the wall: other work on this machine must not fail the test
    control.score(inputs)
    assert time.process_time() - start < 3 * 200 / 1000


class LetterEncoder:
    """Encodes a text as its counts of a, b and c: cosines can be worked out by hand."""

    name = "letters"
    identity = MappingProxyType({"encoder": "letters"})

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.array([[text.count(letter) for letter in "abc"] for text in texts], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_embed_is_the_mean_cosine_with_the_three_nearest_posts() -> None:
    model = EmbedReward(LetterEncoder())
    # Cosines of "a" with the posts: 1, 1/sqrt(2), 1/sqrt(2), 0, 0; the nearest three count.
    posts = ["b", "ab", "a", "ac", "c"]
    (score,) = model.score([ask("a", posts=posts)])
    assert score.value == pytest.approx((1 + 2 / np.sqrt(2)) / 3, abs=1e-6)


def test_embed_without_context_compares_with_the_question() -> None:
    model = EmbedReward(LetterEncoder())
    scores = model.score([ask("a", question="ab"), ask("c", question="ab")])
    assert [score.value for score in scores] == pytest.approx([1 / np.sqrt(2), 0.0], abs=1e-6)


def test_every_control_is_known_loads_and_is_marked_as_one() -> None:
    listed = [usage.example for usage in MODELS.find("control").usages]
    assert len(listed) == 7
    for name in ("random", "longest", "shortest", "overlap", "question"):
        loaded = load_reward_model(f"control:{name}", ModelSettings(seed=3))
        assert loaded.kind == "control"
        assert loaded.identity["control"] == name
        assert loaded.fits is None
    assert load_reward_model("control:random?seed=5", ModelSettings(seed=3)).identity["seed"] == 5


def test_a_seed_that_nothing_draws_by_is_refused() -> None:
    with pytest.raises(UsageError, match="only control:random takes a seed, or a control with noise= or fail="):
        load_reward_model("control:longest?seed=5", ModelSettings())
    for disturbance in ("noise=0.5", "fail=0.1"):
        loaded = load_reward_model(f"control:longest?seed=5&{disturbance}", ModelSettings())
        assert loaded.identity["disturbed"]["seed"] == 5  # type: ignore[call-overload,index]


def test_unknown_control_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="Known controls: random, longest"):
        load_reward_model("control:best", ModelSettings())
    with pytest.raises(UsageError, match="only control:embed"):
        load_reward_model("control:random?encoder=minilm", ModelSettings())
