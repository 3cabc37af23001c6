"""What can be seen of a pool from outside? Frozen looks, cheap enough for a metrics page."""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.account import Account
from tokenweir.core.mode import Mode
from tokenweir.core.units import Nanos, ReplicaId

__all__ = ["AccountView", "Snapshot", "view_of"]


@dataclass(frozen=True, slots=True)
class AccountView:
    """A frozen look at one replica's account, in tokens unless named otherwise.

    ``telemetry_age_ns`` is None while the engine has told nothing of its KV.
    """

    replica: ReplicaId
    is_healthy: bool
    is_stale: bool
    kv_tokens: int | None
    in_flight: int
    reserved_tokens: int
    held_tokens: int
    draining_tokens: int
    unattributed_tokens: int
    drift_tokens: int
    telemetry_age_ns: Nanos | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A frozen look at the pool."""

    mode: Mode
    accounts: tuple[AccountView, ...]
    queued: int
    queue_debt_tokens: int
    rate_tokens_per_s: float | None

    @property
    def used_tokens(self) -> int:
        """All that is reserved or draining: exactly 0 when nothing is open."""
        return sum(view.reserved_tokens + view.draining_tokens for view in self.accounts)


def view_of(account: Account, *, now_ns: Nanos) -> AccountView:
    """Return a frozen look at an account."""
    scraped_ns = account.calibration.scraped_ns
    return AccountView(
        replica=account.replica,
        is_healthy=account.is_healthy,
        is_stale=account.calibration.is_stale(now_ns=now_ns),
        kv_tokens=account.kv_tokens,
        in_flight=account.in_flight,
        reserved_tokens=account.reserved_tokens,
        held_tokens=account.held_tokens,
        draining_tokens=account.draining_tokens,
        unattributed_tokens=account.unattributed_tokens,
        drift_tokens=account.calibration.drift_tokens,
        telemetry_age_ns=None if scraped_ns is None else now_ns - scraped_ns,
    )
