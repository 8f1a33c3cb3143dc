"""Limits, ledger and estimates, with every number worked out by hand: with fakes, one word is one token."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prbench.backends.llm import (
    CachedLLM,
    ChatRequest,
    FakeLLM,
    Finish,
    Ledger,
    Limits,
    Message,
    MeteredLLM,
    Price,
    Reply,
    ReplyFile,
    Spent,
    estimate,
)
from prbench.backends.llm.cache import TokenUsage
from prbench.backends.llm.client import CHUNK
from prbench.errors import BudgetError, PrbenchError, UsageError

PRICE = Price(input=2.0, output=10.0)  # dollars per million tokens


def ask(text: str, max_tokens: int = 10) -> ChatRequest:
    return ChatRequest(messages=(Message("user", text),), max_tokens=max_tokens)


def many(count: int, max_tokens: int = 10) -> list[ChatRequest]:
    return [ask(f"request number {i}", max_tokens) for i in range(count)]  # three tokens each


# The ledger.


def test_ledger_counts_requests_tokens_and_dollars_per_role() -> None:
    ledger = Ledger(prices={"judge": PRICE})
    MeteredLLM(FakeLLM("yes indeed"), ledger, "judge").complete(many(5))
    MeteredLLM(FakeLLM("no"), ledger, "generator").complete(many(1))
    # 5 x 3 prompt tokens at $2 and 5 x 2 at $10 per million.
    judge = Spent(requests=5, prompt_tokens=15, completion_tokens=10, cost=(15 * 2 + 10 * 10) / 1e6)
    generator = Spent(requests=1, prompt_tokens=3, completion_tokens=1, cost=None)
    assert ledger.by_role() == {"generator": generator, "judge": judge}
    assert ledger.total() == Spent(requests=6, prompt_tokens=18, completion_tokens=11, cost=None)


def test_ledger_as_a_manifest_has_it() -> None:
    ledger = Ledger(Limits(max_requests=9), {"judge": PRICE})
    assert ledger.as_dict()["limits"] == {"max_requests": 9, "max_tokens": None, "max_cost": None}
    assert ledger.as_dict()["roles"]["judge"]["cost"] == 0.0
    assert ledger.as_dict()["total"]["requests"] == 0


def test_failed_request_counts_as_a_request_and_costs_nothing() -> None:
    ledger = Ledger(prices={"judge": PRICE})
    MeteredLLM(FakeLLM([Reply(finish=Finish.ERROR, error="down"), "up"]), ledger, "judge").complete(many(2))
    assert ledger.total() == Spent(requests=2, failed=1, prompt_tokens=3, completion_tokens=1, cost=16 / 1e6)


def test_failure_that_tells_its_usage_is_paid_for() -> None:
    reply = Reply(finish=Finish.ERROR, error="no log-probabilities", prompt_tokens=7, completion_tokens=1)
    ledger = Ledger(prices={"judge": PRICE})
    MeteredLLM(FakeLLM(reply), ledger, "judge").complete(many(1))
    assert ledger.total() == Spent(requests=1, failed=1, prompt_tokens=7, completion_tokens=1, cost=24 / 1e6)


@pytest.mark.parametrize("finish,failed", [(Finish.LENGTH, 0), (Finish.WRONG_MODEL, 1)])
def test_reply_that_is_not_kept_is_paid_for_all_the_same(tmp_path: Path, finish: Finish, failed: int) -> None:
    reply = Reply(text="Result: A", finish=finish, prompt_tokens=7, completion_tokens=1)
    ledger = Ledger(prices={"judge": PRICE})
    CachedLLM(MeteredLLM(FakeLLM(reply), ledger, "judge"), tmp_path / "r.sqlite").complete(many(1))
    spent = Spent(requests=1, failed=failed, prompt_tokens=7, completion_tokens=1, cost=24 / 1e6)
    assert ledger.total() == spent
    later = Ledger(prices={"judge": PRICE})
    later.load(ReplyFile(tmp_path / "r.sqlite"))
    assert later.total() == spent, "the file says the same"


class NoUsage(FakeLLM):
    """A server that does not say what a reply cost."""

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        return [Reply(text="fine") for _ in super().complete(requests)]


def test_reply_without_usage_counts_with_its_estimate(tmp_path: Path) -> None:
    ledger = Ledger(Limits(max_tokens=1000))
    cached = CachedLLM(MeteredLLM(NoUsage("fine"), ledger, "judge"), tmp_path / "r.sqlite")
    cached.complete(many(2))
    expected = Spent(requests=2, prompt_tokens=6, completion_tokens=20)  # 3 words and max_tokens = 10, twice
    assert ledger.total() == expected
    cached.close()
    again = Ledger()
    again.load(ReplyFile(tmp_path / "r.sqlite"))
    assert again.total() == expected


# Limits.


def test_request_limit_keeps_what_arrived_and_a_higher_one_goes_on(tmp_path: Path) -> None:
    inner = FakeLLM("fine")
    path = tmp_path / "r.sqlite"
    first = CachedLLM(MeteredLLM(inner, Ledger(Limits(max_requests=3)), "judge"), path)
    with pytest.raises(BudgetError) as caught:
        first.complete(many(5))
    assert str(caught.value) == (
        "The limit max_requests = 3 does not allow the next request (judge): spent so far are 3 requests, 12 tokens. "
        "Every reply that arrived is kept; the same command with a higher limit goes on from here."
    )
    assert (len(inner.requests), first.misses) == (3, 3)
    with pytest.raises(BudgetError):
        CachedLLM(MeteredLLM(inner, Ledger(Limits(max_requests=3)), "judge"), path).complete(many(5))
    assert len(inner.requests) == 3
    ledger = Ledger(Limits(max_requests=5))
    assert len(CachedLLM(MeteredLLM(inner, ledger, "judge"), path).complete(many(5))) == 5
    assert len(inner.requests) == 5
    assert ledger.total() == Spent(requests=5, cached=3, prompt_tokens=15, completion_tokens=5)


def test_limits_hold_over_all_roles() -> None:
    ledger = Ledger(Limits(max_requests=3))
    MeteredLLM(FakeLLM("fine"), ledger, "generator").complete(many(2))
    judge = FakeLLM("fine")
    with pytest.raises(BudgetError):
        MeteredLLM(judge, ledger, "judge").complete(many(2))
    assert len(judge.requests) == 1


def test_token_limit_admits_by_the_estimate_and_corrects_by_the_truth() -> None:
    """Each request may take 3 + 97 tokens, but takes 3 + 1: two fit at once, and in the end all ten."""
    inner = FakeLLM("fine")
    ledger = Ledger(Limits(max_tokens=200))
    assert len(MeteredLLM(inner, ledger, "judge").complete(many(10, max_tokens=97))) == 10
    assert ledger.total() == Spent(requests=10, prompt_tokens=30, completion_tokens=10)


def test_token_limit_is_never_passed() -> None:
    """After 25 requests 100 tokens are spent, and the next may take 100 more."""
    inner = FakeLLM("fine")
    ledger = Ledger(Limits(max_tokens=199))
    with pytest.raises(
        BudgetError, match=r"max_tokens = 199 .* \(judge, up to 100 tokens\): .* 25 requests, 100 tokens\."
    ):
        MeteredLLM(inner, ledger, "judge").complete(many(40, max_tokens=97))
    assert len(inner.requests) == 25


def test_cost_limit_by_hand() -> None:
    """A request may cost (3 x 2 + 10 x 10) / 1e6 = $0.000106, and costs (3 x 2 + 1 x 10) / 1e6 = $0.000016."""
    inner = FakeLLM("fine")
    ledger = Ledger(Limits(max_cost=0.000106 + 9 * 0.000016), {"judge": PRICE})
    fact = r"max_cost = 0\.00025 .* tokens or \$0\.0001\): .* 10 requests, 40 tokens and \$0\.0002"
    with pytest.raises(BudgetError, match=fact):
        MeteredLLM(inner, ledger, "judge").complete(many(40))
    assert len(inner.requests) == 10


def test_cost_limit_without_a_price_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="max_cost needs the price of the judge"):
        MeteredLLM(FakeLLM("fine"), Ledger(Limits(max_cost=1.0), {"generator": PRICE}), "judge")


def test_free_models_fit_a_cost_limit_of_nothing() -> None:
    ledger = Ledger(Limits(max_cost=0.0), {"judge": Price(0, 0)})
    assert len(MeteredLLM(FakeLLM("fine"), ledger, "judge").complete(many(3))) == 3


@pytest.mark.parametrize("limits", [{"max_requests": -1}, {"max_tokens": -5}, {"max_cost": float("nan")}])
def test_limits_that_cannot_be_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="not negative"):
        Limits(**limits)


def test_budget_error_is_one_line_with_exit_code_1() -> None:
    assert issubclass(BudgetError, PrbenchError)
    assert (BudgetError.exit_code, UsageError.exit_code) == (1, 2)


def test_threads_together_keep_the_limit() -> None:
    inner = FakeLLM("fine")
    metered = MeteredLLM(inner, Ledger(Limits(max_requests=20)), "judge")

    def run(start: int) -> int:
        try:
            return len(metered.complete([ask(f"{start} {i}") for i in range(5)]))
        except BudgetError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert len(inner.requests) == 20


def test_room_that_another_thread_will_free_is_waited_for() -> None:
    """Thread one may take 60 of 100 tokens and takes 4; thread two needs 60 and gets them when one is done."""
    two_waits, one_is_sent = threading.Event(), threading.Event()

    def answer(request: ChatRequest) -> str:
        if request.messages[0].content == "thread number one":
            one_is_sent.set()
            assert two_waits.wait(timeout=30)
        return "fine"

    class Counting(FakeLLM):
        def count_tokens(self, messages: Sequence[Message]) -> int:
            if one_is_sent.is_set():
                two_waits.set()  # its request is looked at while the first is in flight
            return super().count_tokens(messages)

    metered = MeteredLLM(Counting(answer), Ledger(Limits(max_tokens=100)), "judge")
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(metered.complete, [ask("thread number one", 57)])
        assert one_is_sent.wait(timeout=30)
        two = pool.submit(metered.complete, [ask("thread number two", 57)])
        assert [reply.text for future in (one, two) for reply in future.result(timeout=30)] == ["fine", "fine"]


def test_exception_of_the_client_leaves_its_requests_counted_as_sent() -> None:
    ledger = Ledger()
    metered = MeteredLLM(FakeLLM(["only one"]), ledger, "judge")
    with pytest.raises(UsageError, match="request 2 has none"):
        metered.complete(many(2))
    assert ledger.total() == Spent(requests=2, unanswered=2)  # they were asked as one chunk


# What the file keeps.


def test_request_lost_in_a_crash_counts_with_its_estimate(tmp_path: Path) -> None:
    """A process that wrote its intent and was killed: the request may have been billed."""
    ReplyFile(tmp_path / "r.sqlite").intend("some key", "judge", TokenUsage(1, 30, 20), PRICE)
    ledger = Ledger(Limits(max_requests=2, max_tokens=100), {"judge": PRICE})
    metered = MeteredLLM(FakeLLM("fine"), ledger, "judge")
    cached = CachedLLM(metered, tmp_path / "r.sqlite")
    assert ledger.total() == Spent(requests=1, unanswered=1, cost=0.0)
    with pytest.raises(BudgetError, match=r"max_tokens = 100 .* 1 requests \(1 of them without an answer\), 0 tokens"):
        cached.complete([ask("needs more than is left", 46)])  # 50 are spoken for, it may take 5 + 46
    cached.complete([ask("needs what is left", 46)])  # 4 + 46
    with pytest.raises(BudgetError, match="max_requests = 2"):
        cached.complete([ask("one more", 1)])


def test_asking_again_what_was_lost_leaves_the_loss_counted(tmp_path: Path) -> None:
    def open_it() -> tuple[CachedLLM, Ledger]:
        ledger = Ledger()
        return CachedLLM(MeteredLLM(FakeLLM("fine"), ledger, "judge"), tmp_path / "r.sqlite"), ledger

    cached, _ = open_it()
    stream = cached.complete_each(many(CHUNK + 1))
    for _ in range(CHUNK):
        next(stream)
    cached._file.intend(_key_of(cached, many(CHUNK + 1)[CHUNK]), "judge", TokenUsage(1, 9, 9), None)
    cached.close()  # as a kill would leave it: the last one sent, never answered
    cached, ledger = open_it()
    cached.complete(many(CHUNK + 1))
    assert ledger.total() == Spent(
        requests=CHUNK + 2,
        cached=CHUNK,
        unanswered=1,
        prompt_tokens=3 * (CHUNK + 1),
        completion_tokens=CHUNK + 1,
    )


def _key_of(cached: CachedLLM, request: ChatRequest) -> str:
    (key,) = cached._keys([request])
    return key


def test_spending_survives_with_failures_prices_and_roles(tmp_path: Path) -> None:
    file = ReplyFile(tmp_path / "r.sqlite")
    ledger = Ledger(prices={"judge": PRICE})
    script = [Reply(finish=Finish.ERROR, error="down"), "one", "two words"]
    CachedLLM(MeteredLLM(FakeLLM(script), ledger, "judge"), file).complete(many(3))
    CachedLLM(MeteredLLM(FakeLLM("free", name="other"), ledger, "generator"), file).complete(many(1))
    again = Ledger()
    again.load(ReplyFile(tmp_path / "r.sqlite"))
    again.load(ReplyFile(tmp_path / "r.sqlite"))  # the same file is not counted twice
    assert again.by_role() == ledger.by_role()
    assert again.by_role()["judge"] == Spent(
        requests=3, failed=1, prompt_tokens=6, completion_tokens=3, cost=(6 * 2 + 3 * 10) / 1e6
    )


def test_tokens_spent_before_a_price_was_named_count_at_that_price(tmp_path: Path) -> None:
    CachedLLM(MeteredLLM(FakeLLM("fine"), Ledger(), "judge"), tmp_path / "r.sqlite").complete(many(2))
    ledger = Ledger(prices={"judge": PRICE})
    ledger.load(ReplyFile(tmp_path / "r.sqlite"))
    assert ledger.total().cost == (6 * 2 + 2 * 10) / 1e6


def test_spending_table_holds_no_text(tmp_path: Path) -> None:
    cached = CachedLLM(MeteredLLM(FakeLLM("fine"), Ledger(), "judge"), tmp_path / "r.sqlite")
    cached.complete([ask("MARKER-of-a-private-post")])
    cached.close()
    assert all(b"MARKER" not in path.read_bytes() for path in tmp_path.iterdir())


# Estimates.


def test_estimate_with_and_without_the_cache(tmp_path: Path) -> None:
    cached = CachedLLM(FakeLLM("fine"), tmp_path / "r.sqlite")
    cached.complete(many(1))
    requests = [*many(2), ask("request number 1"), ask("né" * 8, 5)]  # the third equals the second
    forecast = estimate(requests, cached, PRICE)
    # 16 bytes / 4 + 4 per turn = 8 tokens; 24 bytes / 4 + 4 = 10.
    assert forecast.as_dict() == {
        "requests": 4,
        "cached": 2,
        "prompt_tokens": 8 + 10,
        "completion_tokens_at_most": 10 + 5,
        "cost_at_most": (18 * 2 + 15 * 10) / 1e6,
        "cost_without_cache_at_most": ((3 * 8 + 10) * 2 + 35 * 10) / 1e6,
    }
    assert cached.hits == 0


def test_exact_estimate_lets_the_model_count() -> None:
    assert estimate(many(2), FakeLLM("fine"), exact=True).prompt_tokens == 6
    assert estimate(many(2)).cost_at_most is None
