"""Who calls the core, and who does what it says? One driver per pool, on one event loop.

Rule: every call into the core stands in a plain ``def`` that ends with ``_advance``: no await
between reading and writing, and effects are carried out before anybody else runs. Waiting is a
future per ticket, resolved by the effect; a timer wakes the core when it asks for it, and a tick
reports progress and renews leases while we live.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from tokenweir.core.admitter import Admitter
from tokenweir.core.audit import Refusal
from tokenweir.core.decision import (
    Admit,
    Dispatch,
    DriftAlarm,
    Effect,
    Enqueue,
    Expire,
    Interrupt,
    PauseChanged,
    Reject,
)
from tokenweir.core.mode import Mode
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.signals import Signals
from tokenweir.core.snapshot import Snapshot
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos, ReplicaId, ReservationId, TicketId
from tokenweir.driver.flight import Flight
from tokenweir.ports.clock import Clock
from tokenweir.ports.events import EventSink

__all__ = ["PoolDriver"]

_TICK_NS = 100 * NS_PER_MS
# A third of the lease, so that two renewals may fail to happen before a hold is lost.
_RENEW_NS = 3 * NS_PER_S
# A tick this late means that the process was stopped or blocked; leases are renewed first then.
_LATE_NS = NS_PER_S
# How much a finished request moves the pace that answers which are not streamed are taken to have.
_PACE_GAIN = 0.1
_PACE_TOKENS_PER_S_START = 20.0

_logger = logging.getLogger(__name__)


class PoolDriver:
    """The asyncio owner of one admitter."""

    def __init__(self, name: str, admitter: Admitter, *, clock: Clock, events: EventSink) -> None:
        """Take ownership: nobody else may call the admitter from now on.

        Args:
            name: The pool's, for logs.
            admitter: With its replicas added.
            clock: Monotonic time.
            events: Told of everything that happens.
        """
        self.name = name
        self._core = admitter
        self._clock = clock
        self._events = events
        self._mode_before_bypass = Mode.ENFORCE
        self._waiters: dict[TicketId, asyncio.Future[Flight | Reject]] = {}
        self._requests: dict[TicketId, Request] = {}
        # When those that were put back came first.
        self._arrivals: dict[TicketId, Nanos] = {}
        self._flights: dict[ReservationId, Flight] = {}
        self._pace_tokens_per_s = _PACE_TOKENS_PER_S_START
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._wakeup_timer: asyncio.TimerHandle | None = None
        self._wakeup_ns: Nanos = 0
        self._ticked_ns: Nanos = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_draining = False

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the timers on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._ticked_ns = self._clock()
        self._tick_timer = self._loop.call_later(_TICK_NS / NS_PER_S, self._tick)

    def stop(self) -> None:
        """Stop the timers; what is still open stays so."""
        for timer in (self._tick_timer, self._wakeup_timer):
            if timer is not None:
                timer.cancel()
        self._tick_timer = self._wakeup_timer = self._loop = None

    def begin_drain(self) -> None:
        """Refuse newcomers and whoever waits; what runs may finish."""
        if not self.is_draining:
            self.is_draining = True
            now_ns = self._clock()
            self._core.drain(now_ns=now_ns)
            self._advance(now_ns)

    async def wait_idle(self) -> None:
        """Wait until no request is with an engine."""
        await self._idle.wait()

    # --- one request --------------------------------------------------------------------------

    async def admit(self, request: Request) -> Flight | Reject:
        """Decide on a request, waiting in the queue where it has to.

        When the caller is cancelled, its place in the queue is given up, and also a reservation
        that it was handed in that very moment.

        Returns:
            A flight to be closed by the caller, or the refusal.
        """
        now_ns = self._clock()
        decided = self._arrive(request, now_ns=now_ns)
        if not isinstance(decided, asyncio.Future):
            return decided
        return await self._wait(request, decided)

    async def wait_again(self, flight: Flight) -> Flight | Reject:
        """Wait until a flight that was put back may go on; as ``admit``."""
        assert flight.again is not None
        return await self._wait(flight.request, flight.again)

    def abandon(self, flight: Flight) -> None:
        """Give up the place of a flight that was put back; nothing happens where it was not."""
        if flight.again is not None:
            self._give_up(TicketId(flight.request.request_id), flight.again)

    async def _wait(
        self, request: Request, waiter: asyncio.Future[Flight | Reject]
    ) -> Flight | Reject:
        try:
            return await waiter
        except asyncio.CancelledError:
            self._give_up(TicketId(request.request_id), waiter)
            raise

    def refuse(self, request: Request, reason: ReasonCode) -> Reject:
        """Refuse for a reason found outside the core, with its advice and audit."""
        now_ns = self._clock()
        reject = self._core.refuse(request, reason, now_ns=now_ns)
        self._advance(now_ns)
        return reject

    def note_first_token(self, flight: Flight) -> Nanos:
        """Tell the core that a flight's engine answers; returns the time of it."""
        now_ns = self._clock()
        self._core.first_token(flight.reservation_id, now_ns=now_ns)
        self._events.first_token(now_ns - flight.arrived_ns)
        self._advance(now_ns)
        return now_ns

    def note_prompt(self, flight: Flight, prompt_tokens: int) -> None:
        """Tell how far a flight's prompt was from its estimate; called by the flight."""
        self._events.prompt_counted(flight.request.prompt_tokens, counted_tokens=prompt_tokens)

    def settle(self, flight: Flight, usage: Usage, *, outcome: Outcome) -> None:
        """Close a flight with what was used; called by the flight."""
        now_ns = self._clock()
        self._forget(flight)
        settlement = self._core.settle(flight.reservation_id, usage, outcome=outcome, now_ns=now_ns)
        elapsed_ns = now_ns - flight.dispatched_ns
        if not outcome.is_early and usage.output_tokens > 0 and elapsed_ns > 0:
            pace = usage.output_tokens * NS_PER_S / elapsed_ns
            self._pace_tokens_per_s += _PACE_GAIN * (pace - self._pace_tokens_per_s)
        self._events.settled(settlement)
        self._advance(now_ns)

    def release(self, flight: Flight) -> None:
        """Close a flight that no engine has worked on; called by the flight."""
        self._forget(flight)
        if flight.is_lost:
            # Its hold is back already; what is left is to close the record.
            usage = Usage(prompt_tokens=0, output_tokens=0)
            now_ns = self._clock()
            self._core.settle(flight.reservation_id, usage, outcome=Outcome.ERROR, now_ns=now_ns)
            self._advance(now_ns)
        else:
            self._release(flight.reservation_id)

    # --- the pool -----------------------------------------------------------------------------

    def observe(self, signals: Signals) -> None:
        """Take in a look at one replica."""
        now_ns = self._clock()
        self._core.observe(signals, now_ns=now_ns)
        self._advance(now_ns)

    def mark_unhealthy(self, replica: ReplicaId) -> None:
        """Stop dispatch to a replica until a healthy look at it."""
        self.observe(Signals(replica, scraped_ns=self._clock(), is_healthy=False))

    @property
    def mode(self) -> Mode:
        """Whether decisions bind."""
        return self._core.mode

    def switch(self, mode: Mode) -> None:
        """Change the mode; what waits is looked at again at once."""
        if mode is not self._core.mode:
            _logger.warning("pool %s: %s -> %s", self.name, self._core.mode.value, mode.value)
            self._core.mode = mode
            self._advance(self._clock())

    def toggle_bypass(self) -> None:
        """Switch into bypass, and from bypass back to the mode before it."""
        if self._core.mode is Mode.BYPASS:
            self.switch(self._mode_before_bypass)
        else:
            self._mode_before_bypass = self._core.mode
            self.switch(Mode.BYPASS)

    def snapshot(self) -> Snapshot:
        """Return a frozen look at accounts and queue."""
        return self._core.snapshot(now_ns=self._clock())

    def refusals(self) -> Sequence[Refusal]:
        """Return the last refusals, oldest first."""
        return self._core.refusals()

    def refusal_counts(self) -> Mapping[tuple[ReasonCode, str], int]:
        """Return all refusals by reason and prompt-size bucket."""
        return self._core.refusal_counts()

    def open_count(self) -> int:
        """Return how many requests are with an engine."""
        return len(self._flights)

    # --- critical sections --------------------------------------------------------------------

    def _arrive(
        self, request: Request, *, now_ns: Nanos
    ) -> Flight | Reject | asyncio.Future[Flight | Reject]:
        decision = self._core.arrive(request, now_ns=now_ns)
        answer: Flight | Reject | asyncio.Future[Flight | Reject]
        if isinstance(decision, Admit):
            if decision.overridden is not None:
                self._note_overridden(decision.overridden)
            answer = self._open(request, decision, now_ns=now_ns)
        elif isinstance(decision, Enqueue):
            # Registered before advance, which may dispatch it at once.
            answer = asyncio.get_running_loop().create_future()
            self._waiters[decision.ticket_id] = answer
            self._requests[decision.ticket_id] = request
        else:
            assert isinstance(decision, Reject), decision
            answer = decision
        self._advance(now_ns)
        return answer

    def _open(
        self, request: Request, admit: Admit, *, now_ns: Nanos, queue_wait_ns: Nanos | None = None
    ) -> Flight:
        flight = Flight(
            self,
            request,
            admit=admit,
            queue_wait_ns=queue_wait_ns or 0,
            was_queued=queue_wait_ns is not None,
            dispatched_ns=now_ns,
        )
        self._flights[admit.reservation_id] = flight
        self._idle.clear()
        return flight

    def _forget(self, flight: Flight) -> None:
        self._flights.pop(flight.reservation_id, None)
        if not self._flights:
            self._idle.set()

    def _release(self, reservation_id: ReservationId) -> None:
        now_ns = self._clock()
        self._core.release(reservation_id, now_ns=now_ns)
        self._advance(now_ns)

    def _give_up(self, ticket_id: TicketId, waiter: asyncio.Future[Flight | Reject]) -> None:
        """Undo what a caller that is cancelled was given: a place, or in that moment a flight."""
        self._waiters.pop(ticket_id, None)
        self._requests.pop(ticket_id, None)
        self._arrivals.pop(ticket_id, None)
        given = waiter.result() if waiter.done() and not waiter.cancelled() else None
        if isinstance(given, Flight) and given.again is not None:
            # Put back before it could be taken.
            self._give_up(ticket_id, given.again)
        elif isinstance(given, Flight):
            given.release()
        elif given is None:
            now_ns = self._clock()
            self._core.cancel(ticket_id, now_ns=now_ns)
            self._advance(now_ns)

    def _note_overridden(self, decision: Reject | Enqueue) -> None:
        reason = decision.reason if isinstance(decision, Reject) else ReasonCode.WAITING
        self._events.observed_only(reason)

    # --- effects ------------------------------------------------------------------------------

    def _advance(self, now_ns: Nanos) -> None:
        """Let the core move on, do what it says, and set the timer for who waits."""
        if now_ns - self._ticked_ns > _LATE_NS and self._loop is not None:
            self._report_progress(now_ns)
        effects = self._core.advance(now_ns=now_ns)
        while effects:
            has_released = False
            for effect in effects:
                has_released |= self._carry_out(effect, now_ns=now_ns)
            effects = self._core.advance(now_ns=now_ns) if has_released else ()
        if self._waiters:
            self._arm(now_ns)

    def _carry_out(self, effect: Effect, *, now_ns: Nanos) -> bool:
        """Do one effect; returns whether that has made room for others."""
        if isinstance(effect, Dispatch):
            waiter = self._waiters.pop(effect.ticket_id, None)
            request = self._requests.pop(effect.ticket_id, None)
            self._events.waited(effect.queue_wait_ns)
            if waiter is None or request is None or waiter.done():
                # The client left, and its cancellation has not reached us yet.
                self._core.release(effect.admit.reservation_id, now_ns=now_ns)
                return True
            flight = self._open(
                request, effect.admit, now_ns=now_ns, queue_wait_ns=effect.queue_wait_ns
            )
            flight.arrived_ns = self._arrivals.pop(effect.ticket_id, flight.arrived_ns)
            waiter.set_result(flight)
        elif isinstance(effect, Expire):
            waiter = self._waiters.pop(effect.ticket_id, None)
            self._requests.pop(effect.ticket_id, None)
            self._arrivals.pop(effect.ticket_id, None)
            self._events.waited(effect.queue_wait_ns)
            if waiter is not None and not waiter.done():
                waiter.set_result(effect.reject)
        elif isinstance(effect, Interrupt):
            self._interrupt(effect, now_ns=now_ns)
            return True
        elif isinstance(effect, PauseChanged):
            state = "resumes" if effect.cause is None else f"pauses: {effect.cause.value}"
            _logger.info("pool %s: background work %s", self.name, state)
        elif isinstance(effect, DriftAlarm):
            self._events.drift_alarm(effect.replica)
            _logger.debug("replica %s: drift of %d tokens", effect.replica, effect.drift_tokens)
        else:
            lost = self._flights.get(effect.reservation_id)
            if lost is not None:
                lost.is_lost = True
            self._events.lease_lost(effect.replica)
            _logger.warning(
                "reservation %s on %s: lease ran out, its hold was taken back",
                effect.reservation_id,
                effect.replica,
            )
        return False

    def _interrupt(self, effect: Interrupt, *, now_ns: Nanos) -> None:
        """Let a running request give way: put it back, or stop it and say why, or leave it."""
        reservation_id = effect.reservation_id
        flight = self._flights.get(reservation_id)
        if flight is None:
            return
        if flight.is_begun and not (effect.may_break and flight.is_streamed):
            # The core did not know yet that its client reads already, or the answer is whole.
            self._core.spare(reservation_id, now_ns=now_ns)
            return
        flight.is_open = False
        self._forget(flight)
        self._events.interrupted(was_begun=flight.is_begun)
        if flight.is_begun:
            usage = Usage(flight.request.prompt_tokens, flight.output_tokens)
            outcome = Outcome.INTERRUPTED
            settlement = self._core.settle(reservation_id, usage, outcome=outcome, now_ns=now_ns)
            self._events.settled(settlement)
            flight.interrupted = self._core.refuse(
                flight.request, ReasonCode.INTERRUPTED, now_ns=now_ns
            )
        else:
            flight.interrupted = self._core.put_back(reservation_id, now_ns=now_ns)
            if flight.interrupted is None:
                ticket_id = TicketId(flight.request.request_id)
                flight.again = asyncio.get_running_loop().create_future()
                self._waiters[ticket_id] = flight.again
                self._requests[ticket_id] = flight.request
                self._arrivals[ticket_id] = flight.arrived_ns
        if flight.on_interrupt is not None:
            flight.on_interrupt()

    def _arm(self, now_ns: Nanos) -> None:
        """Keep one timer, for the earliest time that the core has named.

        Only while somebody waits: what else is due - leases, drained KV - can wait for the tick.
        """
        due_ns = self._core.next_wakeup_ns()
        if due_ns is None or self._loop is None:
            return
        if self._wakeup_timer is not None:
            if self._wakeup_ns <= due_ns:
                return
            self._wakeup_timer.cancel()
        self._wakeup_ns = due_ns
        delay_s = max(0, due_ns - now_ns) / NS_PER_S
        self._wakeup_timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._wakeup_timer = None
        self._advance(self._clock())

    # --- the tick -----------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._loop is None:
            return
        self._tick_timer = self._loop.call_later(_TICK_NS / NS_PER_S, self._tick)
        now_ns = self._clock()
        self._report_progress(now_ns)
        self._advance(now_ns)

    def _report_progress(self, now_ns: Nanos) -> None:
        """Report the streams that have moved and renew what is due. Cost O(open)."""
        self._ticked_ns = now_ns
        pace = self._pace_tokens_per_s
        batches: dict[ReplicaId, dict[ReservationId, int]] = {}
        for flight in self._flights.values():
            tokens = flight.progress_tokens(now_ns=now_ns, pace_tokens_per_s=pace)
            if tokens == flight.reported_tokens and now_ns - flight.renewed_ns < _RENEW_NS:
                continue
            flight.reported_tokens = tokens
            flight.renewed_ns = now_ns
            batches.setdefault(flight.replica, {})[flight.reservation_id] = tokens
        for replica, tokens_by_reservation in batches.items():
            self._core.progress(replica, tokens_by_reservation, now_ns=now_ns)
