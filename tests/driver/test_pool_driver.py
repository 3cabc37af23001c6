"""The driver carries out what the core decides, and gives back whatever a caller drops."""

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.polling import eventually
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.classes import CLASSES, Interruptible
from tokenweir.core.decision import Reject
from tokenweir.core.ledger import LedgerConfig, Settlement
from tokenweir.core.mode import Mode
from tokenweir.core.policy import policy
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Priority, Request, Usage
from tokenweir.core.signals import Signals
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos, ReplicaId
from tokenweir.driver.flight import Flight
from tokenweir.driver.pool import PoolDriver
from tokenweir.ports.events import UpstreamFault, Verdict

REPLICA = ReplicaId("one")


class HandClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_ns: Nanos = NS_PER_S

    def __call__(self) -> Nanos:
        return self.now_ns


@dataclass
class Events:
    """Keeps what it is told."""

    settlements: list[Settlement] = field(default_factory=list)
    lost: int = 0
    first_tokens: int = 0
    interrupted_begun: list[bool] = field(default_factory=list)
    observed: list[ReasonCode] = field(default_factory=list)

    def decided(self, verdict: Verdict, reason: ReasonCode) -> None: ...

    def observed_only(self, reason: ReasonCode) -> None:
        self.observed.append(reason)

    def waited(self, queue_wait_ns: Nanos) -> None: ...

    def first_token(self, ttft_ns: Nanos) -> None:
        self.first_tokens += 1

    def prompt_counted(self, estimated_tokens: int, *, counted_tokens: int) -> None: ...

    def settled(self, settlement: Settlement) -> None:
        self.settlements.append(settlement)

    def interrupted(self, *, was_begun: bool) -> None:
        self.interrupted_begun.append(was_begun)

    def lease_lost(self, replica: ReplicaId) -> None:
        self.lost += 1

    def drift_alarm(self, replica: ReplicaId) -> None: ...

    def upstream_fault(self, replica: ReplicaId, fault: UpstreamFault) -> None: ...


@dataclass
class Bench:
    """A driver, its clock, its core and what it told."""

    driver: PoolDriver
    clock: HandClock
    core: Admitter
    events: Events

    def check(self) -> None:
        """Everything adds up."""
        self.core.check_invariants()


def bench(*, kv_tokens: int = 1_000, items: int = 100, abort_ns: Nanos = 0) -> Bench:
    """A pool of one replica under the policy ``ledger``, whose sums are easy to follow."""
    clock, events = HandClock(), Events()
    config = AdmitterConfig(
        queue=QueueLimits(items_max=items), ledger=LedgerConfig(abort_time_ns=abort_ns)
    )
    core = Admitter(policy("ledger"), rng=random.Random(7), config=config)
    core.add_replica(REPLICA, kv_tokens=kv_tokens)
    return Bench(PoolDriver("p", core, clock=clock, events=events), clock, core, events)


@pytest.fixture
async def pool() -> AsyncIterator[Bench]:
    """A started driver; its ledger adds up at the end."""
    built = bench()
    built.driver.start()
    yield built
    built.check()
    built.driver.stop()


def request(name: str, tokens: int = 900) -> Request:
    """A request of so many tokens."""
    return Request(name, tokens - 10, 10)


async def flight_of(pool: Bench, name: str, tokens: int = 900) -> Flight:
    """A flight that is let in at once."""
    flight = await pool.driver.admit(request(name, tokens))
    assert isinstance(flight, Flight)
    return flight


async def waiting(pool: Bench, name: str, tokens: int = 900) -> asyncio.Task[Flight | Reject]:
    """A request that is in the queue."""
    before = pool.driver.snapshot().queued
    task = asyncio.create_task(pool.driver.admit(request(name, tokens)))
    await asyncio.sleep(0)
    assert pool.driver.snapshot().queued == before + 1
    return task


