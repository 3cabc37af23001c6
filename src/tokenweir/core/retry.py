"""When may a refused request come back?

Model: B = tokens ahead of it (queued debt and what is missing now); r = service rate in tokens/s;
j = uniform draw in [0, 1).
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
# While no rate is known: what is ahead is taken to need this long.
_WAIT_NS_UNKNOWN = NS_PER_S
# Slower than this is a standstill; the quotient must stay a number.
_RATE_TOKENS_PER_S_MIN = 1.0


class Rng(Protocol):
    """A source of chance, passed in; ``random.Random`` is one."""

    def random(self) -> float:
        """Return a uniform draw from [0, 1)."""
        ...


def expected_wait_ns(backlog_tokens: int, *, rate_tokens_per_s: float | None) -> Nanos:
    """Return how long the backlog needs at this rate."""
    if rate_tokens_per_s is None:
        return _WAIT_NS_UNKNOWN if backlog_tokens > 0 else 0
    rate = max(rate_tokens_per_s, _RATE_TOKENS_PER_S_MIN)
    return int(backlog_tokens / rate * NS_PER_S)


def retry_after_ns(wait_ns: Nanos, *, rng: Rng) -> Nanos | None:
    """Turn a predicted wait into advice, or None where it is too long to advise a retry."""
    wait_ns = max(wait_ns, RETRY_AFTER_NS_MIN)
    if wait_ns > RETRY_AFTER_NS_MAX:
        return None
    advised = wait_ns + int(wait_ns * _JITTER_FRACTION * rng.random())
    return min(advised, RETRY_AFTER_NS_MAX)
