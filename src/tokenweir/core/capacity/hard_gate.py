"""What fits behind a gate that shuts while the pool is nearly full?

Model: A = occupied KV tokens; K = KV pool; g = gate fraction.
Rule: refuse everything while A > g K, else ask ``Occupancy``.
Trade-off: the article's negative result: the gate refuses small requests that would fit, and opens
for all at once.
Source: the article's hard gate, g = 0.88.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.occupancy import Occupancy
from tokenweir.core.capacity.protocol import Shortage, check_fraction
from tokenweir.core.cost import Estimate
from tokenweir.core.reasons import ReasonCode

__all__ = ["HardGate"]


@dataclass(frozen=True, slots=True)
class HardGate:
    """``Occupancy`` behind a gate.

    Attributes:
        gate_fraction: The gate shuts while occupancy is over this share of the pool.
        occupancy: The test behind it.
    """

    gate_fraction: float = 0.88
    occupancy: Occupancy = field(default_factory=Occupancy)
    needs_occupancy: ClassVar[bool] = True
    tracks_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the range."""
        check_fraction("gate_fraction", self.gate_fraction)

    def shortage(
        self, estimate: Estimate, account: Account, *, ceiling_fraction: float = 1.0
    ) -> Shortage | None:
        """Return what must leave before the gate opens, or what ``Occupancy`` misses."""
        behind = self.occupancy.shortage(estimate, account, ceiling_fraction=ceiling_fraction)
        if account.kv_tokens is not None:
            used = account.occupied_tokens
            limit = account.usable_tokens(self.gate_fraction * ceiling_fraction)
            if used > limit:
                # Both tests must pass, so the larger of the two must become free.
                missing = max(used - limit, behind.missing_tokens if behind else 0)
                return Shortage(ReasonCode.OVERLOAD_GATE, missing, used, limit)
        return behind

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Ask ``Occupancy``: an empty pool's gate is open."""
        return self.occupancy.is_impossible(estimate, account)

    def free_tokens(self, account: Account) -> int:
        """Return what ``Occupancy`` has free."""
        return self.occupancy.free_tokens(account)
