"""Classes: who goes first, who may fill what, and who loses a place."""

from __future__ import annotations

import pytest

from tests.core.support import S, ticket
from tokenweir.core.classes import CLASSES, ClassDemand, ClassLimits
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError
from tokenweir.core.fairness import VirtualCounter
from tokenweir.core.queues import PoolQueue, QueueEntry, QueueLimits, ordering
from tokenweir.core.request import Priority, Request
from tokenweir.core.tenants import Share, TenantConfig, TenantHoldings, TenantLimits
from tokenweir.core.units import Nanos


def queue_with(
    limits: QueueLimits | None = None,
    *,
    order: str = "fifo",
    tenants: TenantConfig | None = None,
) -> PoolQueue:
    """Build an empty queue."""
    return PoolQueue(
        limits or QueueLimits(),
        fairness=VirtualCounter,
        ordering=ordering(order),
        tenants=tenants or TenantConfig(),
    )


def entry(
    name: str,
    *,
    priority: Priority = Priority.P1,
    tenant: str = "a",
    tokens: int = 100,
    now_ns: Nanos = 0,
    due_ns: Nanos = S,
    wait_ns: Nanos = S // 2,
) -> QueueEntry:
    """Build an entry."""
    return QueueEntry(
        ticket(name),
        Request(name, tokens - 1, 1_000, tenant=tenant, priority=priority),
        Estimate(tokens - 1, 1),
        enqueued_ns=now_ns,
        expires_ns=now_ns + wait_ns,
        due_ns=due_ns,
        size_tokens=tokens,
    )


def taken(queue: PoolQueue) -> list[str]:
    """Let everybody enter, head after head."""
    names = []
    while (head := queue.head()) is not None:
        queue.take(head.entry)
        queue.check_invariants()
        names.append(head.entry.request.request_id)
    return names


def test_head_when_classes_wait_then_the_most_urgent_goes_first() -> None:
    """Strict between classes, whatever the order of arrival."""
    queue = queue_with()
    for priority in reversed(Priority):
        queue.push(entry(priority.name, priority=priority))
    assert taken(queue) == ["P0", "P1", "P2", "P3"]


def test_head_when_a_class_has_a_floor_then_gets_its_share_of_a_flood() -> None:
    """A tenth of the tokens go to P1 and a twentieth to P2, though P0 never ends; P3 has none."""
    queue = queue_with()
    for number in range(300):
        for priority in Priority:
            queue.push(entry(f"{priority.name}.{number}", priority=priority))
            if len(queue) >= 900:
                break
    served = []
    for _ in range(200):
        head = queue.head()
        assert head is not None
        queue.take(head.entry)
        served.append(head.entry.request.priority)
        assert head.admitted_as is Priority.P0
    assert 0.08 <= served.count(Priority.P1) / 200 <= 0.10
    assert 0.04 <= served.count(Priority.P2) / 200 <= 0.05
    assert Priority.P3 not in served


@pytest.mark.parametrize("priority", [Priority.P1, Priority.P2, Priority.P3])
def test_ceiling_when_nobody_above_asked_lately_then_does_not_bind(priority: Priority) -> None:
    """An engine that serves one class alone gives it everything, again a minute after."""
    demand = ClassDemand(CLASSES)
    assert demand.ceiling_fraction(priority, now_ns=0) == 1.0
    demand.note(priority, now_ns=0)
    assert demand.ceiling_fraction(priority, now_ns=0) == 1.0
    demand.note(Priority.P0, now_ns=S)
    assert demand.ceiling_fraction(Priority.P0, now_ns=2 * S) == 1.0
    assert (
        demand.ceiling_fraction(priority, now_ns=2 * S) == CLASSES[priority].ceiling_fraction < 1.0
    )
    assert demand.ceiling_fraction(priority, now_ns=61 * S) == 1.0


