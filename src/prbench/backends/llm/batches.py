"""Requests sent as one file to `/v1/batches`, which hosted APIs answer within a day at about half the price.

    judge:openai:NAME@https://api.openai.com/v1?batch=60     # ask every 60 seconds whether it is done

Nothing about a batch is kept here. It carries the name of the model in its metadata, and its lines the hashes of their
requests. So a command that was killed finds its batches at the server, and reads what they hold instead of paying
for it again.
"""

import io
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeVar

from prbench.backends.http_limits import ReplyTooLargeError
from prbench.backends.llm.cache import request_key
from prbench.backends.llm.client import Arrived, ChatRequest, Finish, Reply, in_order, no_progress
from prbench.backends.llm.openai_api import Failure, OpenAILLM
from prbench.backends.llm.servers import is_worth_another_try, read_body, wait_seconds
from prbench.errors import UsageError
from prbench.schema import Json

log = logging.getLogger(__name__)

ENDPOINT: Final = "/v1/chat/completions"
WINDOW: Final = "24h"  # the only one that is offered
MOST_REQUESTS = 50_000  # in one batch
MOST_BYTES = 100_000_000  # likewise; OpenAI takes 200 MB
MOST_FILE_BYTES = 2 << 30  # of a file of replies: those of a whole batch, logprobs and all
FILE_PAUSE_SECONDS = 600.0  # without a byte; the server reads a whole file before it answers
FILE_SECONDS = 3600.0  # for one file in all
ROUNDS = 4  # tries of a line that the server refuses for a parameter which can be left out
OPEN = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
OF_USE = OPEN | {"completed", "expired"}  # what has answers, or may have: of an expired one, those that came in time

Found = TypeVar("Found")


