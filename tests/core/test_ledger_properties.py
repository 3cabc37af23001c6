"""Whatever happens in whatever order, the ledger adds up and ends at 0.

A model beside the admitter keeps its own account of what is open, lost, draining and waiting; after
every step both must agree.
"""

import dataclasses
from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.core.support import (
    MS,
    SMALL_IN_FLIGHT_MAX,
    S,
    request,
    reservation,
    small_policy,
    ticket,
)
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.capacity import CapacityTest
from tokenweir.core.cost import Predicted
from tokenweir.core.decision import (
    Admit,
    Dispatch,
    DriftAlarm,
    Enqueue,
    Expire,
    LeaseLost,
    Reject,
)
from tokenweir.core.errors import ContractError
from tokenweir.core.guards import GuardConfig
from tokenweir.core.ledger import LedgerConfig, Settlement
from tokenweir.core.mode import Mode
from tokenweir.core.policy import POLICIES
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import REASONS, ReasonCode
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.retry import RETRY_AFTER_NS_MAX, RETRY_AFTER_NS_MIN
from tokenweir.core.signals import Signals
from tokenweir.core.snapshot import Snapshot
from tokenweir.core.units import Nanos, ReplicaId, ReservationId, TicketId

REPLICAS = [ReplicaId(name) for name in ("one", "two", "three")]
# Small enough to be filled by one burst; the last pool's size is unknown until telemetry tells it.
POOLS: tuple[tuple[int | None, ...], ...] = ((600,), (1_000, 600), (1_000, 600, None))
LEASE_NS = 10 * S
ABORT_TIME_NS = 500 * MS
INTERRUPT_TIME_NS = 200 * MS
LIMITS = QueueLimits(items_max=4, debt_tokens_max=1_200, wait_ns_max=5 * S)
# The first replica's engine is known: 12 ms a step, 2 ms more per sequence and 1 ms more per 100
# tokens of context, so that seats, pace and prompts all come to bind. The others' is not.
KNOWN = EngineProfile(
    name="known",
    source="made up for these tests",
    step_ns=10 * MS,
    token_ns=10_000,
    kv_token_ns=10_000,
    sequence_ns=2 * MS,
    step_tokens_max=200,
    chunk_tokens_max=200,
    kv_tokens=1_000,
    sequences_max=4,
)
GUARDS = GuardConfig(prefill_ns_max=15 * MS, step_tokens=250, tpot_ns=20 * MS, slo_fraction=0.8)
PACE_NS_MAX = 20 * MS
REFUSALS = [code for code in ReasonCode if REASONS[code].status != 200]
NEVER_OVERRIDDEN = {ReasonCode.NO_HEALTHY_REPLICA, ReasonCode.DRAINING}

usages = st.builds(Usage, st.integers(0, 500), st.integers(0, 900))
times = st.sampled_from([0, 1, 19 * MS, 100 * MS, 400 * MS, 500 * MS, S, 2 * S, 5 * S, 11 * S])
demands = st.tuples(
    st.integers(0, 300) | st.sampled_from([100, 200, 300]),
    st.integers(1, 300) | st.sampled_from([200, 5_000]),
    st.sampled_from([None, None, None, -1, 0, 50 * MS, 2 * S, 30 * S]),
)
short_times = st.sampled_from([0, 0, 1, 100 * MS])
token_readings = st.none() | st.integers(-500, 3_000) | st.sampled_from([0, 10**12, -(10**12)])


@dataclasses.dataclass
class Hold:
    """What the model knows of one reservation."""

    replica: ReplicaId
    prompt_tokens: int
    tokens: int
    held_tokens: int
    lease_expires_ns: Nanos
    is_streaming: bool = False
    is_unread: bool = True


@dataclasses.dataclass
class Waiting:
    """What the model knows of one place in the queue."""

    tokens: int
    prompt_tokens: int
    enqueued_ns: Nanos
    expires_ns: Nanos


