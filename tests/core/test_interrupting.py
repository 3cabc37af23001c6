"""Who gives way to an urgent request that would be refused otherwise, and what that costs whom."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.support import MS, ONE, TWO, FixedRng, S, reservation, settle, small_policy
from tests.core.test_admitter_tenants import ask, entered
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.classes import CLASSES, Interruptible
from tokenweir.core.decision import Admit, Dispatch, Effect, Enqueue, Expire, Interrupt, Reject
from tokenweir.core.errors import ConfigError, ContractError
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.mode import Mode
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Priority, Request, Usage
from tokenweir.core.returns import ReturnConfig, ReturnDesk
from tokenweir.core.units import ReplicaId

P0, P1, P2, P3 = Priority.P0, Priority.P1, Priority.P2, Priority.P3
USED = Usage(50, 50)
# At this rate nobody is in time who has to wait for anything.
SLOW_TOKENS_PER_S = 10.0


def pool(
    *,
    policy: str = "ledger",
    interruptible: Interruptible = Interruptible.BEFORE_FIRST_BYTE,
    rate: float | None = SLOW_TOKENS_PER_S,
    items_max: int = 100,
    replicas: tuple[ReplicaId, ...] = (ONE,),
    abort_time_ns: int = 500 * MS,
) -> Admitter:
    """Build an admitter over replicas of 1,000 tokens whose P2 may be interrupted so far."""
    classes = {
        priority: dataclasses.replace(
            row,
            ceiling_fraction=1.0,
            interruptible=interruptible if priority >= P2 else row.interruptible,
        )
        for priority, row in CLASSES.items()
    }
    config = AdmitterConfig(
        queue=QueueLimits(items_max=items_max, classes=classes),
        ledger=LedgerConfig(lease_ns=None, abort_time_ns=abort_time_ns),
        rate_hint_tokens_per_s=rate,
        returns=None,
    )
    admitter = Admitter(small_policy(policy), rng=FixedRng(), config=config)
    for replica in replicas:
        admitter.add_replica(replica, kv_tokens=1_000)
    return admitter


def running(admitter: Admitter, name: str, *, tokens: int, priority: Priority = P2) -> None:
    """Let a request run."""
    decision = ask(admitter, name, tokens=tokens, priority=priority)
    assert isinstance(decision, Admit), decision


def interrupted(effects: tuple[Effect, ...]) -> list[str]:
    """Return who gives way, in order."""
    return [effect.reservation_id for effect in effects if isinstance(effect, Interrupt)]


def test_urgent_when_it_would_be_refused_then_a_batch_gives_way_and_goes_on_later() -> None:
    """It waits for the engine to drop the batch, which keeps its place and its age."""
    admitter = pool()
    running(admitter, "batch", tokens=800)
    decision = ask(admitter, "urgent", tokens=600, priority=P0, now_ns=S)
    assert isinstance(decision, Enqueue)
    assert decision.expected_wait_ns == 100 * MS
    effects = admitter.advance(now_ns=S)
    assert effects == (Interrupt(reservation("batch"), ONE, may_break=False),)
    assert admitter.put_back(reservation("batch"), now_ns=S) is None
    assert admitter.advance(now_ns=S) == ()
    (view,) = admitter.snapshot(now_ns=S).accounts
    assert (view.in_flight, view.reserved_tokens, view.draining_tokens) == (0, 0, 400)
    admitter.check_invariants()
    assert admitter.next_wakeup_ns() == S + 100 * MS
    assert entered(admitter.advance(now_ns=S + 100 * MS)) == ["urgent"]
    assert interrupted(admitter.advance(now_ns=2 * S)) == []
    again = settle(admitter, "urgent", USED, now_ns=3 * S)
    assert entered(again) == ["batch"]
    # The time in the engine was no wait: 2 s in the queue.
    assert [e.queue_wait_ns for e in again if isinstance(e, Dispatch)] == [2 * S]
    assert admitter.counts["interrupted"] == admitter.counts["put_back"] == 1
    settle(admitter, "batch", USED, now_ns=4 * S)
    assert admitter.snapshot(now_ns=5 * S).used_tokens == 0


def test_urgent_when_half_of_its_wait_is_over_then_somebody_gives_way() -> None:
    """Nobody knew how long it would take; the driver is woken for it."""
    admitter = pool(rate=None)
    running(admitter, "batch", tokens=800)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert admitter.advance(now_ns=0) == ()
    assert admitter.next_wakeup_ns() == 250 * MS
    assert admitter.advance(now_ns=250 * MS - 1) == ()
    assert interrupted(admitter.advance(now_ns=250 * MS)) == ["batch"]


def test_batch_when_its_client_reads_already_then_stays_and_the_urgent_one_is_refused() -> None:
    """A stream that has begun is not broken unless its class says so."""
    admitter = pool()
    running(admitter, "batch", tokens=800)
    admitter.first_token(reservation("batch"), now_ns=0)
    refused = ask(admitter, "urgent", tokens=300, priority=P0)
    assert isinstance(refused, Reject)
    assert refused.reason is ReasonCode.OVERLOAD_KV
    assert interrupted(admitter.advance(now_ns=0)) == []


def test_batch_when_it_may_always_be_stopped_then_is_settled_and_told() -> None:
    """Its client gets a reason and a time, and its tenant pays for nothing."""
    admitter = pool(interruptible=Interruptible.ALWAYS, rate=100.0)
    running(admitter, "batch", tokens=800)
    assert isinstance(ask(admitter, "waits", tenant="b", tokens=800, priority=P2), Enqueue)
    admitter.first_token(reservation("batch"), now_ns=0)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert admitter.advance(now_ns=0) == (Interrupt(reservation("batch"), ONE, may_break=True),)
    admitter.settle(reservation("batch"), Usage(400, 100), outcome=Outcome.INTERRUPTED, now_ns=0)
    told = admitter.refuse(Request("batch again", 400, 400), ReasonCode.INTERRUPTED, now_ns=0)
    assert (told.reason, told.row.status, told.row.is_retryable) == (
        ReasonCode.INTERRUPTED,
        429,
        True,
    )
    assert told.retry_after_ns is not None
    assert entered(admitter.advance(now_ns=100 * MS)) == ["urgent"]


@pytest.mark.parametrize("outcome", [None, Outcome.INTERRUPTED])
def test_tenant_when_interrupted_then_charged_only_for_what_is_done_at_last(
    outcome: Outcome | None,
) -> None:
    """Its counter stands where it stood before the request entered."""
    admitter = pool(interruptible=Interruptible.ALWAYS, rate=100.0)
    running(admitter, "first", tokens=900)
    assert isinstance(ask(admitter, "a", tokens=800, priority=P2), Enqueue)
    assert isinstance(ask(admitter, "b", tenant="b", tokens=800, priority=P2), Enqueue)
    assert entered(settle(admitter, "first", USED)) == ["a"]
    fairness = admitter._queue.bands[P2].fairness
    # Charged while b waits: 400 to read, 400 to produce.
    assert fairness._counters["a"] == 400 + 2 * 400  # type: ignore[attr-defined]  # the row is vtc
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["a"]
    if outcome is None:
        assert admitter.put_back(reservation("a"), now_ns=0) is None
    else:
        admitter.settle(reservation("a"), Usage(400, 9), outcome=outcome, now_ns=0)
    assert fairness._counters["a"] == 0  # type: ignore[attr-defined]  # the row is vtc
    assert admitter._open.holdings.tokens("a") == 0


def test_victims_when_several_could_go_then_those_that_lose_least_and_no_more() -> None:
    """Cheapest first, the younger of two alike, and nobody whom it would fit without."""
    admitter = pool()
    running(admitter, "large", tokens=500)
    admitter.advance(now_ns=0)
    for number, name in enumerate(("small", "older", "younger"), start=1):
        assert isinstance(
            ask(admitter, name, tokens=20 if name == "small" else 150, priority=P2, now_ns=number),
            Admit,
        )
    # 820 of 950 are promised: 170 more are needed for 300, and 20 + 150 are enough.
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0, now_ns=9), Enqueue)
    assert interrupted(admitter.advance(now_ns=9)) == ["small", "younger"]


def test_victims_when_the_dearest_alone_is_enough_then_the_cheap_ones_are_spared() -> None:
    """Who was taken first and is not needed in the end stays."""
    admitter = pool()
    running(admitter, "small", tokens=20)
    running(admitter, "large", tokens=800)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["large"]


def test_victims_when_a_lower_class_runs_too_then_it_goes_first() -> None:
    """Background work gives way before agents do, though it has more to lose."""
    admitter = pool()
    running(admitter, "agent", tokens=300)
    running(admitter, "background", tokens=500, priority=P3)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["background"]


def test_victims_when_two_replicas_could_then_the_one_that_loses_least() -> None:
    """And all of them on one, since a request runs on one."""
    admitter = pool(replicas=(ONE, TWO))
    running(admitter, "dear", tokens=900)
    running(admitter, "cheap", tokens=700)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["cheap"]


def test_victims_when_more_than_eight_would_have_to_go_then_nobody_goes() -> None:
    """A giant is not worth a whole batch."""
    admitter = pool()
    for number in range(9):
        running(admitter, f"batch{number}", tokens=100)
    assert isinstance(ask(admitter, "giant", tokens=930, priority=P0), Reject)
    unknown = pool(rate=None)
    for number in range(9):
        running(unknown, f"batch{number}", tokens=100)
    assert isinstance(ask(unknown, "giant", tokens=930, priority=P0), Enqueue)
    assert interrupted(unknown.advance(now_ns=400 * MS)) == []
    assert isinstance(ask(unknown, "less", tokens=800, priority=P1, now_ns=400 * MS), Enqueue)
    (expired, *_) = unknown.advance(now_ns=500 * MS)
    assert isinstance(expired, Expire)
    assert len(interrupted(unknown.advance(now_ns=2900 * MS))) == 8


def test_victims_when_a_seat_is_short_then_one_goes() -> None:
    """The same rule for a limit on requests."""
    admitter = pool(policy="concurrency")
    running(admitter, "first", tokens=100)
    running(admitter, "second", tokens=50)
    assert isinstance(ask(admitter, "urgent", priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["second"]
    assert admitter.put_back(reservation("second"), now_ns=0) is None
    assert entered(admitter.advance(now_ns=0)) == ["urgent"]


def test_victims_when_what_drains_is_enough_then_nobody_goes() -> None:
    """A second urgent one does not interrupt for room that is coming anyway."""
    admitter = pool()
    running(admitter, "one", tokens=460)
    running(admitter, "two", tokens=480)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["one"]
    assert admitter.put_back(reservation("one"), now_ns=0) is None
    assert admitter.advance(now_ns=50 * MS) == ()
    assert entered(admitter.advance(now_ns=100 * MS)) == ["urgent"]


def test_batch_when_interrupted_once_then_never_again() -> None:
    """Every request comes to its end."""
    admitter = pool(abort_time_ns=0)
    running(admitter, "batch", tokens=800)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["batch"]
    assert admitter.put_back(reservation("batch"), now_ns=0) is None
    assert entered(admitter.advance(now_ns=0)) == ["urgent"]
    assert entered(settle(admitter, "urgent", USED, now_ns=S)) == ["batch"]
    refused = ask(admitter, "urgent 2", tokens=300, priority=P0, now_ns=S)
    assert isinstance(refused, Reject)


def test_batch_when_it_has_waited_long_or_named_a_deadline_then_is_spared() -> None:
    """Half of its wait lies behind it, or its own time would run out."""
    admitter = pool(rate=None)
    running(admitter, "running", tokens=900, priority=P1)
    assert isinstance(ask(admitter, "patient", tokens=800, priority=P2), Enqueue)
    assert entered(settle(admitter, "running", USED, now_ns=15 * S)) == ["patient"]
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0, now_ns=15 * S), Enqueue)
    assert interrupted(admitter.advance(now_ns=15 * S + 400 * MS)) == []
    other = pool()
    assert isinstance(ask(other, "due", tokens=800, priority=P2, deadline_ns=60 * S), Admit)
    assert isinstance(ask(other, "urgent", tokens=300, priority=P0), Reject)


@pytest.mark.parametrize(
    ("asking", "running_as", "gives_way"),
    [(P0, P2, True), (P1, P2, True), (P1, P3, True), (P0, P1, False), (P2, P3, False)],
)
def test_classes_when_one_asks_then_only_interactive_ones_make_lower_ones_give_way(
    asking: Priority, running_as: Priority, gives_way: bool
) -> None:
    """P2 waits for P3's end, and nobody ends P1."""
    admitter = pool()
    running(admitter, "runs", tokens=800, priority=running_as)
    ask(admitter, "asks", tokens=300, priority=asking)
    assert bool(interrupted(admitter.advance(now_ns=0))) is gives_way


