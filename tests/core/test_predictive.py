"""The predictive policy as a whole: first-token bounds, predictions and what is remembered.

The engine reads 200 tokens in 100 ms whatever else it does, so that times can be worked out by
hand: a prompt of n tokens takes a step, n / 2 ms, and the SLO of 1 s leaves 900 ms for both.
"""

import random

import pytest

from tests.core.support import (
    MS,
    ONE,
    TWO,
    S,
    admit,
    admitter_with,
    enqueue,
    reject,
    request,
    reservation,
    settle,
    ticket,
)
from tokenweir.core.admitter import Admitter
from tokenweir.core.batch_peak import BatchPeak
from tokenweir.core.decision import Dispatch, Effect, Expire
from tokenweir.core.guards import GuardConfig
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.mode import Mode
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.signals import Signals
from tokenweir.core.units import Nanos, ReplicaId

READER = EngineProfile(
    name="reader",
    source="made up for these tests",
    step_ns=100 * MS,
    step_tokens_max=200,
    chunk_tokens_max=200,
    kv_tokens=10_000,
    sequences_max=100,
)
WITH_SLO = QueueLimits(wait_ns_max=5 * S, first_token_slo_ns=S)


def reader(
    *,
    queue: QueueLimits = WITH_SLO,
    replicas: tuple[ReplicaId, ...] = (ONE,),
    kv_tokens: int = 10_000,
    rate_hint_tokens_per_s: float | None = 2_000.0,
) -> Admitter:
    """Build a predictive admitter over engines that read 2,000 tokens a second."""
    return admitter_with(
        "predictive",
        kv_tokens=kv_tokens,
        replicas=replicas,
        profile=READER,
        queue=queue,
        # The reader's steps are longer than any pace bound; only reading is looked at here.
        guards=GuardConfig(tpot_ns=None),
        rate_hint_tokens_per_s=rate_hint_tokens_per_s,
    )


def asking(name: str, prompt_tokens: int, *, deadline_ns: Nanos | None = None) -> Request:
    """Build a request for ten tokens."""
    return request(name, prompt_tokens=prompt_tokens, output_tokens_max=10, deadline_ns=deadline_ns)


def batch_on(admitter: Admitter, replica: ReplicaId = ONE) -> BatchPeak:
    """Return the batch that is tracked on a replica."""
    batch = admitter._ledger.accounts[replica].batch
    assert batch is not None
    return batch


def teach(admitter: Admitter, length: int, *, count: int = 200, declared: int = 4_096) -> None:
    """Let answers of one length come to their end, one after the other."""
    for index in range(count):
        name = f"taught{length}-{index}"
        admit(admitter, request(name, output_tokens_max=declared))
        admitter.first_token(reservation(name), now_ns=0)
        settle(admitter, name, Usage(100, length))


# --- first token ----------------------------------------------------------------------------------


def test_arrive_when_the_first_token_would_come_too_late_then_is_refused() -> None:
    """The doomed are told at once: 1,200 unread tokens before 500 own ones take 850 ms of 750."""
    admitter = reader()
    admit(admitter, asking("running", 1_200))
    refused = reject(admitter, asking("late", 500))
    assert refused.reason is ReasonCode.OVERLOAD_PREFILL
    assert refused.retry_after_ns is not None


def test_arrive_when_the_first_token_can_still_be_in_time_then_waits() -> None:
    """The same request waits behind less: 1,000 unread tokens and 500 own ones take 850 ms."""
    admitter = reader()
    admit(admitter, asking("running", 1_000))
    waiting = enqueue(admitter, asking("in_time", 500))
    # 900 ms less 250 ms for its prompt and 100 ms for the step that is running.
    assert waiting.expires_ns == 550 * MS


def test_arrive_when_much_waits_already_then_what_waits_is_read_first() -> None:
    """Prompts in our own queue come before the newcomer's like those inside the engine."""
    admitter = reader()
    admit(admitter, asking("running", 400))
    for index in range(3):
        enqueue(admitter, asking(f"waiting{index}", 300))
    # 400 + 900 + 400 tokens are 850 ms and a step, 50 ms beyond what the SLO leaves.
    reject(admitter, asking("late", 400))
    enqueue(admitter, asking("in_time", 100))


def test_arrive_when_there_are_more_replicas_then_they_share_what_waits() -> None:
    """Two engines read a queue in half the time."""
    admitter = reader(replicas=(ONE, TWO))
    for index in range(2):
        admit(admitter, asking(f"running{index}", 400))
    for index in range(3):
        enqueue(admitter, asking(f"waiting{index}", 300))
    # 400 + 450 + 400 tokens, which one engine could not have read in time.
    enqueue(admitter, asking("in_time", 400))