async def test_waiter_when_room_is_made_then_dispatched_in_the_same_moment(pool: Bench) -> None:
    """Settling and dispatching are one critical section."""
    first = await flight_of(pool, "a")
    second = await waiting(pool, "b")
    pool.clock.now_ns += 30 * NS_PER_MS
    first.settle(Usage(5, 5), outcome=Outcome.FINISHED)
    assert pool.driver.snapshot().accounts[0].reserved_tokens == 900
    flight = await second
    assert isinstance(flight, Flight)
    assert flight.was_queued
    assert flight.queue_wait_ns == 30 * NS_PER_MS
    flight.settle(Usage(1, 1), outcome=Outcome.FINISHED)
    assert pool.driver.snapshot().used_tokens == 0


async def test_waiter_when_cancelled_then_gone_from_the_queue_at_once(pool: Bench) -> None:
    """No place is kept for who has left, and no reservation made."""
    first = await flight_of(pool, "a")
    second = await waiting(pool, "b")
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert pool.driver.snapshot().queued == 0
    assert pool.core.counts["cancelled_in_queue"] == 1
    first.settle(Usage(1, 1), outcome=Outcome.FINISHED)
    assert pool.driver.snapshot().used_tokens == 0
    assert pool.core.counts["admitted"] == 1


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_waiter_when_cancelled_as_it_is_dispatched_then_the_hold_is_given_back(
    pool: Bench, cancel_first: bool
) -> None:
    """Both orders of the race within one turn of the loop leave nothing held."""
    first = await flight_of(pool, "a")
    second = await waiting(pool, "b")
    third = await waiting(pool, "c")
    if cancel_first:
        second.cancel()
        first.settle(Usage(1, 1), outcome=Outcome.FINISHED)
    else:
        first.settle(Usage(1, 1), outcome=Outcome.FINISHED)
        second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    flight = await third
    assert isinstance(flight, Flight)
    flight.release()
    assert pool.driver.snapshot().used_tokens == 0


async def test_waiter_when_its_time_is_over_then_refused_by_the_timer() -> None:
    """Nobody calls, and the refusal comes all the same."""
    built = bench()
    built.driver.start()
    try:
        first = await flight_of(built, "a")
        second = await waiting(built, "b")
        built.clock.now_ns += 6 * NS_PER_S
        async with asyncio.timeout(5):
            answer = await second
        assert isinstance(answer, Reject)
        assert answer.reason is ReasonCode.QUEUE_TIMEOUT
        first.settle(Usage(1, 1), outcome=Outcome.FINISHED)
    finally:
        built.driver.stop()


async def test_drain_when_begun_then_waiters_are_refused_and_runners_awaited(pool: Bench) -> None:
    """What runs may finish; nothing new begins."""
    first = await flight_of(pool, "a")
    second = await waiting(pool, "b")
    pool.driver.begin_drain()
    refused = await second
    assert isinstance(refused, Reject)
    assert refused.reason is ReasonCode.DRAINING
    newcomer = await pool.driver.admit(request("c"))
    assert isinstance(newcomer, Reject)
    idle = asyncio.create_task(pool.driver.wait_idle())
    await asyncio.sleep(0)
    assert not idle.done()
    first.settle(Usage(1, 1), outcome=Outcome.FINISHED)
    async with asyncio.timeout(1):
        await idle


async def test_flight_when_closed_twice_then_counted_once(pool: Bench) -> None:
    """A finally may close blindly."""
    flight = await flight_of(pool, "a")
    flight.settle(Usage(3, 4), outcome=Outcome.FINISHED)
    flight.settle(Usage(9, 9), outcome=Outcome.CANCELLED)
    flight.release()
    assert [settlement.usage for settlement in pool.events.settlements] == [Usage(3, 4)]


async def test_stream_when_it_moves_then_progress_is_held(pool: Bench) -> None:
    """Counted output reaches the ledger within a tick, without a call per chunk."""
    flight = await flight_of(pool, "a", 500)
    flight.is_streamed = True
    flight.output_tokens = 7
    await eventually(lambda: pool.driver.snapshot().accounts[0].held_tokens == 497)
    flight.settle(Usage(490, 7), outcome=Outcome.FINISHED)