def test_classes_when_not_interruptible_then_nobody_gives_way() -> None:
    """The table decides."""
    admitter = pool(interruptible=Interruptible.NEVER)
    running(admitter, "batch", tokens=800)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Reject)


def test_urgent_when_prompts_are_in_its_way_then_one_that_is_being_read_gives_way() -> None:
    """What is being read delays a first token; what is being produced does not, and stays."""
    admitter = pool(policy="predictive", rate=None, interruptible=Interruptible.ALWAYS)
    admitter.add_replica(TWO, kv_tokens=100_000)
    for moment, name in enumerate(("begun", "older", "younger")):
        batch = Request(name, 1_500, 10, priority=P2)
        assert isinstance(admitter.arrive(batch, now_ns=moment), Admit)
        if name == "begun":
            admitter.first_token(reservation(name), now_ns=moment)
    urgent = Request("urgent", 990, 10, priority=P0)
    assert isinstance(admitter.arrive(urgent, now_ns=5), Enqueue)
    assert interrupted(admitter.advance(now_ns=300 * MS)) == ["younger"]


def test_batch_when_the_queue_is_full_then_told_instead_of_put_back() -> None:
    """A refusal with a time, and nothing stays behind."""
    admitter = pool(items_max=1, abort_time_ns=0)
    running(admitter, "batch", tokens=800)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["batch"]
    told = admitter.put_back(reservation("batch"), now_ns=0)
    assert told is not None
    assert told.reason is ReasonCode.INTERRUPTED
    assert told.retry_after_ns is not None
    assert entered(admitter.advance(now_ns=0)) == ["urgent"]
    settle(admitter, "urgent", USED)
    assert admitter.snapshot(now_ns=0).used_tokens == 0


