"""Classes and tenants as a caller of the admitter sees them."""

from __future__ import annotations

import pytest

from tests.core.support import MS, ONE, FixedRng, S, reservation, settle, small_policy, ticket
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
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
