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

__all__ = ["first_token_slo_ns", "reading_share_ns"]


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


def reading_share_ns(
    estimate: Estimate, ahead: Ahead, *, accounts: Sequence[Account], now_ns: Nanos
) -> tuple[Nanos, Nanos] | None:
    """Return how long reading its own prompt takes, and all that is to be read before it too.

    Args:
        estimate: Of the request.
        ahead: What is served before it.
        accounts: Of the healthy replicas.
        now_ns: Monotonic time.

    Returns:
        Both times on the replica that would be through first; None where no speed is known.
    """
    shares: list[tuple[Nanos, Nanos]] = []
    own = estimate.unread_tokens
    own_pairs = attention_pairs(estimate.prompt_tokens, cached_tokens=estimate.cached_tokens)
    for account in accounts:
        left, left_pairs = unread_left(account, now_ns=now_ns)
        unread = ahead.prompt_tokens / len(accounts) + left
        pairs = ahead.attention_pairs / len(accounts) + left_pairs + own_pairs
        own_ns = reading_ns(own, account, pairs=own_pairs)
        all_ns = reading_ns(unread + own, account, pairs=pairs)
        if own_ns is not None and all_ns is not None:
            shares.append((own_ns, all_ns))
    return min(shares, key=lambda share: share[1], default=None)
