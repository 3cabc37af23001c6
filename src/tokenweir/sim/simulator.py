"""What would this policy have done with this workload on these engines?

A discrete-event loop owns an ``Admitter`` exactly as the gateway's driver does: after every call it
calls ``advance`` and carries out the effects. Steps of the engine take effect at their end; what
arrives during a step enters the next one. No event is quantised but the engines' own. What engines
cache is told by nobody: discounts come from an index of what was sent, as a gateway's do.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from tokenweir.core.admitter import Admitter
from tokenweir.core.decision import (
    Admit,
    Degrade,
    Dispatch,
    Effect,
    Enqueue,
    Expire,
    Interrupt,
    Reject,
)
from tokenweir.core.prefix_index import PrefixIndex
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.signals import Signals
from tokenweir.core.units import (
    NS_PER_MS,
    NS_PER_S,
    Nanos,
    ReplicaId,
    ReservationId,
    TicketId,
)
from tokenweir.engine.block_batch import BlockSequence
from tokenweir.engine.sequence import Sequence as EngineSequence
from tokenweir.sim.attempt import Attempt, Fate
from tokenweir.sim.replica import NEVER, Replica
from tokenweir.sim.scenario import Outage, Record, Sample, Scenario
from tokenweir.sim.turns import FIRST_TURN, Turn

__all__ = ["Simulation", "simulate"]

_REPORT_NS: Final = 100 * NS_PER_MS


def simulate(scenario: Scenario, admitter: Admitter) -> Record:
    """Run a scenario under an admitter that has no replicas yet."""
    return Simulation(scenario, admitter).run()


class Simulation:
    """One run in progress."""

    def __init__(self, scenario: Scenario, admitter: Admitter) -> None:
        """Set the clock to 0 and add the replicas."""
        self._scenario = scenario
        self._admitter = admitter
        self._now_ns: Nanos = 0
        profile = scenario.profile
        self._replicas = [
            Replica(
                ReplicaId(f"replica-{number}"),
                profile,
                kv=scenario.kv,
                discipline=scenario.discipline,
            )
            for number in range(scenario.replicas)
        ]
        self._by_id = {replica.replica_id: replica for replica in self._replicas}
        # Whose running step ends first; a single engine's always does.
        self._next = self._replicas[0]
        self._is_pool = len(self._replicas) > 1
        for replica_id in self._by_id:
            admitter.add_replica(
                replica_id,
                kv_tokens=profile.kv_tokens,
                profile=profile if scenario.tells_profile else None,
            )
        self._index = None
        if scenario.kv == "prefix_cache":
            self._index = PrefixIndex(tokens_max=profile.kv_tokens)
        # Telemetry is exact and free here; what the gateway knows is a little older.
        self._observes = admitter.policy.capacity.needs_occupancy
        # Progress is told as often as a gateway does, and preemptions when they happen.
        self._reports = admitter.policy.needs_progress
        if self._reports:
            for replica in self._replicas:
                self._tell_preemptions(replica)
        # Between boundaries engines and ledger move together, so that one look serves.
        self._is_observed = False
        self._attempts: list[Attempt] = []
        self._open: dict[str, Attempt] = {}
        self._queued = 0
        # (time, sequence number, what): the admitter's wake-up is None.
        self._events: list[tuple[Nanos, int, _Event | None]] = []
        self._sequence = 0
        self._wakeup_ns: Nanos = NEVER
        self._samples: list[Sample] = []
        self._next_sample_ns: Nanos = NS_PER_S
        for outage in scenario.outages:
            self._schedule(outage.down_ns, _Down(outage))

    def run(self) -> Record:
        """Run to the end and return what happened."""
        scenario = self._scenario
        arrivals, total = scenario.arrivals, len(scenario.arrivals)
        limit_ns = NEVER - 1 if scenario.drains else scenario.end_ns
        events = self._events
        index = 0
        arrival_ns = arrivals[0].arrival_ns if total else NEVER
        while True:
            # At the same time: first what a step brought, then what was due, then who comes.
            boundary_ns = next_ns = self._next.boundary_ns
            event_ns = events[0][0] if events else NEVER
            if event_ns < next_ns:
                next_ns = event_ns
            if arrival_ns < next_ns:
                next_ns = arrival_ns
            if next_ns > limit_ns:
                break
            while self._next_sample_ns <= next_ns:
                self._sample()
            self._now_ns = next_ns
            if boundary_ns == next_ns:
                self._boundary(self._next)
            elif event_ns == next_ns:
                self._event()
            else:
                self._arrive(index, 0, turn=FIRST_TURN)
                index += 1
                arrival_ns = arrivals[index].arrival_ns if index < total else NEVER
        span_ns = scenario.end_ns
        if scenario.drains:
            # Patience that ran out after its request had been served does not prolong the run.
            span_ns = max((a.end_ns or 0 for a in self._attempts), default=0)
            span_ns = max(span_ns, scenario.end_ns)
        while self._next_sample_ns <= span_ns:
            self._sample()
        return self._record(span_ns)

    def _record(self, span_ns: Nanos) -> Record:
        index = self._index
        return Record(
            scenario=self._scenario,
            attempts=self._attempts,
            samples=self._samples,
            span_ns=span_ns,
            engines=[replica.totals() for replica in self._replicas],
            used_tokens_after=self._admitter.snapshot(now_ns=self._now_ns).used_tokens,
            index_precision=None if index is None else index.precision,
        )

    # --- events -------------------------------------------------------------------------------

    def _arrive(self, index: int, number: int, *, turn: Turn) -> None:
        now_ns, clients = self._now_ns, self._scenario.clients
        arrival = self._scenario.arrivals[index]
        declared = self._scenario.declared[index]
        attempt = Attempt(
            index,
            number,
            arrive_ns=now_ns,
            lengths=(arrival.prompt_tokens, arrival.output_tokens, declared),
            turn=turn,
        )
        self._attempts.append(attempt)
        if self._observes and not self._is_observed:
            self._observe()
        decision = self._admitter.arrive(self._request_of(attempt), now_ns=now_ns)
        if isinstance(decision, Reject):
            self._refuse(attempt, decision)
        else:
            self._open[attempt.request_id] = attempt
            timeout_ns = clients.timeout_ns
            if timeout_ns is not None:
                self._schedule(now_ns + timeout_ns, _Patience(attempt))
            if isinstance(decision, Enqueue):
                self._queued += 1
            else:
                admit = decision.admit if isinstance(decision, Degrade) else decision
                self._dispatch(attempt, admit)
        self._advance()

    def _request_of(self, attempt: Attempt) -> Request:
        scenario, index = self._scenario, attempt.index
        arrival = scenario.arrivals[index]
        terms = scenario.terms.of(arrival.tenant)
        counts = scenario.clients.counts_attempts(scenario.draws[index])
        cached_tokens = 0
        if self._index is not None and scenario.discounts:
            cached_tokens = self._index.discount_tokens(
                [replica.replica_id for replica in self._replicas if replica.is_up],
                arrival.prefix,
                prompt_tokens=arrival.prompt_tokens,
            )
        return Request(
            attempt.request_id,
            arrival.prompt_tokens,
            attempt.declared_tokens,
            tenant=arrival.tenant if terms.tenant is None else terms.tenant,
            priority=terms.priority,
            attempt=attempt.turn.retry if counts else 0,
            cached_prompt_tokens=cached_tokens,
            counts_attempts=counts,
            body_hash=index.to_bytes(4, "big"),
            length_mode=terms.length_mode,
            wait_ns_max=terms.wait_ns_max,
        )

    def _event(self) -> None:
        when_ns, _, what = heapq.heappop(self._events)
        match what:
            case _Retry(index, number, turn):
                self._arrive(index, number, turn=turn)
            case _Patience(attempt):
                if attempt.first_ns is None and attempt.fate is Fate.UNSERVED:
                    self._abandon(attempt)
                    self._advance()
            case _Down(outage):
                self._fail(outage)
            case _Up(replica):
                replica.is_up = True
                self._tell_preemptions(replica)
                self._advance()
            case None if when_ns == self._wakeup_ns:
                self._wakeup_ns = NEVER
                self._advance()
            case None:
                # An earlier one has taken its place.
                pass

    def _boundary(self, replica: Replica) -> None:
        """End a running step, let what it freed be taken, and begin the next one."""
        now_ns = self._now_ns
        engine = replica.engine
        result, replica.running_step = replica.running_step, None
        if result is not None:
            for sequence in result.first:
                attempt = self._open.get(sequence.sequence_id)
                if attempt is not None:
                    attempt.first_ns = now_ns
                    self._admitter.first_token(ReservationId(sequence.sequence_id), now_ns=now_ns)
            for sequence in result.finished:
                self._finish(sequence)
            if self._reports and result.preempted:
                self._tell_preemptions(replica)
        if self._reports and now_ns - replica.reported_ns >= _REPORT_NS:
            self._report(replica)
        self._is_observed = False
        if self._queued:
            if self._observes:
                self._observe()
            self._advance()
        elif result is not None and result.finished:
            self._admitter.advance(now_ns=now_ns)
        if engine.is_idle:
            replica.boundary_ns = NEVER
        else:
            replica.running_step = result = engine.step()
            replica.fresh = 0
            replica.boundary_ns = now_ns + result.duration_ns
        if self._is_pool:
            self._find_next()

    def _find_next(self) -> None:
        """Look whose step ends first; at the same time the lower number goes first."""
        self._next = min(self._replicas, key=_boundary_of)

    def _report(self, replica: Replica) -> None:
        engine = replica.engine
        step = engine.step_index
        replica.reported_ns = self._now_ns
        tokens = {
            ReservationId(sequence.sequence_id): sequence.generated_tokens(step=step)
            for sequence in engine.batch()
        }
        self._admitter.progress(replica.replica_id, tokens, now_ns=self._now_ns)

    def _finish(self, sequence: EngineSequence) -> None:
        attempt = self._open.pop(sequence.sequence_id, None)
        if attempt is None:
            # Its client left while its last step ran.
            return
        attempt.fate = Fate.COMPLETED
        attempt.end_ns = self._now_ns
        if self._index is not None and isinstance(sequence, BlockSequence):
            attempt.spared_tokens = sequence.spared_tokens
            self._index.learn(attempt.found_tokens, spared_tokens=sequence.spared_tokens)
        self._admitter.settle(
            ReservationId(sequence.sequence_id),
            Usage(attempt.prompt_tokens, attempt.output_tokens),
            outcome=Outcome.FINISHED,
            now_ns=self._now_ns,
        )

    def _abandon(self, attempt: Attempt) -> None:
        """The client leaves: out of our queue, or out of the engine."""
        request_id = attempt.request_id
        del self._open[request_id]
        attempt.fate = Fate.ABANDONED
        attempt.end_ns = self._now_ns
        if not attempt.is_dispatched:
            self._admitter.cancel(TicketId(request_id), now_ns=self._now_ns)
            self._queued -= 1
        else:
            self._settle_early(attempt, outcome=Outcome.CANCELLED)
        self._maybe_retry(attempt, None)

    def _settle_early(self, attempt: Attempt, *, outcome: Outcome) -> None:
        engine, generated = self._by_id[attempt.replica_id].engine, 0
        sequence = engine.abort(attempt.request_id)
        if sequence is not None:
            generated = sequence.generated_tokens(step=engine.step_index)
        self._admitter.settle(
            ReservationId(attempt.request_id),
            Usage(attempt.prompt_tokens, generated),
            outcome=outcome,
            now_ns=self._now_ns,
        )

    def _fail(self, outage: Outage) -> None:
        """An engine dies: what it had ends, its clients may come back, and nobody is sent there."""
        replica, now_ns = self._replicas[outage.replica], self._now_ns
        lost = [
            attempt
            for attempt in self._open.values()
            if attempt.is_dispatched and attempt.replica_id == replica.replica_id
        ]
        for attempt in lost:
            del self._open[attempt.request_id]
            attempt.fate = Fate.FAILED
            attempt.end_ns = now_ns
            self._settle_early(attempt, outcome=Outcome.ERROR)
            self._maybe_retry(attempt, None)
        replica.die()
        self._find_next()
        if self._index is not None:
            self._index.forget(replica.replica_id)
        gone = Signals(replica.replica_id, now_ns, is_healthy=False)
        self._admitter.observe(gone, now_ns=now_ns)
        if outage.up_ns is not None:
            self._schedule(outage.up_ns, _Up(replica))
        self._advance()

    # --- carrying out decisions and effects ---------------------------------------------------

    def _advance(self) -> None:
        admitter = self._admitter
        effects = admitter.advance(now_ns=self._now_ns)
        while effects:
            has_interrupted = False
            for effect in effects:
                has_interrupted |= self._carry_out(effect)
            effects = admitter.advance(now_ns=self._now_ns) if has_interrupted else ()
        if self._queued:
            wakeup_ns = admitter.next_wakeup_ns()
            if wakeup_ns is not None and wakeup_ns < self._wakeup_ns:
                self._wakeup_ns = max(wakeup_ns, self._now_ns)
                self._schedule(self._wakeup_ns, None)

    def _carry_out(self, effect: Effect) -> bool:
        """Do one effect; returns whether it was an interruption, which makes room for others."""
        match effect:
            case Dispatch(ticket_id, admit, queue_wait_ns):
                self._queued -= 1
                attempt = self._open[ticket_id]
                attempt.queue_wait_ns = queue_wait_ns
                self._dispatch(attempt, admit)
            case Expire(ticket_id, reject, queue_wait_ns):
                self._queued -= 1
                attempt = self._open.pop(ticket_id)
                attempt.queue_wait_ns = queue_wait_ns
                self._refuse(attempt, reject)
            case Interrupt(reservation_id, _, may_break):
                self._interrupt(self._open[reservation_id], may_break=may_break)
                return True
            case _:
                pass
        return False

    def _interrupt(self, attempt: Attempt, *, may_break: bool) -> None:
        """An attempt gives way: back into the queue, or its client is told."""
        now_ns, reservation_id = self._now_ns, ReservationId(attempt.request_id)
        if attempt.first_ns is not None and not may_break:
            self._admitter.spare(reservation_id, now_ns=now_ns)
            return
        attempt.interruptions += 1
        reject: Reject | None
        if attempt.first_ns is None:
            self._by_id[attempt.replica_id].engine.abort(attempt.request_id)
            reject = self._admitter.put_back(reservation_id, now_ns=now_ns)
        else:
            self._settle_early(attempt, outcome=Outcome.INTERRUPTED)
            reject = self._admitter.refuse(
                self._request_of(attempt), ReasonCode.INTERRUPTED, now_ns=now_ns
            )
        if reject is None:
            attempt.is_dispatched = False
            self._queued += 1
        else:
            del self._open[attempt.request_id]
            self._refuse(attempt, reject)

    def _dispatch(self, attempt: Attempt, admit: Admit) -> None:
        now_ns = self._now_ns
        replica = self._by_id[admit.replica]
        if not replica.engine.can_ever_run(
            prompt_tokens=attempt.prompt_tokens, output_tokens=attempt.output_tokens
        ):
            # As an engine answers 400 to what is over its length.
            self._admitter.release(admit.reservation_id, now_ns=now_ns)
            del self._open[attempt.request_id]
            self._refuse(attempt, Reject(ReasonCode.TOO_LARGE))
            return
        attempt.is_dispatched = True
        attempt.replica_id = admit.replica
        prefix = self._scenario.arrivals[attempt.index].prefix
        if self._index is not None:
            length = attempt.prompt_tokens
            attempt.found_tokens = self._index.found_tokens(
                admit.replica, prefix, prompt_tokens=length
            )
            self._index.note_sent(admit.replica, prefix, prompt_tokens=length)
        replica.engine.submit(
            attempt.request_id,
            prompt_tokens=attempt.prompt_tokens,
            output_tokens=attempt.output_tokens,
            prefix=prefix,
        )
        replica.fresh += 1
        replica.wake(now_ns=now_ns)
        if replica.boundary_ns < self._next.boundary_ns:
            self._next = replica

    def _refuse(self, attempt: Attempt, reject: Reject) -> None:
        attempt.fate = Fate.REFUSED
        attempt.reason = reject.reason
        attempt.end_ns = self._now_ns
        self._maybe_retry(attempt, reject)

    def _maybe_retry(self, attempt: Attempt, reject: Reject | None) -> None:
        scenario, index = self._scenario, attempt.index
        comeback = scenario.clients.comeback(
            attempt.turn,
            attempt.number,
            draws=scenario.draws[index],
            reject=reject,
            age_ns=self._now_ns - scenario.arrivals[index].arrival_ns,
        )
        if comeback is not None:
            again = _Retry(index, attempt.number + 1, comeback.turn)
            self._schedule(self._now_ns + comeback.delay_ns, again)

    # --- clockwork ----------------------------------------------------------------------------

    def _schedule(self, when_ns: Nanos, what: _Event | None) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when_ns, self._sequence, what))

    def _observe(self) -> None:
        # An idle engine has no boundaries: its telemetry would grow stale.
        self._is_observed = True
        for replica in self._replicas:
            if replica.is_up:
                self._is_observed &= replica.boundary_ns != NEVER
                signals = replica.signals(now_ns=self._now_ns)
                self._admitter.observe(signals, now_ns=self._now_ns)

    def _tell_preemptions(self, replica: Replica) -> None:
        signals = Signals(
            replica.replica_id, self._now_ns, preemptions_total=replica.engine.preemptions_total
        )
        self._admitter.observe(signals, now_ns=self._now_ns)

    def _sample(self) -> None:
        replicas = self._replicas
        held_tokens = sum(replica.engine.kv_used_tokens for replica in replicas)
        self._samples.append(
            Sample(
                self._next_sample_ns // NS_PER_S,
                sum(replica.engine.running for replica in replicas),
                sum(replica.waiting for replica in replicas),
                self._queued,
                held_tokens / (len(replicas) * self._scenario.profile.kv_tokens),
            )
        )
        self._next_sample_ns += NS_PER_S
        if self._scenario.checks:
            self._admitter.check_invariants()
            for replica in replicas:
                replica.engine.check_invariants()


def _boundary_of(replica: Replica) -> Nanos:
    return replica.boundary_ns


@dataclass(frozen=True, slots=True)
class _Retry:
    """A client comes back."""

    index: int
    number: int
    turn: Turn


@dataclass(frozen=True, slots=True)
class _Patience:
    """A client's timeout for the first token runs out."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class _Down:
    """An engine dies."""

    outage: Outage


@dataclass(frozen=True, slots=True)
class _Up:
    """An engine is there again."""

    replica: Replica


_Event = _Retry | _Patience | _Down | _Up