def test_put_back_when_nobody_interrupted_it_then_a_broken_contract() -> None:
    """A driver cannot put back what it likes, nor what has begun meanwhile."""
    admitter = pool()
    running(admitter, "batch", tokens=800)
    with pytest.raises(ContractError, match="not interrupted"):
        admitter.put_back(reservation("batch"), now_ns=0)
    with pytest.raises(ContractError, match="not interrupted"):
        admitter.put_back(reservation("unknown"), now_ns=0)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["batch"]
    # Its client reads already, as the driver knows better.
    admitter.spare(reservation("batch"), now_ns=0)
    admitter.spare(reservation("unknown"), now_ns=0)
    with pytest.raises(ContractError, match="not interrupted"):
        admitter.put_back(reservation("batch"), now_ns=0)
    assert interrupted(admitter.advance(now_ns=0)) == []
    admitter.check_invariants()


def test_ledger_when_told_to_put_back_what_is_not_open_then_a_broken_contract() -> None:
    """It changes nothing."""
    admitter = pool()
    with pytest.raises(ContractError, match="cannot be put back"):
        admitter._ledger.interrupt(reservation("unknown"), now_ns=0)


def test_modes_when_nothing_is_enforced_then_nobody_gives_way() -> None:
    """Observing interrupts nobody."""
    admitter = pool(rate=None)
    running(admitter, "batch", tokens=800)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    admitter.mode = Mode.OBSERVE
    effects = admitter.advance(now_ns=300 * MS)
    assert (interrupted(effects), entered(effects)) == ([], ["urgent"])


