"""The admitter and those who come back: when, whether, and before whom.

One replica of 1,000 tokens, of which 950 may be promised and 1,000 a second are served.
"""

from __future__ import annotations

from tests.core.support import (
    MS,
    ONE,
    FixedRng,
    admit,
    admitter_with,
    enqueue,
    reject,
    request,
    reservation,
    small_policy,
    ticket,
)
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Request
from tokenweir.core.returns import ReturnConfig
from tokenweir.core.tenants import TenantConfig, TenantLimits

NO_QUEUE = QueueLimits(items_max=0)


def fill(admitter: Admitter) -> None:
    """Admit four requests of 200 tokens."""
    for index in range(4):
        admit(admitter, request(f"full{index}"))


def paced_admitter(*, queue: QueueLimits = NO_QUEUE) -> Admitter:
    """Build an admitter of 1,000 tokens that serves 1,000 a second and paces returns."""
    return admitter_with(queue=queue, rate_hint_tokens_per_s=1_000.0, returns=ReturnConfig())


def attempt_of(index: int, number: int) -> Request:
    """Build an attempt of 200 tokens that tells its number."""
    return Request(
        f"{index}.{number}",
        100,
        100,
        attempt=number,
        counts_attempts=True,
        body_hash=b"%d" % index,
    )


def test_refusals_when_they_come_together_then_are_told_different_times_with_tickets() -> None:
    """200 tokens at half of 1,000 a second: a return every 400 ms."""
    admitter = paced_admitter()
    fill(admitter)
    refused = [reject(admitter, attempt_of(i, 0)) for i in range(3)]
    assert [r.retry_after_ns for r in refused] == [900 * MS, 1_300 * MS, 1_700 * MS]
    assert [r.ticket and r.ticket.opens_ns for r in refused] == [900 * MS, 1_300 * MS, 1_700 * MS]


def test_return_when_it_waits_in_its_slot_then_goes_before_first_attempts_of_its_tenant() -> None:
    """It was told to come now; they were not."""
    admitter = paced_admitter(queue=QueueLimits(items_max=2))
    fill(admitter)
    enqueue(admitter, attempt_of(1, 0))
    enqueue(admitter, attempt_of(2, 0))
    refused = reject(admitter, attempt_of(3, 0))
    assert refused.retry_after_ns is not None
    admitter.cancel(ticket("2.0"), now_ns=refused.retry_after_ns)
    back = enqueue(admitter, attempt_of(3, 1), now_ns=refused.retry_after_ns)
    assert back.position == 0
    assert admitter.counts["returned_in_slot"] == 1


def test_retry_when_the_budget_is_used_up_then_is_refused_without_advice() -> None:
    """Ten that nobody paced in ten seconds; the eleventh is told not to try by itself."""
    admitter = paced_admitter()
    fill(admitter)
    reject(admitter, attempt_of(0, 0))
    reasons = [reject(admitter, attempt_of(i, 1)).reason for i in range(1, 12)]
    assert reasons == [ReasonCode.OVERLOAD_KV] * 10 + [ReasonCode.RETRY_BUDGET_EXHAUSTED]
    last = reject(admitter, attempt_of(20, 1))
    assert (last.retry_after_ns, last.advised_ns, last.ticket) == (None, None, None)
    assert last.wait_ns is not None


def test_retry_when_there_is_room_then_passes_however_many_there_are() -> None:
    """The budget is asked only while the pool is short."""
    admitter = paced_admitter()
    for index in range(50):
        admit(admitter, attempt_of(index, 1))
        admitter.release(reservation(f"{index}.1"), now_ns=0)


def test_attempt_when_it_is_the_fourth_then_is_refused_even_with_room() -> None:
    """A request is not tried for ever."""
    refused = reject(paced_admitter(), attempt_of(0, 3))
    assert refused.reason is ReasonCode.ATTEMPTS_EXHAUSTED
    assert refused.advised_ns is None


def test_refusal_when_a_tenant_is_at_its_own_cap_then_takes_no_slot() -> None:
    """Its own limit says nothing of when the pool has room."""
    config = AdmitterConfig(
        queue=NO_QUEUE,
        rate_hint_tokens_per_s=1_000.0,
        tenants=TenantConfig(others=TenantLimits(in_flight_max=1)),
    )
    admitter = Admitter(small_policy("ledger"), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=1_000)
    admit(admitter, attempt_of(0, 0))
    refused = reject(admitter, attempt_of(1, 0))
    assert refused.reason is ReasonCode.TENANT_CONCURRENCY
    assert refused.ticket is None
    assert refused.retry_after_ns is not None


def test_retry_when_nobody_paced_it_and_the_pool_is_short_then_does_not_wait_but_gets_a_slot() -> (
    None
):
    """First attempts wait; it is told when to come instead. With nobody refused lately it waits."""
    admitter = paced_admitter(queue=QueueLimits(items_max=2))
    fill(admitter)
    enqueue(admitter, attempt_of(1, 1))
    enqueue(admitter, attempt_of(2, 0))
    reject(admitter, attempt_of(3, 0))
    admitter.cancel(ticket("2.0"), now_ns=0)
    refused = reject(admitter, attempt_of(4, 1))
    assert refused.reason is ReasonCode.OVERLOAD_KV
    assert refused.ticket is not None
    enqueue(admitter, attempt_of(5, 0))
