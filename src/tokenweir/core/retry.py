"""When may a refused request come back?

Model: B = tokens ahead of it (queued debt and what is missing now); r = service rate in tokens/s,
or while none is known what is reserved now in ten seconds; j = uniform draw in [0, 1).
Rule: wait = max(B / r, 0.5 s); advice = wait x (1 + 0.1 j), none where wait > 60 s. Jitter is
one-sided, so nobody returns before there is room, and per request, since no client adds its own to
a delay it was told.
Source: the common SDKs obey up to 60 s; beyond it some stop and some ignore the value.
"""

from __future__ import annotations

from typing import Protocol

from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = ["RETRY_AFTER_NS_MAX", "Rng", "expected_wait_ns", "retry_after_ns"]

RETRY_AFTER_NS_MIN = 500 * NS_PER_MS
RETRY_AFTER_NS_MAX = 60 * NS_PER_S
_JITTER_FRACTION = 0.1
# While no rate is known: what is reserved now is taken to be free again after so long.
_TURNOVER_S_ASSUMED = 10
# Slower than this is a standstill; the quotient must stay a number.
_RATE_TOKENS_PER_S_MIN = 1.0


class Rng(Protocol):
    """A source of chance, passed in; ``random.Random`` is one."""

    def random(self) -> float:
        """Return a uniform draw from [0, 1)."""
        ...


def expected_wait_ns(
    backlog_tokens: int, *, rate_tokens_per_s: float | None, reserved_tokens: int
) -> Nanos:
    """Return how long the backlog needs.

    Args:
        backlog_tokens: Ahead of the one who asks.
        rate_tokens_per_s: Measured, or None while it is not known.
        reserved_tokens: Held by all that is open, from which an unknown rate is assumed.
    """
    rate = rate_tokens_per_s
    if rate is None:
        rate = reserved_tokens / _TURNOVER_S_ASSUMED
    return int(backlog_tokens / max(rate, _RATE_TOKENS_PER_S_MIN) * NS_PER_S)


def retry_after_ns(wait_ns: Nanos, *, rng: Rng) -> Nanos | None:
    """Turn a predicted wait into advice, or None where it is too long to advise a retry."""
    wait_ns = max(wait_ns, RETRY_AFTER_NS_MIN)
    if wait_ns > RETRY_AFTER_NS_MAX:
        return None
    advised = wait_ns + int(wait_ns * _JITTER_FRACTION * rng.random())
    return min(advised, RETRY_AFTER_NS_MAX)
