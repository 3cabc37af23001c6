"""Does a client try again after this answer, and when? As the common SDKs do.

Rule, in this order: a header delay over 120 s ends it; ``x-should-retry`` decides alone; else
statuses 408, 409, 429 and from 500 up are retried, and so is no answer at all. The delay is
``retry-after-ms``, else ``retry-after`` (seconds or HTTP date), where 0 < delay <= 120 s; else
min(0.5 x 2^n, 8) s x (0.75 .. 1.0) for retry number n.
Source: the Python client ``openai`` 3.57, read and observed; it adds no jitter to a header's delay.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Mapping

from tokenweir.core.retry import Rng

__all__ = ["RETRIES_DEFAULT", "is_retried", "retry_delay_s"]

RETRIES_DEFAULT = 2

_HEADER_S_MAX = 120.0
_BACKOFF_S = 0.5
_BACKOFF_S_MAX = 8.0


def is_retried(status: int | None, headers: Mapping[str, str]) -> bool:
    """Tell whether an SDK would try again.

    Args:
        status: Of the answer, or None where there was none (connection error, timeout).
        headers: Of the answer, looked up in lower case.
    """
    delay_s = _header_delay_s(headers)
    if delay_s is not None and delay_s > _HEADER_S_MAX:
        return False
    should = headers.get("x-should-retry")
    if should in ("true", "false"):
        return should == "true"
    return status is None or status in (408, 409, 429) or status >= 500


def retry_delay_s(retry_number: int, headers: Mapping[str, str], *, rng: Rng) -> float:
    """Return seconds until the next attempt.

    Args:
        retry_number: 0 before the first retry.
        headers: Of the answer, empty where there was none.
        rng: Jitter of the backoff.
    """
    delay_s = _header_delay_s(headers)
    if delay_s is not None and 0 < delay_s <= _HEADER_S_MAX:
        return delay_s
    backoff_s = min(_BACKOFF_S * 2.0**retry_number, _BACKOFF_S_MAX)
    return backoff_s * (1.0 - 0.25 * rng.random())


def _header_delay_s(headers: Mapping[str, str]) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1_000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    parsed = email.utils.parsedate_tz(text)
    return None if parsed is None else email.utils.mktime_tz(parsed) - time.time()


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None
