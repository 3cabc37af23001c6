"""Clients retry as the common SDKs do."""

import random
import time
from email.utils import formatdate

import pytest

from tokenweir.study.load.retrying import is_retried, retry_delay_s


class Fixed:
    """A source of chance that always says the same."""

    def __init__(self, value: float) -> None:
        self._value = value

    def random(self) -> float:
        return self._value


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (429, {}, True),
        (503, {}, True),
        (529, {}, True),
        (408, {}, True),
        (409, {}, True),
        (None, {}, True),
        (400, {}, False),
        (413, {}, False),
        (400, {"x-should-retry": "true"}, True),
        (429, {"x-should-retry": "false"}, False),
        (429, {"x-should-retry": "maybe"}, True),
        (429, {"retry-after": "120"}, True),
        (429, {"retry-after": "121"}, False),
        (429, {"retry-after": "200", "x-should-retry": "true"}, False),
        (429, {"retry-after-ms": "200000"}, False),
    ],
)
def test_is_retried_when_answered_then_status_and_headers_decide(
    status: int | None, headers: dict[str, str], expected: bool
) -> None:
    """The table of statuses, x-should-retry alone, and the cap on header delays."""
    assert is_retried(status, headers) is expected


@pytest.mark.parametrize(
    ("headers", "delay_s"),
    [
        ({"retry-after-ms": "300", "retry-after": "5"}, 0.3),
        ({"retry-after": "1"}, 1.0),
        ({"retry-after": "0.2"}, 0.2),
        ({"retry-after": "0"}, 0.5),
        ({"retry-after": "-3"}, 0.5),
        ({"retry-after": "soon"}, 0.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({}, 0.5),
    ],
)
def test_retry_delay_when_headers_tell_then_the_most_precise_usable_one_holds(
    headers: dict[str, str], delay_s: float
) -> None:
    """retry-after-ms before retry-after, and the backoff where neither can be used."""
    assert retry_delay_s(0, headers, rng=Fixed(0.0)) == pytest.approx(delay_s)


def test_retry_delay_when_the_header_is_a_date_then_it_is_waited_for() -> None:
    """An HTTP date is a delay from now."""
    date = formatdate(time.time() + 30, usegmt=True)
    assert 28 <= retry_delay_s(0, {"retry-after": date}, rng=Fixed(0.0)) <= 30


@pytest.mark.parametrize(
    ("number", "longest_s"), [(0, 0.5), (1, 1.0), (2, 2.0), (4, 8.0), (20, 8.0)]
)
def test_retry_delay_when_nothing_is_told_then_the_backoff_doubles_up_to_its_cap(
    number: int, longest_s: float
) -> None:
    """min(0.5 x 2^n, 8) s, less at most a quarter by chance."""
    assert retry_delay_s(number, {}, rng=Fixed(0.0)) == longest_s
    rng = random.Random(number)
    delays = [retry_delay_s(number, {}, rng=rng) for _ in range(200)]
    assert all(0.75 * longest_s <= delay <= longest_s for delay in delays)
