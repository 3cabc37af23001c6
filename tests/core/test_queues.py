"""The queue keeps its order, its bounds and its sum."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.core.support import S, request, ticket
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError, ContractError, InvariantError
from tokenweir.core.fairness import VirtualCounter
from tokenweir.core.queues import PoolQueue, QueueEntry, QueueLimits, ordering
from tokenweir.core.tenants import TenantConfig
from tokenweir.core.units import Nanos


def entry(name: str, *, tokens: int = 10, expires_ns: Nanos = 5 * S) -> QueueEntry:
    """Build an entry that came at 0."""
    return QueueEntry(ticket(name), request(name), Estimate(tokens - 1, 1), 0, expires_ns)


def pool_queue(limits: QueueLimits, *, order_name: str = "fifo") -> PoolQueue:
    """Build an empty queue."""
    return PoolQueue(
        limits, fairness=VirtualCounter, ordering=ordering(order_name), tenants=TenantConfig()
    )


def queue_of(*names: str, limits: QueueLimits | None = None) -> PoolQueue:
    """Build a queue in which these wait."""
    queue = pool_queue(limits or QueueLimits())
    for name in names:
        queue.push(entry(name))
    return queue


def order(queue: PoolQueue) -> list[str]:
    """Empty a queue from its head."""
    names = []
    while (head := queue.head()) is not None:
        names.append(head.entry.request.request_id)
        queue.remove(head.entry.ticket_id)
    return names


def test_head_when_taken_out_then_follows_the_order_of_arrival() -> None:
    """First in, first out."""
    assert order(queue_of("a", "b", "c")) == ["a", "b", "c"]


def test_head_when_empty_then_is_none() -> None:
    """An empty queue has no head, no debt and no wakeup."""
    queue = queue_of()
    assert queue.head() is None
    assert queue.next_expiry_ns() is None
    assert (len(queue), queue.debt_tokens) == (0, 0)


def test_remove_when_in_the_middle_then_the_others_keep_their_order() -> None:
    """A client that leaves moves nobody else."""
    queue = queue_of("a", "b", "c")
    removed = queue.remove(ticket("b"))
    assert removed is not None
    assert removed.request.request_id == "b"
    assert ticket("b") not in queue
    assert queue.debt_tokens == 20
    assert order(queue) == ["a", "c"]


def test_remove_when_gone_then_is_none_and_changes_nothing() -> None:
    """Leaving twice is harmless."""
    queue = queue_of("a")
    assert queue.remove(ticket("stranger")) is None
    assert (len(queue), queue.debt_tokens) == (1, 10)


def test_push_when_it_waits_already_then_raises_and_changes_nothing() -> None:
    """A ticket has one place."""
    queue = queue_of("a")
    with pytest.raises(ContractError, match="a waits already"):
        queue.push(entry("a"))
    assert (len(queue), queue.debt_tokens) == (1, 10)


def test_push_when_full_then_raises_and_changes_nothing() -> None:
    """INV-QUEUE-1: a bound is never passed, not even by a careless caller."""
    queue = queue_of("a", "b", limits=QueueLimits(items_max=2))
    assert not queue.has_room(Estimate(1, 1))
    with pytest.raises(ContractError, match="queue is full at 2 items"):
        queue.push(entry("c"))
    assert order(queue) == ["a", "b"]


def test_has_room_when_debt_would_pass_its_bound_then_is_false() -> None:
    """A queue of few but large requests is bounded too."""
    queue = queue_of("a", "b", limits=QueueLimits(debt_tokens_max=30))
    assert queue.has_room(Estimate(9, 1))
    assert not queue.has_room(Estimate(10, 1))


def test_has_room_when_nothing_may_wait_then_is_false() -> None:
    """A queue of no items refuses everything."""
    assert not pool_queue(QueueLimits(items_max=0)).has_room(Estimate(0, 1))


def test_pop_expired_when_due_then_takes_the_longest_overdue_first() -> None:
    """Who ran out first is told first; ties go by arrival."""
    queue = pool_queue(QueueLimits())
    for name, expires_ns in (("late", 3), ("first", 1), ("tie", 1), ("open", 9)):
        queue.push(entry(name, expires_ns=expires_ns))
    popped = [queue.pop_expired(now_ns=3) for _ in range(4)]
    assert [p and p.request.request_id for p in popped] == ["first", "tie", "late", None]
    assert queue.next_expiry_ns() == 9
    assert queue.debt_tokens == 10


def test_pop_expired_when_not_yet_due_then_takes_nothing() -> None:
    """The last nanosecond belongs to the wait."""
    queue = queue_of("a")
    assert queue.pop_expired(now_ns=5 * S - 1) is None
    assert queue.pop_expired(now_ns=5 * S) is not None


def test_next_expiry_when_the_earliest_has_left_then_is_that_of_the_next() -> None:
    """Nobody is woken for a client that is gone."""
    queue = pool_queue(QueueLimits())
    queue.push(entry("a", expires_ns=1))
    queue.push(entry("b", expires_ns=2))
    queue.remove(ticket("a"))
    assert queue.next_expiry_ns() == 2


def test_expiries_when_many_leave_behind_a_long_lived_head_then_stay_bounded() -> None:
    """What has left does not pile up in the heap."""
    queue = queue_of("head")
    sizes = []
    for index in range(10_000):
        name = f"r{index}"
        queue.push(entry(name, expires_ns=6 * S))
        queue.remove(ticket(name))
        sizes.append(len(queue._expiries))
    assert max(sizes) <= 2 * 2 + 64
    assert order(queue) == ["head"]


def test_queue_when_a_ticket_comes_again_then_its_first_time_is_forgotten() -> None:
    """Neither its place nor its time is that of before."""
    queue = pool_queue(QueueLimits())
    queue.push(entry("ahead", expires_ns=1))
    queue.push(entry("again", expires_ns=2))
    queue.remove(ticket("again"))
    queue.push(entry("between", expires_ns=99))
    queue.push(entry("again", expires_ns=9))
    queue.remove(ticket("ahead"))
    assert queue.next_expiry_ns() == 9
    assert queue.pop_expired(now_ns=8) is None
    assert order(queue) == ["between", "again"]


@settings(deadline=None, print_blob=True)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["push", "remove", "expire", "head"]),
            st.integers(0, 9),
            st.integers(1, 20),
        ),
        max_size=60,
    )
)
def test_queue_when_used_in_any_order_then_agrees_with_a_list(
    steps: list[tuple[str, int, int]],
) -> None:
    """INV-QUEUE-1 and 2: a plain list of what waits says the same, step by step."""
    queue = pool_queue(QueueLimits(items_max=4, debt_tokens_max=40))
    model: list[QueueEntry] = []
    now_ns = 0
    for what, index, amount in steps:
        match what:
            case "push":
                new = entry(f"r{index}", tokens=amount, expires_ns=now_ns + amount)
                fits = len(model) < 4 and sum(e.estimate.tokens for e in model) + amount <= 40
                assert queue.has_room(new.estimate) is fits
                if fits and new.ticket_id not in queue:
                    queue.push(new)
                    model.append(new)
            case "remove":
                gone = [e for e in model if e.ticket_id == f"r{index}"]
                assert queue.remove(ticket(f"r{index}")) == (gone[0] if gone else None)
                model = [e for e in model if e not in gone]
            case "expire":
                now_ns += amount
                while (popped := queue.pop_expired(now_ns=now_ns)) is not None:
                    model.remove(popped)
                assert all(e.expires_ns > now_ns for e in model)
        head = queue.head()
        assert (head and head.entry) == (model[0] if model else None)
        assert len(queue) == len(model)
        assert queue.debt_tokens == sum(e.estimate.tokens for e in model)
        assert queue.next_expiry_ns() == min((e.expires_ns for e in model), default=None)
        queue.check_invariants()


def test_check_invariants_when_the_debt_is_bent_then_raises() -> None:
    """INV-QUEUE-2 is recounted."""
    queue = queue_of("a")
    queue.sums.debt_tokens += 1
    with pytest.raises(InvariantError, match="queue says debt 11"):
        queue.check_invariants()


def test_check_invariants_when_the_prompts_are_bent_then_raises() -> None:
    """INV-QUEUE-2 is recounted for what has to be read, too."""
    queue = queue_of("a")
    queue.sums.prompt_tokens += 1
    with pytest.raises(InvariantError, match="queue says 10 prompt tokens, its entries add up to"):
        queue.check_invariants()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (QueueLimits(items_max=1), "2 items, its bound is 1"),
        (QueueLimits(debt_tokens_max=19), "20 tokens, its bound is 19"),
        (QueueLimits(wait_ns_max=5 * S - 1), "ticket a may wait"),
    ],
)
def test_check_invariants_when_a_bound_is_passed_then_raises(
    limits: QueueLimits, message: str
) -> None:
    """INV-QUEUE-1 is checked for items, debt and wait."""
    queue = queue_of("a", "b")
    queue.limits = limits
    with pytest.raises(InvariantError, match=message):
        queue.check_invariants()


def test_wait_bound_when_an_slo_is_known_then_is_the_tighter_of_both() -> None:
    """Nothing may wait longer than what can still meet the SLO."""
    assert QueueLimits().wait_ns_bound() == 5 * S
    assert QueueLimits(first_token_slo_ns=S).wait_ns_bound() == S // 2
    assert QueueLimits(first_token_slo_ns=100 * S).wait_ns_bound() == 5 * S


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"items_max": -1}, "items_max -1"),
        ({"debt_tokens_max": -1}, "debt_tokens_max -1"),
        ({"wait_ns_max": 0}, "wait_ns_max 0"),
        ({"first_token_slo_ns": 0}, "first_token_slo_ns 0"),
        ({"first_token_unloaded_ratio": -1.0}, "first_token_unloaded_ratio -1.0"),
        ({"slo_fraction": 0.0}, "slo_fraction 0.0"),
        ({"slo_fraction": 1.5}, "slo_fraction 1.5"),
    ],
)
def test_limits_when_out_of_range_then_say_what_is_allowed(
    config: dict[str, float], message: str
) -> None:
    """A wrong setting names the key, the value and what is allowed."""
    with pytest.raises(ConfigError, match=f"{message}.*allowed: "):
        QueueLimits(**config)  # type: ignore[arg-type]  # one field at a time, by name
