"""What requests cost: limits that are kept, a ledger per role, and an estimate before anything is sent.

    ledger = Ledger(Limits(max_cost=5.0), {"judge": Price(0.15, 0.60)})
    judge = CachedLLM(MeteredLLM(load_llm(spec), ledger, "judge"), folder / "replies.sqlite")

The cache answers what it knows for nothing, the meter counts the rest, and the cache's file keeps the count.
"""

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

from prbench.backends.llm.cache import (
    Account,
    CachedLLM,
    Price,
    ReplyFile,
    RequestState,
    TokenUsage,
    request_key,
    state_of,
    tells_usage,
)
from prbench.backends.llm.client import (
    LLM,
    Arrived,
    ChatRequest,
    Finish,
    Message,
    Reply,
    Wrapped,
    complete_each,
    in_order,
    no_progress,
)
from prbench.backends.llm.servers import upper_estimate
from prbench.errors import BudgetError, UsageError
from prbench.schema import NOTHING, Json

__all__ = ["Forecast", "Ledger", "Limits", "MeteredLLM", "Price", "Spent", "estimate", "keep", "limited"]

TURN_TOKENS = 4  # role name and turn marks of the usual chat templates
ROUNDING = 1e-9  # dollars: sums of floats may pass a limit by less than that


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that may be spent, over all roles and all runs on the same cache file; `None` is no limit."""

    max_requests: int | None = None
    max_tokens: int | None = None  # prompt and completion together
    max_cost: float | None = None  # US dollars

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"The limit {name} is {value}. Give a number that is not negative, or no limit.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one role, or all of them, spent. `requests` = answered + `failed` + `unanswered`."""

    requests: int = 0  # sent; tries of the same request count once
    cached: int = 0  # answered by the cache in this process, for nothing
    failed: int = 0
    unanswered: int = 0  # in flight now, or lost when a process was killed; they may have been billed
    prompt_tokens: int = 0  # of the replies that came
    completion_tokens: int = 0
    cost: float | None = None  # US dollars for those tokens; `None` where no price is known


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """The leave to send one request."""

    role: str
    key: str
    price: Price | None
    estimate: TokenUsage
    thread: int = field(default_factory=threading.get_ident)


