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
from tokenweir.core.policy import Policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.units import Nanos

__all__ = ["limit_of", "limit_shortage"]


# Predictions aim at the bound of the pace and at most of the pool. Around these the limit must be
# wider, or it would cut what was aimed at: a broken pace or a preemption says that they are wrong.
_AROUND_PREDICTIONS_PACE_BREACH = 1.1
_AROUND_PREDICTIONS_KV_BREACH = 1.0


def limit_of(
    config: AimdConfig,
    *,
    policy: Policy,
    profile: EngineProfile | None,
    first_token_slo_ns: Nanos | None,
    tpot_ns: Nanos | None,
) -> AimdConfig | None:
    """Return how a replica's limit moves, None where the policy has none.

    Args:
        config: Of the pool.
        policy: Guarded ones ask predictions before it.
        profile: Of the replica: no engine runs more requests than it has seats.
        first_token_slo_ns: The pool's bound on a first token, or None to keep the config's.
        tpot_ns: The pool's bound on the pace, or None for no test of it.
    """
    if not policy.is_limited:
        return None
    config = replace(config, tpot_ns=tpot_ns)
    if first_token_slo_ns is not None:
        config = replace(config, first_token_slo_ns=first_token_slo_ns)
    if policy.is_guarded:
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