def test_arrive_when_its_own_reading_is_too_long_then_is_refused_unless_alone() -> None:
    """What cannot meet the bound on an idle engine is served there, but waits for nothing."""
    admitter = reader()
    admit(admitter, asking("alone", 3_000))
    assert reject(admitter, asking("second", 3_000)).reason is ReasonCode.OVERLOAD_PREFILL
    # The bound it may wait for is exactly zero: it would be dropped before anything could happen.
    reject(admitter, asking("third", 1_600))
    assert admitter.advance(now_ns=0) == ()


def test_arrive_when_no_rate_is_known_then_an_assumed_one_turns_nobody_away() -> None:
    """Before the first completion the rate is a guess, good for advice and for nothing else."""
    admitter = reader(kv_tokens=1_000, rate_hint_tokens_per_s=None)
    admit(admitter, asking("running", 150))
    waiting = enqueue(admitter, asking("waiting", 900))
    assert waiting.expected_wait_ns > S


def test_arrive_when_reading_alone_is_long_then_the_bound_may_follow_it() -> None:
    """Three times the 1.5 s of an idle engine for a prompt of 3,000, and no less than the SLO."""
    limits = QueueLimits(wait_ns_max=5 * S, first_token_slo_ns=S, first_token_unloaded_ratio=3)
    admitter = reader(queue=limits)
    admit(admitter, asking("running", 600))
    # 4,050 ms less 1,500 for its prompt and 100 for the step that is running.
    assert enqueue(admitter, asking("long", 3_000)).expires_ns == 2_450 * MS
    admitter = reader(queue=limits)
    admit(admitter, asking("running", 600))
    assert enqueue(admitter, asking("short", 500)).expires_ns == 550 * MS


def test_queue_when_the_own_reading_would_come_too_late_then_expires() -> None:
    """A long prompt is dropped sooner than a short one, each when it can no longer make it."""
    admitter = reader()
    admit(admitter, asking("running", 600))
    enqueue(admitter, asking("short", 100))
    enqueue(admitter, asking("long", 600))
    admitter.observe(Signals(ONE, 0, is_healthy=False), now_ns=0)
    assert admitter.advance(now_ns=0) == ()
    assert admitter.next_wakeup_ns() == 500 * MS
    assert admitter.advance(now_ns=500 * MS - 1) == ()
    (effect,) = admitter.advance(now_ns=500 * MS)
    assert isinstance(effect, Expire)
    assert (effect.ticket_id, effect.reject.reason) == (
        ticket("long"),
        ReasonCode.NO_HEALTHY_REPLICA,
    )
    (effect,) = admitter.advance(now_ns=750 * MS)
    assert isinstance(effect, Expire)
    assert effect.ticket_id == ticket("short")


def test_queue_when_the_prompt_has_been_read_then_the_head_enters() -> None:
    """The guard opens with the first token of what was unread, told or shown by its progress."""
    admitter = reader()
    admit(admitter, asking("running", 600))
    enqueue(admitter, asking("second", 300))
    enqueue(admitter, asking("third", 100))
    admitter.first_token(reservation("running"), now_ns=100 * MS)
    # 300 tokens are more than a step, so the third waits for the second.
    assert dispatched(admitter.advance(now_ns=100 * MS)) == ["second"]
    admitter.progress(ONE, {reservation("second"): 1}, now_ns=200 * MS)
    assert dispatched(admitter.advance(now_ns=200 * MS)) == ["third"]


def test_arrive_when_no_slo_is_known_then_waits_as_long_as_it_may() -> None:
    """Without a bound on the first token there is nothing to be too late for."""
    admitter = reader(queue=QueueLimits(wait_ns_max=5 * S))
    admit(admitter, asking("running", 3_000))
    assert enqueue(admitter, asking("waiting", 3_000)).expires_ns == 5 * S


def test_arrive_when_no_engine_is_known_then_the_plain_bound_holds() -> None:
    """Where nobody knows how fast prompts are read, half of the SLO is kept for it."""
    admitter = admitter_with("predictive", kv_tokens=10_000, queue=WITH_SLO)
    admit(admitter, asking("running", 3_000))
    assert enqueue(admitter, asking("waiting", 3_000)).expires_ns == 500 * MS