class Ledger:
    """Counts what is sent and what comes back, for all roles of a job; threads may share it.

    For the limits, a request counts with its estimate (prompt and `max_tokens`) from the moment it is sent, and with
    its true tokens once the reply is there. One that is never answered keeps its estimate: it may have been billed.
    So no limit is passed, whatever happens; a ledger does not see what another process spends after it was opened.
    """

    def __init__(
        self, limits: Limits | None = None, prices: Mapping[str, Price] = NOTHING, *, price: Price | None = None
    ) -> None:
        """`prices` has the price of each role, and `price` that of roles which are not in it; else they have none."""
        self.limits = limits or Limits()
        self.prices = dict(prices)
        self._price = price
        self._accounts: defaultdict[Account, TokenUsage] = defaultdict(TokenUsage)
        self._cached: Counter[str] = Counter()
        self._in_flight: set[Ticket] = set()
        self._files: set[str] = set()
        self._changed = threading.Condition()

    def enlist(self, role: str) -> None:
        """Take note that requests of this role will come; with a limit in dollars they must have a price."""
        if self._price is not None:
            self.prices.setdefault(role, self._price)
        if self.limits.max_cost is not None and role not in self.prices:
            raise UsageError(f"max_cost needs the price of the {role}. Give its price per million tokens (0 if free).")

    def load(self, file: ReplyFile) -> None:
        """Add what the file says was spent before; a file that was already added is not added again."""
        path = str(file.path.resolve())
        with self._changed:
            if path in self._files:
                return
            self._files.add(path)
            for (role, price, state), usage in file.spending().items():
                # What was sent before anybody named a price counts at today's.
                self._accounts[role, price or self.prices.get(role), state] += usage

    def by_role(self) -> dict[str, Spent]:
        """Return what each role spent, in the order of their names."""
        with self._changed:
            roles = sorted({role for role, _, _ in self._accounts} | set(self._cached) | set(self.prices))
            return {role: self._spent({role}) for role in roles}

    def total(self) -> Spent:
        """Return what all roles spent together."""
        with self._changed:
            return self._spent({role for role, _, _ in self._accounts} | set(self._cached))

    def as_dict(self) -> dict[str, Json]:
        """Return limits, roles and total as a manifest has them."""
        roles = {role: asdict(spent) for role, spent in self.by_role().items()}
        return {"limits": asdict(self.limits), "roles": roles, "total": asdict(self.total())}

    def count_cached(self, role: str, count: int) -> None:
        """Count requests that the cache answered."""
        with self._changed:
            self._cached[role] += count

    def admit(self, role: str, key: str, estimate: TokenUsage) -> Ticket | None:
        """Return the leave to send a request, or `None` where it would pass a limit as things stand."""
        ticket = Ticket(role, key, self.prices.get(role), estimate)
        with self._changed:
            if self._passed(ticket):
                return None
            self._accounts[role, ticket.price, RequestState.SENT] += estimate
            self._in_flight.add(ticket)
        return ticket

    def settle(self, ticket: Ticket, reply: Reply) -> None:
        """Replace the estimate by what the reply says; without usage in it, the estimate stays."""
        state = state_of(reply)
        true = TokenUsage(1, reply.prompt_tokens, reply.completion_tokens) if tells_usage(reply) else ticket.estimate
        with self._changed:
            self._accounts[ticket.role, ticket.price, RequestState.SENT] += -ticket.estimate
            self._accounts[ticket.role, ticket.price, state] += true
            self._in_flight.discard(ticket)
            self._changed.notify_all()

    def give_up(self, tickets: Iterable[Ticket]) -> None:
        """Stop waiting for these: they stay counted as sent."""
        with self._changed:
            self._in_flight.difference_update(tickets)
            self._changed.notify_all()

    def wait_for_room(self, role: str, estimate: TokenUsage) -> None:
        """Return when the request fits; raise `BudgetError` when no reply in flight can make room for it."""
        ticket = Ticket(role, "", self.prices.get(role), estimate)
        with self._changed:
            while limit := self._passed(ticket):
                others = any(other.thread != ticket.thread for other in self._in_flight)
                if limit == "max_requests" or not others:
                    raise BudgetError(self._refusal(limit, ticket))
                self._changed.wait()

    def _passed(self, ticket: Ticket) -> str:
        """Return the name of the limit that this request would pass, or ""."""
        limits, so_far = self.limits, sum(self._accounts.values(), TokenUsage())
        new = so_far + ticket.estimate
        if limits.max_requests is not None and new.requests > limits.max_requests:
            return "max_requests"
        if limits.max_tokens is not None and new.prompt_tokens + new.completion_tokens > limits.max_tokens:
            return "max_tokens"
        if limits.max_cost is not None:  # of everything, requests in flight by their estimates, and of this one
            accounts = [(price, usage) for (_, price, _), usage in self._accounts.items()]
            accounts.append((ticket.price, ticket.estimate))
            cost = sum(price.of(usage.prompt_tokens, usage.completion_tokens) for price, usage in accounts if price)
            if cost > limits.max_cost + ROUNDING:
                return "max_cost"
        return ""

    def _spent(self, roles: set[str]) -> Spent:
        mine = [(price, state, usage) for (role, price, state), usage in self._accounts.items() if role in roles]
        came = [(price, usage) for price, state, usage in mine if state is not RequestState.SENT]
        whole = sum((usage for _, usage in came), TokenUsage())
        known = all(price is not None for price, usage in came if usage.prompt_tokens + usage.completion_tokens)
        known &= bool(came) or any(role in self.prices for role in roles)
        cost = sum(price.of(usage.prompt_tokens, usage.completion_tokens) for price, usage in came if price)
        return Spent(
            requests=sum(usage.requests for _, _, usage in mine),
            cached=sum(self._cached[role] for role in roles),
            failed=sum(usage.requests for _, state, usage in mine if state is RequestState.FAILED),
            unanswered=sum(usage.requests for _, state, usage in mine if state is RequestState.SENT),
            prompt_tokens=whole.prompt_tokens,
            completion_tokens=whole.completion_tokens,
            cost=cost if known else None,
        )

    def _refusal(self, limit: str, ticket: Ticket) -> str:
        """Say which limit, what was spent, what the next request may need, and how to go on."""
        spent = self._spent({role for role, _, _ in self._accounts})
        money = "" if spent.cost is None else f" and ${spent.cost:.4f}"
        lost = f" ({spent.unanswered:,} of them without an answer)" if spent.unanswered else ""
        size = ticket.estimate
        need = "" if limit == "max_requests" else f", up to {size.prompt_tokens + size.completion_tokens:,} tokens"
        if ticket.price and limit == "max_cost":
            need += f" or ${ticket.price.of(size.prompt_tokens, size.completion_tokens):.4f}"
        return (
            f"The limit {limit} = {getattr(self.limits, limit):,} does not allow the next request "
            f"({ticket.role}{need}): spent so far are {spent.requests:,} requests{lost}, "
            f"{spent.prompt_tokens + spent.completion_tokens:,} tokens{money}. "
            "Every reply that arrived is kept; the same command with a higher limit goes on from here."
        )


