"""What fits when every request keeps room for its whole estimate until it ends?

Model: R = sum of estimates of open reservations; d = draining, u = unattributed tokens, which count
where they are positive.
Rule: use = R + d + max(u, 0), tested as in ``KvShare``.
Properties: with ``declared`` costs and an engine of our own, the engine never preempts.
Trade-off: room for output that is not produced yet stays empty, so goodput is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.kv_share import KvShare

__all__ = ["TokenReservation"]


@dataclass(frozen=True, slots=True)
class TokenReservation(KvShare):
    """Sum of whole estimates against the pool."""

    needs_occupancy: ClassVar[bool] = False

    def used_tokens(self, account: Account) -> int:
        """Return what is promised to open reservations, or held by nobody we know."""
        unattributed = account.unattributed_tokens
        known = account.reserved_tokens + account.draining_tokens
        return known + unattributed if unattributed > 0 else known
