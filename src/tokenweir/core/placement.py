"""May a request enter an engine now, and which one?

Model: every healthy replica is asked the dispatch tests: what fits the pool (see ``capacity``), and
for guarded policies what the first token and the pace bear (see ``guards``), and last, for limited
ones, the outer limit (see ``outer_limit``).
Whoever holds less than its fair part of the pool may go a little over its limit, and whoever holds
more must leave the engine less to read (see ``tenants``).
Rule: among those that take it, the one whose tightest resource has most room: KV, or prompts to
read. Admission asks the same tests of the same accounts, so that nothing is admitted which finds no
place.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenweir.core.account import Account
from tokenweir.core.capacity import Shortage
from tokenweir.core.cost import Estimate
from tokenweir.core.guards import GuardConfig, first_token_shortage, pace_shortage
from tokenweir.core.outer_limit import limit_shortage
from tokenweir.core.policy import Policy
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.tenants import Share
from tokenweir.core.units import Nanos

__all__ = ["NO_SHORTAGE", "place", "roomiest"]

NO_SHORTAGE = Shortage(ReasonCode.OVERLOAD_KV, 0, 0, 0)


def place(
    estimate: Estimate,
    accounts: Sequence[Account],
    *,
    policy: Policy,
    guards: GuardConfig,
    now_ns: Nanos,
    ceiling_fraction: float = 1.0,
    share: Share = Share.FAIR,
) -> Account | Shortage:
    """Return the replica that takes the estimate now, else the least that is missing.

    Args:
        estimate: Of the request.
        accounts: Of all replicas; unhealthy ones are passed over.
        policy: What is tested.
        guards: What guarded policies keep.
        now_ns: Monotonic time.
        ceiling_fraction: Share of every limit up to which the request's class may enter.
        share: What its tenant holds.
    """
    best: Account | None = None
    least: Shortage | None = None
    capacity = policy.capacity
    pool_fraction = ceiling_fraction
    if policy.is_guarded and share is Share.LIGHT:
        pool_fraction *= guards.light_pool_ratio
    for account in accounts:
        if not account.is_healthy:
            continue
        shortage = capacity.shortage(estimate, account, ceiling_fraction=pool_fraction)
        if shortage is None and policy.is_guarded:
            shortage = first_token_shortage(
                account,
                guards,
                now_ns=now_ns,
                ceiling_fraction=ceiling_fraction,
                is_heavy=share is Share.HEAVY,
            ) or pace_shortage(
                estimate,
                account,
                config=guards,
                ceiling_fraction=ceiling_fraction,
                is_heavy=share is Share.HEAVY,
            )
        if shortage is None and policy.is_limited:
            shortage = limit_shortage(estimate, account, ceiling_fraction=ceiling_fraction)
        if shortage is not None:
            if least is None or shortage.missing_tokens < least.missing_tokens:
                least = shortage
        elif best is None or _is_roomier(account, best, policy=policy):
            best = account
    if best is not None:
        return best
    return least or NO_SHORTAGE


def roomiest(accounts: Sequence[Account], *, policy: Policy) -> Account | None:
    """Return the healthy replica with most room, fitting or not."""
    healthy = [account for account in accounts if account.is_healthy]
    return max(healthy, key=policy.capacity.free_tokens, default=None)


def _is_roomier(account: Account, best: Account, *, policy: Policy) -> bool:
    # What waits to be read delays a first token now; what is held bounds what may come later.
    unread, least = account.prefill_tokens, best.prefill_tokens
    if policy.is_guarded and unread != least:
        return unread < least
    return policy.capacity.free_tokens(account) > policy.capacity.free_tokens(best)