class MeteredLLM(Wrapped):
    """A client whose requests a ledger admits and counts; it belongs between the cache and the client.

    Inside a `CachedLLM`, the cache's file keeps the count: each request is written down before it is sent, and its
    true cost in the same transaction as its reply.
    """

    def __init__(self, inner: LLM, ledger: Ledger, role: str) -> None:
        ledger.enlist(role)
        super().__init__(inner)
        self.ledger = ledger
        self.role = role
        self._file: ReplyFile | None = None

    def keep_in(self, file: ReplyFile) -> None:
        self.ledger.load(file)
        self._file = file

    def count_cached(self, count: int) -> None:
        self.ledger.count_cached(self.role, count)

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Return one reply per request, in the same order; `BudgetError` where a limit does not allow them all."""
        return in_order(self.complete_each(requests))

    def complete_each(
        self, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply) as they arrive, then raise `BudgetError` if a request was not admitted."""
        waiting, first, refused = iter(requests), 0, list[ChatRequest]()
        while True:
            # A wave ends where the estimates of requests in flight leave no room; their true cost may.
            first += yield from self._wave(waiting, first, refused, arrived)
            if not refused:
                return
            self.ledger.wait_for_room(self.role, self._estimate(refused[0]))
            waiting = chain([refused.pop()], waiting)

    def _wave(
        self, waiting: Iterator[ChatRequest], first: int, refused: list[ChatRequest], arrived: Arrived
    ) -> Generator[tuple[int, Reply], None, int]:
        """Yield replies until a request is `refused`, or none is left; return how many were sent, from `first` on."""
        tickets: list[Ticket] = []

        def admitted() -> Iterator[ChatRequest]:
            for request in waiting:
                key = request_key(self.name, self.fingerprint, request)
                ticket = self.ledger.admit(self.role, key, self._estimate(request))
                if ticket is None:
                    refused.append(request)
                    return
                if self._file:
                    self._file.intend(key, self.role, ticket.estimate, ticket.price)
                tickets.append(ticket)
                yield request

        def settle(index: int, reply: Reply) -> None:
            ticket = tickets[index]
            if reply.finish is Finish.ERROR and self._file:
                self._file.settle(ticket.key, reply)  # the cache settles what was answered, with its reply if kept
            self.ledger.settle(ticket, reply)
            arrived(first + index, reply)

        try:
            with closing(complete_each(self._inner, admitted(), settle)) as replies:
                for index, reply in replies:
                    yield first + index, reply
        finally:
            self.ledger.give_up(tickets)
        return len(tickets)

    def _estimate(self, request: ChatRequest) -> TokenUsage:
        """Return the most that the request may take; a server is asked to count only where a limit depends on it."""
        limits = self.ledger.limits
        matters = limits.max_tokens is not None or limits.max_cost is not None
        prompt = self.count_tokens(request.messages) if matters else upper_estimate(request.messages)
        return TokenUsage(1, prompt, request.max_tokens)


_counting: ContextVar[Ledger | None] = ContextVar("counting", default=None)


@contextmanager
def limited(ledger: Ledger | None) -> Iterator[None]:
    """Let a ledger count and limit what every chat model is asked that is opened inside; `None` counts nothing."""
    token = _counting.set(ledger)
    try:
        yield
    finally:
        _counting.reset(token)


def keep(llm: LLM, cache: Path | None, role: str) -> LLM:
    """Return the chat model with its replies kept in `cache`, where there is one, and counted inside `limited`."""
    ledger = _counting.get()
    metered = llm if ledger is None else MeteredLLM(llm, ledger, role)
    return CachedLLM(metered, cache) if cache else metered


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a list of requests would take, before anything is sent."""

    requests: int
    cached: int  # of them: answered by the cache, or equal to another one in the list
    prompt_tokens: int  # of those that would be sent
    completion_tokens_at_most: int
    cost_at_most: float | None = None  # US dollars; `None` without a price
    cost_without_cache_at_most: float | None = None

    def as_dict(self) -> dict[str, Json]:
        """Return it as `--json` prints it."""
        return asdict(self)


def estimate(
    requests: Sequence[ChatRequest], llm: LLM | None = None, price: Price | None = None, *, exact: bool = False
) -> Forecast:
    """Return what the requests would take; with a `CachedLLM`, what it knows is free.

    Prompt tokens are taken at four bytes each, the usual size in English, and nothing is sent anywhere. `exact` lets
    the model count, for which a server is sent the prompts.
    """

    def typical(messages: Sequence[Message]) -> int:
        return sum(-(-len(message.content.encode(errors="replace")) // 4) + TURN_TOKENS for message in messages)

    count = llm.count_tokens if exact and llm else typical
    known = llm.known(requests) if isinstance(llm, CachedLLM) else [False] * len(requests)
    sizes = [TokenUsage(1, count(request.messages), request.max_tokens) for request in requests]
    to_send = sum((size for size, is_known in zip(sizes, known, strict=True) if not is_known), TokenUsage())
    whole = sum(sizes, TokenUsage())
    return Forecast(
        requests=len(requests),
        cached=sum(known),
        prompt_tokens=to_send.prompt_tokens,
        completion_tokens_at_most=to_send.completion_tokens,
        cost_at_most=price.of(to_send.prompt_tokens, to_send.completion_tokens) if price else None,
        cost_without_cache_at_most=price.of(whole.prompt_tokens, whole.completion_tokens) if price else None,
    )
