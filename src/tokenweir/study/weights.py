"""Which weights do tenants get by what they ask for?

Model: a_i = tokens that tenant i has asked for, prompts and answers, in a part of a trace; n
tenants; p = power.
Rule: w_i = (a_i n / sum a) ** p. With p = 0 all weigh the same, and a flooder's requests wait for
each other; with p = 1 who asks for ten times as much gets ten times as much of what is short; below
0 the small go before the large by more than their turn. Who is not in the part weighs 1.
Trade-off: one number for all, since a trace is too short to tell what each tenant's own should be.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenweir.core.tenants import TenantConfig, TenantLimits
from tokenweir.sim.traces import Arrival

__all__ = ["asked_tokens", "weights_of"]

# What the core takes, with room to spare.
_WEIGHT_MIN, _WEIGHT_MAX = 1e-3, 1e3


def asked_tokens(arrivals: Iterable[Arrival]) -> tuple[tuple[str, int], ...]:
    """Return what each tenant asks for, in tokens; the largest first, ties by name."""
    tokens: dict[str, int] = {}
    for arrival in arrivals:
        asked = arrival.prompt_tokens + arrival.output_tokens
        tokens[arrival.tenant] = tokens.get(arrival.tenant, 0) + asked
    return tuple(sorted(tokens.items(), key=lambda row: (-row[1], row[0])))


def weights_of(asked: Iterable[tuple[str, int]], *, power: float) -> TenantConfig:
    """Return each tenant's weight; see the module.

    Args:
        asked: Tenants with what they ask for, see ``asked_tokens``.
        power: 0 for equal weights.
    """
    rows = list(asked)
    if power == 0 or not rows:
        return TenantConfig()
    mean = sum(tokens for _, tokens in rows) / len(rows)
    return TenantConfig({
        tenant: TenantLimits(
            weight=round(min(_WEIGHT_MAX, max(_WEIGHT_MIN, (tokens / mean) ** power)), 3)
        )
        for tenant, tokens in rows
    })
