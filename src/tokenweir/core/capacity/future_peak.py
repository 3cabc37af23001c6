"""What fits if the pool must not overrun at any later moment?

Model: P = peak of the batch with the newcomer, from held and predicted remaining tokens (see
``BatchPeak``); d = draining, u = unattributed tokens, where positive; K = pool; h = share of it:
the smaller of ``headroom_fraction`` and what the spread of so many requests leaves, less what
preemptions have taught (see ``headroom``).
Rule: admit while P + d + max(u, 0) <= h K; what finds no other request there needs room for its
prompt and one token only, since no later moment is better and its length is only predicted.
Properties: the risk of wrong predictions is pooled over the batch, not paid for by each request.
Trade-off: wrong predictions that err the same way together overrun the pool; headroom is for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.batch_peak import BatchPeak
from tokenweir.core.capacity.kv_share import KV_UNKNOWN, KvShare
from tokenweir.core.capacity.protocol import Shortage
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ContractError
from tokenweir.core.reasons import ReasonCode

__all__ = ["FuturePeak"]


@dataclass(frozen=True, slots=True)
class FuturePeak(KvShare):
    """Predicted peak of the batch against the pool.

    Attributes:
        headroom_fraction: Share of the pool that the peak may fill, above 0 to 1. A peak is met
            for a moment and by few batches, so it may come nearer to the pool than what is held
            all the time.
    """

    headroom_fraction: float = 0.97
    needs_occupancy: ClassVar[bool] = False
    tracks_batch: ClassVar[bool] = True

    def used_tokens(self, account: Account) -> int:
        """Return the peak of what is there already."""
        return _batch(account).peak_tokens() + self._beside_tokens(account)

    def shortage(
        self, estimate: Estimate, account: Account, *, ceiling_fraction: float = 1.0
    ) -> Shortage | None:
        """Return by how much the peak with the newcomer is over the share."""
        if account.kv_tokens is None:
            return KV_UNKNOWN.shortage(estimate, account, ceiling_fraction=ceiling_fraction)
        limit = account.usable_tokens(self._share(account) * ceiling_fraction)
        batch = _batch(account)
        peak = (
            batch.peak_tokens_with(estimate.prompt_tokens, estimate.output_tokens)
            if len(batch)
            else estimate.prompt_tokens + 1
        )
        missing = peak + self._beside_tokens(account) - limit
        if missing <= 0:
            return None
        return Shortage(ReasonCode.OVERLOAD_KV, missing, self.used_tokens(account), limit)

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Tell whether the prompt alone exceeds the share: its output is only predicted."""
        if account.kv_tokens is None:
            return False
        return estimate.prompt_tokens + 1 > int(account.kv_tokens * self.headroom_fraction)

    def free_tokens(self, account: Account) -> int:
        """Return the part of the share that the peak leaves."""
        if account.kv_tokens is None:
            return KV_UNKNOWN.free_tokens(account)
        return account.usable_tokens(self._share(account)) - self.used_tokens(account)

    def _share(self, account: Account) -> float:
        headroom = account.headroom
        spread = headroom.spread_fraction(account.in_flight, kv_tokens=account.kv_tokens or 1)
        return min(self.headroom_fraction, 1.0 - spread) - headroom.penalty_fraction

    def _beside_tokens(self, account: Account) -> int:
        return account.draining_tokens + max(0, account.unattributed_tokens)


def _batch(account: Account) -> BatchPeak:
    if account.batch is None:
        raise ContractError(f"account of {account.replica} does not track its batch")
    return account.batch