def test_promote_when_half_of_the_wait_is_over_then_moves_up_one_class_and_no_more() -> None:
    """Ageing: a P2 that has waited 15 of its 30 s goes with P1, and with P0 never."""
    queue = queue_with()
    queue.push(entry("old", priority=Priority.P2, wait_ns=30 * S))
    queue.push(entry("new", priority=Priority.P1, now_ns=16 * S, wait_ns=5 * S))
    queue.promote(now_ns=15 * S - 1)
    assert queue.entries[ticket("old")].band is Priority.P2
    queue.promote(now_ns=15 * S)
    assert queue.entries[ticket("old")].band is Priority.P1
    queue.promote(now_ns=18 * S)
    assert queue.entries[ticket("old")].band is Priority.P1
    queue.check_invariants()
    assert taken(queue)[0] == "old"


def test_full_queue_when_a_more_urgent_class_asks_then_the_last_of_the_least_urgent_leaves() -> (
    None
):
    """A place is given to who is more urgent, and never the other way round."""
    queue = queue_with(QueueLimits(items_max=2))
    queue.push(entry("p3", priority=Priority.P3))
    queue.push(entry("p2", priority=Priority.P2))
    leaving = queue.displaceable(Estimate(99, 1), priority=Priority.P1, tenant="b")
    assert leaving is not None
    assert leaving.ticket_id == ticket("p3")
    assert queue.displaceable(Estimate(99, 1), priority=Priority.P3, tenant="b") is None


def test_full_queue_when_a_tenant_floods_it_then_its_last_leaves_for_who_has_less() -> None:
    """A flooder cannot keep others out; among equals nobody is moved."""
    queue = queue_with(QueueLimits(items_max=4))
    for number in range(4):
        queue.push(entry(f"f{number}", tenant="flooder"))
    leaving = queue.displaceable(Estimate(99, 1), priority=Priority.P1, tenant="quiet")
    assert leaving is not None
    assert leaving.ticket_id == ticket("f3")
    assert queue.displaceable(Estimate(99, 1), priority=Priority.P1, tenant="flooder") is None
    assert queue.displaceable(Estimate(900, 1), priority=Priority.P1, tenant="quiet") is None


def test_class_bounds_when_reached_then_nothing_more_waits() -> None:
    """Items and tokens of a class are bounded beside those of the queue."""
    classes = dict(CLASSES)
    classes[Priority.P2] = ClassLimits(items_max=2, debt_tokens_max=250)
    queue = queue_with(QueueLimits(classes=classes))
    assert queue.has_room(Estimate(249, 1), Priority.P2)
    assert not queue.has_room(Estimate(250, 1), Priority.P2)
    queue.push(entry("one", priority=Priority.P2))
    queue.push(entry("two", priority=Priority.P2))
    assert not queue.has_room(Estimate(1, 1), Priority.P2)
    assert queue.has_room(Estimate(1, 1), Priority.P1)


@pytest.mark.case("CASE-E3")
def test_cheapest_first_when_short_ones_keep_coming_then_the_long_one_enters_by_its_age() -> None:
    """A request of 1,000 tokens passes ones of 100 that come more than 9 s after it."""
    queue = queue_with(order="shortest_with_ageing")
    queue.push(entry("long", tokens=1_000))
    served = []
    for second in range(12):
        queue.push(entry(f"short{second}", now_ns=second * S))
        head = queue.head()
        assert head is not None
        queue.take(head.entry)
        served.append(head.entry.request.request_id)
    assert "long" in served
    assert 9 <= served.index("long") <= 10


def test_earliest_deadline_when_a_late_comer_is_due_earlier_then_it_enters_first() -> None:
    """By when the first token is due; equal ones by arrival."""
    queue = queue_with(order="earliest_deadline")
    queue.push(entry("long", due_ns=4 * S))
    queue.push(entry("short", due_ns=S))
    queue.push(entry("tie", due_ns=S))
    assert taken(queue) == ["short", "tie", "long"]


