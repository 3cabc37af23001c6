"""Classes and tenants as a caller of the admitter sees them."""

from __future__ import annotations

import dataclasses

import pytest

from tests.core.support import MS, ONE, FixedRng, S, reservation, settle, small_policy, ticket
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.classes import CLASSES
from tokenweir.core.decision import Admit, Decision, Dispatch, Effect, Enqueue, Expire, Reject
from tokenweir.core.guards import GuardConfig
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Priority, Request, Usage
from tokenweir.core.tenants import TenantConfig, TenantLimits
from tokenweir.core.units import Nanos

USED = Usage(50, 50)


def pool(
    name: str = "ledger",
    *,
    queue: QueueLimits | None = None,
    tenants: TenantConfig | None = None,
    fairness: str = "vtc",
) -> Admitter:
    """Build an admitter with one replica of 1,000 tokens, of which 950 may be promised."""
    config = AdmitterConfig(
        queue=queue or QueueLimits(),
        tenants=tenants or TenantConfig(),
        fairness=fairness,
        returns=None,
    )
    admitter = Admitter(small_policy(name), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=1_000)
    return admitter


def ask(
    admitter: Admitter,
    name: str,
    *,
    tenant: str = "a",
    tokens: int = 100,
    priority: Priority = Priority.P1,
    deadline_ns: Nanos | None = None,
    now_ns: Nanos = 0,
) -> Decision:
    """Let a request arrive, half of it prompt."""
    request = Request(
        name,
        tokens // 2,
        tokens - tokens // 2,
        tenant=tenant,
        priority=priority,
        deadline_ns=deadline_ns,
    )
    return admitter.arrive(request, now_ns=now_ns)


def entered(effects: tuple[Effect, ...]) -> list[str]:
    """Return who was dispatched, in order."""
    return [effect.ticket_id for effect in effects if isinstance(effect, Dispatch)]


def test_ceiling_when_a_class_above_asked_then_holds_room_back_and_else_does_not() -> None:
    """P1 fills the pool while alone, and nine tenths of it after P0 was seen."""
    alone = pool()
    assert isinstance(ask(alone, "p1", tokens=900), Admit)
    shared = pool()
    assert isinstance(ask(shared, "p0", tokens=20, priority=Priority.P0), Admit)
    assert isinstance(ask(shared, "p1", tokens=880), Enqueue)
    assert isinstance(ask(shared, "p0 again", tokens=880, priority=Priority.P0), Enqueue)
    # The urgent one goes first though it came later, and may fill what the other may not.
    assert entered(shared.advance(now_ns=0)) == ["p0 again"]