def test_arrive_when_the_deadline_comes_first_then_it_is_the_bound() -> None:
    """Nothing waits beyond its own deadline, and what cannot make it is refused."""
    admitter = reader()
    admit(admitter, asking("running", 400))
    waiting = enqueue(admitter, asking("waiting", 100, deadline_ns=400 * MS))
    assert waiting.expires_ns == 400 * MS
    # 500 tokens are ahead of it by now.
    refused = reject(admitter, asking("late", 100, deadline_ns=200 * MS))
    assert refused.reason is ReasonCode.DEADLINE_UNREACHABLE


# --- predictions ----------------------------------------------------------------------------------


def test_redraw_when_an_answer_outgrows_its_prediction_then_the_peak_rises() -> None:
    """What has produced all that was predicted is taken to go on, and room is kept for it."""
    admitter = admitter_with("predictive", kv_tokens=100_000)
    teach(admitter, 50)
    admit(admitter, request("long", output_tokens_max=4_096))
    batch = batch_on(admitter)
    assert batch.peak_tokens() == 100 + 50
    admitter.progress(ONE, {reservation("long"): 49}, now_ns=0)
    assert batch.peak_tokens() == 100 + 50
    # Nothing so long was ever seen: 64 more, each time it gets there.
    admitter.progress(ONE, {reservation("long"): 50}, now_ns=0)
    assert batch.peak_tokens() == 100 + 50 + 64
    admitter.progress(ONE, {reservation("long"): 120}, now_ns=0)
    assert batch.peak_tokens() == 100 + 120 + 64
    admitter.check_invariants()


def test_redraw_when_longer_answers_are_known_then_draws_among_them() -> None:
    """Given that it is longer than the short ones, it is one of the long ones."""
    admitter = admitter_with("predictive", kv_tokens=1_000_000)
    teach(admitter, 50, count=100)
    teach(admitter, 400, count=100)
    for index in range(20):
        admit(admitter, request(f"r{index}", output_tokens_max=4_096))
    batch = batch_on(admitter)
    assert batch.peak_tokens() < 20 * 500
    progress = {reservation(f"r{index}"): 60 for index in range(20)}
    admitter.progress(ONE, progress, now_ns=0)
    assert batch.peak_tokens() == 20 * 500


def test_redraw_when_the_maximum_is_reached_then_stays_there() -> None:
    """An answer cannot get longer than was asked for, however often it is told so."""
    admitter = admitter_with("predictive")
    admit(admitter, request("r", output_tokens_max=10))
    for tokens in (10, 11, 30):
        admitter.progress(ONE, {reservation("r"): tokens}, now_ns=0)
        # One token more stands for the end that is due.
        assert batch_on(admitter).peak_tokens() == 100 + tokens + 1


def test_redraw_when_the_room_is_gone_then_the_next_one_waits() -> None:
    """A prediction that proved too short costs those who come, not those who are there."""
    admitter = admitter_with("predictive", kv_tokens=450)
    teach(admitter, 50)
    admit(admitter, request("a", output_tokens_max=4_096))
    admitter.progress(ONE, {reservation("a"): 150}, now_ns=0)
    assert batch_on(admitter).peak_tokens() == 314
    enqueue(admitter, request("b", output_tokens_max=4_096))
    # Both together would hold 450 before the second ends; alone it needs 150.
    assert dispatched(settle(admitter, "a", Usage(100, 150))) == ["b"]


def test_learning_when_answers_are_short_then_loose_maxima_are_not_believed() -> None:
    """After 200 answers of 50 tokens, 4,096 declared ones are taken for about 50."""
    admitter = admitter_with("predictive", kv_tokens=100_000)
    first = admit(admitter, request("first", output_tokens_max=4_096))
    assert first.reserved_tokens == 100 + 1_024
    settle(admitter, "first", Usage(100, 50))
    teach(admitter, 50)
    for index in range(50):
        decision = admit(admitter, request(f"r{index}", output_tokens_max=4_096))
        assert 45 <= decision.reserved_tokens - 100 <= 55
        admitter.first_token(reservation(f"r{index}"), now_ns=0)


def test_learning_when_another_admitter_learns_then_nothing_is_shared() -> None:
    """Pools serve different models: what one learns is not true of another."""
    one = admitter_with("predictive", kv_tokens=100_000)
    other = admitter_with("predictive", kv_tokens=100_000)
    teach(one, 50)
    assert admit(other, request("r", output_tokens_max=4_096)).reserved_tokens == 1_124


# --- what is remembered ---------------------------------------------------------------------------


