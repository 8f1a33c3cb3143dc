"""Replies kept on disk as they arrive, so that no request is paid for twice."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from prbench.backends.llm.claims import outcome_of
from prbench.backends.llm.client import (
    LLM,
    Arrived,
    ChatRequest,
    Fingerprinted,
    Finish,
    Reply,
    Wrapped,
    complete_each,
    in_order,
    no_progress,
)
from prbench.backends.llm.reply_file import ReplyFile, request_key
from prbench.backends.llm.spending import MeteredLLM

__all__ = ["CachedLLM", "Fingerprinted", "request_key"]


class CachedLLM(Wrapped):
    """A client that asks `inner` only what it has not asked before, and commits each reply as soon as it is there.

    The file holds a hash of each request and the reply, never the request itself: people's posts are not copied into
    it. (A reply may quote them; treat the file as you treat the data.) What does not answer its request is not kept: a
    failure, a reply of another model, one that was cut off. Equal requests share one reply, also at a temperature
    above 0: give them different seeds to get different samples.
    """

    def __init__(self, inner: LLM, path: Path | ReplyFile) -> None:
        """Clients that share one `ReplyFile` also share what is in flight.

        Where `inner` is a `MeteredLLM`, the file also keeps what was spent, and its ledger starts from there.
        """
        super().__init__(inner)
        self._file = path if isinstance(path, ReplyFile) else ReplyFile(path)
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0
        if isinstance(inner, MeteredLLM):
            inner.keep_in(self._file)

    def known(self, requests: Sequence[ChatRequest]) -> list[bool]:
        """Tell for each request whether its reply is kept, or will be by an equal request before it."""
        keys = self._keys(requests)
        seen = set(self._kept({key: [request] for key, request in zip(keys, requests, strict=True)}))
        known = []
        for key in keys:
            known.append(key in seen)
            seen.add(key)
        return known

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        """Return one reply per request, in the same order, from the file where it has them."""
        return in_order(self.complete_each(requests))

    def complete_each(
        self, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply): first what the file has, then what arrives, when it is on disk."""
        asked = list(requests)
        places: dict[str, list[int]] = {}
        for index, key in enumerate(self._keys(asked)):
            places.setdefault(key, []).append(index)
        for key, reply in self._replies({key: [asked[index] for index in some] for key, some in places.items()}):
            for index in places[key]:
                arrived(index, reply)
                yield index, reply

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _keys(self, requests: Sequence[ChatRequest]) -> list[str]:
        name, fingerprint = self.name, self.fingerprint
        return [request_key(name, fingerprint, request) for request in requests]

    def _replies(self, groups: Mapping[str, Sequence[ChatRequest]]) -> Iterator[tuple[str, Reply]]:
        """Yield one reply per group of equal requests: kept, fresh, or of another thread that asks the same."""
        missing = dict(groups)
        while missing:
            mine, others = self._file.claims.take(missing)
            to_ask = {key: missing[key] for key in mine}
            try:
                # Read after the claim: what another thread had claimed before is on disk by now.
                kept = self._kept(missing)
                self._own({key: missing[key] for key in kept})
                for key, reply in kept.items():
                    if to_ask.pop(key, None):
                        self._file.claims.settle(key, reply)
                    self._count(hits=len(missing.pop(key)), misses=0)
                    yield key, reply
                for key, reply in self._ask(to_ask):
                    del missing[key]
                    yield key, reply
            finally:
                self._file.claims.release(key for key in mine if key in missing)
            for key in [key for key in others if key in missing]:
                shared = outcome_of(others[key])
                if shared is not None:
                    if _answers(shared, missing[key]):
                        self._own({key: missing[key]})
                    self._count(hits=len(missing.pop(key)), misses=0)
                    yield key, shared

    def _ask(self, groups: Mapping[str, Sequence[ChatRequest]]) -> Iterator[tuple[str, Reply]]:
        keys = list(groups)

        def keep(index: int, reply: Reply) -> None:
            group = groups[keys[index]]
            if _answers(reply, group):
                self._file.keep(keys[index], reply, {request.owner for request in group})
            elif reply.finish is not Finish.ERROR:  # of no use, but paid for
                self._file.settle(keys[index], reply)
            self._file.claims.settle(keys[index], reply)
            self._count(hits=len(group) - 1, misses=1)

        requests = (groups[key][0] for key in keys)
        with closing(complete_each(self._inner, requests, keep)) as replies:
            for index, reply in replies:
                yield keys[index], reply

    def _kept(self, groups: Mapping[str, Sequence[ChatRequest]]) -> dict[str, Reply]:
        """Return what the file has. Files of earlier versions also hold replies that were cut off."""
        kept = self._file.read(groups)
        return {key: reply for key, reply in kept.items() if _answers(reply, groups[key])}

    def _own(self, groups: Mapping[str, Sequence[ChatRequest]]) -> None:
        pairs = {(key, request.owner) for key, group in groups.items() for request in group}
        self._file.own(sorted(pair for pair in pairs if pair[1]))

    def _count(self, hits: int, misses: int) -> None:
        with self._lock:
            self.hits += hits
            self.misses += misses
        if isinstance(self._inner, MeteredLLM):
            self._inner.ledger.count_cached(self._inner.role, hits)


def _answers(reply: Reply, group: Sequence[ChatRequest]) -> bool:
    """Tell whether the reply answers a group of equal requests, or one of them at least."""
    return any(reply.answers(request) for request in group)
