"""What fits when every request keeps room for its whole estimate until it ends?

Model: R = sum of estimates of open reservations; d = draining, u = unattributed tokens; K = pool;
h = headroom fraction; c = the request's estimate. All in tokens.
Rule: admit while R + d + max(u, 0) + c <= h K.
Properties: with ``declared`` costs and an engine of our own, the engine never preempts.
Trade-off: room for output that is not produced yet stays empty, so goodput is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.capacity.protocol import Shortage, check_fraction
from tokenweir.core.cost import Estimate
from tokenweir.core.reasons import ReasonCode

__all__ = ["KV_UNKNOWN", "TokenReservation"]

# Where nobody has told the pool's size, tokens cannot be tested. Careful, not unlimited: a count
# that a small single-accelerator engine can carry.
KV_UNKNOWN = Concurrency(in_flight_max=32)


@dataclass(frozen=True, slots=True)
class TokenReservation:
    """Sum of whole estimates against the pool.

    Attributes:
        headroom_fraction: Share of the pool that may be promised, above 0 to 1; 0.95 leaves room
            for block rounding and for counting errors.
    """

    headroom_fraction: float = 0.95
    needs_occupancy: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the range."""
        check_fraction("headroom_fraction", self.headroom_fraction)

    def shortage(self, estimate: Estimate, account: Account) -> Shortage | None:
        """Return what is missing against the promised part of the pool."""
        if account.kv_tokens is None:
            return KV_UNKNOWN.shortage(estimate, account)
        used = self._used_tokens(account)
        limit = account.usable_tokens(self.headroom_fraction)
        missing = used + estimate.tokens - limit
        if missing <= 0:
            return None
        return Shortage(ReasonCode.OVERLOAD_KV, missing, used, limit)

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Tell whether the estimate exceeds what the pool could ever promise."""
        if account.kv_tokens is None:
            return False
        return estimate.tokens > int(account.kv_tokens * self.headroom_fraction)

    def free_tokens(self, account: Account) -> int:
        """Return the unpromised part of the pool."""
        if account.kv_tokens is None:
            return KV_UNKNOWN.free_tokens(account)
        return account.usable_tokens(self.headroom_fraction) - self._used_tokens(account)

    def _used_tokens(self, account: Account) -> int:
        return (
            account.reserved_tokens + account.draining_tokens + max(0, account.unattributed_tokens)
        )
