"""A wait of its own: what a caller may shorten, and what that does not buy it."""

from __future__ import annotations

import dataclasses

import pytest

from tests.core.support import MS, ONE, FixedRng, S, request, settle, small_policy
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.decision import Admit, Decision, Dispatch, Enqueue, Expire, Reject
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Usage
from tokenweir.core.units import Nanos


def full(*, queue: QueueLimits | None = None, profile: EngineProfile | None = None) -> Admitter:
    """Build an admitter whose only replica, of 1,000 tokens, is taken by one request."""
    config = AdmitterConfig(queue=queue or QueueLimits(), returns=None)
    name = "ledger" if profile is None else "predictive"
    admitter = Admitter(small_policy(name), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=1_000, profile=profile)
    running = request("running", prompt_tokens=800, output_tokens_max=100)
    assert isinstance(admitter.arrive(running, now_ns=0), Admit)
    admitter.advance(now_ns=0)
    return admitter


def ask(admitter: Admitter, name: str, *, wait_ns: Nanos | None, now_ns: Nanos = 0) -> Decision:
    """Let a request of 400 tokens arrive that waits no longer than this."""
    asked = request(name, prompt_tokens=200, output_tokens_max=200)
    return admitter.arrive(dataclasses.replace(asked, wait_ns_max=wait_ns), now_ns=now_ns)


@pytest.mark.case("CASE-E7")
@pytest.mark.parametrize(
    ("wait_ns", "expires_ns"), [(None, 5 * S), (4 * S, 4 * S), (6 * S, 5 * S), (1, 1)]
)
def test_wait_when_it_has_its_own_then_the_shorter_of_the_two_holds(
    wait_ns: Nanos | None, expires_ns: Nanos
) -> None:
    """A longer one than its class's changes nothing."""
    waiting = ask(full(), "a", wait_ns=wait_ns)
    assert isinstance(waiting, Enqueue)
    assert waiting.expires_ns == expires_ns


def test_wait_when_it_is_nought_then_enters_at_once_or_not_at_all() -> None:
    """Nothing of it stands in the queue, and where there is room it makes no difference."""
    admitter = full()
    refused = ask(admitter, "a", wait_ns=0)
    assert isinstance(refused, Reject)
    assert refused.reason is ReasonCode.OVERLOAD_KV
    assert admitter.snapshot(now_ns=0).queued == 0
    settle(admitter, "running", Usage(800, 100), now_ns=1)
    assert isinstance(ask(admitter, "b", wait_ns=0, now_ns=1), Admit)


def test_wait_when_it_is_over_then_is_told_as_a_wait_and_not_as_a_deadline() -> None:
    """It named none."""
    admitter = full()
    ask(admitter, "a", wait_ns=20 * MS)
    assert admitter.next_wakeup_ns() == 20 * MS
    (left,) = admitter.advance(now_ns=20 * MS)
    assert isinstance(left, Expire)
    assert left.reject.reason is ReasonCode.QUEUE_TIMEOUT


def test_wait_when_shorter_than_the_others_then_buys_no_earlier_place() -> None:
    """The order is by what its class allows, or every caller would claim to be in a hurry."""
    admitter = full()
    ask(admitter, "patient", wait_ns=None)
    ask(admitter, "hasty", wait_ns=S)
    effects = settle(admitter, "running", Usage(800, 100), now_ns=1)
    entered = [effect.ticket_id for effect in effects if isinstance(effect, Dispatch)]
    assert entered == ["patient", "hasty"]


def test_wait_when_the_first_token_is_bound_as_well_then_the_shorter_holds() -> None:
    """Of a guarded pool too: its own wait, or what is left before the first token is due."""
    profile = EngineProfile(
        name="reader",
        source="made up for these tests",
        step_ns=100 * MS,
        step_tokens_max=200,
        chunk_tokens_max=200,
        kv_tokens=1_000,
        sequences_max=100,
    )
    queue = QueueLimits(first_token_slo_ns=2 * S)
    plain = ask(full(queue=queue, profile=profile), "a", wait_ns=None)
    shorter = ask(full(queue=queue, profile=profile), "a", wait_ns=700 * MS)
    longer = ask(full(queue=queue, profile=profile), "a", wait_ns=4 * S)
    assert isinstance(plain, Enqueue)
    assert isinstance(shorter, Enqueue)
    assert isinstance(longer, Enqueue)
    assert S < plain.expires_ns < 2 * S
    assert (shorter.expires_ns, longer.expires_ns) == (700 * MS, plain.expires_ns)
