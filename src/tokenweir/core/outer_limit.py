"""Is there a place under the outer limit?

Model: f = requests on the replica, L = those allowed; U = KV tokens in use there, K = pool, t = the
share of it that is allowed (see ``aimd``); p = the newcomer's prompt.
Rule: admit while f < L and, with ``in_flight_min`` or more there, U + p <= t K.
Trade-off: asked after the tests that predict, so that it is only felt where these are wrong.
"""

from __future__ import annotations

from dataclasses import replace

from tokenweir.core.account import Account
from tokenweir.core.aimd import AimdConfig
from tokenweir.core.capacity.protocol import Shortage
from tokenweir.core.cost import Estimate
from tokenweir.core.profile import EngineProfile
from tokenweir.core.reasons import ReasonCode

__all__ = ["limit_of", "limit_shortage"]


# Predictions aim at nine tenths of the pace and at most of the pool. Around these the limit must be
# wider, or it would cut what was aimed at: a broken pace or a preemption says that they are wrong.
_AROUND_PREDICTIONS_PACE_BREACH = 1.1
_AROUND_PREDICTIONS_KV_BREACH = 1.0


def limit_of(config: AimdConfig, *, profile: EngineProfile | None, is_guarded: bool) -> AimdConfig:
    """Return a replica's limit.

    Args:
        config: Of the pool.
        profile: Of the replica: no engine runs more requests than it has seats.
        is_guarded: Whether predictions are asked before it.
    """
    if is_guarded:
        config = replace(
            config,
            pace_breach=max(config.pace_breach, _AROUND_PREDICTIONS_PACE_BREACH),
            kv_breach=_AROUND_PREDICTIONS_KV_BREACH,
        )
    if profile is None:
        return config
    seats = max(config.in_flight_min, min(config.in_flight_max, profile.sequences_max))
    return replace(config, in_flight_max=seats)


def limit_shortage(
    estimate: Estimate, account: Account, *, ceiling_fraction: float = 1.0
) -> Shortage | None:
    """Return what is missing under the outer limit, None where there is room or no limit.

    Args:
        estimate: Of the newcomer.
        account: Of the replica.
        ceiling_fraction: Share of the limit up to which its class may enter.
    """
    limit = account.limit
    if limit is None:
        return None
    in_flight = account.in_flight
    allowed = max(1, int(limit.in_flight_limit * ceiling_fraction))
    if in_flight >= allowed:
        mean_tokens = account.reserved_tokens // max(1, in_flight)
        missing = max(1, mean_tokens) * (in_flight - allowed + 1)
        return Shortage(ReasonCode.OVERLOAD_CONCURRENCY, missing, in_flight, allowed)
    if account.kv_tokens is None or in_flight < limit.in_flight_min:
        return None
    used = account.occupied_tokens
    allowed_tokens = int(account.kv_tokens * limit.kv_limit_fraction * ceiling_fraction)
    missing = used + estimate.prompt_tokens - allowed_tokens
    if missing <= 0:
        return None
    return Shortage(ReasonCode.OVERLOAD_KV, missing, used, allowed_tokens)