def close(admitter: Admitter, name: str, *, end: str) -> None:
    """End an open request in one of the ways there are."""
    match end:
        case "release":
            admitter.release(reservation(name), now_ns=0)
        case "lose":
            admitter.advance(now_ns=60 * S)
        case _:
            admitter.settle(reservation(name), Usage(100, 5), outcome=Outcome(end), now_ns=0)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("end", [*(outcome.value for outcome in Outcome), "release", "lose"])
def test_memory_when_everything_is_closed_then_is_empty(mode: Mode, end: str) -> None:
    """INV-ADMITTER-2: no way to end leaves anything of the request, in any mode."""
    admitter = admitter_with("predictive", ledger=LedgerConfig(lease_ns=10 * S))
    admitter.mode = mode
    names = ["a", "b", "c"]
    for name in names:
        admit(admitter, request(name))
    assert set(admitter._open) == {reservation(name) for name in names}
    for name in names:
        close(admitter, name, end=end)
    admitter.advance(now_ns=61 * S)
    assert not admitter._open
    assert len(batch_on(admitter)) == 0
    assert admitter.snapshot(now_ns=61 * S).used_tokens == 0


def test_memory_when_the_end_is_told_again_or_late_then_stays_empty() -> None:
    """A late or a repeated settle charges, and brings nothing back."""
    admitter = admitter_with("predictive", ledger=LedgerConfig(lease_ns=10 * S))
    admit(admitter, request("lost"))
    admitter.advance(now_ns=10 * S)
    for _ in range(2):
        settle(admitter, "lost", Usage(100, 5), now_ns=10 * S)
        admitter.progress(ONE, {reservation("lost"): 500}, now_ns=10 * S)
        admitter.first_token(reservation("lost"), now_ns=10 * S)
        assert not admitter._open
    admitter.check_invariants()


def test_memory_when_a_request_only_waited_then_there_is_none() -> None:
    """What is refused, expires or leaves the queue was never let in."""
    admitter = admitter_with("predictive", kv_tokens=450, queue=QueueLimits(items_max=2))
    admit(admitter, request("running", output_tokens_max=200))
    enqueue(admitter, request("leaves", output_tokens_max=200))
    enqueue(admitter, request("expires", output_tokens_max=200))
    reject(admitter, request("refused", output_tokens_max=200))
    admitter.cancel(ticket("leaves"), now_ns=0)
    admitter.advance(now_ns=5 * S)
    assert set(admitter._open) == {reservation("running")}


# --- determinism ----------------------------------------------------------------------------------


def course(seed: int) -> list[object]:
    """Return every decision and effect of a crowd of requests with drawn lengths and times."""
    chance = random.Random(seed)
    admitter = reader(replicas=(ONE, TWO))
    seen: list[object] = []
    now_ns = 0
    for index in range(400):
        # Now and then there is silence for longer than anything may wait.
        now_ns += S if index % 50 == 49 else chance.randrange(60 * MS)
        seen.extend(admitter.advance(now_ns=now_ns))
        asked = request(
            f"r{index}",
            prompt_tokens=chance.randrange(1, 900),
            output_tokens_max=chance.choice([100, 1_000, 4_096]),
        )
        seen.append(admitter.arrive(asked, now_ns=now_ns))
        for replica in (ONE, TWO):
            open_ids = [r.reservation_id for r in admitter._ledger.open_on(replica)]
            tokens = {name: chance.randrange(1, 400) for name in open_ids if chance.random() < 0.3}
            admitter.progress(replica, tokens, now_ns=now_ns)
            for name in open_ids:
                if chance.random() < 0.03:
                    usage = Usage(100, chance.randrange(1, 300))
                    admitter.settle(name, usage, outcome=Outcome.FINISHED, now_ns=now_ns)
        if index % 10 == 0:
            used = chance.randrange(8_000)
            admitter.observe(Signals(ONE, now_ns, kv_used_tokens=used), now_ns=now_ns)
        seen.extend(admitter.advance(now_ns=now_ns))
        admitter.check_invariants()
    seen.append(admitter.snapshot(now_ns=now_ns))
    return seen


def test_decisions_when_the_same_happens_again_then_are_the_same() -> None:
    """Same calls at the same times, same decisions and effects in the same order."""
    first = course(7)
    assert first == course(7)
    assert first != course(8)
    kinds = {type(what).__name__ for what in first}
    assert {"Admit", "Enqueue", "Reject", "Dispatch", "Expire"} <= kinds


def dispatched(effects: tuple[Effect, ...]) -> list[str]:
    """Return the ticket of each dispatch."""
    return [effect.ticket_id for effect in effects if isinstance(effect, Dispatch)]
