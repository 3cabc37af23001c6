"""What fits when nothing is tested? Everything; this is the row ``none``, the baseline."""

from __future__ import annotations

from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.protocol import Shortage
from tokenweir.core.cost import Estimate

__all__ = ["Unlimited"]


class Unlimited:
    """Admit whatever comes."""

    needs_occupancy: ClassVar[bool] = False
    tracks_batch: ClassVar[bool] = False

    def shortage(
        self, estimate: Estimate, account: Account, *, ceiling_fraction: float = 1.0
    ) -> Shortage | None:
        """Return None: it always fits."""
        return None

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Return False: the engine itself must refuse."""
        return False

    def free_tokens(self, account: Account) -> int:
        """Prefer the replica that holds least."""
        return -account.held_tokens