def test_order_when_put_back_then_before_those_that_came_after_it() -> None:
    """Its age decides, by every ordering."""
    for ordering in ("fifo", "earliest_deadline"):
        admitter = pool(abort_time_ns=0, rate=100.0)
        config = dataclasses.replace(admitter.config, ordering=ordering)
        admitter = Admitter(small_policy("ledger"), rng=FixedRng(), config=config)
        admitter.add_replica(ONE, kv_tokens=1_000)
        running(admitter, "batch", tokens=800)
        assert isinstance(ask(admitter, "later", tokens=800, priority=P2, now_ns=S), Enqueue)
        assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0, now_ns=2 * S), Enqueue)
        assert interrupted(admitter.advance(now_ns=2 * S)) == ["batch"]
        assert admitter.put_back(reservation("batch"), now_ns=2 * S) is None
        assert entered(admitter.advance(now_ns=2 * S)) == ["urgent"]
        assert entered(settle(admitter, "urgent", USED, now_ns=3 * S)) == ["batch"]


def test_first_attempts_when_put_back_then_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The retry budget does not grow with what enters for the second time."""
    noted: list[str] = []

    def note(_: ReturnDesk, request: Request, **__: int) -> None:
        noted.append(request.request_id)

    monkeypatch.setattr(ReturnDesk, "note_admitted", note)
    config = dataclasses.replace(pool(abort_time_ns=0).config, returns=ReturnConfig())
    admitter = Admitter(small_policy("ledger"), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=1_000)
    running(admitter, "batch", tokens=800)
    assert isinstance(ask(admitter, "urgent", tokens=300, priority=P0), Enqueue)
    assert interrupted(admitter.advance(now_ns=0)) == ["batch"]
    assert admitter.put_back(reservation("batch"), now_ns=0) is None
    assert entered(admitter.advance(now_ns=0)) == ["urgent"]
    assert entered(settle(admitter, "urgent", USED, now_ns=S)) == ["batch"]
    assert noted == ["batch", "urgent"]


def test_config_when_the_time_is_out_of_range_then_says_so() -> None:
    """At most a second, like any other end."""
    with pytest.raises(ConfigError, match="interrupt_time_ns 2000000000 is not allowed"):
        LedgerConfig(interrupt_time_ns=2 * S)


steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "token", "end", "wait"]),
        st.sampled_from(Priority),
        st.integers(2, 500),
        st.sampled_from([0, 10 * MS, 120 * MS, 600 * MS]),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(
    steps=steps,
    policy=st.sampled_from(["ledger", "concurrency", "predictive"]),
    interruptible=st.sampled_from(Interruptible),
    seed=st.integers(0, 99),
)
def test_anything_when_interleaved_then_each_ends_once_and_nothing_is_left(
    steps: list[tuple[str, Priority, int, int]],
    policy: str,
    interruptible: Interruptible,
    seed: int,
) -> None:
    """Whoever is asked for is admitted, told or put back; who is put back is so once at most."""
    rng = random.Random(seed)
    admitter = pool(policy=policy, interruptible=interruptible, items_max=5)
    open_ids: dict[str, Request] = {}
    waiting: dict[str, Request] = {}
    begun: set[str] = set()
    put_back: set[str] = set()
    now_ns = 0

    def advance() -> None:
        effects = admitter.advance(now_ns=now_ns)
        while effects:
            has_changed = False
            for effect in effects:
                if isinstance(effect, Dispatch):
                    open_ids[effect.ticket_id] = waiting.pop(effect.ticket_id)
                elif isinstance(effect, Expire):
                    del waiting[effect.ticket_id]
                elif isinstance(effect, Interrupt):
                    interrupt(effect)
                    has_changed = True
            effects = admitter.advance(now_ns=now_ns) if has_changed else ()
        admitter.check_invariants()

    def interrupt(effect: Interrupt) -> None:
        name = str(effect.reservation_id)
        request = open_ids.pop(name)
        assert request.priority >= P2
        assert interruptible is not Interruptible.NEVER
        if name in begun:
            assert effect.may_break
            admitter.settle(
                effect.reservation_id, Usage(1, 1), outcome=Outcome.INTERRUPTED, now_ns=now_ns
            )
            return
        assert name not in put_back
        if admitter.put_back(effect.reservation_id, now_ns=now_ns) is None:
            put_back.add(name)
            waiting[name] = request

    for number, (what, priority, tokens, passed_ns) in enumerate(steps):
        now_ns += passed_ns
        advance()
        names = sorted(open_ids)
        if what == "ask":
            request = Request(
                f"r{number}", tokens // 2, tokens - tokens // 2, f"t{number % 3}", priority
            )
            decision = admitter.arrive(request, now_ns=now_ns)
            if isinstance(decision, Admit):
                open_ids[request.request_id] = request
            elif isinstance(decision, Enqueue):
                waiting[request.request_id] = request
        elif what == "token" and names:
            name = rng.choice(names)
            begun.add(name)
            admitter.first_token(reservation(name), now_ns=now_ns)
        elif what == "end" and names:
            name = rng.choice(names)
            del open_ids[name]
            admitter.settle(reservation(name), Usage(1, 1), outcome=Outcome.FINISHED, now_ns=now_ns)
        advance()
    while open_ids or waiting:
        for name in list(open_ids):
            del open_ids[name]
            admitter.settle(reservation(name), Usage(1, 1), outcome=Outcome.FINISHED, now_ns=now_ns)
        now_ns += S
        advance()
    assert admitter.snapshot(now_ns=now_ns).used_tokens == 0
    assert not admitter._open