async def test_answer_when_not_streamed_then_grows_by_the_pace(pool: Bench) -> None:
    """What nobody can count is guessed from the time, up to the maximum."""
    flight = await flight_of(pool, "a", 500)
    pool.clock.now_ns += 200 * NS_PER_MS
    await eventually(lambda: pool.driver.snapshot().accounts[0].held_tokens == 494)
    pool.clock.now_ns += 2 * NS_PER_S
    await eventually(lambda: pool.driver.snapshot().accounts[0].held_tokens == 500)
    flight.settle(Usage(490, 7), outcome=Outcome.FINISHED)


async def test_lease_when_the_owner_lives_then_never_lost(pool: Bench) -> None:
    """A stream that says nothing for a minute is renewed all the same."""
    flight = await flight_of(pool, "a")
    flight.is_streamed = True
    for _ in range(15):
        pool.clock.now_ns += 4 * NS_PER_S
        pool.driver.observe(Signals(REPLICA, scraped_ns=pool.clock.now_ns))
    assert pool.events.lost == 0
    assert pool.driver.snapshot().accounts[0].in_flight == 1
    flight.settle(Usage(1, 1), outcome=Outcome.FINISHED)


async def test_lease_when_the_process_was_stopped_then_renewed_before_it_is_looked_at(
    pool: Bench,
) -> None:
    """After a stop of a minute the first call renews before it advances."""
    flight = await flight_of(pool, "a")
    pool.clock.now_ns += 60 * NS_PER_S
    pool.driver.observe(Signals(REPLICA, scraped_ns=pool.clock.now_ns))
    assert pool.events.lost == 0
    flight.settle(Usage(1, 1), outcome=Outcome.FINISHED)


async def test_flight_when_its_lease_was_lost_then_closing_it_still_works() -> None:
    """A driver without timers stands for a dead owner; its late ends are no bug."""
    built = bench()
    first, second = await flight_of(built, "a", 400), await flight_of(built, "b", 400)
    built.clock.now_ns += 11 * NS_PER_S
    built.driver.observe(Signals(REPLICA, scraped_ns=built.clock.now_ns))
    assert built.events.lost == 2
    assert built.driver.snapshot().used_tokens == 0
    first.settle(Usage(1, 1), outcome=Outcome.FINISHED)
    second.release()
    assert [settlement.is_late for settlement in built.events.settlements] == [True]
    built.check()


async def test_mode_when_switched_to_bypass_then_the_queue_empties(pool: Bench) -> None:
    """The switch that lets everything through does so for who waits, too."""
    first = await flight_of(pool, "a")
    second = await waiting(pool, "b")
    pool.driver.switch(Mode.BYPASS)
    flight = await second
    assert isinstance(flight, Flight)
    for each in (first, flight):
        each.settle(Usage(1, 1), outcome=Outcome.FINISHED)


async def test_observe_when_it_would_have_refused_then_it_tells(pool: Bench) -> None:
    """What was let through only because nothing binds is counted."""
    pool.driver.switch(Mode.OBSERVE)
    first = await flight_of(pool, "a")
    second = await flight_of(pool, "b")
    assert pool.events.observed == [ReasonCode.WAITING]
    for each in (first, second):
        each.settle(Usage(1, 1), outcome=Outcome.FINISHED)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["arrive", "cancel", "settle", "release", "run"]), st.integers(0)
        ),
        max_size=60,
    )
)
def test_driver_when_callers_come_and_go_then_the_ledger_ends_at_zero(
    steps: list[tuple[str, int]],
) -> None:
    """Any interleaving of arrivals, cancellations and ends leaves nothing held or waiting."""

    async def play() -> None:
        built = bench(items=8)
        tasks: list[asyncio.Task[Flight | Reject]] = []
        for index, (step, pick) in enumerate(steps):
            built.clock.now_ns += NS_PER_MS
            if step == "arrive":
                size = 100 + pick % 800
                tasks.append(asyncio.create_task(built.driver.admit(request(f"r{index}", size))))
            elif step == "cancel" and tasks:
                tasks[pick % len(tasks)].cancel()
            elif step == "run":
                await asyncio.sleep(0)
            elif tasks:
                end_one(tasks[pick % len(tasks)], step)
            built.check()
        for task in tasks:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Flight):
                answer.settle(Usage(1, 1), outcome=Outcome.CANCELLED)
        built.check()
        assert built.driver.snapshot().used_tokens == 0
        assert built.driver.snapshot().queued == 0
        assert built.driver.open_count() == 0

    asyncio.run(play())


