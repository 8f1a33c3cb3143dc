"""Our client against our server: the two speak the same protocol, and refuse to mix models."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from prbench.errors import UsageError
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.reward_models.fake import FakeReward
from prbench.reward_models.requests import Requests
from prbench.reward_models.server import PrbenchServerReward
from prbench.schema import ContextKind, Problem, RewardInput, Score, UserContext

Start = Callable[..., Any]
INPUTS = [RewardInput(question="Q?", response="x" * length) for length in range(1, 8)]


def client(url: str, *, patience: float = 120.0, expect: str | None = None) -> PrbenchServerReward:
    requests = Requests(url, timeout_seconds=30, patience_seconds=patience, first_wait_seconds=0.01)
    return PrbenchServerReward(requests, ModelSettings(batch_size=3), expect=expect)


def test_scores_and_problems_pass_through_unchanged(start: Start) -> None:
    server = start(FakeReward(lambda each: None if len(each.response) == 2 else len(each.response) / 3))
    model = client(server.url)
    expected = [Score(value=1 / 3), Score(value=None, problem=Problem.NO_VERDICT), Score(value=1.0)]
    assert model.score(INPUTS[:3]) == expected
    assert model.identity["model"] == server.http.get("/ready").json()["model"]


@pytest.mark.parametrize("place", range(3))
def test_half_a_surrogate_pair_fails_its_input_and_nothing_else(start: Start, lengths: FakeReward, place: int) -> None:
    model = client(start(lengths).url)
    inputs = [RewardInput(question="Q?", user=UserContext.from_text("é"), response="naïve 🙂")] * 3
    half = UserContext(kind=ContextKind.PROFILE, segments=("half \ud83d",))
    inputs[place] = RewardInput(question="Q?", user=half, response="naïve 🙂")
    found = model.score(inputs)
    broken = found.pop(place)
    assert (broken.value, broken.problem) == (None, Problem.FAILED)
    assert "HTTP 400: " in broken.detail
    assert found == [Score(value=7.0)] * 2


def test_a_text_that_is_too_long_fails_its_input_and_nothing_else(start: Start, lengths: FakeReward) -> None:
    model = client(start(lengths, max_characters=20).url)
    short, long = (RewardInput(question="Q?", response="a" * length) for length in (7, 21))
    first, second, third = model.score([short, long, short])
    assert (first, third) == (Score(value=7.0), Score(value=7.0))
    assert "HTTP 413: " in second.detail


def test_a_batch_on_which_the_model_fails_is_not_taken_apart(start: Start) -> None:
    class Failing(FakeReward):
        def score(self, inputs: Any) -> Any:
            sizes.append(len(inputs))
            raise ValueError("no")

    sizes: list[int] = []
    model = client(start(Failing(lambda each: 0.0)).url)
    assert {score.problem for score in model.score(INPUTS[:3])} == {Problem.FAILED}
    assert sizes == [3]


def test_the_expected_hash_must_be_that_of_the_server(start: Start, lengths: FakeReward) -> None:
    server = start(lengths)
    served = server.http.get("/ready").json()["model"]
    digest = served.partition("#")[2]
    assert client(server.url, expect=digest).name == client(server.url, expect=served).name == served
    assert load_reward_model(f"server:{server.url}?expect={digest}", ModelSettings()).identity["model"] == served
    with pytest.raises(UsageError, match=f"serves lengths#{digest}, but 000000000000 is expected"):
        load_reward_model(f"server:{server.url}?expect=000000000000", ModelSettings())
    with pytest.raises(UsageError, match="expect is for `prbench serve`"):
        load_reward_model(f"server:{server.url}?api=classify&expect={digest}", ModelSettings())


def test_another_model_at_the_same_address_is_refused(start: Start, lengths: FakeReward) -> None:
    first = start(lengths)
    model = client(first.url)
    port = int(first.url.rpartition(":")[2])
    first.http.close()
    first.server.stop()
    first.thread.join(30)
    retrained = FakeReward(lambda each: 0.0, name="lengths")
    retrained.identity = {"fake": "retrained"}
    start(retrained, at=port)
    with pytest.raises(UsageError, match="but the run began with"):
        model.score(INPUTS[:1])


def test_a_busy_server_is_asked_again_until_patience_ends(start: Start, slow: Any) -> None:
    server = start(slow, max_queue=1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.score, "a")
        assert slow.began.acquire(timeout=30)
        second = pool.submit(server.score, "b")
        while server.metric("prbench_queue_inputs") != 1:
            pass
        # The server asks for a second; a client that has not got one gives up at once.
        (hasty,) = client(server.url, patience=0.01).score(INPUTS[:1])
        assert (hasty.problem, hasty.detail[:8]) == (Problem.FAILED, "HTTP 429")
        patient = pool.submit(client(server.url).score, INPUTS[:1])
        slow.go.set()
        assert patient.result() == [Score(value=1.0)]
        assert first.result().status_code == second.result().status_code == 200


def test_a_token_that_is_missing_is_named(start: Start, lengths: FakeReward, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(lengths, token="s3cret-of-the-tests")
    monkeypatch.delenv("PRBENCH_SERVER_TOKEN", raising=False)
    with pytest.raises(UsageError, match="Set PRBENCH_SERVER_TOKEN"):
        client(server.url)
    monkeypatch.setenv("PRBENCH_SERVER_TOKEN", "s3cret-of-the-tests")
    assert client(server.url).score(INPUTS[:1]) == [Score(value=1.0)]
