"""What can be seen of a pool from outside? Frozen looks, cheap enough for a metrics page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenweir.core.account import Account
from tokenweir.core.lengths import LengthCoverage
from tokenweir.core.mode import Mode
from tokenweir.core.pausing import PauseCause
from tokenweir.core.request import Priority
from tokenweir.core.units import Nanos, ReplicaId

__all__ = ["AccountView", "Snapshot", "view_of"]


@dataclass(frozen=True, slots=True)
class AccountView:
    """A frozen look at one replica's account, in tokens unless named otherwise.

    Attributes:
        replica: Whose.
        is_healthy: Whether requests may be sent there.
        is_stale: Whether its telemetry came once and has stopped coming.
        kv_tokens: Size of its pool, None while nobody has told.
        in_flight: Requests.
        reserved_tokens: Of open reservations.
        held_tokens: KV in use by our count.
        draining_tokens: KV of aborted requests.
        unattributed_tokens: Correction of our count by telemetry.
        drift_tokens: The engine's count minus ours at the last look.
        telemetry_age_ns: Since the engine told of its KV, None while it has not.
        in_flight_limit: Outer limit, None where there is none.
        limit_breaches: How often it was cut.
        spread_fraction: Share of the pool kept free for errors of predictions.
        penalty_fraction: Share kept free because of preemptions.
        preemptions: Of the engine, as far as it has told.
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
    in_flight_limit: int | None = None
    limit_breaches: int = 0
    spread_fraction: float = 0.0
    penalty_fraction: float = 0.0
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A frozen look at the pool.

    Attributes:
        mode: Whether decisions bind.
        accounts: Of its replicas.
        queued: Requests that wait.
        queue_debt_tokens: Their estimates.
        rate_tokens_per_s: Of service, None while nothing is known.
        lengths: None where no lengths are predicted.
        queued_by_class: Requests that wait, by the class they wait in.
        paused: Why background work pauses, None while it does not.
        pauses: How often it began to, by cause.
    """

    mode: Mode
    accounts: tuple[AccountView, ...]
    queued: int
    queue_debt_tokens: int
    rate_tokens_per_s: float | None
    lengths: LengthCoverage | None = None
    queued_by_class: Mapping[Priority, int] = field(default_factory=dict)
    paused: PauseCause | None = None
    pauses: Mapping[PauseCause, int] = field(default_factory=dict)

    @property
    def used_tokens(self) -> int:
        """All that is reserved or draining: exactly 0 when nothing is open."""
        return sum(view.reserved_tokens + view.draining_tokens for view in self.accounts)


def view_of(account: Account, *, now_ns: Nanos) -> AccountView:
    """Return a frozen look at an account."""
    scraped_ns = account.calibration.scraped_ns
    limit, headroom = account.limit, account.headroom
    kv_tokens = account.kv_tokens
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
        in_flight_limit=None if limit is None else limit.in_flight_limit,
        limit_breaches=0 if limit is None else limit.breaches,
        spread_fraction=(
            0.0
            if kv_tokens is None
            else headroom.spread_fraction(account.in_flight, kv_tokens=kv_tokens)
        ),
        penalty_fraction=headroom.penalty_fraction,
        preemptions=headroom.preemptions,
    )