def end_one(task: asyncio.Task[Flight | Reject], step: str) -> None:
    """Close the flight that a task got, if it has got one."""
    if not task.done() or task.cancelled():
        return
    answer = task.result()
    if isinstance(answer, Flight):
        if step == "settle":
            answer.settle(Usage(2, 2), outcome=Outcome.FINISHED)
        else:
            answer.release()


async def test_waiter_when_cancelled_as_it_is_dispatched_then_time_does_not_go_back() -> None:
    """Every call of one critical section may look at the clock: each finds it further on."""

    class RunningClock(HandClock):
        def __call__(self) -> Nanos:
            self.now_ns += 1
            return self.now_ns

    clock, events = RunningClock(), Events()
    core = Admitter(policy("ledger"), rng=random.Random(7))
    core.add_replica(REPLICA, kv_tokens=1_000)
    built = Bench(PoolDriver("p", core, clock=clock, events=events), clock, core, events)
    first = await flight_of(built, "a")
    second = await waiting(built, "b")
    first.settle(Usage(1, 1), outcome=Outcome.FINISHED)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert built.driver.snapshot().accounts[0].in_flight == 0
    built.check()


@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.OBSERVE])
async def test_bypass_when_toggled_twice_then_the_mode_before_it_is_back(
    pool: Bench, mode: Mode
) -> None:
    """Whoever only observed does not suddenly enforce."""
    pool.driver.switch(mode)
    pool.driver.toggle_bypass()
    assert pool.driver.mode is Mode.BYPASS
    pool.driver.toggle_bypass()
    assert pool.driver.mode is mode


def bench_of_classes(interruptible: Interruptible, *, items: int = 10) -> Bench:
    """A pool of 1,000 tokens in which urgent requests need not wait for an end of P2."""
    classes = dict(CLASSES)
    classes[Priority.P2] = dataclasses.replace(
        classes[Priority.P2], interruptible=interruptible, ceiling_fraction=1.0
    )
    clock, events = HandClock(), Events()
    config = AdmitterConfig(
        queue=QueueLimits(items_max=items, classes=classes),
        ledger=LedgerConfig(abort_time_ns=0),
        rate_hint_tokens_per_s=100.0,
    )
    core = Admitter(policy("ledger"), rng=random.Random(7), config=config)
    core.add_replica(REPLICA, kv_tokens=1_000)
    return Bench(PoolDriver("p", core, clock=clock, events=events), clock, core, events)


def classed(name: str, priority: Priority) -> Request:
    """A request of 900 tokens."""
    return Request(name, 890, 10, priority=priority)


async def test_flight_when_put_back_then_its_owner_is_called_and_gets_another() -> None:
    """The time to the first token counts from when it came first."""
    pool = bench_of_classes(Interruptible.BEFORE_FIRST_BYTE)
    pool.driver.start()
    batch = await pool.driver.admit(classed("batch", Priority.P2))
    assert isinstance(batch, Flight)
    calls: list[bool] = []
    batch.on_interrupt = lambda: calls.append(batch.is_stopped)
    pool.clock.now_ns += NS_PER_S
    urgent = await pool.driver.admit(classed("urgent", Priority.P0))
    assert isinstance(urgent, Flight)
    assert calls == [True]
    assert not batch.is_open
    assert pool.events.interrupted_begun == [False]
    # Closing it again, as a finally does, closes nothing of what is to come.
    batch.settle(Usage(1, 1), outcome=Outcome.CANCELLED)
    again = asyncio.create_task(pool.driver.wait_again(batch))
    await asyncio.sleep(0)
    urgent.settle(Usage(890, 10), outcome=Outcome.FINISHED)
    flight = await again
    assert isinstance(flight, Flight)
    assert flight.arrived_ns == batch.arrived_ns
    assert flight.reservation_id == batch.reservation_id
    flight.settle(Usage(890, 10), outcome=Outcome.FINISHED)
    assert pool.driver.snapshot().used_tokens == 0
    assert pool.driver.open_count() == 0
    pool.driver.stop()


