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
from functools import partial

from tokenweir.core.account import Account
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.audit import Refusal
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
    PauseChanged,
    Reject,
)
from tokenweir.core.entrance import Entrance
from tokenweir.core.errors import ContractError
from tokenweir.core.fairness import fairness_row
from tokenweir.core.gates import Candidate, first_refusal
from tokenweir.core.interrupting import Interrupting, entry_again
from tokenweir.core.joining import Joining
from tokenweir.core.ledger import Ledger, Settlement
from tokenweir.core.mode import Mode
from tokenweir.core.open_requests import OpenRequest, OpenRequests
from tokenweir.core.outer_limit import limit_of
from tokenweir.core.placement import NO_SHORTAGE, roomiest
from tokenweir.core.policy import Policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import Ahead, PoolQueue, QueueEntry, ordering
from tokenweir.core.reasons import REASONS, ReasonCode
from tokenweir.core.refusing import NEVER_OVERRIDDEN, Refusing
from tokenweir.core.request import Outcome, Priority, Request, Usage
from tokenweir.core.retry import Rng
from tokenweir.core.returns import ReturnDesk, Standing
from tokenweir.core.service_rate import ServiceRate
from tokenweir.core.signals import Signals
from tokenweir.core.snapshot import Snapshot, view_of
from tokenweir.core.standing_queue import wait_fraction
from tokenweir.core.units import Nanos, ReplicaId, ReservationId, TicketId
from tokenweir.core.waiting import PoolLook, Prospect, WaitTest

