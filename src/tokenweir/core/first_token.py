"""When could a request that has to wait have its first token, and when must it?

Model: P = prompt tokens waiting in the pool's queue, D = unread ones on a replica, p = its own; all
replicas share what waits. Reading times come from the engine's profile (see ``guards``).
Rule: earliest = min over replicas of reading P / replicas + D + p; latest = the larger of the SLO
and a multiple of what an idle engine needs for this prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenweir.core.account import Account
from tokenweir.core.cost import Estimate
from tokenweir.core.guards import reading_ns, unread_left
from tokenweir.core.profile import attention_pairs
from tokenweir.core.queues import Ahead, QueueLimits
from tokenweir.core.units import Nanos

__all__ = ["first_token_slo_ns", "own_reading_ns", "reading_share_ns"]


def first_token_slo_ns(
    estimate: Estimate, limits: QueueLimits, *, accounts: Sequence[Account]
) -> Nanos:
    """Return the bound on a request's first token: longer where reading it alone is long.

    Args:
        estimate: Of the request.
        limits: With the SLO set.
        accounts: Of the healthy replicas.
    """
    base_ns, ratio = limits.first_token_slo_ns or 0, limits.first_token_unloaded_ratio
    if ratio == 0:
        return base_ns
    unloaded_ns = min(
        (
            account.profile.unloaded_first_token_ns(estimate.prompt_tokens)
            for account in accounts
            if account.profile is not None
        ),
        default=0,
    )
    return max(base_ns, int(ratio * unloaded_ns))


def own_reading_ns(estimate: Estimate, *, accounts: Sequence[Account]) -> Nanos | None:
    """Return how long the fastest replica needs to read a prompt, None where no speed is known.

    Args:
        estimate: Of the request.
        accounts: Of the healthy replicas.
    """
    pairs = attention_pairs(estimate.prompt_tokens, cached_tokens=estimate.cached_tokens)
    times = [reading_ns(estimate.unread_tokens, account, pairs=pairs) for account in accounts]
    return min((time for time in times if time is not None), default=None)


def reading_share_ns(
    estimate: Estimate, ahead: Ahead, *, accounts: Sequence[Account], now_ns: Nanos
) -> Nanos:
    """Return how long until a prompt and all that is to be read before it has been read.

    Args:
        estimate: Of the request.
        ahead: What is served before it.
        accounts: Of the healthy replicas; the speed of one of them at least is known.
        now_ns: Monotonic time.

    Returns:
        The time on the replica that would be through first.
    """
    times: list[Nanos] = []
    own_pairs = attention_pairs(estimate.prompt_tokens, cached_tokens=estimate.cached_tokens)
    for account in accounts:
        left, left_pairs = unread_left(account, now_ns=now_ns)
        tokens = ahead.prompt_tokens / len(accounts) + left + estimate.unread_tokens
        pairs = ahead.attention_pairs / len(accounts) + left_pairs + own_pairs
        time = reading_ns(tokens, account, pairs=pairs)
        if time is not None:
            times.append(time)
    return min(times)
