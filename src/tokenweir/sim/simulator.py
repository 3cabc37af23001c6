"""What would this policy have done with this workload on this engine?

A discrete-event loop owns an ``Admitter`` exactly as the gateway's driver does: after every call it
calls ``advance`` and carries out the effects. Steps of the engine take effect at their end; what
arrives during a step enters the next one. No event is quantised but the engine's own.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tokenweir.core.admitter import Admitter
from tokenweir.core.decision import Admit, Degrade, Dispatch, Enqueue, Expire, Reject
from tokenweir.core.profile import EngineProfile
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
    div_ceil,
)
from tokenweir.engine.batch import Engine, StepResult
from tokenweir.engine.sequence import Sequence as EngineSequence
from tokenweir.sim.attempt import Attempt, Fate
from tokenweir.sim.clients import ClientModel
from tokenweir.sim.traces import Arrival
from tokenweir.sim.turns import FIRST_TURN, Clients, Turn

__all__ = ["Record", "Sample", "Scenario", "Simulation", "simulate"]

REPLICA: Final = ReplicaId("replica-0")

_NEVER: Nanos = 1 << 62
_REPORT_NS: Final = 100 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a run depends on but the policy.

    Attributes:
        arrivals: Unique requests, by time.
        declared: Declared output maximum of each, in the same order.
        draws: Clients' chances, shape (unique requests, draws of a client).
        profile: The engine.
        discipline: Of the engine's own waiting line.
        clients: How clients take refusals and waiting.
        end_ns: When arrivals stop, and where a cut run ends.
        drains: Whether the run goes on until nothing is open; a cut run leaves it unserved.
        checks: Recount ledger, queue and engine at every sample.
    """

    arrivals: Sequence[Arrival]
    declared: Sequence[int]
    draws: Sequence[Sequence[float]]
    profile: EngineProfile
    end_ns: Nanos
    discipline: str = "fifo"
    clients: Clients = field(default_factory=ClientModel)
    drains: bool = True
    checks: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one second of the run."""

    time_s: int
    running: int
    waiting_in_engine: int
    queued: int
    kv_fraction: float


@dataclass(frozen=True, slots=True)
class Record:
    """What a run left behind.

    Attributes:
        scenario: What was run.
        attempts: In order of arrival.
        samples: One per second.
        span_ns: Length of the run.
        worked_tokens: Tokens the engine worked on.
        recomputed_tokens: Of them, work lost to preemption.
        preemptions: How often the engine took a request's KV.
        used_tokens_after: What the ledger still holds at the end.
    """

    scenario: Scenario
    attempts: Sequence[Attempt]
    samples: Sequence[Sample]
    span_ns: Nanos
    worked_tokens: int
    recomputed_tokens: int
    preemptions: int
    used_tokens_after: int


def simulate(scenario: Scenario, admitter: Admitter) -> Record:
    """Run a scenario under an admitter that has no replicas yet."""
    return Simulation(scenario, admitter).run()


class Simulation:
    """One run in progress."""

    def __init__(self, scenario: Scenario, admitter: Admitter) -> None:
        """Set the clock to 0 and add the one replica."""
        self._scenario = scenario
        self._admitter = admitter
        self._now_ns: Nanos = 0
        self._engine = Engine(scenario.profile, discipline=scenario.discipline)
        admitter.add_replica(
            REPLICA, kv_tokens=scenario.profile.kv_tokens, profile=scenario.profile
        )
        # Telemetry is exact and free here; what the gateway knows is a little older.
        self._observes = admitter.policy.capacity.needs_occupancy
        # Progress is told as often as a gateway does, and preemptions when they happen.
        self._reports = admitter.policy.needs_progress
        if self._reports:
            self._tell_preemptions()
        self._reported_ns: Nanos = 0
        # When the running step ends and the next begins, and what the running one brings about.
        self._boundary_ns: Nanos = _NEVER
        self._running_step: StepResult | None = None
        # Handed over since the last boundary: they do not wait, they could not enter yet.
        self._fresh = 0
        # Between boundaries engine and ledger move together, so that one look serves.
        self._is_observed = False
        self._attempts: list[Attempt] = []
        self._open: dict[str, Attempt] = {}
        self._queued = 0
        # (time, sequence number, what): a retry, a client's patience, or the admitter's wake-up.
        self._events: list[tuple[Nanos, int, _Retry | _Patience | None]] = []
        self._sequence = 0
        self._wakeup_ns: Nanos = _NEVER
        self._samples: list[Sample] = []
        self._next_sample_ns: Nanos = NS_PER_S

    def run(self) -> Record:
        """Run to the end and return what happened."""
        scenario = self._scenario
        arrivals, total = scenario.arrivals, len(scenario.arrivals)
        limit_ns = _NEVER - 1 if scenario.drains else scenario.end_ns
        events = self._events
        index = 0
        arrival_ns = arrivals[0].arrival_ns if total else _NEVER
        while True:
            # At the same time: first what a step brought, then what was due, then who comes.
            next_ns = self._boundary_ns
            event_ns = events[0][0] if events else _NEVER
            if event_ns < next_ns:
                next_ns = event_ns
            if arrival_ns < next_ns:
                next_ns = arrival_ns
            if next_ns > limit_ns:
                break
            while self._next_sample_ns <= next_ns:
                self._sample()
            self._now_ns = next_ns
            if self._boundary_ns == next_ns:
                self._boundary()
            elif event_ns == next_ns:
                self._event()
            else:
                self._arrive(index, 0, turn=FIRST_TURN)
                index += 1
                arrival_ns = arrivals[index].arrival_ns if index < total else _NEVER
        span_ns = scenario.end_ns
        if scenario.drains:
            # Patience that ran out after its request had been served does not prolong the run.
            span_ns = max((a.end_ns or 0 for a in self._attempts), default=0)
            span_ns = max(span_ns, scenario.end_ns)
        while self._next_sample_ns <= span_ns:
            self._sample()
        return self._record(span_ns)

    def _record(self, span_ns: Nanos) -> Record:
        engine = self._engine
        return Record(
            scenario=self._scenario,
            attempts=self._attempts,
            samples=self._samples,
            span_ns=span_ns,
            worked_tokens=engine.worked_tokens_total,
            recomputed_tokens=engine.recomputed_tokens_total,
            preemptions=engine.preemptions_total,
            used_tokens_after=self._admitter.snapshot(now_ns=self._now_ns).used_tokens,
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
        counts = clients.counts_attempts(self._scenario.draws[index])
        request = Request(
            attempt.request_id,
            arrival.prompt_tokens,
            declared,
            tenant=arrival.tenant,
            attempt=turn.retry if counts else 0,
            counts_attempts=counts,
            body_hash=index.to_bytes(4, "big"),
        )
        decision = self._admitter.arrive(request, now_ns=now_ns)
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

    def _event(self) -> None:
        when_ns, _, what = heapq.heappop(self._events)
        match what:
            case _Retry(index, number, turn):
                self._arrive(index, number, turn=turn)
            case _Patience(attempt):
                if attempt.first_ns is None and attempt.fate is Fate.UNSERVED:
                    self._abandon(attempt)
                    self._advance()
            case None if when_ns == self._wakeup_ns:
                self._wakeup_ns = _NEVER
                self._advance()
            case None:
                # An earlier one has taken its place.
                pass

    def _boundary(self) -> None:
        """End the running step, let what it freed be taken, and begin the next one."""
        now_ns = self._now_ns
        engine = self._engine
        result, self._running_step = self._running_step, None
        if result is not None:
            for sequence in result.first:
                attempt = self._open.get(sequence.sequence_id)
                if attempt is not None:
                    attempt.first_ns = now_ns
                    self._admitter.first_token(ReservationId(sequence.sequence_id), now_ns=now_ns)
            for sequence in result.finished:
                self._finish(sequence)
            if self._reports and result.preempted:
                self._tell_preemptions()
        if self._reports and now_ns - self._reported_ns >= _REPORT_NS:
            self._report()
        self._is_observed = False
        if self._queued:
            if self._observes:
                self._observe()
            self._advance()
        elif result is not None and result.finished:
            self._admitter.advance(now_ns=now_ns)
        if engine.is_idle:
            self._boundary_ns = _NEVER
            return
        self._running_step = engine.step()
        self._fresh = 0
        self._boundary_ns = now_ns + self._running_step.duration_ns

    def _report(self) -> None:
        step = self._engine.step_index
        self._reported_ns = self._now_ns
        tokens = {
            ReservationId(sequence.sequence_id): sequence.generated_tokens(step=step)
            for sequence in self._engine.batch()
        }
        self._admitter.progress(REPLICA, tokens, now_ns=self._now_ns)

    def _finish(self, sequence: EngineSequence) -> None:
        attempt = self._open.pop(sequence.sequence_id, None)
        if attempt is None:
            # Its client left while its last step ran.
            return
        attempt.fate = Fate.COMPLETED
        attempt.end_ns = self._now_ns
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
            sequence = self._engine.abort(request_id)
            generated = 0
            if sequence is not None:
                generated = sequence.generated_tokens(step=self._engine.step_index)
            self._admitter.settle(
                ReservationId(request_id),
                Usage(attempt.prompt_tokens, generated),
                outcome=Outcome.CANCELLED,
                now_ns=self._now_ns,
            )
        self._maybe_retry(attempt, None)

    # --- carrying out decisions and effects ---------------------------------------------------

    def _advance(self) -> None:
        admitter = self._admitter
        for effect in admitter.advance(now_ns=self._now_ns):
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
                case _:
                    pass
        if self._queued:
            wakeup_ns = admitter.next_wakeup_ns()
            if wakeup_ns is not None and wakeup_ns < self._wakeup_ns:
                self._wakeup_ns = max(wakeup_ns, self._now_ns)
                self._schedule(self._wakeup_ns, None)

    def _dispatch(self, attempt: Attempt, admit: Admit) -> None:
        now_ns = self._now_ns
        if not self._engine.can_ever_run(
            prompt_tokens=attempt.prompt_tokens, output_tokens=attempt.output_tokens
        ):
            # As an engine answers 400 to what is over its length.
            self._admitter.release(admit.reservation_id, now_ns=now_ns)
            del self._open[attempt.request_id]
            self._refuse(attempt, Reject(ReasonCode.TOO_LARGE))
            return
        attempt.is_dispatched = True
        self._engine.submit(
            attempt.request_id,
            prompt_tokens=attempt.prompt_tokens,
            output_tokens=attempt.output_tokens,
        )
        self._fresh += 1
        if self._boundary_ns == _NEVER:
            profile = self._scenario.profile
            grid_ns = profile.step_ns if profile.is_paced else 1
            self._boundary_ns = div_ceil(now_ns, grid_ns) * grid_ns

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

    def _schedule(self, when_ns: Nanos, what: _Retry | _Patience | None) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when_ns, self._sequence, what))

    def _observe(self) -> None:
        # An idle engine has no boundaries: its telemetry would grow stale.
        self._is_observed = self._boundary_ns != _NEVER
        engine = self._engine
        self._admitter.observe(
            Signals(
                REPLICA,
                self._now_ns,
                kv_used_tokens=engine.kv_used_tokens,
                waiting_prompt_tokens=engine.waiting_prompt_tokens,
                waiting=engine.waiting,
                preemptions_total=engine.preemptions_total,
            ),
            now_ns=self._now_ns,
        )

    def _tell_preemptions(self) -> None:
        signals = Signals(REPLICA, self._now_ns, preemptions_total=self._engine.preemptions_total)
        self._admitter.observe(signals, now_ns=self._now_ns)

    def _sample(self) -> None:
        engine = self._engine
        self._samples.append(
            Sample(
                self._next_sample_ns // NS_PER_S,
                engine.running,
                max(0, engine.waiting - self._fresh),
                self._queued,
                engine.kv_used_tokens / self._scenario.profile.kv_tokens,
            )
        )
        self._next_sample_ns += NS_PER_S
        if self._scenario.checks:
            self._admitter.check_invariants()
            engine.check_invariants()


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
