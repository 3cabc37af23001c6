"""Does a request fit now, and who of those that wait enters next?

Model: the dispatch tests of ``placement`` on every replica, with the ceiling of the request's class
and the share that its tenant holds.
Rule: the head of the queue enters while it fits. Passed over is only whoever has as much as it may:
a tenant at its cap of requests, or, where KV is what the pool was last short of and others of the
class wait, over its share of KV.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenweir.core.account import Account
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.backfilling import Backfilling
from tokenweir.core.capacity import Shortage
from tokenweir.core.classes import ClassDemand
from tokenweir.core.cost import Estimate
from tokenweir.core.guards import first_token_room_ns
from tokenweir.core.mode import Mode
from tokenweir.core.pausing import Pausing
from tokenweir.core.placement import place, roomiest
from tokenweir.core.policy import Policy
from tokenweir.core.queues import Head, PoolQueue, QueueEntry
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Priority, Request
from tokenweir.core.tenants import Share, TenantHoldings
from tokenweir.core.units import Nanos

__all__ = ["Entrance"]

_NOBODY: frozenset[Priority] = frozenset()
_PAUSED = Shortage(ReasonCode.CLASS_PAUSED, missing_tokens=0, used_tokens=0, limit_tokens=0)


class Entrance:
    """The way from a pool's queue into its engines.

    Attributes:
        accounts: Of all replicas; set by the owner.
        demand: Which classes were asked for lately.
        pausing: Whether background work enters.
        short_head: Who was next at the last look and did not fit, None where all did.
        short_of: What was missing then, None where nothing was or no replica is healthy.
    """

    def __init__(
        self,
        policy: Policy,
        config: AdmitterConfig,
        *,
        queue: PoolQueue,
        holdings: TenantHoldings,
    ) -> None:
        """Start without replicas.

        Args:
            policy: What is tested.
            config: Of the guards and classes.
            queue: Who waits; those passed over are parked there until ``unpark``.
            holdings: What tenants have in engines.
        """
        self.accounts: Sequence[Account] = ()
        self.demand = ClassDemand(config.queue.classes)
        self.pausing = Pausing(config.pause, config.queue.classes)
        self.short_head: Head | None = None
        self.short_of: ReasonCode | None = None
        self._policy = policy
        self._guards = config.guards
        self._queue = queue
        self._holdings = holdings
        self._backfilling = Backfilling(
            queue, place=self.place, is_passed_over=self._is_passed_over
        )
        # What the head misses, while no more than progress has come since it was asked.
        self._head_shortage: Shortage | None = None

    def forget(self) -> None:
        """Ask anew what the head misses: replicas, queue or what is open have changed."""
        self._head_shortage = None

    def place(
        self,
        estimate: Estimate,
        priority: Priority,
        *,
        tenant: str,
        now_ns: Nanos,
        on: Account | None = None,
    ) -> Account | Shortage:
        """Return the replica that takes a request now, else the least that is missing.

        Args:
            estimate: Of the request.
            priority: With whose ceiling it may enter.
            tenant: Whose it is.
            now_ns: Monotonic time.
            on: The only replica to ask; all where it is not given.
        """
        if priority in self.pausing.paused:
            return _PAUSED
        return place(
            estimate,
            self.accounts if on is None else (on,),
            policy=self._policy,
            guards=self._guards,
            now_ns=now_ns,
            ceiling_fraction=self.demand.ceiling_fraction(priority, now_ns=now_ns),
            share=self._share_of(tenant, estimate, now_ns=now_ns),
        )

    def ahead(self, request: Request, estimate: Estimate, *, now_ns: Nanos) -> Account | Shortage:
        """Return what whoever is ahead of a newcomer misses, or where that one enters."""
        if self._head_shortage is not None:
            return self._head_shortage
        head = self._queue.head()
        return self.place(
            head.entry.estimate if head else estimate,
            head.admitted_as if head else request.priority,
            tenant=head.entry.request.tenant if head else request.tenant,
            now_ns=now_ns,
        )

    def cap_shortage(self, tenant: str) -> Shortage | None:
        """Return what a tenant at its cap of requests has to end first, None where it may enter."""
        holdings = self._holdings
        if not holdings.is_at_cap(tenant):
            return None
        in_flight = holdings.in_flight(tenant)
        return Shortage(
            ReasonCode.TENANT_CONCURRENCY,
            missing_tokens=holdings.tokens(tenant) // max(1, in_flight),
            used_tokens=in_flight,
            limit_tokens=in_flight,
        )

    def next(self, mode: Mode, *, now_ns: Nanos) -> tuple[QueueEntry, Account] | None:
        """Return who enters now, and where, or None; the entry still waits."""
        queue = self._queue
        queue.paused = self.pausing.paused if mode is Mode.ENFORCE else _NOBODY
        placed: Account | Shortage | None
        self._head_shortage = None
        while (head := queue.head()) is not None:
            entry = head.entry
            if mode is not Mode.ENFORCE:
                placed = roomiest(self.accounts, policy=self._policy)
            elif self._is_passed_over(entry):
                queue.park(entry)
                continue
            else:
                placed = self.place(
                    entry.estimate, head.admitted_as, tenant=entry.request.tenant, now_ns=now_ns
                )
            if isinstance(placed, Account):
                if self.short_head is not None and self.short_head.entry is not entry:
                    self.short_head = None
                return entry, placed
            self.short_head = head
            self._head_shortage = placed
            self.short_of = None if placed is None else placed.reason
            if placed is None or mode is not Mode.ENFORCE:
                return None
            healthy = tuple(account for account in self.accounts if account.is_healthy)
            return self._backfilling.next(head, accounts=healthy, now_ns=now_ns)
        self.short_head = self.short_of = None
        return None

    def look_at_pressure(self, *, has_come: bool, now_ns: Nanos) -> bool:
        """Let background work pause or resume; returns whether that has changed.

        Args:
            has_come: Whether a request of it comes just now.
            now_ns: Monotonic time.
        """
        bands = self._queue.bands
        has_changed = self.pausing.update(
            self.accounts,
            short=self.short_head.entry.request.priority if self.short_head else None,
            is_waiting=has_come or any(bands[p].lines for p in self.pausing.classes),
            demand=self.demand,
            now_ns=now_ns,
        )
        if has_changed:
            self.forget()
        return has_changed

    def room_ns(self, *, now_ns: Nanos) -> Nanos | None:
        """Return when what waits may enter because prompts have been read meanwhile, or None."""
        head = self._queue.head() if self.short_of is ReasonCode.OVERLOAD_PREFILL else None
        if head is None:
            return None
        guards, entry = self._guards, head.entry
        ceiling_fraction = self.demand.ceiling_fraction(head.admitted_as, now_ns=now_ns)
        share = self._share_of(entry.request.tenant, entry.estimate, now_ns=now_ns)
        is_heavy = share is Share.HEAVY
        times = [
            first_token_room_ns(a, guards, ceiling_fraction=ceiling_fraction, is_heavy=is_heavy)
            for a in self.accounts
            if a.is_healthy
        ]
        # What is due already depends on something else.
        return min((t for t in times if t is not None and t > now_ns), default=None)

    def _share_of(self, tenant: str, estimate: Estimate, *, now_ns: Nanos) -> Share:
        if (
            self._holdings.is_alone(tenant, now_ns=now_ns)
            or not self._queue.bands[Priority.P1].fairness.tells_tenants_apart
        ):
            return Share.FAIR
        return self._holdings.share_of(
            tenant,
            tokens=estimate.tokens,
            pool_tokens=sum(account.kv_tokens or 0 for account in self.accounts),
            now_ns=now_ns,
        )

    def _is_passed_over(self, entry: QueueEntry) -> bool:
        """Tell whether a tenant has as much as it may, so that others go first."""
        tenant = entry.request.tenant
        if self._holdings.is_at_cap(tenant):
            return True
        if (
            self.short_of is not ReasonCode.OVERLOAD_KV
            or not self._queue.bands[entry.band].fairness.tells_tenants_apart
            or self._queue.waiting_tenants(entry.band) < 2
        ):
            return False
        pool_tokens = sum(account.kv_tokens or 0 for account in self.accounts)
        return self._holdings.is_over_share(tenant, pool_tokens=pool_tokens)
