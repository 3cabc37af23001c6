"""How does a refusal look on the wire? The OpenAI error object, and headers that clients obey.

Rule: a retryable refusal whose wait is at most 60 s carries ``Retry-After`` (whole seconds, rounded
up, 1 to 60), ``retry-after-ms`` (exact) and ``x-should-retry: true``. All others carry
``x-should-retry: false`` and no Retry-After; the true wait stands in the body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenweir.core.decision import Reject
from tokenweir.core.units import NS_PER_MS, NS_PER_S, div_ceil, s_from_ns
from tokenweir.http.asgi import HeaderList, json_bytes

__all__ = ["Refusal", "error_object", "refusal"]

_ERROR_TYPES = {
    400: "invalid_request_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    502: "api_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A whole answer that refuses."""

    status: int
    headers: HeaderList
    body: bytes


_BARE: Mapping[str, str] = {}
# In the place of a row's own advice, where no time to come back could be stated.
_NO_TIME_STATED = "do not retry by itself: send it elsewhere, or some minutes later"


def error_object(
    reject: Reject,
    *,
    message: str | None = None,
    param: str | None = None,
    beside: Mapping[str, str] = _BARE,
) -> dict[str, Any]:
    """Return the error body: OpenAI's members, and ``tokenweir`` with whose limit and what to do.

    Args:
        reject: The refusal.
        message: What exactly is wrong, where the reason alone does not say it. No prompt text.
        param: The member of the request that is wrong.
        beside: What a path's clients expect beside ``error``.
    """
    row = reject.row
    wait_ns, advised_ns = reject.wait_ns, reject.advised_ns
    is_timeless = row.is_retryable and row.is_advised and advised_ns is None
    return {
        **beside,
        "error": {
            "message": message or row.message,
            "type": _ERROR_TYPES.get(row.status, "api_error"),
            "param": param,
            "code": reject.reason.value,
            "tokenweir": {
                "scope": row.scope.value,
                "stage": row.stage.value,
                "limit": reject.limit_tokens,
                "used": reject.used_tokens,
                "unit": row.unit,
                "cost_tokens": reject.cost_tokens,
                # A stream that has begun has no header left to say it in.
                "retry_after": None if advised_ns is None else round(s_from_ns(advised_ns), 3),
                "wait": None if wait_ns is None else round(s_from_ns(wait_ns), 3),
                "action": _NO_TIME_STATED if is_timeless else row.action,
            },
        },
    }


def refusal(
    reject: Reject,
    *,
    message: str | None = None,
    param: str | None = None,
    beside: Mapping[str, str] = _BARE,
) -> Refusal:
    """Return the whole answer for a refusal; see ``error_object``."""
    headers: HeaderList = [
        (b"x-tokenweir-decision", b"reject"),
        (b"x-tokenweir-reason", reject.reason.value.encode()),
    ]
    retry_after_ns = reject.advised_ns
    if retry_after_ns is not None:
        headers += [
            (b"retry-after", b"%d" % div_ceil(retry_after_ns, NS_PER_S)),
            (b"retry-after-ms", b"%d" % div_ceil(retry_after_ns, NS_PER_MS)),
            (b"x-should-retry", b"true"),
        ]
    else:
        headers.append((b"x-should-retry", b"false"))
    body = json_bytes(error_object(reject, message=message, param=param, beside=beside))
    return Refusal(reject.row.status, headers, body)