def test_holdings_when_opened_and_closed_then_end_at_nothing() -> None:
    """Caps and shares are of what is open now."""
    holdings = TenantHoldings(TenantConfig({"capped": TenantLimits(weight=2.0, in_flight_max=1)}))
    holdings.open("capped", tokens=600)
    assert holdings.is_at_cap("capped")
    assert not holdings.is_at_cap("other")
    holdings.open("other", tokens=100)
    # Twice two thirds of the pool is more than there is; twice a third is less than it has.
    assert not holdings.is_over_share("capped", pool_tokens=1_000)
    holdings.open("other", tokens=700)
    assert holdings.is_over_share("other", pool_tokens=1_000)
    for tenant, tokens in (("capped", 600), ("other", 100), ("other", 700)):
        holdings.close(tenant, tokens=tokens)
    assert len(holdings) == 0
    assert not holdings.is_at_cap("capped")


def test_share_when_the_pool_is_far_from_full_then_heavy_is_who_holds_most_of_what_is_held() -> (
    None
):
    """Where seats are short 500 of 800 tokens are too many, whatever the pool could hold."""
    holdings = TenantHoldings(TenantConfig())
    for tenant, tokens in (("flood", 500), ("quiet", 300)):
        holdings.note_asked(tenant, now_ns=0)
        holdings.open(tenant, tokens=tokens)

    def share(tenant: str) -> Share:
        return holdings.share_of(tenant, tokens=10, pool_tokens=100_000, now_ns=0)

    assert (share("flood"), share("quiet")) == (Share.HEAVY, Share.LIGHT)
    holdings.open("quiet", tokens=200)
    assert share("flood") is Share.LIGHT
    holdings.close("quiet", tokens=200)
    assert share("flood") is Share.HEAVY


def test_share_when_others_ask_then_is_by_what_is_held_and_wanted() -> None:
    """Of 900 tokens for weights 2 and 1: 600 and 300; who holds nothing counts as one more."""
    holdings = TenantHoldings(TenantConfig({"double": TenantLimits(weight=2.0)}))

    def share(tenant: str, tokens: int, *, now_ns: int = 0, pool_tokens: int = 900) -> Share:
        return holdings.share_of(tenant, tokens=tokens, pool_tokens=pool_tokens, now_ns=now_ns)

    holdings.note_asked("double", now_ns=0)
    assert share("double", 1) is Share.FAIR
    assert share("single", 450) is Share.LIGHT
    assert share("single", 451) is Share.FAIR
    holdings.open("double", tokens=601)
    assert share("double", 1) is Share.FAIR
    holdings.note_asked("single", now_ns=S)
    # The other holds nothing yet, and counts with a weight like its own.
    assert share("double", 1) is Share.HEAVY
    holdings.open("single", tokens=200)
    assert share("double", 1) is Share.HEAVY
    assert share("single", 100) is Share.LIGHT
    assert share("single", 101) is Share.FAIR
    assert share("single", 1, pool_tokens=0) is Share.FAIR
    holdings.note_asked("double", now_ns=2 * S)
    holdings.note_asked("double", now_ns=3 * S)
    assert share("double", 1, now_ns=61 * S - 1) is Share.HEAVY
    assert share("double", 1, now_ns=61 * S) is Share.FAIR
    assert share("single", 1, now_ns=61 * S) is Share.LIGHT


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ceiling_fraction", 0.0),
        ("ceiling_fraction", 1.1),
        ("floor_fraction", 1.0),
        ("floor_fraction", -0.1),
        ("wait_ns_max", 0),
        ("items_max", -1),
        ("debt_tokens_max", -1),
    ],
)
def test_class_limits_when_out_of_range_then_one_line_names_field_and_value(
    field: str, value: float
) -> None:
    """Bad settings are told as such."""
    with pytest.raises(ConfigError, match=f"{field} {value} is not allowed"):
        ClassLimits(**{field: value})  # type: ignore[arg-type]  # one field at a time, by name