class OpenAIBatchLLM(OpenAILLM):
    """A model behind an OpenAI-compatible server, asked by batches: all requests of a call go out in one file."""

    def __init__(self, model: str, base_url: str, *, poll_seconds: float, **how: Any) -> None:
        super().__init__(model, base_url, **how)
        self._poll_seconds = poll_seconds
        # A file is thousands of replies: it has its own limits, and not those of one.
        self._files = self._client.with_options(
            timeout=FILE_PAUSE_SECONDS,
            http_client=self._http(total_seconds=FILE_SECONDS, most_bytes=MOST_FILE_BYTES),
        ).files
        self._mark = sha256(f"{self.name} {self.fingerprint}".encode()).hexdigest()[:16]

    def complete(self, requests: Sequence[ChatRequest]) -> list[Reply]:
        return in_order(self.complete_each(requests))

    def complete_each(
        self, requests: Iterable[ChatRequest], arrived: Arrived = no_progress
    ) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply), batch by batch; equal requests share a line."""
        asked = list(requests)
        places: dict[str, list[int]] = {}
        for index, request in enumerate(asked):
            places.setdefault(request_key(self.name, self.fingerprint, request), []).append(index)
        for key, reply in self._replies({key: asked[indices[0]] for key, indices in places.items()}):
            for index in places[key]:
                arrived(index, reply)
                yield index, reply

    def _replies(self, waiting: dict[str, ChatRequest]) -> Iterator[tuple[str, Reply]]:
        """Yield a reply for each request: of batches that are there already, then of new ones."""
        if not waiting:
            return
        batches = self._earlier(waiting)
        for attempt in range(ROUNDS):
            covered = set[str]().union(*batches.values())
            batches |= self._send({key: request for key, request in waiting.items() if key not in covered})
            sent_with = {key: self._arguments(request) for key, request in waiting.items()}
            again: dict[str, ChatRequest] = {}
            for name, keys in batches.items():
                batch = self._wait_for(name)
                results = self._results(batch)
                for key in sorted(keys):
                    line = results.get(key) or {"error": f"the batch {name} is {batch.status}{_why(batch)}"}
                    outcome = self._reply_of(line, waiting[key])
                    if isinstance(outcome, Reply):
                        yield key, self._without_key(outcome)
                    elif attempt < ROUNDS - 1 and self._adapt(outcome, sent_with[key]):
                        again[key] = waiting[key]
                    else:
                        yield key, self._without_key(Reply(finish=Finish.ERROR, error=outcome.text))
            if not again:
                return
            waiting, batches = again, {}

    def _earlier(self, waiting: Mapping[str, ChatRequest]) -> dict[str, set[str]]:
        """Return the batches of an earlier command that hold some of these requests, the newest first."""
        found: dict[str, set[str]] = {}
        covered: set[str] = set()
        for batch in self._call(lambda: list(self._client.batches.list(limit=100))):
            if (batch.metadata or {}).get("prbench") != self._mark or batch.status not in OF_USE:
                continue
            keys = {line["custom_id"] for line in self._lines(batch.input_file_id)} & waiting.keys() - covered
            if batch.status not in OPEN:  # what it has no answer to is asked anew
                keys &= {key for key, line in self._results(batch).items() if _is_answer(line)}
            if keys:
                log.warning("%s: %d replies are taken from %s, sent before.", self.name, len(keys), batch.id)
                found[batch.id] = keys
                covered |= keys
        return found

    def _send(self, requests: Mapping[str, ChatRequest]) -> dict[str, set[str]]:
        """Send requests, and return what each batch holds."""
        sent: dict[str, set[str]] = {}
        lines: list[bytes] = []
        keys: list[str] = []
        size = 0

        def close() -> None:
            if not lines:
                return
            content = b"".join(lines)
            file = self._call(lambda: self._files.create(file=("prbench.jsonl", content), purpose="batch"))
            batch = self._call(
                lambda: self._client.batches.create(
                    input_file_id=file.id,
                    endpoint=ENDPOINT,
                    completion_window=WINDOW,
                    metadata={"prbench": self._mark},
                )
            )
            log.warning(
                "%s: %d requests are on their way as %s. The same command picks it up again, if this one is stopped.",
                self.name,
                len(lines),
                batch.id,
            )
            sent[batch.id] = set(keys)
            lines.clear()
            keys.clear()

        for key, request in requests.items():
            line = {"custom_id": key, "method": "POST", "url": ENDPOINT, "body": self._arguments(request)}
            data = json.dumps(line).encode() + b"\n"
            if len(lines) == MOST_REQUESTS or size + len(data) > MOST_BYTES:
                close()
                size = 0
            lines.append(data)
            keys.append(key)
            size += len(data)
        close()
        return sent

    def _wait_for(self, name: str) -> Any:
        while True:
            batch = self._call(lambda: self._client.batches.retrieve(name))
            if batch.status not in OPEN:
                return batch
            time.sleep(self._poll_seconds)

    def _results(self, batch: Any) -> dict[str, dict[str, Any]]:
        """Return the lines of its replies and of its errors."""
        files = [each for each in (batch.output_file_id, batch.error_file_id) if each]
        return {line["custom_id"]: line for each in files for line in self._lines(each)}

    def _lines(self, file: str) -> list[dict[str, Any]]:
        content = self._call(lambda: self._files.content(file).content)
        try:
            # As bytes, so that nothing but a line feed ends a line: U+2028 may stand inside a reply.
            return [json.loads(line) for line in io.BytesIO(content) if line.strip()]
        except ValueError as error:
            raise UsageError(f"{self.name}: the file {file} of a batch is not JSONL ({error}).") from error

    def _reply_of(self, line: Mapping[str, Any], request: ChatRequest) -> Reply | Failure:
        response, error = line.get("response"), line.get("error")
        if not isinstance(response, dict):
            told = error.get("message") if isinstance(error, dict) else error
            return Failure(str(told or "no response"), is_temporary=False)
        body: Json = response.get("body")
        status = int(response.get("status_code") or 0)
        if status >= 300 or status == 0:
            said = body.get("error") if isinstance(body, dict) else body
            message = str(said.get("message") if isinstance(said, dict) else said)
            return Failure(f"HTTP {status}: {message}", False, status, body=said, message=message)
        return self._if_ours(read_body(body, wants_logprobs=request.top_logprobs > 0), body)

    def _call(self, ask: Callable[[], Found]) -> Found:
        """Ask something of the server, again where that may help; a batch that was sent loses nothing meanwhile."""
        import openai

        for retry in range(1, self._max_retries + 2):
            headers: Mapping[str, str] = {}
            try:
                return ask()
            except openai.APIStatusError as error:
                headers = {name.lower(): value for name, value in error.response.headers.items()}
                is_last = retry > self._max_retries or not is_worth_another_try(error.status_code, headers)
                said = self._without_key(Reply(error=f"HTTP {error.status_code}: {error.message}")).error
            except openai.APIConnectionError as error:
                is_last, said = retry > self._max_retries, f"connection failed: {error.__cause__ or error}"
            except ReplyTooLargeError as error:
                is_last, said = True, str(error)
            if is_last:
                remedy = "Leave out ?batch=, or run the same command again."
                raise UsageError(f"{self.name}: its batches cannot be used: {said}. {remedy}")
            time.sleep(wait_seconds(retry, headers))
        raise AssertionError("the last try ends in a reply or an error")


def _is_answer(line: Mapping[str, Any]) -> bool:
    response = line.get("response")
    return isinstance(response, dict) and response.get("status_code") == 200


def _why(batch: Any) -> str:
    """Return what the server says of a batch that it did not take."""
    found = getattr(batch.errors, "data", None) or []
    return f": {found[0].message}" if found else ", without a reply to this request"
