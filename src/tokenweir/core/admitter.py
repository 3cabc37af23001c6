"""Admit, queue or refuse? The one object that simulator, gateway and library share.

Synchronous and total: every call takes ``now_ns``, none waits. After any other call the driver
calls ``advance`` in the same critical section: what was queued is dispatched or dropped there and
nowhere else. Same state and same times give the same decisions and effects in the same order.

Two tests. Admission: may the request wait, that is, will it make its bound? Dispatch: may it enter
the engine now? What fits and has nobody ahead passes both at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenweir.core.account import Account
from tokenweir.core.audit import Refusal, RefusalAudit
from tokenweir.core.calibration import CalibrationConfig
from tokenweir.core.capacity import Shortage
from tokenweir.core.cost import Estimate, Predicted
from tokenweir.core.decision import (
    Admit,
    Decision,
    Dispatch,
    DriftAlarm,
    Effect,
    Enqueue,
    Expire,
    LeaseLost,
    Reject,
)
from tokenweir.core.errors import ConfigError, ContractError
from tokenweir.core.first_token import first_token_slo_ns, reading_share_ns
from tokenweir.core.gates import Candidate, first_refusal
from tokenweir.core.guards import (
    GuardConfig,
    first_token_shortage,
    pace_shortage,
)
from tokenweir.core.ledger import Ledger, LedgerConfig, Settlement
from tokenweir.core.mode import Mode
from tokenweir.core.policy import Policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import FifoQueue, QueueEntry, QueueLimits
from tokenweir.core.reasons import REASONS, ReasonCode
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.retry import Rng, expected_wait_ns, retry_after_ns
from tokenweir.core.service_rate import ServiceRate
from tokenweir.core.signals import Signals
from tokenweir.core.snapshot import Snapshot, view_of
from tokenweir.core.units import Nanos, ReplicaId, ReservationId, TicketId

__all__ = ["Admitter", "AdmitterConfig"]

# What observe mode cannot let through: nothing is there to serve it.
_NEVER_OVERRIDDEN = frozenset({ReasonCode.NO_HEALTHY_REPLICA, ReasonCode.DRAINING})


@dataclass(frozen=True, slots=True)
class AdmitterConfig:
    """Settings of the parts, each checked where it is defined.

    Attributes:
        queue: How much may wait.
        ledger: How long holds last.
        calibration: How telemetry is weighed.
        guards: What guarded policies keep besides the pool.
        rate_hint_tokens_per_s: Service rate to start from, or None to measure it.
        audit_rows_max: Refusals kept for listing.
    """

    queue: QueueLimits = field(default_factory=QueueLimits)
    ledger: LedgerConfig = field(default_factory=LedgerConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    guards: GuardConfig = field(default_factory=GuardConfig)
    rate_hint_tokens_per_s: float | None = None
    audit_rows_max: int = 1_000

    def __post_init__(self) -> None:
        """Check the range."""
        if self.audit_rows_max < 0:
            raise ConfigError(
                f"audit_rows_max {self.audit_rows_max} is not allowed, allowed: 0 or more"
            )


class Admitter:
    """Admission control of one pool of replicas."""

    def __init__(self, policy: Policy, *, rng: Rng, config: AdmitterConfig | None = None) -> None:
        """Start with no replicas, enforcing.

        Args:
            policy: What is tested and what a request costs.
            rng: Chance for the jitter of Retry-After, used for nothing else.
            config: Settings of the parts.
        """
        self.config = config or AdmitterConfig()
        self.policy = policy
        self.mode = Mode.ENFORCE
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._ledger = Ledger(self.config.ledger)
        self._queue = FifoQueue(self.config.queue)
        self._rate = ServiceRate(hint_tokens_per_s=self.config.rate_hint_tokens_per_s)
        self._audit = RefusalAudit(rows_max=self.config.audit_rows_max)
        self._accounts: tuple[Account, ...] = ()
        self._predicted = policy.cost if isinstance(policy.cost, Predicted) else None
        # Open requests with the number of draws made for each; empty where nothing is predicted.
        self._drawn: dict[ReservationId, tuple[Request, int]] = {}
        self._pending: list[Effect] = []
        self._is_draining = False
        # Before any time that can be passed in: monotonic clocks may start anywhere.
        self._now_ns: Nanos = -(1 << 62)

    # --- what the driver tells us -------------------------------------------------------------

    def add_replica(
        self,
        replica: ReplicaId,
        *,
        kv_tokens: int | None = None,
        profile: EngineProfile | None = None,
    ) -> None:
        """Add a replica; its pool size may be told later by telemetry.

        Args:
            replica: Its name.
            kv_tokens: Size of its KV pool, where known.
            profile: How fast it is, where known; without one the pace is not tested.

        Raises:
            ContractError: It is there already.
        """
        self._ledger.add_replica(
            replica,
            kv_tokens=kv_tokens,
            calibration=self.config.calibration,
            profile=profile,
            tracks_batch=self.policy.capacity.tracks_batch,
        )
        self._accounts = tuple(self._ledger.accounts.values())

    def arrive(self, request: Request, *, now_ns: Nanos) -> Decision:
        """Decide on a request.

        Returns:
            ``Admit`` (it holds a reservation), ``Enqueue`` (it holds a place), or ``Reject`` (it
            holds nothing).

        Raises:
            ContractError: The request's id is live or was closed a short while ago, or time went
                back.
        """
        self._tick(now_ns)
        # Asked before it may wait, since a dispatch has no caller who could be told.
        if request.request_id in self._queue.entries or self._ledger.knows(
            ReservationId(request.request_id)
        ):
            raise ContractError(
                f"request {request.request_id} is live or was a short while ago, an id is used once"
            )
        estimate = self.policy.cost(request)
        if self.mode is Mode.BYPASS and not self._is_draining:
            account = self._roomiest(self._accounts)
            if account is not None:
                return self._admit(request, estimate, account=account, reason=ReasonCode.BYPASSED)
        decision = self._decide(request, estimate)
        if isinstance(decision, Account):
            return self._admit(request, estimate, account=decision)
        if self.mode is Mode.OBSERVE:
            return self._observe_only(request, estimate, decision=decision)
        if isinstance(decision, Reject):
            self._note_refusal(request, decision, is_enforced=True)
        else:
            self.counts["queued"] += 1
            self._queue.push(
                QueueEntry(decision.ticket_id, request, estimate, now_ns, decision.expires_ns)
            )
        return decision

    def first_token(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """Note that the engine has begun to answer."""
        self._tick(now_ns)
        self._ledger.first_token(reservation_id)

    def progress(
        self,
        replica: ReplicaId,
        tokens_by_reservation: Mapping[ReservationId, int],
        *,
        now_ns: Nanos,
    ) -> None:
        """Take in output tokens so far, per stream of one replica, and renew the leases."""
        self._tick(now_ns)
        for outgrown in self._ledger.progress(replica, tokens_by_reservation, now_ns=now_ns):
            self._redraw(outgrown, generated=tokens_by_reservation[outgrown])

    def settle(
        self, reservation_id: ReservationId, usage: Usage, *, outcome: Outcome, now_ns: Nanos
    ) -> Settlement:
        """Close a reservation with what was really used; see ``Ledger.settle``."""
        self._tick(now_ns)
        was_open = reservation_id in self._ledger
        settlement = self._ledger.settle(reservation_id, usage, outcome=outcome, now_ns=now_ns)
        if was_open:
            self._rate.note_closed(settlement.reserved_tokens, now_ns=now_ns)
        request, _ = self._drawn.pop(reservation_id, (None, 0))
        if request is not None and self._predicted is not None:
            self._predicted.learn(request, usage, outcome=outcome, now_ns=now_ns)
        return settlement

    def release(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """Give back a reservation whose request never reached an engine; see ``Ledger.release``."""
        self._tick(now_ns)
        self._ledger.release(reservation_id)
        self._drawn.pop(reservation_id, None)

    def cancel(self, ticket_id: TicketId, *, now_ns: Nanos) -> bool:
        """Take a request out of the queue; returns whether it was still there."""
        self._tick(now_ns)
        is_cancelled = self._queue.remove(ticket_id) is not None
        if is_cancelled:
            self.counts["cancelled_in_queue"] += 1
        return is_cancelled

    def observe(self, signals: Signals, *, now_ns: Nanos) -> None:
        """Take in one look at one replica.

        Raises:
            ContractError: There is no such replica.
        """
        self._tick(now_ns)
        account = self._ledger.accounts.get(signals.replica)
        if account is None:
            raise ContractError(f"replica {signals.replica} is unknown")
        account.is_healthy = signals.is_healthy
        if signals.is_healthy and self._ledger.calibrate(signals, now_ns=now_ns):
            self._pending.append(DriftAlarm(signals.replica, account.calibration.drift_tokens))

    def refuse(self, request: Request, reason: ReasonCode, *, now_ns: Nanos) -> Reject:
        """Refuse for a reason found outside, with advice and audit like any other refusal."""
        self._tick(now_ns)
        reject = self._reject(reason, self.policy.cost(request))
        self._note_refusal(request, reject, is_enforced=True)
        return reject

    def drain(self, *, now_ns: Nanos) -> None:
        """Stop admitting; ``advance`` then drops what waits, and what runs may finish."""
        self._tick(now_ns)
        self._is_draining = True

    # --- what the driver has to do ------------------------------------------------------------

    def advance(self, *, now_ns: Nanos) -> tuple[Effect, ...]:
        """Return what has become due: lost leases, alarms, expired and dispatched requests."""
        self._tick(now_ns)
        ledger = self._ledger
        for lost in ledger.expire(now_ns=now_ns):
            self.counts["leases_lost"] += 1
            self._drawn.pop(lost.reservation_id, None)
            self._rate.note_closed(lost.estimate.tokens, now_ns=now_ns)
            self._pending.append(LeaseLost(lost.reservation_id, lost.replica))
        ledger.drain(now_ns=now_ns)
        for account in self._accounts:
            account.refresh(now_ns=now_ns)
        if self._queue.entries:
            self._drop_expired()
            self._dispatch()
            if self._queue.entries:
                self._rate.note_short(now_ns=now_ns)
        if not self._pending:
            return ()
        effects = tuple(self._pending)
        self._pending.clear()
        return effects

    def next_wakeup_ns(self) -> Nanos | None:
        """Return when ``advance`` has something to do though nobody called, or None."""
        due = [t for t in (self._ledger.next_wakeup_ns(), self._queue.next_expiry_ns()) if t]
        return min(due) if due else None

    # --- what can be seen ---------------------------------------------------------------------

    def snapshot(self, *, now_ns: Nanos) -> Snapshot:
        """Return a frozen look at accounts and queue."""
        return Snapshot(
            mode=self.mode,
            accounts=tuple(view_of(account, now_ns=now_ns) for account in self._accounts),
            queued=len(self._queue),
            queue_debt_tokens=self._queue.debt_tokens,
            rate_tokens_per_s=self._rate.tokens_per_s(now_ns=now_ns),
        )

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the last refusals, oldest first."""
        return self._audit.rows()

    def refusal_counts(self) -> Mapping[tuple[ReasonCode, str], int]:
        """Return all refusals so far by (reason, prompt-size bucket)."""
        return self._audit.counts

    def check_invariants(self) -> None:
        """Recount ledger and queue. Cost O(open + queued).

        Raises:
            InvariantError: Something does not add up.
        """
        self._ledger.check_invariants()
        self._queue.check_invariants()

    # --- deciding -----------------------------------------------------------------------------

    def _decide(self, request: Request, estimate: Estimate) -> Account | Enqueue | Reject:
        """Return the replica that takes the request now, or its place, or its refusal."""
        now_ns = self._now_ns
        candidate = Candidate(
            request, estimate, self.policy.capacity, self._accounts, self._is_draining, now_ns
        )
        reason = first_refusal(candidate)
        if reason is not None:
            return self._reject(reason, estimate)
        if not self._queue.entries:
            placed = self._place(estimate)
            if isinstance(placed, Account):
                return placed
            shortage = placed
        else:
            # Whoever arrives now goes behind the head, so what the head misses is what counts.
            head = self._queue.head()
            behind = self._place(head.estimate if head else estimate)
            shortage = behind if isinstance(behind, Shortage) else _NO_SHORTAGE
        return self._enqueue_or_reject(request, estimate, shortage=shortage)

    def _enqueue_or_reject(
        self, request: Request, estimate: Estimate, *, shortage: Shortage
    ) -> Enqueue | Reject:
        now_ns = self._now_ns
        self._rate.note_short(now_ns=now_ns)
        limits = self.config.queue
        if limits.items_max == 0:
            return self._reject(shortage.reason, estimate, shortage=shortage)
        if not self._queue.has_room(estimate):
            return self._reject(ReasonCode.QUEUE_FULL, estimate, shortage=shortage)
        wait_ns = self._wait_ns(shortage)
        # An assumed rate is good enough for advice, but not to turn away what might be served.
        is_rate_known = self._rate.tokens_per_s(now_ns=now_ns) is not None
        least_ns = wait_ns if is_rate_known else 0
        bound_ns = limits.wait_ns_bound()
        if self.policy.is_guarded and limits.first_token_slo_ns is not None:
            healthy = [account for account in self._accounts if account.is_healthy]
            reading = reading_share_ns(estimate, self._queue, accounts=healthy)
            if reading is not None:
                own_ns, all_ns = reading
                slo_ns = first_token_slo_ns(estimate, limits, accounts=healthy)
                first_ns = int(slo_ns * self.config.guards.slo_fraction)
                bound_ns = min(limits.wait_ns_max, first_ns - own_ns)
                least_ns = max(least_ns, all_ns - own_ns)
                wait_ns = max(wait_ns, least_ns)
        if least_ns > bound_ns or bound_ns <= 0:
            return self._reject(shortage.reason, estimate, shortage=shortage)
        expires_ns = now_ns + bound_ns
        if request.deadline_ns is not None:
            if now_ns + least_ns >= request.deadline_ns:
                return self._reject(ReasonCode.DEADLINE_UNREACHABLE, estimate, shortage=shortage)
            expires_ns = min(expires_ns, request.deadline_ns)
        return Enqueue(TicketId(request.request_id), len(self._queue), wait_ns, expires_ns)

    def _place(self, estimate: Estimate) -> Account | Shortage:
        """Return the healthy replica with most room that takes the estimate, else the shortage."""
        best: Account | None = None
        least: Shortage | None = None
        capacity = self.policy.capacity
        for account in self._accounts:
            if not account.is_healthy:
                continue
            shortage = capacity.shortage(estimate, account)
            if shortage is None and self.policy.is_guarded:
                guards = self.config.guards
                shortage = first_token_shortage(account, guards) or pace_shortage(
                    estimate, account, config=guards
                )
            if shortage is not None:
                if least is None or shortage.missing_tokens < least.missing_tokens:
                    least = shortage
            elif best is None or capacity.free_tokens(account) > capacity.free_tokens(best):
                best = account
        if best is not None:
            return best
        return least or _NO_SHORTAGE

    def _roomiest(self, accounts: tuple[Account, ...]) -> Account | None:
        """Return the healthy replica with most room, fitting or not."""
        healthy = [account for account in accounts if account.is_healthy]
        return max(healthy, key=self.policy.capacity.free_tokens, default=None)

    def _admit(
        self,
        request: Request,
        estimate: Estimate,
        *,
        account: Account,
        reason: ReasonCode = ReasonCode.FITS,
        overridden: Reject | Enqueue | None = None,
    ) -> Admit:
        reservation_id = ReservationId(request.request_id)
        self._ledger.reserve(
            reservation_id, account.replica, estimate=estimate, now_ns=self._now_ns
        )
        self.counts["admitted"] += 1
        if self._predicted is not None:
            self._drawn[reservation_id] = (request, 1)
        return Admit(reservation_id, account.replica, estimate.tokens, reason, overridden)

    def _observe_only(
        self, request: Request, estimate: Estimate, *, decision: Enqueue | Reject
    ) -> Decision:
        account = self._roomiest(self._accounts)
        is_binding = isinstance(decision, Reject) and decision.reason in _NEVER_OVERRIDDEN
        is_enforced = account is None or is_binding
        if isinstance(decision, Reject):
            self._note_refusal(request, decision, is_enforced=is_enforced)
        if account is None or is_enforced:
            return decision
        return self._admit(request, estimate, account=account, overridden=decision)

    def _redraw(self, reservation_id: ReservationId, *, generated: int) -> None:
        """Predict again for a request that has produced all that was predicted."""
        drawn = self._drawn.get(reservation_id)
        if drawn is None or self._predicted is None:
            return
        request, draws = drawn
        total = self._predicted.output_tokens(request, generated=generated, draw=draws)
        self._drawn[reservation_id] = (request, draws + 1)
        self._ledger.lengthen(reservation_id, remaining=max(1, total - generated))

    # --- refusing -----------------------------------------------------------------------------

    def _reject(
        self, reason: ReasonCode, estimate: Estimate, *, shortage: Shortage | None = None
    ) -> Reject:
        if not REASONS[reason].is_retryable:
            limit = max((a.kv_tokens or 0 for a in self._accounts), default=0)
            return Reject(reason, limit_tokens=limit, cost_tokens=estimate.tokens)
        if shortage is None:
            placed = self._place(estimate)
            shortage = placed if isinstance(placed, Shortage) else _NO_SHORTAGE
        wait_ns = self._wait_ns(shortage)
        return Reject(
            reason,
            retry_after_ns=retry_after_ns(wait_ns, rng=self._rng),
            wait_ns=wait_ns,
            used_tokens=shortage.used_tokens,
            limit_tokens=shortage.limit_tokens,
            cost_tokens=estimate.tokens,
        )

    def _wait_ns(self, shortage: Shortage) -> Nanos:
        """Predict how long until what waits and what is missing has been served."""
        return expected_wait_ns(
            self._queue.debt_tokens + shortage.missing_tokens,
            rate_tokens_per_s=self._rate.tokens_per_s(now_ns=self._now_ns),
            reserved_tokens=sum(account.reserved_tokens for account in self._accounts),
        )

    def _note_refusal(self, request: Request, reject: Reject, *, is_enforced: bool) -> None:
        self.counts["refused" if is_enforced else "refused_in_observation"] += 1
        self._audit.note(
            request,
            reject.reason,
            occupied_tokens=sum(account.occupied_tokens for account in self._accounts),
            is_enforced=is_enforced,
            now_ns=self._now_ns,
        )

    # --- advancing ----------------------------------------------------------------------------

    def _drop_expired(self) -> None:
        now_ns = self._now_ns
        queue = self._queue
        while True:
            entry = queue.head() if self._is_draining else queue.pop_expired(now_ns=now_ns)
            if entry is None:
                return
            queue.remove(entry.ticket_id)
            self.counts["expired"] += 1
            reject = self._reject(self._expiry_reason(entry), entry.estimate)
            self._note_refusal(entry.request, reject, is_enforced=True)
            self._pending.append(Expire(entry.ticket_id, reject, now_ns - entry.enqueued_ns))

    def _expiry_reason(self, entry: QueueEntry) -> ReasonCode:
        if self._is_draining:
            return ReasonCode.DRAINING
        if not any(account.is_healthy for account in self._accounts):
            return ReasonCode.NO_HEALTHY_REPLICA
        if entry.request.deadline_ns is not None and entry.expires_ns == entry.request.deadline_ns:
            return ReasonCode.DEADLINE_EXCEEDED
        return ReasonCode.QUEUE_TIMEOUT

    def _dispatch(self) -> None:
        """Let the head enter while it fits; nobody passes it."""
        queue = self._queue
        while True:
            entry = queue.head()
            if entry is None:
                return
            placed: Account | Shortage | None
            if self.mode is Mode.ENFORCE:
                placed = self._place(entry.estimate)
            else:
                placed = self._roomiest(self._accounts)
            if not isinstance(placed, Account):
                self._rate.note_short(now_ns=self._now_ns)
                return
            queue.remove(entry.ticket_id)
            admit = self._admit(entry.request, entry.estimate, account=placed)
            wait_ns = self._now_ns - entry.enqueued_ns
            self._pending.append(Dispatch(entry.ticket_id, admit, wait_ns))

    # --- time ---------------------------------------------------------------------------------

    def _tick(self, now_ns: Nanos) -> None:
        if now_ns < self._now_ns:
            raise ContractError(f"time went back from {self._now_ns} to {now_ns} ns")
        self._now_ns = now_ns


_NO_SHORTAGE = Shortage(ReasonCode.OVERLOAD_KV, 0, 0, 0)
