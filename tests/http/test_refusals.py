"""A refusal on the wire: what clients obey, and what people read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.core.decision import Reject
from tokenweir.core.reasons import REASONS, ReasonCode
from tokenweir.core.units import NS_PER_MS, NS_PER_S
from tokenweir.http.refusals import refusal

REFUSING = [reason for reason, row in REASONS.items() if row.status >= 400]


@given(retry_after_ns=st.integers(1, 60 * NS_PER_S))
def test_retry_after_when_up_to_a_minute_then_rounded_up_and_exact(retry_after_ns: int) -> None:
    """Whoever obeys either header comes back after the wait, never before it."""
    reject = Reject(ReasonCode.OVERLOAD_KV, retry_after_ns=retry_after_ns, wait_ns=retry_after_ns)
    headers = dict(refusal(reject).headers)
    seconds, millis = int(headers[b"retry-after"]), int(headers[b"retry-after-ms"])
    assert 1 <= seconds <= 60
    assert seconds * NS_PER_S >= retry_after_ns > (seconds - 1) * NS_PER_S
    assert millis * NS_PER_MS >= retry_after_ns > (millis - 1) * NS_PER_MS
    assert headers[b"x-should-retry"] == b"true"


def test_retry_after_when_longer_than_a_minute_then_only_the_body_tells() -> None:
    """Clients differ beyond 60 s, so they are told to stop, and the truth stands in the body."""
    reject = Reject(ReasonCode.OVERLOAD_KV, retry_after_ns=None, wait_ns=90 * NS_PER_S)
    answer = refusal(reject)
    headers = dict(answer.headers)
    assert headers[b"x-should-retry"] == b"false"
    assert b"retry-after" not in headers
    assert b"retry-after-ms" not in headers
    told = json.loads(answer.body)["error"]["tokenweir"]
    assert told["wait"] == 90
    assert told["action"].startswith("do not retry by itself")


@pytest.mark.parametrize("reason", REFUSING, ids=lambda reason: reason.value)
def test_refusal_when_of_any_reason_then_explains_itself(reason: ReasonCode) -> None:
    """Status, code, whose limit, which stage and what to do are there for every row."""
    reject = Reject(
        reason, retry_after_ns=NS_PER_S, wait_ns=NS_PER_S, used_tokens=3, limit_tokens=9
    )
    answer = refusal(reject)
    headers, error = dict(answer.headers), json.loads(answer.body)["error"]
    row = REASONS[reason]
    assert answer.status == row.status
    assert answer.status != 500
    assert error["code"] == reason.value == headers[b"x-tokenweir-reason"].decode()
    assert headers[b"x-tokenweir-decision"] == b"reject"
    assert error["message"]
    told = error["tokenweir"]
    assert told["scope"] == row.scope.value
    assert told["stage"] == row.stage.value
    assert (told["used"], told["limit"]) == (3, 9)
    assert told["action"] == row.action
    assert (b"retry-after" in headers) is row.is_retryable