@pytest.mark.parametrize("moment", ["waits", "dispatched"])
async def test_flight_when_put_back_and_abandoned_then_its_place_is_given_up(moment: str) -> None:
    """Its owner's caller left meanwhile: neither a place nor a hold stays behind."""
    pool = bench_of_classes(Interruptible.BEFORE_FIRST_BYTE)
    pool.driver.start()
    batch = await pool.driver.admit(classed("batch", Priority.P2))
    assert isinstance(batch, Flight)
    pool.driver.abandon(batch)
    assert batch.is_open
    urgent = await pool.driver.admit(classed("urgent", Priority.P0))
    assert isinstance(urgent, Flight)
    if moment == "dispatched":
        urgent.settle(Usage(890, 10), outcome=Outcome.FINISHED)
        assert pool.driver.open_count() == 1
    pool.driver.abandon(batch)
    urgent.settle(Usage(890, 10), outcome=Outcome.FINISHED)
    assert pool.driver.snapshot().queued == 0
    assert pool.driver.snapshot().used_tokens == 0
    assert pool.driver.open_count() == 0
    pool.driver.stop()


async def test_waiter_when_dispatched_put_back_and_cancelled_then_nothing_is_held() -> None:
    """Its flight was put back before it could be taken."""
    pool = bench_of_classes(Interruptible.BEFORE_FIRST_BYTE)
    pool.driver.start()
    first = await pool.driver.admit(classed("first", Priority.P1))
    assert isinstance(first, Flight)
    waiter = asyncio.create_task(pool.driver.admit(classed("batch", Priority.P2)))
    await asyncio.sleep(0)
    assert pool.driver.snapshot().queued == 1
    first.settle(Usage(890, 10), outcome=Outcome.FINISHED)
    # Dispatched, and not resumed yet.
    urgent = pool.driver._arrive(classed("urgent", Priority.P0), now_ns=pool.clock())
    assert isinstance(urgent, asyncio.Future)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    # At once, and not when its turn comes.
    assert pool.driver.snapshot().queued == 0
    flight = await urgent
    assert isinstance(flight, Flight)
    flight.settle(Usage(890, 10), outcome=Outcome.FINISHED)
    assert pool.driver.snapshot().queued == 0
    assert pool.driver.snapshot().used_tokens == 0
    assert pool.driver.open_count() == 0
    pool.driver.stop()


@pytest.mark.parametrize(
    ("interruptible", "is_streamed", "is_told"),
    [
        (Interruptible.ALWAYS, True, True),
        (Interruptible.ALWAYS, False, False),
        (Interruptible.BEFORE_FIRST_BYTE, True, False),
    ],
)
async def test_flight_when_its_client_reads_already_then_told_or_spared(
    interruptible: Interruptible, is_streamed: bool, is_told: bool
) -> None:
    """Only a stream, and only where its class says so; the core need not know that it began."""
    pool = bench_of_classes(interruptible)
    pool.driver.start()
    batch = await pool.driver.admit(classed("batch", Priority.P2))
    assert isinstance(batch, Flight)
    batch.is_begun, batch.is_streamed, batch.output_tokens = True, is_streamed, 4
    asking = asyncio.create_task(pool.driver.admit(classed("urgent", Priority.P0)))
    await asyncio.sleep(0)
    assert batch.is_open is not is_told
    assert batch.again is None
    if is_told:
        assert batch.interrupted is not None
        assert batch.interrupted.reason is ReasonCode.INTERRUPTED
        assert batch.interrupted.advised_ns is not None
        (settlement,) = pool.events.settlements
        assert (settlement.outcome, settlement.usage) == (Outcome.INTERRUPTED, Usage(890, 4))
    else:
        batch.settle(Usage(890, 10), outcome=Outcome.FINISHED)
    urgent = await asking
    assert isinstance(urgent, Flight)
    urgent.settle(Usage(890, 10), outcome=Outcome.FINISHED)
    assert pool.driver.snapshot().used_tokens == 0
    pool.driver.stop()
