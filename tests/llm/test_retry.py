"""When a server is asked again, and after how long."""

import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from prbench.backends.llm.servers import Pace, asked_seconds, is_worth_another_try, wait_seconds


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_temporary_failures_are_tried_again(status: int) -> None:
    assert is_worth_another_try(status, {})


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
def test_failures_that_stay_are_not(status: int) -> None:
    assert not is_worth_another_try(status, {})


def test_server_that_says_itself_is_believed() -> None:
    assert is_worth_another_try(400, {"x-should-retry": "true"})
    assert not is_worth_another_try(503, {"x-should-retry": "false"})


def test_wait_beyond_two_minutes_is_not_waited() -> None:
    assert is_worth_another_try(429, {"retry-after": "120"})
    assert not is_worth_another_try(429, {"retry-after": "121"})


@pytest.mark.parametrize(
    "headers,seconds",
    [
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_what_the_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_seconds(headers) == seconds


def test_date_in_the_future_is_the_time_until_then() -> None:
    header = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert asked_seconds({"retry-after": header}) == pytest.approx(90, abs=10)


@pytest.mark.parametrize("retry,most", [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 8.0), (2000, 8.0)])
def test_wait_doubles_up_to_eight_seconds_less_up_to_a_quarter(retry: int, most: float) -> None:
    waits = [wait_seconds(retry, {}) for _ in range(200)]
    assert 0.75 * most <= min(waits) < max(waits) <= most


def test_asked_wait_is_taken_as_it_is() -> None:
    assert wait_seconds(3, {"retry-after": "1"}) == 1.0


def test_stop_ends_a_wait() -> None:
    pace, stop = Pace(), threading.Event()
    pace.hold(3600)
    stop.set()
    assert not pace.wait(3600, stop)


def test_hold_keeps_everybody_back() -> None:
    pace = Pace()
    pace.hold(0.05)
    pace.hold(0.0)  # a shorter one does not cut it
    start = time.monotonic()
    assert pace.wait(0.0, threading.Event())
    assert time.monotonic() - start >= 0.04