def test_cap_when_reached_then_the_tenant_waits_and_others_pass() -> None:
    """A cap on requests holds in an empty pool too, and costs nobody else a place."""
    admitter = pool(tenants=TenantConfig({"a": TenantLimits(in_flight_max=1)}))
    assert isinstance(ask(admitter, "a1"), Admit)
    assert isinstance(ask(admitter, "a2"), Enqueue)
    assert isinstance(ask(admitter, "b1", tenant="b"), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == ["b1"]
    assert entered(settle(admitter, "a1", USED, now_ns=1)) == ["a2"]


def test_cap_when_nothing_may_wait_then_the_refusal_says_whose_limit_it_was() -> None:
    """The reason names the tenant's own limit."""
    admitter = pool(
        queue=QueueLimits(items_max=0),
        tenants=TenantConfig(others=TenantLimits(in_flight_max=1)),
    )
    assert isinstance(ask(admitter, "a1"), Admit)
    refused = ask(admitter, "a2")
    assert isinstance(refused, Reject)
    assert (refused.reason, refused.limit_tokens) == (ReasonCode.TENANT_CONCURRENCY, 1)


@pytest.mark.case("CASE-E1")
def test_full_queue_when_a_quiet_tenant_comes_then_a_flooders_last_is_told_so() -> None:
    """The bound holds before, during and after: one leaves for the one who comes."""
    admitter = pool(queue=QueueLimits(items_max=3))
    assert isinstance(ask(admitter, "running", tenant="flooder", tokens=900), Admit)
    for number in range(3):
        assert isinstance(ask(admitter, f"f{number}", tenant="flooder"), Enqueue)
    refused = ask(admitter, "f3", tenant="flooder")
    assert isinstance(refused, Reject)
    assert refused.reason is ReasonCode.QUEUE_FULL
    assert isinstance(ask(admitter, "quiet", tenant="quiet"), Enqueue)
    assert admitter.snapshot(now_ns=0).queued == 3
    admitter.check_invariants()
    (left,) = admitter.advance(now_ns=0)
    assert isinstance(left, Expire)
    assert left.ticket_id == ticket("f2")
    assert left.reject.reason is ReasonCode.QUEUE_DISPLACED
    assert left.reject.retry_after_ns is not None
    assert entered(settle(admitter, "running", USED, now_ns=1)) == ["quiet", "f0", "f1"]


@pytest.mark.parametrize(("fairness", "next_in"), [("round_robin", "e waits"), ("fcfs", "a waits")])
def test_share_when_kv_is_short_then_who_holds_twice_its_part_lets_another_pass(
    fairness: str, next_in: str
) -> None:
    """It were its turn; what it holds of the pool says otherwise, where tenants count at all."""
    admitter = pool(fairness=fairness)
    for number in range(6):
        assert isinstance(ask(admitter, f"a{number}"), Admit)
    for tenant in "bcdfgh":
        assert isinstance(ask(admitter, tenant, tenant=tenant, tokens=50), Admit)
    assert isinstance(ask(admitter, "a waits"), Enqueue)
    assert isinstance(ask(admitter, "e waits", tenant="e"), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == []
    assert entered(settle(admitter, "h", Usage(25, 25), now_ns=1)) == [next_in]
    admitter.check_invariants()


@pytest.mark.case("CASE-E7")
@pytest.mark.parametrize(
    ("priority", "wait_ns"),
    [
        (Priority.P0, S // 2),
        (Priority.P1, 5 * S),
        (Priority.P2, 30 * S),
        (Priority.P3, 600 * S),
    ],
)
def test_wait_when_a_class_has_its_own_then_a_caller_can_only_shorten_it(
    priority: Priority, wait_ns: Nanos
) -> None:
    """A deadline of its own ends a wait earlier, and never later than the class allows."""
    admitter = pool()
    assert isinstance(ask(admitter, "running", tokens=900), Admit)
    plain = ask(admitter, "plain", priority=priority)
    sooner = ask(admitter, "sooner", priority=priority, deadline_ns=wait_ns // 2)
    later = ask(admitter, "later", priority=priority, deadline_ns=2 * wait_ns)
    waits = [d.expires_ns for d in (plain, sooner, later) if isinstance(d, Enqueue)]
    assert waits == [wait_ns, wait_ns // 2, wait_ns]


def test_deadline_when_absurdly_near_then_gains_no_place_it_could_not_use() -> None:
    """One of 1 ms that cannot be met is refused, and nobody is passed for it."""
    admitter = Admitter(
        small_policy("ledger"),
        rng=FixedRng(),
        config=AdmitterConfig(rate_hint_tokens_per_s=1_000.0, returns=None),
    )
    admitter.add_replica(ONE, kv_tokens=1_000)
    assert isinstance(ask(admitter, "running", tokens=900), Admit)
    assert isinstance(ask(admitter, "patient"), Enqueue)
    hasty = ask(admitter, "hasty", deadline_ns=S // 1_000)
    assert isinstance(hasty, Reject)
    assert hasty.reason is ReasonCode.DEADLINE_UNREACHABLE
    assert entered(settle(admitter, "running", USED, now_ns=1)) == ["patient"]


def guarded(
    *, step_tokens: int = 2_048, read_tokens: int = 0, tpot_ns: Nanos | None = None
) -> Admitter:
    """Build a predictive admitter; its engine holds 1,000 tokens, of which 970 are promised."""
    profile = None
    if read_tokens:
        profile = EngineProfile(
            name="reader",
            source="made up for these tests",
            step_ns=100 * MS,
            step_tokens_max=read_tokens,
            chunk_tokens_max=read_tokens,
            kv_tokens=100_000,
            sequences_max=100,
        )
    guards = GuardConfig(tpot_ns=tpot_ns, step_tokens=step_tokens, prefill_ns_max=S)
    config = AdmitterConfig(guards=guards, returns=None)
    admitter = Admitter(small_policy("predictive"), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=100_000 if read_tokens else 1_000, profile=profile)
    return admitter


@pytest.mark.parametrize(("tenant", "is_lent"), [("quiet", True), ("flood", False)])
def test_light_tenant_when_others_fill_the_pool_then_some_of_its_headroom_is_lent(
    tenant: str, is_lent: bool
) -> None:
    """950 of 970 tokens are promised: 40 more fit for who holds little, since 999 may be used."""
    admitter = guarded()
    assert isinstance(ask(admitter, "first", tenant="quiet", tokens=2), Admit)
    settle(admitter, "first", Usage(1, 1))
    large, small = (
        Request("large", 920, 30, tenant="flood"),
        Request("small", 10, 30, tenant=tenant),
    )
    assert isinstance(admitter.arrive(large, now_ns=0), Admit)
    assert isinstance(admitter.arrive(small, now_ns=0), Admit) is is_lent


def test_heavy_tenant_when_others_ask_then_leaves_less_to_be_read() -> None:
    """An engine that reads 1,990 tokens/s takes a second's worth of who is alone, else 0.7 s's.

    Of prompts of 100 tokens the last one enters before less than that.
    """
    for others, expected in ((False, 2_000), (True, 1_400)):
        admitter = guarded(read_tokens=200)
        if others:
            ask(admitter, "other", tenant="quiet", tokens=2)
            settle(admitter, "other", Usage(1, 1))
        ask(admitter, "long answer", tenant="flood", tokens=140_000)
        admitter.first_token(reservation("long answer"), now_ns=0)
        unread = 0
        while isinstance(ask(admitter, f"flood{unread}", tenant="flood", tokens=200), Admit):
            unread += 100
        assert unread == expected


@pytest.mark.parametrize(("tenant", "enters"), [("quiet", True), ("flood", False)])
def test_heavy_tenant_when_one_seat_is_left_then_it_is_for_others(
    tenant: str, enters: bool
) -> None:
    """Of 100 seats the flood takes 99 while others ask."""
    admitter = guarded(read_tokens=2_000, tpot_ns=S)
    ask(admitter, "other", tenant="quiet", tokens=2)
    settle(admitter, "other", Usage(1, 1))
    for number in range(99):
        assert isinstance(ask(admitter, f"f{number}", tenant="flood", tokens=20), Admit)
    assert isinstance(ask(admitter, "last", tenant=tenant, tokens=20), Admit) is enters


def limits(**of_p1: object) -> QueueLimits:
    """Return queue limits with other bounds of P1."""
    classes = dict(CLASSES)
    classes[Priority.P1] = dataclasses.replace(classes[Priority.P1], **of_p1)  # type: ignore[arg-type]  # by name
    return QueueLimits(classes=classes)


def test_ceilings_when_the_class_above_was_last_asked_a_minute_ago_then_bind_no_more() -> None:
    """What is held back is for who may come, and is given back when nobody does."""
    admitter = pool()
    assert isinstance(ask(admitter, "urgent", tokens=20, priority=Priority.P0), Admit)
    settle(admitter, "urgent", USED)
    assert isinstance(ask(admitter, "large", tokens=900, now_ns=59 * S), Enqueue)
    assert admitter.cancel(ticket("large"), now_ns=59 * S)
    assert isinstance(ask(admitter, "large again", tokens=900, now_ns=60 * S), Admit)


def test_floor_when_a_lower_class_waits_then_it_gets_its_part_of_what_enters() -> None:
    """P1's tenth comes in spite of an endless line of P0; without a floor it does not."""
    for floor, entries in ((0.10, 1), (0.0, 0)):
        admitter = pool(queue=limits(floor_fraction=floor, ceiling_fraction=1.0))
        assert isinstance(ask(admitter, "u0", tokens=900, priority=Priority.P0), Admit)
        assert isinstance(ask(admitter, "normal", tokens=100), Enqueue)
        served = []
        for number in range(1, 5):
            name = f"u{number}"
            ask(admitter, name, tokens=900, priority=Priority.P0, now_ns=number)
            effects = settle(admitter, f"u{number - 1}", USED, now_ns=number)
            served += [entry for entry in entered(effects) if entry == "normal"]
            if "normal" in served:
                break
        assert len(served) == entries


def test_concurrency_cap_when_reached_by_what_waits_then_holds_at_every_dispatch() -> None:
    """However much room comes at once, no more of a tenant enter than may."""
    admitter = pool(tenants=TenantConfig({"a": TenantLimits(in_flight_max=2)}))
    assert isinstance(ask(admitter, "running", tenant="z", tokens=900), Admit)
    for number in range(4):
        assert isinstance(ask(admitter, f"a{number}"), Enqueue)
    assert entered(settle(admitter, "running", USED, now_ns=1)) == ["a0", "a1"]
    assert entered(admitter.advance(now_ns=2)) == []
    assert entered(settle(admitter, "a0", USED, now_ns=3)) == ["a2"]
    admitter.check_invariants()


def test_kv_share_when_nobody_else_waits_then_is_no_cap() -> None:
    """Held back for nobody, room would be wasted."""
    admitter = pool(fairness="vtc")
    for number in range(9):
        assert isinstance(ask(admitter, f"a{number}"), Admit)
    assert isinstance(ask(admitter, "a waits"), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == []
    assert entered(settle(admitter, "a0", USED, now_ns=1)) == ["a waits"]


def test_displacement_when_an_urgent_one_comes_then_the_lowest_class_leaves_first() -> None:
    """By class before by share, from the end of the line, and never the more urgent."""
    admitter = pool(queue=QueueLimits(items_max=2))
    assert isinstance(ask(admitter, "running", tokens=900), Admit)
    assert isinstance(ask(admitter, "background", priority=Priority.P3), Enqueue)
    assert isinstance(ask(admitter, "agent", priority=Priority.P2), Enqueue)
    assert isinstance(ask(admitter, "normal", priority=Priority.P1), Enqueue)
    assert isinstance(ask(admitter, "urgent", priority=Priority.P0), Enqueue)
    gone = [e.ticket_id for e in admitter.advance(now_ns=0) if isinstance(e, Expire)]
    assert gone == ["background", "agent"]
    refused = ask(admitter, "another agent", priority=Priority.P2)
    assert isinstance(refused, Reject)
    assert refused.reason is ReasonCode.QUEUE_FULL
    assert admitter.counts["displaced"] == 2
    admitter.check_invariants()


def test_promotion_when_half_of_its_wait_is_over_then_enters_before_younger_ones_above() -> None:
    """An agent's that has waited 15 s takes its turn among the normal ones."""
    for waited_ns, first in ((14 * S, "young"), (15 * S, "agent")):
        admitter = pool()
        assert isinstance(ask(admitter, "running", tenant="z", tokens=900), Admit)
        agent = ask(admitter, "agent", tenant="b", priority=Priority.P2)
        assert isinstance(agent, Enqueue)
        for second in (5, 10):
            admitter.progress(ONE, {reservation("running"): 1}, now_ns=second * S)
        admitter.advance(now_ns=waited_ns)
        assert isinstance(ask(admitter, "young", tokens=900, now_ns=waited_ns), Enqueue)
        assert entered(settle(admitter, "running", USED, now_ns=waited_ns))[0] == first


@pytest.mark.parametrize(
    ("bounds", "fitting"),
    [({"items_max": 2}, 2), ({"debt_tokens_max": 350}, 3), ({"items_max": 0}, 0)],
)
def test_bounds_when_of_a_class_then_hold_for_it_and_not_for_others(
    bounds: dict[str, int], fitting: int
) -> None:
    """Items and debt of P1 are full, and P2 still finds a place."""
    admitter = pool(queue=limits(**bounds))
    assert isinstance(ask(admitter, "running", tokens=900), Admit)
    decisions = [ask(admitter, f"normal{number}") for number in range(5)]
    assert sum(isinstance(decision, Enqueue) for decision in decisions) == fitting
    refused = [d.reason for d in decisions if isinstance(d, Reject)]
    assert refused == [ReasonCode.QUEUE_FULL] * (5 - fitting)
    assert isinstance(ask(admitter, "agent", priority=Priority.P2), Enqueue)
    admitter.check_invariants()


def test_wait_when_its_class_may_no_longer_then_told_with_a_reason_and_a_time() -> None:
    """Each class by its own bound: P0 after half a second, P1 after five."""
    admitter = pool()
    assert isinstance(ask(admitter, "running", tenant="z", tokens=900), Admit)
    assert isinstance(ask(admitter, "urgent", priority=Priority.P0), Enqueue)
    assert isinstance(ask(admitter, "normal"), Enqueue)
    assert admitter.next_wakeup_ns() == S // 2
    for when_ns, name in ((S // 2, "urgent"), (5 * S, "normal")):
        assert not any(isinstance(e, Expire) for e in admitter.advance(now_ns=when_ns - 1))
        (expired,) = (e for e in admitter.advance(now_ns=when_ns) if isinstance(e, Expire))
        assert (expired.ticket_id, expired.reject.reason) == (name, ReasonCode.QUEUE_TIMEOUT)
        assert expired.reject.retry_after_ns is not None
