"""What fits when only what is really in the KV pool counts?

Model: A = KV tokens in use on the engine and prompts accepted but not prefilled yet.
Rule: use = A, tested as in ``KvShare``.
Properties: running requests keep no room for what they will still produce. Many end while few
grow, so the pool stays nearly full and the engine hardly ever preempts.
Trade-off: nothing guarantees it: a batch that all grows at once overruns the pool.
Source: the test that reproduces the article's published rows; its text describes a reservation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.kv_share import KvShare

__all__ = ["Occupancy"]


@dataclass(frozen=True, slots=True)
class Occupancy(KvShare):
    """Tokens in the pool now, plus the newcomer's estimate, against the pool."""

    needs_occupancy: ClassVar[bool] = True

    def used_tokens(self, account: Account) -> int:
        """Return what is in the pool as far as we know."""
        return account.occupied_tokens