__all__ = ["Admitter"]


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
        self._ledger = Ledger(self.config.ledger)
        self._queue = PoolQueue(
            self.config.queue,
            fairness=partial(fairness_row, self.config.fairness, self.config.charges),
            ordering=ordering(self.config.ordering),
            tenants=self.config.tenants,
        )
        # Cheapest-first alone asks for a size, which costs a look at the distribution.
        self._is_sized = self.config.ordering == "shortest_with_ageing"
        self._waits = WaitTest(
            self.config.queue, is_guarded=policy.is_guarded, prefers_small=self._is_sized
        )
        self._desk = None
        if self.config.returns is not None:
            self._desk = ReturnDesk(
                self.config.returns, weight_of=lambda tenant: self.config.tenants.of(tenant).weight
            )
        self._rate = ServiceRate(hint_tokens_per_s=self.config.rate_hint_tokens_per_s)
        self._accounts: tuple[Account, ...] = ()
        self._predicted = policy.cost if isinstance(policy.cost, Predicted) else None
        self._open = OpenRequests(self.config.tenants)
        self._entrance = Entrance(
            policy, self.config, queue=self._queue, holdings=self._open.holdings
        )
        self._interrupting = Interrupting(
            self.config, ledger=self._ledger, opened=self._open, entrance=self._entrance
        )
        self._joining = Joining(
            self.config, queue=self._queue, waits=self._waits, interrupting=self._interrupting
        )
        self._refusing = Refusing(self.config, rng=rng, desk=self._desk, counts=self.counts)
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
            is_guarded=self.policy.is_guarded,
            headroom=self.config.headroom,
            limit=limit_of(
                self.config.limit,
                policy=self.policy,
                profile=profile,
                first_token_slo_ns=self.config.queue.first_token_slo_ns,
                tpot_ns=self.config.guards.tpot_ns,
            ),
        )
        self._accounts = self._entrance.accounts = tuple(self._ledger.accounts.values())
        self._entrance.forget()

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
        self._entrance.demand.note(request.priority, now_ns=now_ns)
        if request.priority in self._entrance.pausing.classes:
            self._look_at_pressure(has_come=True)
        self._open.holdings.note_asked(request.tenant, now_ns=now_ns)
        # Asked before it may wait, since a dispatch has no caller who could be told.
        if request.request_id in self._queue.entries or self._ledger.knows(
            ReservationId(request.request_id)
        ):
            raise ContractError(
                f"request {request.request_id} is live or was a short while ago, an id is used once"
            )
        estimate = self.policy.cost(request)
        if self.mode is Mode.BYPASS and not self._is_draining:
            account = roomiest(self._accounts, policy=self.policy)
            if account is not None:
                return self._admit(request, estimate, account=account, reason=ReasonCode.BYPASSED)
        decided = self._decide(request, estimate)
        if isinstance(decided, Account):
            self._waits.note(is_refused=False)
            return self._admit(request, estimate, account=decided)
        decision: Enqueue | Reject
        if isinstance(decided, Reject):
            decision = decided
        else:
            entry, prospect = decided
            decision = Enqueue(
                entry.ticket_id,
                int(prospect.ahead.items),
                prospect.wait_ns,
                entry.expires_ns,
                is_returning=entry.is_returning,
            )
        if self.mode is Mode.OBSERVE:
            return self._observe_only(request, estimate, decision=decision)
        if isinstance(decided, Reject):
            self._note_refusal(request, decided, is_enforced=True)
            fairness = self._queue.bands[request.priority].fairness
            self._refusing.charge(request, decided, fairness=fairness)
        else:
            self.counts["queued"] += 1
            self._make_room(entry)
            self._queue.push(entry)
            self._entrance.forget()
        return decision

    def first_token(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """Note that the engine has begun to answer."""
        self._tick(now_ns)
        self._ledger.first_token(reservation_id, now_ns=now_ns)

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
        self._change(now_ns)
        was_open = reservation_id in self._ledger
        settlement = self._ledger.settle(reservation_id, usage, outcome=outcome, now_ns=now_ns)
        is_interrupted = outcome is Outcome.INTERRUPTED
        if was_open and not is_interrupted:
            self._rate.note_closed(settlement.reserved_tokens, now_ns=now_ns)
        # What was taken away from its tenant is not its to pay.
        closed = self._open.close(reservation_id, usage=_NOTHING if is_interrupted else usage)
        if closed is not None and self._predicted is not None:
            self._predicted.learn(
                closed.request, usage, outcome=outcome, forecast=closed.forecast, now_ns=now_ns
            )
        return settlement

    def release(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """Give back a reservation whose request never reached an engine; see ``Ledger.release``."""
        self._change(now_ns)
        self._ledger.release(reservation_id, now_ns=now_ns)
        self._open.close(reservation_id, usage=_NOTHING)

    def put_back(self, reservation_id: ReservationId, *, now_ns: Nanos) -> Reject | None:
        """Let an interrupted request wait again, as old as it is; its tenant gets all back.

        Its id and ticket are those of before.

        Returns:
            None where it waits, or its refusal where the queue has no room for it.

        Raises:
            ContractError: It is not open, or nobody interrupted it.
        """
        self._change(now_ns)
        opened = self._open.get(reservation_id)
        if opened is None or not opened.is_interrupted:
            raise ContractError(f"reservation {reservation_id} is not interrupted")
        self._ledger.interrupt(reservation_id, now_ns=now_ns)
        self._open.close(reservation_id, usage=_NOTHING)
        request, estimate = opened.request, opened.estimate
        if not self._queue.has_room(estimate, request.priority):
            reject = self._reject(ReasonCode.INTERRUPTED, estimate, request=request)
            self._note_refusal(request, reject, is_enforced=True)
            return reject
        self.counts["put_back"] += 1
        self._queue.push(
            entry_again(
                opened,
                limits=self.config.queue,
                size_tokens=self._mean_tokens(request, estimate) if self._is_sized else 0.0,
                now_ns=now_ns,
            )
        )
        return None

    def spare(self, reservation_id: ReservationId, *, now_ns: Nanos) -> None:
        """Let an interrupted request run on, for good: its answer is on its way already."""
        self._change(now_ns)
        opened = self._open.get(reservation_id)
        if opened is not None:
            opened.is_interrupted, opened.is_spared = False, True

    def cancel(self, ticket_id: TicketId, *, now_ns: Nanos) -> bool:
        """Take a request out of the queue; returns whether it was still there."""
        self._change(now_ns)
        is_cancelled = self._queue.remove(ticket_id) is not None
        if is_cancelled:
            self.counts["cancelled_in_queue"] += 1
        return is_cancelled

    def observe(self, signals: Signals, *, now_ns: Nanos) -> None:
        """Take in one look at one replica.

        Raises:
            ContractError: There is no such replica.
        """
        self._change(now_ns)
        account = self._ledger.accounts.get(signals.replica)
        if account is None:
            raise ContractError(f"replica {signals.replica} is unknown")
        account.is_healthy = signals.is_healthy
        if signals.is_healthy and self._ledger.calibrate(signals, now_ns=now_ns):
            self._pending.append(DriftAlarm(signals.replica, account.calibration.drift_tokens))

    def refuse(self, request: Request, reason: ReasonCode, *, now_ns: Nanos) -> Reject:
        """Refuse for a reason found outside, with advice and audit like any other refusal."""
        self._tick(now_ns)
        reject = self._reject(reason, self.policy.cost(request), request=request)
        self._note_refusal(request, reject, is_enforced=True)
        return reject

    def drain(self, *, now_ns: Nanos) -> None:
        """Stop admitting; ``advance`` then drops what waits, and what runs may finish."""
        self._change(now_ns)
        self._is_draining = True

    # --- what the driver has to do ------------------------------------------------------------

    def advance(self, *, now_ns: Nanos) -> tuple[Effect, ...]:
        """Return what has become due: lost leases, alarms, expired and dispatched requests."""
        self._tick(now_ns)
        ledger = self._ledger
        for lost in ledger.expire(now_ns=now_ns):
            self.counts["leases_lost"] += 1
            self._open.close(lost.reservation_id, usage=None)
            self._rate.note_closed(lost.estimate.tokens, now_ns=now_ns)
            self._pending.append(LeaseLost(lost.reservation_id, lost.replica))
        ledger.drain(now_ns=now_ns)
        for account in self._accounts:
            account.refresh(now_ns=now_ns)
        if self._queue.entries:
            self._drop_expired()
            self._queue.promote(now_ns=now_ns)
            self._dispatch()
            if self._queue.entries:
                # While nobody waits but who pauses, nothing is short.
                if self._entrance.pausing.cause is None or self._queue.head() is not None:
                    self._rate.note_short(now_ns=now_ns)
                if self._look_at_pressure(has_come=False):
                    self._dispatch()
        else:
            self._entrance.short_head = None
        if not self._pending:
            return ()
        effects = tuple(self._pending)
        self._pending.clear()
        return effects

    def next_wakeup_ns(self) -> Nanos | None:
        """Return when ``advance`` has something to do though nobody called, or None."""
        head = self._entrance.short_head if self._queue.entries else None
        presses_ns = None if head is None else self._interrupting.due_ns(head)
        times = (
            # What is due already depends on something else.
            presses_ns if presses_ns is not None and presses_ns > self._now_ns else None,
            self._ledger.next_wakeup_ns(),
            self._queue.next_expiry_ns(),
            self._entrance.room_ns(now_ns=self._now_ns) if self._queue.entries else None,
            self._entrance.pausing.resumes_ns() if self._queue.entries else None,
        )
        due = [t for t in times if t is not None]
        return min(due) if due else None

    # --- what can be seen ---------------------------------------------------------------------

    def snapshot(self, *, now_ns: Nanos) -> Snapshot:
        """Return a frozen look at accounts and queue."""
        return Snapshot(
            mode=self.mode,
            accounts=tuple(view_of(account, now_ns=now_ns) for account in self._accounts),
            queued=len(self._queue),
            queue_debt_tokens=self._queue.debt_tokens,
            queued_by_class={priority: len(band) for priority, band in self._queue.bands.items()},
            paused=self._entrance.pausing.cause,
            pauses=dict(self._entrance.pausing.pauses),
            rate_tokens_per_s=self._rate.tokens_per_s(now_ns=now_ns),
            lengths=self._predicted.lengths.coverage() if self._predicted else None,
        )

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the last refusals, oldest first."""
        return self._refusing.audit.rows()

    def refusal_counts(self) -> Mapping[tuple[ReasonCode, str], int]:
        """Return all refusals so far by (reason, prompt-size bucket)."""
        return self._refusing.audit.counts

    def check_invariants(self) -> None:
        """Recount ledger and queue. Cost O(open + queued).

        Raises:
            InvariantError: Something does not add up.
        """
        self._ledger.check_invariants()
        self._queue.check_invariants()
        if self._desk is not None:
            self._desk.slots.check_invariants()

    # --- deciding -----------------------------------------------------------------------------

    def _decide(
        self, request: Request, estimate: Estimate
    ) -> Account | tuple[QueueEntry, Prospect] | Reject:
        """Return the replica that takes the request now, or its place, or its refusal."""
        desk, now_ns = self._desk, self._now_ns
        comer = None if desk is None else desk.look(request, now_ns=now_ns)
        candidate = Candidate(
            request,
            estimate,
            self.policy.capacity,
            self._accounts,
            self._is_draining,
            now_ns,
            desk,
            comer,
        )
        reason = first_refusal(candidate)
        if reason is not None:
            return self._reject(reason, estimate, request=request)
        is_returning = False
        if desk is not None and comer is not None:
            desk.enter(request, comer, cost_tokens=estimate.tokens, now_ns=now_ns)
            is_returning = comer.standing is Standing.IN_SLOT
            if comer.standing is not Standing.FIRST:
                self.counts[f"returned_{comer.standing.value}"] += 1
        placed: Account | Shortage | None = self._entrance.cap_shortage(request.tenant)
        if placed is None and not self._queue.entries:
            placed = self._place(estimate, request.priority, tenant=request.tenant)
            if isinstance(placed, Account):
                return placed
        elif placed is None:
            # Whoever arrives now goes behind the head, so what the head misses is what counts.
            placed = self._entrance.ahead(request, estimate, now_ns=now_ns)
        shortage = placed if isinstance(placed, Shortage) else NO_SHORTAGE
        if comer is not None and comer.is_charged and desk is not None and desk.is_short(now_ns):
            # Nobody told it to come now, so it takes no place from those who wait.
            return self._reject(shortage.reason, estimate, request=request, shortage=shortage)
        entry = self._entry(request, estimate, is_returning=is_returning)
        return self._enqueue_or_reject(entry, shortage=shortage)

    def _enqueue_or_reject(
        self, entry: QueueEntry, *, shortage: Shortage
    ) -> tuple[QueueEntry, Prospect] | Reject:
        self._rate.note_short(now_ns=self._now_ns)
        asked = self._joining.ask(
            entry, shortage, look=self._look(shortage), wait_fraction=self._wait_fraction
        )
        if isinstance(asked, Prospect):
            return entry, asked
        request, estimate, ahead = entry.request, entry.estimate, asked.ahead
        return self._reject(asked.reason, estimate, request=request, shortage=shortage, ahead=ahead)

    def _entry(self, request: Request, estimate: Estimate, *, is_returning: bool) -> QueueEntry:
        """Return what would wait; its times are still to be set."""
        size = self._mean_tokens(request, estimate) if self._is_sized else 0.0
        return QueueEntry(
            TicketId(request.request_id),
            request,
            estimate,
            enqueued_ns=self._now_ns,
            expires_ns=self._now_ns,
            size_tokens=size,
            is_returning=is_returning,
        )

    def _wait_fraction(self) -> float:
        """Return the part of the time to the first token that may be spent waiting now."""
        if self._desk is None:
            return 1.0
        now_ns = self._now_ns
        return wait_fraction(
            self._desk.load.steady_tokens_per_s(now_ns=now_ns),
            rate_tokens_per_s=self._rate.tokens_per_s(now_ns=now_ns),
            short_fraction=self._desk.shortness.fraction,
        )

    def _make_room(self, entry: QueueEntry) -> None:
        """Drop whom a newcomer displaces from a full queue."""
        queue, priority = self._queue, entry.request.priority
        if queue.has_room(entry.estimate, priority):
            return
        leaving = queue.displaceable(entry.estimate, priority=priority, tenant=entry.request.tenant)
        if leaving is not None:
            queue.remove(leaving.ticket_id)
            self.counts["displaced"] += 1
            self._drop(leaving, ReasonCode.QUEUE_DISPLACED)

    def _place(self, estimate: Estimate, priority: Priority, *, tenant: str) -> Account | Shortage:
        return self._entrance.place(estimate, priority, tenant=tenant, now_ns=self._now_ns)

    def _admit(
        self,
        request: Request,
        estimate: Estimate,
        *,
        account: Account,
        entry: QueueEntry | None = None,
        reason: ReasonCode = ReasonCode.FITS,
        overridden: Reject | Enqueue | None = None,
    ) -> Admit:
        reservation_id = ReservationId(request.request_id)
        predicted = self._predicted
        forecast = None if predicted is None else predicted.forecast(request)
        self._ledger.reserve(
            reservation_id,
            account.replica,
            estimate=estimate,
            now_ns=self._now_ns,
            is_guess=predicted is not None and forecast is None,
        )
        self._entrance.forget()
        self.counts["admitted"] += 1
        opened = OpenRequest(
            request,
            estimate,
            self._queue.bands[request.priority if entry is None else entry.band].fairness,
            charged_output_tokens=estimate.output_tokens,
            arrived_ns=self._now_ns,
            due_ns=self._now_ns + self.config.queue.wait_ns_bound(request.priority),
            forecast=forecast,
        )
        if entry is not None:
            opened.arrived_ns = entry.first_ns
            opened.waited_ns = self._now_ns - entry.enqueued_ns
            opened.due_ns, opened.interruptions = entry.due_ns, entry.interruptions
        self._open.open(reservation_id, opened)
        self._refusing.charges.note_entered(request.tenant)
        if self._desk is not None and not opened.interruptions:
            self._desk.note_admitted(request, cost_tokens=estimate.tokens, now_ns=self._now_ns)
        return Admit(reservation_id, account.replica, estimate.tokens, reason, overridden)

    def _observe_only(
        self, request: Request, estimate: Estimate, *, decision: Enqueue | Reject
    ) -> Decision:
        account = roomiest(self._accounts, policy=self.policy)
        is_binding = isinstance(decision, Reject) and decision.reason in NEVER_OVERRIDDEN
        is_enforced = account is None or is_binding
        if isinstance(decision, Reject):
            self._note_refusal(request, decision, is_enforced=is_enforced)
        if account is None or is_enforced:
            return decision
        return self._admit(request, estimate, account=account, overridden=decision)

    def _redraw(self, reservation_id: ReservationId, *, generated: int) -> None:
        """Predict again for a request that has produced all that was predicted."""
        opened = self._open.get(reservation_id)
        if opened is None or self._predicted is None:
            return
        total = self._predicted.output_tokens(
            opened.request, generated=generated, draw=opened.draws
        )
        opened.draws += 1
        self._ledger.lengthen(reservation_id, remaining=max(1, total - generated))
        self._open.outgrow(opened, output_tokens=max(total, generated + 1))

    # --- refusing -----------------------------------------------------------------------------

    def _reject(
        self,
        reason: ReasonCode,
        estimate: Estimate,
        *,
        request: Request,
        shortage: Shortage | None = None,
        ahead: Ahead | None = None,
    ) -> Reject:
        if not REASONS[reason].is_retryable:
            limit = max((a.kv_tokens or 0 for a in self._accounts), default=0)
            return Reject(reason, limit_tokens=limit, cost_tokens=estimate.tokens)
        if shortage is None:
            placed = self._place(estimate, Priority.P1, tenant=request.tenant)
            shortage = placed if isinstance(placed, Shortage) else NO_SHORTAGE
        look = self._look(shortage)
        return self._refusing.reject(
            reason,
            request=request,
            estimate=estimate,
            shortage=shortage,
            mean_tokens=partial(self._mean_tokens, request, estimate),
            wait_ns=look.wait_ns(self._queue.sums if ahead is None else ahead),
            rate_tokens_per_s=look.rate_tokens_per_s,
            now_ns=self._now_ns,
        )

    def _mean_tokens(self, request: Request, estimate: Estimate) -> float:
        predicted = self._predicted
        if predicted is None:
            return estimate.tokens
        return estimate.unread_tokens + predicted.mean_output_tokens(request)

    def _look(self, shortage: Shortage) -> PoolLook:
        return PoolLook(
            [account for account in self._accounts if account.is_healthy],
            self._rate.tokens_per_s(now_ns=self._now_ns),
            shortage,
        )

    def _note_refusal(self, request: Request, reject: Reject, *, is_enforced: bool) -> None:
        self._refusing.note(
            request, reject, accounts=self._accounts, is_enforced=is_enforced, now_ns=self._now_ns
        )

    # --- advancing ----------------------------------------------------------------------------

    def _drop_expired(self) -> None:
        now_ns = self._now_ns
        queue = self._queue
        while True:
            if self._is_draining:
                entry = next(iter(queue.entries.values()), None)
            else:
                entry = queue.pop_expired(now_ns=now_ns)
            if entry is None:
                return
            queue.remove(entry.ticket_id)
            self.counts["expired"] += 1
            self._drop(entry, self._expiry_reason(entry))

    def _drop(self, entry: QueueEntry, reason: ReasonCode) -> None:
        reject = self._reject(reason, entry.estimate, request=entry.request)
        self._note_refusal(entry.request, reject, is_enforced=True)
        self._pending.append(Expire(entry.ticket_id, reject, self._now_ns - entry.enqueued_ns))

    def _expiry_reason(self, entry: QueueEntry) -> ReasonCode:
        if self._is_draining:
            return ReasonCode.DRAINING
        if not any(account.is_healthy for account in self._accounts):
            return ReasonCode.NO_HEALTHY_REPLICA
        if entry.request.deadline_ns is not None and entry.expires_ns == entry.request.deadline_ns:
            return ReasonCode.DEADLINE_EXCEEDED
        return ReasonCode.QUEUE_TIMEOUT

    def _dispatch(self) -> None:
        """Let in who may enter."""
        queue, entrance = self._queue, self._entrance
        while (entrant := entrance.next(self.mode, now_ns=self._now_ns)) is not None:
            entry, account = entrant
            queue.take(entry)
            self._note_promise(entry)
            admit = self._admit(entry.request, entry.estimate, account=account, entry=entry)
            wait_ns = self._now_ns - entry.enqueued_ns
            self._pending.append(Dispatch(entry.ticket_id, admit, wait_ns))
        head = entrance.short_head
        if head is not None:
            self._rate.note_short(now_ns=self._now_ns)
            if self.mode is Mode.ENFORCE:
                victims = self._interrupting.victims(head, now_ns=self._now_ns)
                self.counts["interrupted"] += len(victims)
                self._pending += victims
        queue.unpark()

    def _note_promise(self, entry: QueueEntry) -> None:
        """Count who enters past the head, and whether who was passed starts when promised."""
        head = self._entrance.short_head
        if head is not None and head.entry is not entry:
            self.counts["backfilled"] += 1
        elif entry.promised_ns is not None:
            is_kept = self._now_ns <= entry.promised_ns
            self.counts["promises_kept" if is_kept else "promises_late"] += 1

    def _look_at_pressure(self, *, has_come: bool) -> bool:
        """Let background work pause or resume; returns whether it resumes."""
        if not self._entrance.look_at_pressure(has_come=has_come, now_ns=self._now_ns):
            return False
        cause = self._entrance.pausing.cause
        self._pending.append(PauseChanged(cause))
        return cause is None

    # --- time ---------------------------------------------------------------------------------

    def _change(self, now_ns: Nanos) -> None:
        self._tick(now_ns)
        self._entrance.forget()

    def _tick(self, now_ns: Nanos) -> None:
        if now_ns < self._now_ns:
            raise ContractError(f"time went back from {self._now_ns} to {now_ns} ns")
        self._now_ns = now_ns


_NOTHING = Usage(0, 0)
