"""What fits when only what is really in the KV pool counts?

Model: A = KV tokens in use on the engine and prompts accepted but not prefilled yet; K = KV pool;
h = headroom fraction; c = the new request's estimate.
Rule: admit while A + c <= h K.
Properties: running requests keep no room for what they will still produce. Many end while few
grow, so the pool stays nearly full and the engine hardly ever preempts.
Trade-off: nothing guarantees it: a batch that all grows at once overruns the pool.
Source: the test that reproduces the article's published rows; its text describes a reservation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.protocol import Shortage, check_fraction
from tokenweir.core.capacity.token_reservation import KV_UNKNOWN
from tokenweir.core.cost import Estimate
from tokenweir.core.reasons import ReasonCode

__all__ = ["Occupancy"]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Tokens in the pool now, plus the newcomer's estimate, against the pool.

    Attributes:
        headroom_fraction: Share of the pool that may be filled, above 0 to 1.
    """

    headroom_fraction: float = 0.95
    needs_occupancy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the range."""
        check_fraction("headroom_fraction", self.headroom_fraction)

    def shortage(self, estimate: Estimate, account: Account) -> Shortage | None:
        """Return what is missing against the usable part of the pool."""
        if account.kv_tokens is None:
            return KV_UNKNOWN.shortage(estimate, account)
        used = account.occupied_tokens
        limit = account.usable_tokens(self.headroom_fraction)
        missing = used + estimate.tokens - limit
        if missing <= 0:
            return None
        return Shortage(ReasonCode.OVERLOAD_KV, missing, used, limit)

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Tell whether the estimate exceeds the usable part of an empty pool."""
        if account.kv_tokens is None:
            return False
        return estimate.tokens > int(account.kv_tokens * self.headroom_fraction)

    def free_tokens(self, account: Account) -> int:
        """Return the usable part of the pool that is not occupied."""
        if account.kv_tokens is None:
            return KV_UNKNOWN.free_tokens(account)
        return account.usable_tokens(self.headroom_fraction) - account.occupied_tokens