class AdmitterMachine(RuleBasedStateMachine):
    """Any interleaving of what a driver may call, each call followed by ``advance``."""

    policy_name = "ledger"

    def __init__(self) -> None:
        super().__init__()
        self.policy = small_policy(self.policy_name)
        self.now_ns = 0
        self.ids = 0
        self.steps = 0
        self.is_draining = False
        self.open: dict[ReservationId, Hold] = {}
        self.lost: dict[ReservationId, Hold] = {}
        self.settled: dict[ReservationId, Settlement] = {}
        self.released: list[ReservationId] = []
        self.draining: list[tuple[Nanos, Hold]] = []
        self.waiting: dict[TicketId, Waiting] = {}
        self.healthy: dict[ReplicaId, bool] = {}
        self.kv_tokens: dict[ReplicaId, int | None] = {}
        self.has_always_enforced = True

    @initialize(
        has_leases=st.booleans(),
        gain=st.sampled_from([0.3, 1.0]),
        lengths=st.none() | st.lists(st.integers(1, 60), min_size=50, max_size=50),
        first_token_slo_ns=st.sampled_from([None, 100 * MS, S]),
        data=st.data(),
    )
    def start(
        self,
        has_leases: bool,
        gain: float,
        lengths: list[int] | None,
        first_token_slo_ns: Nanos | None,
        data: st.DataObject,
    ) -> None:
        """Build the admitter, with leases or without, and with lengths learned or not."""
        self.has_leases = has_leases
        if lengths is not None and isinstance(self.policy.cost, Predicted):
            for length in lengths:
                usage = Usage(1, length)
                self.policy.cost.learn(
                    request("seen"), usage, outcome=Outcome.FINISHED, now_ns=self.now_ns
                )
        config = AdmitterConfig(
            # The model is a plain list.
            ordering="fifo",
            queue=dataclasses.replace(LIMITS, first_token_slo_ns=first_token_slo_ns),
            guards=GUARDS,
            ledger=LedgerConfig(
                lease_ns=LEASE_NS if has_leases else None,
                abort_time_ns=ABORT_TIME_NS,
                interrupt_time_ns=INTERRUPT_TIME_NS,
            ),
            rate_hint_tokens_per_s=data.draw(st.sampled_from([None, 500.0])),
        )
        config = dataclasses.replace(
            config, calibration=dataclasses.replace(config.calibration, gain=gain)
        )
        self.admitter = Admitter(
            self.policy, rng=data.draw(st.randoms(use_true_random=False)), config=config
        )
        pools = data.draw(st.sampled_from(POOLS))
        for replica, kv_tokens in zip(REPLICAS, pools, strict=False):
            self.kv_tokens[replica] = kv_tokens
            self.healthy[replica] = True
            self.admitter.add_replica(
                replica, kv_tokens=kv_tokens, profile=KNOWN if replica == REPLICAS[0] else None
            )
        self.arrive_all(data.draw(st.lists(demands, min_size=4, max_size=10)))

    # --- arriving -------------------------------------------------------------------------------

    @rule(passed_ns=short_times, asked=st.lists(demands, min_size=1, max_size=8))
    def arrive(self, passed_ns: Nanos, asked: list[tuple[int, int, Nanos | None]]) -> None:
        """A burst of new requests, perhaps before a timer that was due has been served."""
        self.now_ns += passed_ns
        self.arrive_all(asked)

    def arrive_all(self, asked: list[tuple[int, int, Nanos | None]]) -> None:
        """Let requests of these sizes arrive, one after the other."""
        for prompt_tokens, output_tokens_max, deadline_in_ns in asked:
            self.ids += 1
            deadline_ns = None if deadline_in_ns is None else self.now_ns + deadline_in_ns
            self.arrive_one(
                Request(f"r{self.ids}", prompt_tokens, output_tokens_max, deadline_ns=deadline_ns)
            )
            self.advance()

    def arrive_one(self, asked: Request) -> None:
        """Check the answer to one request, and note what it holds."""
        decision = self.admitter.arrive(asked, now_ns=self.now_ns)
        estimate = self.policy.cost(asked)
        match decision:
            case Admit():
                if self.admitter.mode is Mode.ENFORCE:
                    assert not self.waiting, "overtook what waits"
                    assert decision.reason is ReasonCode.FITS
                    assert decision.overridden is None
                self.take_in(decision, prompt_tokens=asked.prompt_tokens, tokens=estimate.tokens)
            case Enqueue():
                assert self.admitter.mode is Mode.ENFORCE
                assert decision.position == len(self.waiting)
                assert self.now_ns < decision.expires_ns <= self.now_ns + LIMITS.wait_ns_max
                self.waiting[decision.ticket_id] = Waiting(
                    estimate.tokens, asked.prompt_tokens, self.now_ns, decision.expires_ns
                )
            case Reject():
                check_advice(decision)
                if self.admitter.mode is not Mode.ENFORCE:
                    assert decision.reason in NEVER_OVERRIDDEN or not any(self.healthy.values())
            case _:
                raise AssertionError(decision)

    @rule(data=st.data())
    def arrive_again(self, data: st.DataObject) -> None:
        """An id that is live, or was a short while ago, arrives again."""
        known = [*self.open, *self.lost, *self.settled, *self.released, *self.waiting]
        if known:
            asked = Request(data.draw(st.sampled_from(known)), 1, 1)
            self.refused_and_unchanged(lambda: self.admitter.arrive(asked, now_ns=self.now_ns))

    @rule(reason=st.sampled_from(REFUSALS))
    def refuse(self, reason: ReasonCode) -> None:
        """The driver refuses a request for a reason of its own."""
        self.ids += 1
        before = self.look()
        reject = self.admitter.refuse(Request(f"r{self.ids}", 10, 10), reason, now_ns=self.now_ns)
        assert reject.reason is reason
        check_advice(reject)
        assert self.look() == before
        self.advance()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """A client leaves the queue, or had left it already."""
        ticket_id = data.draw(st.sampled_from([*self.waiting, ticket("unknown")]))
        was_waiting = self.waiting.pop(ticket_id, None) is not None
        assert self.admitter.cancel(ticket_id, now_ns=self.now_ns) is was_waiting
        assert not self.admitter.cancel(ticket_id, now_ns=self.now_ns)
        self.advance()

    # --- running --------------------------------------------------------------------------------

    @rule(data=st.data())
    def first_token(self, data: st.DataObject) -> None:
        """An engine begins to answer, once or again."""
        anything = [*self.open, *self.lost, *self.settled, reservation("unknown")]
        reservation_id = data.draw(st.sampled_from(anything))
        self.admitter.first_token(reservation_id, now_ns=self.now_ns)
        if reservation_id in self.open:
            self.open[reservation_id].is_streaming = True
            self.open[reservation_id].is_unread = False
        self.advance()

    @rule(output_tokens=st.integers(0, 1_000), data=st.data())
    def progress(self, output_tokens: int, data: st.DataObject) -> None:
        """Some streams have got further; the call also names strangers and the dead."""
        replica = data.draw(st.sampled_from(list(self.healthy)))
        anything = [*self.open, *self.lost, *self.settled, reservation("unknown")]
        named = data.draw(st.lists(st.sampled_from(anything), unique=True, max_size=4))
        self.admitter.progress(replica, dict.fromkeys(named, output_tokens), now_ns=self.now_ns)
        for reservation_id in named:
            hold = self.open.get(reservation_id)
            if hold is not None and hold.replica == replica:
                if hold.prompt_tokens + output_tokens > hold.held_tokens:
                    hold.held_tokens = hold.prompt_tokens + output_tokens
                    hold.is_unread = False
                hold.lease_expires_ns = self.now_ns + LEASE_NS
        self.advance()

    # --- ending ---------------------------------------------------------------------------------

    @precondition(lambda self: self.open)
    @rule(passed_ns=short_times, usage=usages, outcome=st.sampled_from(Outcome), data=st.data())
    def settle(self, passed_ns: Nanos, usage: Usage, outcome: Outcome, data: st.DataObject) -> None:
        """A request ends, in any way, perhaps before a timer that was due has been served."""
        self.now_ns += passed_ns
        self.close(data.draw(st.sampled_from(list(self.open))), usage, outcome=outcome)
        self.advance()

    @precondition(lambda self: self.lost)
    @rule(usage=usages, outcome=st.sampled_from(Outcome), data=st.data())
    def settle_late(self, usage: Usage, outcome: Outcome, data: st.DataObject) -> None:
        """An owner thought dead settles after all: charged, and nothing is released twice."""
        reservation_id = data.draw(st.sampled_from(list(self.lost)))
        before = self.look()
        settlement = self.admitter.settle(
            reservation_id, usage, outcome=outcome, now_ns=self.now_ns
        )
        assert settlement.is_late
        assert settlement.reserved_tokens == self.lost.pop(reservation_id).tokens
        assert self.look().accounts == before.accounts
        self.settled[reservation_id] = settlement
        self.advance()

    @precondition(lambda self: self.settled)
    @rule(outcome=st.sampled_from(Outcome), data=st.data())
    def settle_twice(self, outcome: Outcome, data: st.DataObject) -> None:
        """A settle is repeated with equal usage: the recorded answer, and nothing moves."""
        reservation_id = data.draw(st.sampled_from(list(self.settled)))
        recorded = self.settled[reservation_id]
        before = self.look()
        again = self.admitter.settle(
            reservation_id, recorded.usage, outcome=outcome, now_ns=self.now_ns
        )
        assert again == recorded
        assert self.look() == before
        self.advance()

    @precondition(lambda self: self.settled)
    @rule(more=st.integers(1, 100), data=st.data())
    def settle_otherwise(self, more: int, data: st.DataObject) -> None:
        """A settle is repeated with different usage: a broken contract, and nothing moves."""
        reservation_id = data.draw(st.sampled_from(list(self.settled)))
        usage = self.settled[reservation_id].usage
        other = dataclasses.replace(usage, output_tokens=usage.output_tokens + more)
        self.refused_and_unchanged(
            lambda: self.admitter.settle(
                reservation_id, other, outcome=Outcome.FINISHED, now_ns=self.now_ns
            )
        )

    @rule(usage=usages, data=st.data())
    def settle_stranger(self, usage: Usage, data: st.DataObject) -> None:
        """What was never reserved, or was released, cannot be settled."""
        reservation_id = data.draw(st.sampled_from([*self.released, reservation("unknown")]))
        self.refused_and_unchanged(
            lambda: self.admitter.settle(
                reservation_id, usage, outcome=Outcome.FINISHED, now_ns=self.now_ns
            )
        )

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A hold is given back, which is a broken contract once the engine has answered."""
        reservation_id = data.draw(st.sampled_from(list(self.open)))
        if self.open[reservation_id].is_streaming:
            self.refused_and_unchanged(
                lambda: self.admitter.release(reservation_id, now_ns=self.now_ns)
            )
            return
        self.admitter.release(reservation_id, now_ns=self.now_ns)
        del self.open[reservation_id]
        self.released.append(reservation_id)
        self.advance()

    @precondition(lambda self: self.lost or self.settled or self.released)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        """What is closed cannot be released."""
        closed = [*self.lost, *self.settled, *self.released]
        reservation_id = data.draw(st.sampled_from(closed))
        self.refused_and_unchanged(
            lambda: self.admitter.release(reservation_id, now_ns=self.now_ns)
        )

    # --- telemetry, time and operators ----------------------------------------------------------

    @rule(
        age_ns=times | st.just(-5 * S),
        is_healthy=st.sampled_from([True] * 5 + [False]),
        kv_used_tokens=token_readings,
        kv_tokens=st.none() | st.sampled_from([-1, 0, 500, 1_000]),
        waiting_prompt_tokens=token_readings,
        preemptions_total=st.none() | st.integers(0, 3),
        data=st.data(),
    )
    def observe(
        self,
        age_ns: Nanos,
        is_healthy: bool,
        kv_used_tokens: int | None,
        kv_tokens: int | None,
        waiting_prompt_tokens: int | None,
        preemptions_total: int | None,
        data: st.DataObject,
    ) -> None:
        """Telemetry comes: true, stale, from the future, zero or garbage. No hold moves."""
        replica = data.draw(st.sampled_from(list(self.healthy)))
        before = self.look()
        signals = Signals(
            replica,
            scraped_ns=self.now_ns - age_ns,
            is_healthy=is_healthy,
            kv_used_tokens=kv_used_tokens,
            kv_tokens=kv_tokens,
            waiting_prompt_tokens=waiting_prompt_tokens,
            preemptions_total=preemptions_total,
        )
        self.admitter.observe(signals, now_ns=self.now_ns)
        self.healthy[replica] = is_healthy
        if is_healthy and kv_tokens is not None and kv_tokens > 0:
            self.kv_tokens[replica] = kv_tokens
        after = self.look()
        assert after.used_tokens == before.used_tokens
        assert [a.held_tokens for a in after.accounts] == [a.held_tokens for a in before.accounts]
        assert [a.kv_tokens for a in after.accounts] == list(self.kv_tokens.values())
        self.advance()

    @rule(passed_ns=times)
    def wait(self, passed_ns: Nanos) -> None:
        """Time passes: leases run out, waits end, aborted work is gone."""
        self.now_ns += passed_ns
        self.advance()

    @rule()
    def wake_up(self) -> None:
        """The driver sleeps until the core asked to be woken."""
        due_ns = self.admitter.next_wakeup_ns()
        if due_ns is not None:
            self.now_ns = due_ns
            self.advance()

    @rule(mode=st.sampled_from([Mode.ENFORCE] * 3 + [Mode.OBSERVE, Mode.BYPASS]))
    def switch(self, mode: Mode) -> None:
        """An operator switches the mode."""
        self.admitter.mode = mode
        self.has_always_enforced &= mode is Mode.ENFORCE
        self.advance()

    @precondition(lambda self: self.steps > 80)
    @rule()
    def drain(self) -> None:
        """The pool is shut down; what runs may finish."""
        self.admitter.drain(now_ns=self.now_ns)
        self.is_draining = True
        self.advance()

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def ledger_adds_up(self) -> None:
        """INV-LEDGER-1: each account is the sum of what the model has open on it."""
        self.admitter.check_invariants()
        for view in self.look().accounts:
            mine = [hold for hold in self.open.values() if hold.replica == view.replica]
            draining = [hold for _, hold in self.draining if hold.replica == view.replica]
            assert view.in_flight == len(mine)
            assert view.reserved_tokens == sum(hold.tokens for hold in mine)
            assert view.held_tokens == sum(hold.held_tokens for hold in mine)
            assert view.draining_tokens == sum(hold.held_tokens for hold in draining)

    @invariant()
    def prompts_are_read_or_unread(self) -> None:
        """INV-LEDGER-1: what is unread and who decodes are sums like the others."""
        for replica, account in self.admitter._ledger.accounts.items():
            mine = self.open_on(replica)
            assert account.prefill_tokens == sum(h.prompt_tokens for h in mine if h.is_unread)
            assert account.decoding == sum(not hold.is_unread for hold in mine)

    @invariant()
    def batch_is_what_is_open(self) -> None:
        """INV-LEDGER-4: the batch has the open reservations, each with what it holds."""
        for replica, account in self.admitter._ledger.accounts.items():
            mine = self.open_on(replica)
            assert (account.batch is not None) is self.policy.capacity.tracks_batch
            if account.batch is not None:
                assert len(account.batch) == len(mine)
                assert account.batch.held_tokens == sum(hold.held_tokens for hold in mine)
                assert account.batch.peak_tokens() >= account.held_tokens

    @invariant()
    def predictions_are_of_what_is_open(self) -> None:
        """INV-ADMITTER-2: nothing is remembered of what is closed, lost or never began."""
        assert set(self.admitter._open) == set(self.open)

    @invariant()
    def holdings_are_of_what_is_open(self) -> None:
        """INV-TENANT-1: a tenant holds what is open of it, and nobody else is known."""
        holdings = self.admitter._open.holdings
        reserved = sum(view.reserved_tokens for view in self.look().accounts)
        assert holdings.in_flight("default") == len(self.open)
        assert holdings.tokens("default") == reserved
        assert len(holdings) == bool(self.open)

    @invariant()
    def queue_keeps_its_bounds(self) -> None:
        """INV-QUEUE-1 and 2: items, debt and waits are bounded, and the debt is the sum."""
        seen = self.look()
        debt_tokens = sum(entry.tokens for entry in self.waiting.values())
        assert seen.queued == len(self.waiting) <= LIMITS.items_max
        assert seen.queue_debt_tokens == debt_tokens
        assert LIMITS.debt_tokens_max is not None
        assert debt_tokens <= LIMITS.debt_tokens_max
        assert all(entry.expires_ns > self.now_ns for entry in self.waiting.values())

    @invariant()
    def wakeup_is_the_next_thing_due(self) -> None:
        """The driver is woken for exactly what will happen by itself."""
        due = [until_ns for until_ns, _ in self.draining]
        due += [entry.expires_ns for entry in self.waiting.values()]
        if self.has_leases:
            due += [hold.lease_expires_ns for hold in self.open.values()]
        wakeup_ns = self.admitter.next_wakeup_ns()
        if self.policy.is_guarded and self.waiting and wakeup_ns not in due:
            # A prompt will have been read, so that the next one may enter.
            assert wakeup_ns is not None
            assert self.now_ns < wakeup_ns < min(due)
        else:
            assert wakeup_ns == (min(due) if due else None)

    @invariant()
    def cap_holds(self) -> None:
        """A concurrency cap is a hard cap for as long as it binds."""
        if self.policy.name == "concurrency" and self.has_always_enforced:
            assert all(a.in_flight <= SMALL_IN_FLIGHT_MAX for a in self.look().accounts)

    def teardown(self) -> None:
        """INV-LEDGER-3: when all is closed and time has passed, nothing is left."""
        if not hasattr(self, "admitter"):
            return
        if not self.has_leases:
            for _ in range(LIMITS.items_max + 1):
                for reservation_id in list(self.open):
                    self.close(reservation_id, Usage(1, 1), outcome=Outcome.CANCELLED)
                self.advance()
        for _ in range(3 + LIMITS.items_max):
            self.now_ns += LEASE_NS
            self.advance()
        if not self.has_leases:
            for reservation_id in list(self.open):
                self.close(reservation_id, Usage(1, 1), outcome=Outcome.FINISHED)
            self.advance()
        seen = self.look()
        assert seen.used_tokens == 0
        assert all(a.in_flight == a.held_tokens == 0 for a in seen.accounts)
        assert seen.queued == seen.queue_debt_tokens == 0
        assert self.admitter.next_wakeup_ns() is None
        assert not self.admitter._open
        self.admitter.check_invariants()

    # --- the model ------------------------------------------------------------------------------

    def look(self) -> Snapshot:
        """Return the admitter's own view."""
        return self.admitter.snapshot(now_ns=self.now_ns)

    def open_on(self, replica: ReplicaId) -> list[Hold]:
        """Return what the model has open on a replica."""
        return [hold for hold in self.open.values() if hold.replica == replica]

    def guards_let_in(
        self, prompt_tokens: int, *, tokens: int, replica: ReplicaId, is_first_read: bool
    ) -> bool:
        """Say in plain words whether first token and pace allow one more on a replica.

        Of the prompt that is being read nobody knows how much is left: all of it, or nothing.
        """
        if not self.policy.is_guarded:
            return True
        mine = self.open_on(replica)
        prompts = [hold.prompt_tokens for hold in mine if hold.is_unread]
        unread = sum(prompts)
        if replica != REPLICAS[0]:
            return unread <= 250
        held = sum(hold.held_tokens for hold in mine)
        decoding = sum(not hold.is_unread for hold in mine)
        step_ns = 12 * MS + held * MS // 100 + (decoding + 1) * 2 * MS
        can_read = (200 - decoding) * 15 * MS // step_ns
        brought = prompt_tokens + sum(hold.prompt_tokens for hold in mine)
        produced = tokens + sum(hold.tokens for hold in mine) - brought
        step_tokens = min(200, (len(mine) + 1) * (1 + brought / max(1, produced)))
        pace_ns = int(
            10 * MS
            + step_tokens * 10_000
            + (held + prompt_tokens) * 10_000
            + (len(mine) + 1) * 2 * MS
        )
        has_pace = not mine or (len(mine) < 4 and pace_ns <= PACE_NS_MAX)
        if is_first_read:
            unread -= prompts[0] if prompts else 0
        return unread <= max(200, can_read) and has_pace

    def refused_and_unchanged(self, call: object) -> None:
        """Check that a call breaks the contract and changes nothing."""
        assert callable(call)
        before = self.look(), self.admitter.counts.copy(), self.admitter.next_wakeup_ns()
        with pytest.raises(ContractError):
            call()
        assert before == (self.look(), self.admitter.counts, self.admitter.next_wakeup_ns())
        self.advance()

    def take_in(self, admit: Admit, *, prompt_tokens: int, tokens: int) -> None:
        """Note an admission, and check that what it entered had room (INV-ADMITTER-1)."""
        assert admit.reserved_tokens == tokens
        is_let_in = self.guards_let_in(
            prompt_tokens, tokens=tokens, replica=admit.replica, is_first_read=True
        )
        self.open[admit.reservation_id] = Hold(
            admit.replica, prompt_tokens, tokens, prompt_tokens, self.now_ns + LEASE_NS
        )
        if self.admitter.mode is not Mode.ENFORCE:
            return
        assert self.healthy[admit.replica]
        assert is_let_in
        mine = [hold for hold in self.open.values() if hold.replica == admit.replica]
        if self.policy.name == "concurrency":
            assert len(mine) <= SMALL_IN_FLIGHT_MAX
        kv_tokens = self.kv_tokens[admit.replica]
        if self.policy.name == "ledger" and kv_tokens is not None:
            assert sum(hold.tokens for hold in mine) <= int(kv_tokens * 0.95)

    def close(self, reservation_id: ReservationId, usage: Usage, *, outcome: Outcome) -> None:
        """Settle in both worlds."""
        settlement = self.admitter.settle(
            reservation_id, usage, outcome=outcome, now_ns=self.now_ns
        )
        hold = self.open.pop(reservation_id)
        expected = Settlement(reservation_id, hold.tokens, usage, outcome)
        assert settlement == expected
        self.settled[reservation_id] = settlement
        if outcome.is_early:
            drains_ns = INTERRUPT_TIME_NS if outcome is Outcome.INTERRUPTED else ABORT_TIME_NS
            self.draining.append((self.now_ns + drains_ns, hold))

    def advance(self) -> None:
        """Advance both worlds; the effects must be those that the model expects, in order."""
        self.steps += 1
        effects = self.admitter.advance(now_ns=self.now_ns)
        self.check_lost([e for e in effects if isinstance(e, LeaseLost)])
        self.draining = [row for row in self.draining if row[0] > self.now_ns]
        self.check_expired([e for e in effects if isinstance(e, Expire)])
        self.check_dispatched([e for e in effects if isinstance(e, Dispatch)])
        for effect in effects:
            if isinstance(effect, DriftAlarm):
                assert effect.drift_tokens != 0
        self.check_head_does_not_fit()
        assert self.admitter.advance(now_ns=self.now_ns) == ()

    def check_lost(self, effects: Iterable[LeaseLost]) -> None:
        """Every lease that ran out is lost, and no other."""
        expected = {
            reservation_id
            for reservation_id, hold in self.open.items()
            if self.has_leases and hold.lease_expires_ns <= self.now_ns
        }
        assert {effect.reservation_id for effect in effects} == expected
        for reservation_id in expected:
            self.lost[reservation_id] = self.open.pop(reservation_id)

    def check_expired(self, effects: Iterable[Expire]) -> None:
        """Every wait that is over is told so with advice, and no other."""
        expected = {
            ticket_id
            for ticket_id, entry in self.waiting.items()
            if self.is_draining or entry.expires_ns <= self.now_ns
        }
        assert {effect.ticket_id for effect in effects} == expected
        for effect in effects:
            entry = self.waiting.pop(effect.ticket_id)
            check_advice(effect.reject)
            assert effect.queue_wait_ns == self.now_ns - entry.enqueued_ns

    def check_dispatched(self, effects: list[Dispatch]) -> None:
        """What is dispatched is the front of the queue, in order."""
        assert [effect.ticket_id for effect in effects] == list(self.waiting)[: len(effects)]
        for effect in effects:
            entry = self.waiting.pop(effect.ticket_id)
            assert effect.queue_wait_ns == self.now_ns - entry.enqueued_ns < LIMITS.wait_ns_max
            self.take_in(effect.admit, prompt_tokens=entry.prompt_tokens, tokens=entry.tokens)

    def check_head_does_not_fit(self) -> None:
        """Work conserving: the head waits only where no healthy replica has room for it."""
        head = self.admitter._queue.head()
        if head is None:
            return
        capacity: CapacityTest = self.policy.capacity
        for account in self.admitter._ledger.accounts.values():
            if account.is_healthy:
                assert capacity.shortage(
                    head.entry.estimate, account
                ) is not None or not self.guards_let_in(
                    head.entry.estimate.prompt_tokens,
                    tokens=head.entry.estimate.tokens,
                    replica=account.replica,
                    is_first_read=False,
                )


def check_advice(reject: Reject) -> None:
    """Check that a retryable refusal says when, or how long it would be."""
    if not reject.row.is_retryable:
        assert reject.retry_after_ns is None
    elif reject.retry_after_ns is None:
        assert reject.wait_ns is not None
    else:
        assert RETRY_AFTER_NS_MIN <= reject.retry_after_ns <= RETRY_AFTER_NS_MAX


# A run takes seconds; to shrink a failure takes hypothesis up to five minutes.
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", POLICIES)
def test_ledger_when_calls_interleave_then_it_adds_up_and_ends_at_zero(name: str) -> None:
    """No order of calls, telemetry and time makes an account wrong, negative or left over."""

    class Machine(AdmitterMachine):
        policy_name = name

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
