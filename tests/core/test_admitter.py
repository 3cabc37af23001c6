"""Admit, queue or refuse: what the shared object answers.

Where nothing else is said the pool is one replica of 1,000 tokens, of which 950 may be promised,
and a request holds 200: four fit.
"""

import random
from collections.abc import Callable

import pytest

from tests.core.support import (
    MS,
    ONE,
    TWO,
    FixedRng,
    S,
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
from tokenweir.core.decision import Admit, Dispatch, Effect, Enqueue, Expire, LeaseLost, Reject
from tokenweir.core.errors import ConfigError, ContractError
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.mode import Mode
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Outcome, Usage
from tokenweir.core.signals import Signals
from tokenweir.core.units import Nanos, ReplicaId

USED = Usage(100, 100)
NO_QUEUE = QueueLimits(items_max=0)


def fill(admitter: Admitter, *, now_ns: Nanos = 0, prefix: str = "full") -> list[str]:
    """Admit four requests of 200 tokens."""
    names = [f"{prefix}{index}" for index in range(4)]
    for name in names:
        admit(admitter, request(name), now_ns=now_ns)
    return names


def saturate(admitter: Admitter) -> None:
    """Free 800 tokens a second for ten seconds in each of which something does not fit."""
    for second in range(10):
        fill(admitter, now_ns=second * S, prefix=f"s{second}-")
        reject(admitter, request(f"late{second}"), now_ns=second * S)
        for index in range(4):
            settle(admitter, f"s{second}-{index}", now_ns=second * S)


def settle(admitter: Admitter, name: str, *, now_ns: Nanos) -> tuple[Effect, ...]:
    """Finish a request and advance, as a driver does."""
    admitter.settle(reservation(name), USED, outcome=Outcome.FINISHED, now_ns=now_ns)
    return admitter.advance(now_ns=now_ns)


def expired(effects: tuple[Effect, ...]) -> list[tuple[str, ReasonCode]]:
    """Return ticket and reason of each expiry."""
    return [(e.ticket_id, e.reject.reason) for e in effects if isinstance(e, Expire)]


def dispatched(effects: tuple[Effect, ...]) -> list[str]:
    """Return the ticket of each dispatch."""
    return [effect.ticket_id for effect in effects if isinstance(effect, Dispatch)]


def seen_down(admitter: Admitter, replica: ReplicaId = ONE, *, now_ns: Nanos = 0) -> None:
    """Let a replica be seen unhealthy."""
    admitter.observe(Signals(replica, scraped_ns=now_ns, is_healthy=False), now_ns=now_ns)


# --- arriving -------------------------------------------------------------------------------------


def test_arrive_when_it_fits_then_is_admitted_with_a_hold() -> None:
    """What fits enters at once, and its whole estimate is held."""
    admitter = admitter_with()
    expected = Admit(reservation("a"), ONE, reserved_tokens=200, reason=ReasonCode.FITS)
    assert admitter.arrive(request("a"), now_ns=0) == expected
    assert admitter.snapshot(now_ns=0).used_tokens == 200


def test_arrive_when_it_does_not_fit_then_waits_in_order() -> None:
    """Who comes later stands further back, and is told how far."""
    admitter = admitter_with()
    fill(admitter)
    for position, name in enumerate(["a", "b"]):
        decision = enqueue(admitter, request(name))
        assert (decision.ticket_id, decision.position) == (ticket(name), position)
        assert decision.expires_ns == 5 * S
    seen = admitter.snapshot(now_ns=0)
    assert (seen.queued, seen.queue_debt_tokens) == (2, 400)


def test_arrive_when_a_small_one_would_fit_behind_a_large_one_then_waits() -> None:
    """Nobody overtakes, so a large request is not starved by small ones."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("large", prompt_tokens=500))
    enqueue(admitter, request("small", prompt_tokens=1, output_tokens_max=1))
    assert admitter.advance(now_ns=0) == ()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ledger", ReasonCode.OVERLOAD_KV),
        ("concurrency", ReasonCode.OVERLOAD_CONCURRENCY),
        ("hard_gate", ReasonCode.OVERLOAD_GATE),
    ],
)
def test_arrive_when_nothing_may_wait_then_is_refused_with_the_limit(
    name: str, reason: ReasonCode
) -> None:
    """Without a queue the refusal names the limit that was hit, its use and the cost."""
    admitter = admitter_with(name, queue=NO_QUEUE)
    for index in range(9):
        admitter.arrive(request(f"r{index}", prompt_tokens=290, output_tokens_max=10), now_ns=0)
    refused = reject(admitter, request("r", prompt_tokens=290, output_tokens_max=10))
    assert refused.reason is (reason if name != "hard_gate" else ReasonCode.OVERLOAD_KV)
    assert refused.cost_tokens == 300
    assert 0 < refused.used_tokens <= refused.limit_tokens
    assert refused.retry_after_ns is not None
    assert refused.retry_after_ns > S


def test_arrive_when_the_gate_is_shut_then_says_so() -> None:
    """A gate that shut is named, not the pool behind it."""
    admitter = admitter_with("hard_gate", queue=NO_QUEUE)
    admit(admitter, request("a", prompt_tokens=900, output_tokens_max=1))
    refused = reject(admitter, request("b", prompt_tokens=1, output_tokens_max=1))
    assert (refused.reason, refused.used_tokens) == (ReasonCode.OVERLOAD_GATE, 900)


def test_arrive_when_the_queue_is_full_then_is_refused() -> None:
    """The bound on items is kept by refusing."""
    admitter = admitter_with(queue=QueueLimits(items_max=1))
    fill(admitter)
    enqueue(admitter, request("a"))
    assert reject(admitter, request("b")).reason is ReasonCode.QUEUE_FULL


@pytest.mark.case("CASE-E12")
def test_arrive_when_the_debt_would_pass_its_bound_then_is_refused() -> None:
    """The bound on tokens is kept by refusing; what still fits under it may wait."""
    admitter = admitter_with(queue=QueueLimits(debt_tokens_max=300))
    fill(admitter)
    enqueue(admitter, request("a"))
    assert reject(admitter, request("b")).reason is ReasonCode.QUEUE_FULL
    enqueue(admitter, request("c", prompt_tokens=50, output_tokens_max=50))


def test_arrive_when_the_wait_would_pass_its_bound_then_is_refused_at_once() -> None:
    """What is doomed is not queued: 50 tokens at 10 a second take as long as may be waited."""
    for tokens, decision in ((200, Enqueue), (201, Reject)):
        admitter = admitter_with(rate_hint_tokens_per_s=10.0)
        fill(admitter)
        asked = request("r", prompt_tokens=tokens - 100)
        assert isinstance(admitter.arrive(asked, now_ns=0), decision)


def test_arrive_when_the_slo_is_known_then_bounds_the_wait() -> None:
    """Half of the SLO may be waited, the rest is the engine's."""
    admitter = admitter_with(queue=QueueLimits(first_token_slo_ns=S), rate_hint_tokens_per_s=100.0)
    fill(admitter)
    assert enqueue(admitter, request("a", prompt_tokens=100)).expires_ns == 500 * MS
    admitter = admitter_with(queue=QueueLimits(first_token_slo_ns=S), rate_hint_tokens_per_s=100.0)
    fill(admitter)
    assert reject(admitter, request("b", prompt_tokens=101)).reason is ReasonCode.OVERLOAD_KV


def test_arrive_when_the_deadline_cannot_be_met_then_is_refused_on_arrival() -> None:
    """50 tokens at 100 a second are ready in half a second; a deadline then is too early."""
    admitter = admitter_with(rate_hint_tokens_per_s=100.0)
    fill(admitter)
    refused = reject(admitter, request("a", deadline_ns=S // 2))
    assert refused.reason is ReasonCode.DEADLINE_UNREACHABLE
    assert refused.retry_after_ns == S // 2
    assert enqueue(admitter, request("b", deadline_ns=S // 2 + 1)).expires_ns == S // 2 + 1


def test_arrive_when_it_can_never_fit_then_gets_no_advice() -> None:
    """A final refusal says the limit, and no time at which to come back."""
    admitter = admitter_with()
    refused = reject(admitter, request("a", prompt_tokens=5_000))
    assert refused == Reject(ReasonCode.TOO_LARGE, limit_tokens=1_000, cost_tokens=5_100)
    refused = reject(admitter, request("b", output_tokens_max=10**9))
    assert refused.reason is ReasonCode.OUTPUT_MAX_TOO_LARGE
    assert refused.retry_after_ns is None


def test_arrive_when_there_is_no_replica_then_is_refused_with_advice() -> None:
    """An empty pool cannot serve; that may change."""
    refused = reject(admitter_with(replicas=()), request("a"))
    assert refused.reason is ReasonCode.NO_HEALTHY_REPLICA
    assert refused.retry_after_ns == S // 2


def test_arrive_when_the_pool_size_is_unknown_then_32_are_admitted() -> None:
    """Until telemetry tells the size the admitter is careful, not unlimited; then it counts."""
    admitter = admitter_with(kv_tokens=None, queue=NO_QUEUE)
    for index in range(32):
        admit(admitter, request(f"r{index}"))
    assert reject(admitter, request("a")).reason is ReasonCode.OVERLOAD_CONCURRENCY
    admitter.observe(Signals(ONE, scraped_ns=0, kv_tokens=100_000), now_ns=0)
    admit(admitter, request("b"))


@pytest.mark.parametrize("mode", Mode)
def test_arrive_when_the_id_is_live_then_raises_and_changes_nothing(mode: Mode) -> None:
    """An id stands for one request, whether it runs or waits."""
    admitter = admitter_with()
    names = fill(admitter)
    enqueue(admitter, request("waits"))
    admitter.mode = mode
    before = admitter.snapshot(now_ns=0), admitter.counts.copy()
    for name in (names[0], "waits"):
        with pytest.raises(ContractError, match=f"request {name} is live"):
            admitter.arrive(request(name), now_ns=0)
    assert (admitter.snapshot(now_ns=0), admitter.counts) == before


def test_arrive_when_the_id_was_closed_then_raises_before_it_may_wait() -> None:
    """A used id that waited would fail at its dispatch, where nobody can be told."""
    admitter = admitter_with()
    fill(admitter)
    settle(admitter, "full0", now_ns=0)
    admitter.release(reservation("full1"), now_ns=0)
    admit(admitter, request("a"))
    admit(admitter, request("b"))
    for used in ("full0", "full1"):
        with pytest.raises(ContractError, match=f"request {used} .* an id is used once"):
            admitter.arrive(request(used), now_ns=0)
    assert admitter.snapshot(now_ns=0).queued == 0
    settle(admitter, "full2", now_ns=S)


def test_arrive_when_the_lease_of_its_id_was_lost_then_raises_before_it_may_wait() -> None:
    """A late settle of the lost one must not close the new one."""
    admitter = admitter_with()
    fill(admitter)
    assert len(admitter.advance(now_ns=10 * S)) == 4
    fill(admitter, now_ns=10 * S, prefix="again")
    with pytest.raises(ContractError, match="full0"):
        admitter.arrive(request("full0"), now_ns=10 * S)


# --- waiting and dispatch -------------------------------------------------------------------------


def test_advance_when_room_comes_then_the_head_enters_and_the_others_wait() -> None:
    """Dispatch follows the order of arrival, and says how long each has waited."""
    admitter = admitter_with()
    fill(admitter)
    for name in ("a", "b", "c"):
        enqueue(admitter, request(name))
    assert settle(admitter, "full0", now_ns=S) == (
        Dispatch(ticket("a"), Admit(reservation("a"), ONE, 200), S),
    )
    assert dispatched(settle(admitter, "full1", now_ns=2 * S)) == ["b"]
    assert dispatched(settle(admitter, "full2", now_ns=3 * S)) == ["c"]


def test_advance_when_much_room_comes_then_all_that_fits_enters_in_order() -> None:
    """One large end lets several in, in one advance."""
    admitter = admitter_with()
    admit(admitter, request("large", prompt_tokens=800))
    for name in ("a", "b", "c", "d", "e"):
        enqueue(admitter, request(name))
    assert dispatched(settle(admitter, "large", now_ns=S)) == ["a", "b", "c", "d"]
    assert admitter.snapshot(now_ns=S).queued == 1


def test_advance_when_the_head_is_too_large_for_the_room_then_nobody_passes() -> None:
    """Room that only the second could use stays free for the head."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("large", prompt_tokens=500))
    enqueue(admitter, request("small"))
    assert settle(admitter, "full0", now_ns=1) == ()
    assert settle(admitter, "full1", now_ns=2) == ()
    assert dispatched(settle(admitter, "full2", now_ns=3)) == ["large"]
    assert dispatched(settle(admitter, "full3", now_ns=4)) == ["small"]


def test_advance_when_a_drain_ends_then_the_head_enters() -> None:
    """KV of a cancelled request holds the next one back for the abort time, and no longer."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("a", prompt_tokens=200))
    admitter.settle(reservation("full0"), USED, outcome=Outcome.CANCELLED, now_ns=0)
    assert admitter.advance(now_ns=0) == ()
    assert admitter.next_wakeup_ns() == 500 * MS
    assert dispatched(admitter.advance(now_ns=500 * MS)) == ["a"]


def test_advance_when_a_lease_is_lost_then_its_place_is_given_on() -> None:
    """A dead owner's work is taken back, told, and used, in one advance."""
    admitter = admitter_with(ledger=LedgerConfig(lease_ns=2 * S))
    fill(admitter)
    enqueue(admitter, request("a"), now_ns=S)
    others = {reservation(f"full{index}"): 1 for index in range(1, 4)}
    admitter.progress(ONE, others, now_ns=S)
    assert admitter.next_wakeup_ns() == 2 * S
    lost, dispatch = admitter.advance(now_ns=2 * S)
    assert lost == LeaseLost(reservation("full0"), ONE)
    assert dispatched((dispatch,)) == ["a"]
    assert admitter.counts["leases_lost"] == 1


def test_cancel_when_waiting_then_is_gone_and_never_dispatched() -> None:
    """A client that leaves the queue is not served, and holds nothing."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("a"))
    enqueue(admitter, request("b"))
    assert admitter.cancel(ticket("a"), now_ns=0)
    assert not admitter.cancel(ticket("a"), now_ns=0)
    assert admitter.counts["cancelled_in_queue"] == 1
    assert dispatched(settle(admitter, "full0", now_ns=1)) == ["b"]


def test_cancel_when_the_head_leaves_then_the_next_enters_at_once() -> None:
    """A head that was too large and leaves frees those behind it."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("large", prompt_tokens=500))
    enqueue(admitter, request("small", prompt_tokens=50))
    admitter.cancel(ticket("large"), now_ns=1)
    assert dispatched(admitter.advance(now_ns=1)) == ["small"]


def test_wait_when_over_then_is_told_as_a_timeout_with_advice() -> None:
    """A wait ends at its bound, to the nanosecond."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("a"))
    assert admitter.next_wakeup_ns() == 5 * S
    assert admitter.advance(now_ns=5 * S - 1) == ()
    (effect,) = admitter.advance(now_ns=5 * S)
    assert isinstance(effect, Expire)
    assert (effect.ticket_id, effect.queue_wait_ns) == (ticket("a"), 5 * S)
    assert effect.reject.reason is ReasonCode.QUEUE_TIMEOUT
    assert effect.reject.retry_after_ns is not None
    assert admitter.counts["expired"] == 1


def test_wait_when_the_deadline_comes_first_then_is_told_as_the_deadline() -> None:
    """A caller who allowed less time hears of the time it allowed."""
    admitter = admitter_with(rate_hint_tokens_per_s=1_000.0)
    fill(admitter)
    enqueue(admitter, request("a", deadline_ns=S))
    enqueue(admitter, request("b"))
    assert expired(admitter.advance(now_ns=S)) == [("a", ReasonCode.DEADLINE_EXCEEDED)]


def test_wait_when_no_replica_is_healthy_then_is_told_so() -> None:
    """A wait that ended because nothing could serve is not blamed on load."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("a"))
    seen_down(admitter)
    assert admitter.advance(now_ns=S) == ()
    assert expired(admitter.advance(now_ns=5 * S)) == [("a", ReasonCode.NO_HEALTHY_REPLICA)]


def test_drain_when_called_then_what_waits_is_dropped_and_what_runs_may_finish() -> None:
    """Shutting down answers everybody: 503 to who waits or comes, an end to who runs."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("a"))
    enqueue(admitter, request("b"))
    admitter.drain(now_ns=S)
    effects = admitter.advance(now_ns=S)
    assert expired(effects) == [("a", ReasonCode.DRAINING), ("b", ReasonCode.DRAINING)]
    refused = reject(admitter, request("c"), now_ns=S)
    assert (refused.reason, refused.row.status) == (ReasonCode.DRAINING, 503)
    for index in range(4):
        settle(admitter, f"full{index}", now_ns=2 * S)
    assert admitter.snapshot(now_ns=2 * S).used_tokens == 0
    assert admitter.next_wakeup_ns() is None


@pytest.mark.parametrize("mode", Mode)
def test_drain_when_in_any_mode_then_nothing_is_admitted(mode: Mode) -> None:
    """Shutting down binds in every mode."""
    admitter = admitter_with()
    admitter.mode = mode
    admitter.drain(now_ns=0)
    assert reject(admitter, request("a")).reason is ReasonCode.DRAINING
    assert admitter.refusals()[-1].is_enforced


# --- placement ------------------------------------------------------------------------------------


def test_placement_when_replicas_differ_then_the_roomiest_takes_it() -> None:
    """Load goes where most is free; between equals to the first that was added."""
    admitter = admitter_with(replicas=(ONE, TWO))
    sizes = {"a": 300, "b": 100, "c": 100, "d": 100}
    placed = [
        admit(admitter, request(name, prompt_tokens=size)).replica for name, size in sizes.items()
    ]
    assert placed == [ONE, TWO, TWO, ONE]


def test_placement_when_only_a_busier_replica_fits_then_it_takes_it() -> None:
    """Room is what counts, not how little of it is used."""
    admitter = admitter_with(replicas=())
    admitter.add_replica(ONE, kv_tokens=300)
    admitter.add_replica(TWO, kv_tokens=10_000)
    admit(admitter, request("a", prompt_tokens=9_000))
    assert admit(admitter, request("b", prompt_tokens=300)).replica == TWO


def test_placement_when_the_roomiest_is_down_then_it_is_skipped() -> None:
    """An unhealthy replica takes nothing until a healthy look at it."""
    admitter = admitter_with(replicas=(ONE, TWO), queue=NO_QUEUE)
    seen_down(admitter, ONE)
    placed = [admit(admitter, request(f"r{index}")).replica for index in range(4)]
    assert placed == [TWO] * 4
    assert reject(admitter, request("a")).reason is ReasonCode.OVERLOAD_KV
    admitter.observe(Signals(ONE, scraped_ns=1), now_ns=1)
    assert admit(admitter, request("b"), now_ns=1).replica == ONE


def test_placement_when_all_are_down_then_is_refused_and_holds_stay() -> None:
    """Nothing can serve; what was running is still accounted for."""
    admitter = admitter_with(replicas=(ONE, TWO))
    admit(admitter, request("a"))
    seen_down(admitter, ONE)
    seen_down(admitter, TWO)
    assert reject(admitter, request("b")).reason is ReasonCode.NO_HEALTHY_REPLICA
    assert admitter.snapshot(now_ns=0).used_tokens == 200


def test_dispatch_when_another_replica_has_room_then_goes_there() -> None:
    """The queue belongs to the pool: the replica is chosen when there is room."""
    admitter = admitter_with(replicas=(ONE, TWO))
    for index in range(8):
        admit(admitter, request(f"r{index}"))
    enqueue(admitter, request("a"))
    on_two = next(r for r in admitter._ledger.open_on(TWO))
    (effect,) = settle(admitter, on_two.reservation_id, now_ns=1)
    assert isinstance(effect, Dispatch)
    assert effect.admit.replica == TWO


# --- advice ---------------------------------------------------------------------------------------


def test_advice_when_the_backlog_grows_then_is_later() -> None:
    """Who is refused behind more work is told to come back later."""
    advice = []
    for waiting in range(3):
        admitter = admitter_with(queue=QueueLimits(items_max=waiting), rate_hint_tokens_per_s=100.0)
        fill(admitter)
        for index in range(waiting):
            enqueue(admitter, request(f"w{index}"))
        advice.append(reject(admitter, request("r")).retry_after_ns)
    assert advice == [S // 2, 2 * S + S // 2, 4 * S + S // 2]


def test_advice_when_chance_differs_then_returns_are_spread() -> None:
    """Jitter comes from the dice that were passed in."""
    advice = []
    for draw in (0.0, 0.5):
        admitter = Admitter(
            small_policy("ledger"),
            rng=FixedRng(draw),
            config=AdmitterConfig(queue=NO_QUEUE, returns=None, rate_hint_tokens_per_s=50.0),
        )
        admitter.add_replica(ONE, kv_tokens=1_000)
        fill(admitter)
        advice.append(reject(admitter, request("r")).retry_after_ns)
    assert advice == [S, S + 50 * MS]


def test_advice_when_the_wait_is_over_a_minute_then_is_none_but_the_wait_is_told() -> None:
    """A client that cannot be told to come back is still told the truth."""
    admitter = admitter_with(queue=NO_QUEUE, rate_hint_tokens_per_s=1.0)
    fill(admitter)
    refused = reject(admitter, request("a", prompt_tokens=200))
    assert (refused.retry_after_ns, refused.wait_ns) == (None, 150 * S)


def test_advice_when_the_pool_was_busy_before_then_comes_from_its_rate() -> None:
    """The rate is learned from what was closed."""
    admitter = admitter_with(queue=NO_QUEUE)
    saturate(admitter)
    assert admitter.snapshot(now_ns=10 * S).rate_tokens_per_s == pytest.approx(800)
    fill(admitter, now_ns=10 * S)
    refused = reject(admitter, request("a", prompt_tokens=850), now_ns=10 * S)
    assert refused.wait_ns == 800 * S // 800


def test_advice_when_a_quiet_night_lies_between_then_is_still_given() -> None:
    """A pool that was idle, and was looked at, is no slower than the evening before."""
    admitter = admitter_with(queue=NO_QUEUE)
    saturate(admitter)
    for second in range(10, 40_000):
        admitter.snapshot(now_ns=second * S)
    fill(admitter, now_ns=40_000 * S)
    assert reject(admitter, request("a"), now_ns=40_000 * S).retry_after_ns == S // 2


def test_rate_when_a_late_settle_comes_then_is_not_counted_twice() -> None:
    """Tokens that a lost lease gave back are not given back again by its late owner."""
    admitter = admitter_with(ledger=LedgerConfig(lease_ns=S))
    fill(admitter)
    admitter.advance(now_ns=S)
    settle(admitter, "full0", now_ns=S + 1)
    settle(admitter, "full0", now_ns=S + 2)
    assert admitter._rate._current_tokens == 800


# --- modes ----------------------------------------------------------------------------------------


def test_observe_mode_when_it_would_refuse_then_admits_and_records() -> None:
    """Observation refuses nothing, and shows what enforcing would have done."""
    admitter = admitter_with(queue=NO_QUEUE)
    admitter.mode = Mode.OBSERVE
    fill(admitter)
    decision = admit(admitter, request("a"))
    assert isinstance(decision.overridden, Reject)
    assert decision.overridden.reason is ReasonCode.OVERLOAD_KV
    (row,) = admitter.refusals()
    assert (row.request_id, row.is_enforced) == ("a", False)
    assert admitter.counts["refused_in_observation"] == 1
    assert admitter.counts["refused"] == 0
    assert admitter.snapshot(now_ns=0).used_tokens == 1_000


def test_observe_mode_when_it_would_queue_then_admits_and_shows_the_place() -> None:
    """Nobody waits in observation; the place it would have had is told."""
    admitter = admitter_with(rate_hint_tokens_per_s=50.0)
    admitter.mode = Mode.OBSERVE
    fill(admitter)
    decision = admit(admitter, request("a"))
    assert decision.overridden == Enqueue(ticket("a"), 0, S, 5 * S)
    assert admitter.snapshot(now_ns=0).queued == 0
    assert admitter.refusals() == ()


def test_observe_mode_when_it_can_never_fit_then_lets_the_engine_say_so() -> None:
    """Even a final refusal is overridden: the engine has the last word."""
    admitter = admitter_with()
    admitter.mode = Mode.OBSERVE
    decision = admit(admitter, request("a", prompt_tokens=5_000))
    assert isinstance(decision.overridden, Reject)
    assert decision.overridden.reason is ReasonCode.TOO_LARGE


@pytest.mark.parametrize("prompt_tokens", [100, 5_000])
def test_observe_mode_when_nothing_can_serve_then_refuses_and_says_it_was_real(
    prompt_tokens: int,
) -> None:
    """What cannot be let through is refused, whatever the reason, and audited as refused."""
    admitter = admitter_with()
    admitter.mode = Mode.OBSERVE
    seen_down(admitter)
    reject(admitter, request("a", prompt_tokens=prompt_tokens))
    (row,) = admitter.refusals()
    assert row.is_enforced
    assert admitter.counts["refused"] == 1
    assert admitter.counts["refused_in_observation"] == 0


def test_bypass_when_over_every_limit_then_admits_and_still_accounts() -> None:
    """The switch lets everything through; the ledger stays true, to be switched back to."""
    admitter = admitter_with()
    admitter.mode = Mode.BYPASS
    for index in range(10):
        decision = admit(admitter, request(f"r{index}"))
        assert (decision.reason, decision.overridden) == (ReasonCode.BYPASSED, None)
    assert admitter.snapshot(now_ns=0).used_tokens == 2_000
    admitter.mode = Mode.ENFORCE
    enqueue(admitter, request("a"))
    for index in range(6):
        assert settle(admitter, f"r{index}", now_ns=1) == ()
    assert dispatched(settle(admitter, "r6", now_ns=1)) == ["a"]


def test_bypass_when_nothing_can_serve_then_refuses() -> None:
    """There is nowhere to let it through to."""
    admitter = admitter_with()
    admitter.mode = Mode.BYPASS
    seen_down(admitter)
    assert reject(admitter, request("a")).reason is ReasonCode.NO_HEALTHY_REPLICA


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.BYPASS])
def test_mode_when_it_stops_enforcing_then_what_waits_enters_in_order(mode: Mode) -> None:
    """Nobody is left waiting for a limit that no longer binds."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("a"))
    enqueue(admitter, request("b"))
    admitter.mode = mode
    assert dispatched(admitter.advance(now_ns=0)) == ["a", "b"]


# --- contract -------------------------------------------------------------------------------------


CALLS: dict[str, Callable[[Admitter, Nanos], object]] = {
    "arrive": lambda a, now_ns: a.arrive(request("new"), now_ns=now_ns),
    "first_token": lambda a, now_ns: a.first_token(reservation("full0"), now_ns=now_ns),
    "progress": lambda a, now_ns: a.progress(ONE, {reservation("full0"): 5}, now_ns=now_ns),
    "settle": lambda a, now_ns: a.settle(
        reservation("full0"), USED, outcome=Outcome.FINISHED, now_ns=now_ns
    ),
    "release": lambda a, now_ns: a.release(reservation("full0"), now_ns=now_ns),
    "cancel": lambda a, now_ns: a.cancel(ticket("waits"), now_ns=now_ns),
    "observe": lambda a, now_ns: a.observe(
        Signals(ONE, scraped_ns=now_ns, kv_used_tokens=9), now_ns=now_ns
    ),
    "refuse": lambda a, now_ns: a.refuse(request("new"), ReasonCode.ENGINE_BUSY, now_ns=now_ns),
    "drain": lambda a, now_ns: a.drain(now_ns=now_ns),
    "advance": lambda a, now_ns: a.advance(now_ns=now_ns),
}


@pytest.mark.parametrize("name", CALLS)
def test_time_when_it_goes_back_then_raises_and_changes_nothing(name: str) -> None:
    """A clock that runs backwards is a bug of the driver, whichever call shows it."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("waits"), now_ns=S)
    before = admitter.snapshot(now_ns=S), admitter.counts.copy(), admitter.refusals()
    with pytest.raises(ContractError, match=f"time went back from {S} to {S - 1} ns"):
        CALLS[name](admitter, S - 1)
    assert (admitter.snapshot(now_ns=S), admitter.counts, admitter.refusals()) == before


@pytest.mark.parametrize("name", CALLS)
def test_time_when_it_stands_still_then_is_no_error(name: str) -> None:
    """Many things happen in one critical section."""
    admitter = admitter_with()
    fill(admitter)
    enqueue(admitter, request("waits"), now_ns=S)
    CALLS[name](admitter, S)


def test_replica_when_unknown_or_added_twice_then_raises() -> None:
    """A driver that confuses replicas is told so."""
    admitter = admitter_with()
    with pytest.raises(ContractError, match="replica two is unknown"):
        admitter.observe(Signals(TWO, scraped_ns=0), now_ns=0)
    with pytest.raises(ContractError, match="replica two is unknown"):
        admitter.progress(TWO, {}, now_ns=0)
    with pytest.raises(ContractError, match="replica one has an account already"):
        admitter.add_replica(ONE)


def test_refuse_when_the_driver_has_a_reason_then_advises_and_audits_it() -> None:
    """A refusal found outside looks like any other."""
    admitter = admitter_with()
    refused = admitter.refuse(request("a"), ReasonCode.ENGINE_BUSY, now_ns=0)
    assert (refused.reason, refused.retry_after_ns) == (ReasonCode.ENGINE_BUSY, S // 2)
    assert admitter.refusal_counts() == {(ReasonCode.ENGINE_BUSY, "<=256"): 1}
    assert admitter.counts["refused"] == 1
    final = admitter.refuse(request("b"), ReasonCode.BAD_REQUEST, now_ns=0)
    assert final.retry_after_ns is None


def test_wakeup_when_nothing_is_open_then_is_none() -> None:
    """An idle admitter needs no timer."""
    assert admitter_with().next_wakeup_ns() is None


def test_audit_when_its_size_is_configured_then_keeps_that_many() -> None:
    """The list of refusals is bounded by the setting."""
    admitter = Admitter(
        small_policy("ledger"), rng=FixedRng(), config=AdmitterConfig(audit_rows_max=2)
    )
    for index in range(3):
        admitter.refuse(request(f"r{index}"), ReasonCode.ENGINE_BUSY, now_ns=0)
    assert [row.request_id for row in admitter.refusals()] == ["r1", "r2"]
    with pytest.raises(ConfigError, match=r"audit_rows_max -1.*allowed: "):
        AdmitterConfig(audit_rows_max=-1)


def play(seed: int, *, policy: str) -> list[object]:
    """Play a random script to a fresh admitter and return all that it answered."""
    script = random.Random(seed)
    admitter = Admitter(small_policy(policy), rng=random.Random(seed))
    for replica in (ONE, TWO):
        admitter.add_replica(replica, kv_tokens=1_000)
    answers: list[object] = []
    open_ids: list[str] = []
    now_ns = 0
    for index in range(400):
        now_ns += script.randrange(200 * MS)
        answer: object = None
        if script.random() < 0.6:
            asked = request(
                f"r{index}",
                prompt_tokens=script.randrange(300),
                output_tokens_max=script.randrange(1, 300),
                deadline_ns=now_ns + 3 * S if script.random() < 0.2 else None,
            )
            answer = admitter.arrive(asked, now_ns=now_ns)
        elif open_ids:
            name = open_ids.pop(script.randrange(len(open_ids)))
            outcome = script.choice(list(Outcome))
            answer = admitter.settle(reservation(name), USED, outcome=outcome, now_ns=now_ns)
        effects = admitter.advance(now_ns=now_ns)
        answers += [answer, *effects]
        admits = [answer, *(e.admit for e in effects if isinstance(e, Dispatch))]
        lost = {e.reservation_id for e in effects if isinstance(e, LeaseLost)}
        open_ids += [a.reservation_id for a in admits if isinstance(a, Admit)]
        open_ids = [name for name in open_ids if name not in lost]
        admitter.check_invariants()
    answers.append(admitter.snapshot(now_ns=now_ns))
    return answers


@pytest.mark.parametrize("policy", ["ledger", "token_amort", "concurrency"])
def test_answers_when_inputs_are_the_same_then_are_the_same(policy: str) -> None:
    """Same calls, same times, same dice: same decisions and effects in the same order."""
    first = play(7, policy=policy)
    assert first == play(7, policy=policy)
    kinds = {type(answer) for answer in first}
    assert {Admit, Enqueue, Reject, Dispatch} <= kinds
    assert first != play(8, policy=policy)
