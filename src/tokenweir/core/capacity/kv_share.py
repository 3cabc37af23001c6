"""How is a use of the KV pool tested against the share that may be promised?

Model: U = tokens in use, by whatever account of it; K = KV pool; h = headroom fraction; c = the
newcomer's estimate.
Rule: admit while U + c <= h K. What counts as use is the answer of each subclass.
Trade-off: where nobody has told K, tokens cannot be tested, and a careful count of requests takes
their place: never silent, never unlimited.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.capacity.protocol import Shortage, check_fraction
from tokenweir.core.cost import Estimate
from tokenweir.core.reasons import ReasonCode

__all__ = ["KV_UNKNOWN", "KvShare"]

# A count that a small single-accelerator engine can carry.
KV_UNKNOWN = Concurrency(in_flight_max=32)


@dataclass(frozen=True, slots=True)
class KvShare(ABC):
    """A use of the pool against a share of it.

    Attributes:
        headroom_fraction: Share of the pool that may be promised, above 0 to 1; 0.95 leaves room
            for block rounding and for counting errors.
    """

    headroom_fraction: float = 0.95
    needs_occupancy: ClassVar[bool]
    tracks_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the range."""
        check_fraction("headroom_fraction", self.headroom_fraction)

    @abstractmethod
    def used_tokens(self, account: Account) -> int:
        """Return what counts as in use."""

    def shortage(
        self, estimate: Estimate, account: Account, *, ceiling_fraction: float = 1.0
    ) -> Shortage | None:
        """Return what is missing against the share."""
        if account.kv_tokens is None:
            return KV_UNKNOWN.shortage(estimate, account, ceiling_fraction=ceiling_fraction)
        used = self.used_tokens(account)
        limit = account.usable_tokens(self.headroom_fraction * ceiling_fraction)
        missing = used + estimate.prompt_tokens + estimate.output_tokens - limit
        if missing <= 0:
            return None
        return Shortage(ReasonCode.OVERLOAD_KV, missing, used, limit)

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Tell whether the estimate exceeds the share of an empty pool."""
        if account.kv_tokens is None:
            return False
        return estimate.tokens > int(account.kv_tokens * self.headroom_fraction)

    def free_tokens(self, account: Account) -> int:
        """Return the part of the share that is not in use."""
        if account.kv_tokens is None:
            return KV_UNKNOWN.free_tokens(account)
        return account.usable_tokens(self.headroom_fraction) - self.used_tokens(account)
