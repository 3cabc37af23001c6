"""Who passes a head that waits for KV, and that the head starts when it was promised to."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.support import ONE, FixedRng, S, reservation, stepped_peak, ticket
from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.batch_peak import BatchPeak
from tokenweir.core.cost import declared
from tokenweir.core.decision import Admit, Decision, Dispatch, Effect, Enqueue
from tokenweir.core.errors import ConfigError
from tokenweir.core.headroom import HeadroomConfig
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.policy import Policy, policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Outcome, Priority, Request, Usage
from tokenweir.core.tenants import TenantConfig, TenantLimits
from tokenweir.core.units import NS_PER_MS
from tokenweir.sim.attempt import Attempt
from tokenweir.sim.scenario import Scenario
from tokenweir.sim.simulator import Simulation
from tokenweir.sim.traces import Arrival

STEP_NS = 10 * NS_PER_MS
# Every prompt is read in one step, and every step takes the same time: lengths tell all.
PACED = EngineProfile(
    name="paced",
    source="made up for these tests",
    step_ns=STEP_NS,
    step_tokens_max=5_000,
    chunk_tokens_max=5_000,
    kv_tokens=1_000,
    sequences_max=64,
)


def exact() -> Policy:
    """The predictive policy, told every length."""
    return dataclasses.replace(policy("predictive"), cost=declared)


def pool(backfill_max: int = 4, *, tenants: TenantConfig | None = None) -> Admitter:
    """Build an admitter with one replica of 1,000 tokens, of which 970 may be promised."""
    config = AdmitterConfig(
        queue=QueueLimits(backfill_max=backfill_max, wait_ns_max=60 * S),
        ordering="fifo",
        tenants=tenants or TenantConfig(),
        ledger=LedgerConfig(lease_ns=None, abort_time_ns=0),
        returns=None,
    )
    admitter = Admitter(exact(), rng=FixedRng(), config=config)
    admitter.add_replica(ONE, kv_tokens=1_000, profile=PACED)
    return admitter


def ask(
    admitter: Admitter,
    name: str,
    prompt: int,
    output: int,
    *,
    tenant: str = "a",
    priority: Priority = Priority.P1,
) -> Decision:
    """Let a request arrive."""
    return admitter.arrive(Request(name, prompt, output, tenant, priority), now_ns=0)


def entered(effects: tuple[Effect, ...]) -> list[str]:
    """Return who was dispatched, in order."""
    return [effect.ticket_id for effect in effects if isinstance(effect, Dispatch)]


def filled(**parts: object) -> Admitter:
    """A pool in which one holds 500 for 20 steps and one 200 for 100, before a head of 600."""
    admitter = pool(**parts)  # type: ignore[arg-type]  # the parts of ``pool``
    assert isinstance(ask(admitter, "short", 500, 20), Admit)
    assert isinstance(ask(admitter, "long", 200, 100), Admit)
    # It fits when the short one has ended: 220 and 600, and their 80 and 50 to come.
    assert isinstance(ask(admitter, "head", 600, 50), Enqueue)
    return admitter


def test_candidate_when_it_ends_before_the_head_starts_then_passes() -> None:
    """The running step, and nineteen of its own, are as many as the head has to wait."""
    admitter = filled()
    assert isinstance(ask(admitter, "small", 150, 19), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == ["small"]
    assert admitter.counts["backfilled"] == 1
    assert admitter._queue.entries[ticket("head")].promised_ns == 20 * STEP_NS


def test_candidate_when_it_would_hold_what_the_head_needs_then_waits() -> None:
    """One step longer, and 169 tokens of it would be in the head's way."""
    admitter = filled()
    assert isinstance(ask(admitter, "small", 150, 20), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == []
    assert admitter.counts["backfilled"] == 0


def test_candidate_when_there_is_room_beside_the_head_then_passes_though_it_stays() -> None:
    """40 tokens for 100 steps are there whatever the head takes."""
    admitter = filled()
    assert isinstance(ask(admitter, "slim", 5, 40), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == ["slim"]


def test_candidates_when_backfilling_is_off_then_nobody_passes() -> None:
    """The order is strict where nobody asked for more."""
    admitter = filled(backfill_max=0)
    assert isinstance(ask(admitter, "small", 100, 19), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == []


def test_candidates_when_many_wait_then_only_so_many_are_asked() -> None:
    """The third would pass, and is not looked at."""
    admitter = filled(backfill_max=2)
    for name in ("first", "second"):
        assert isinstance(ask(admitter, name, 100, 60), Enqueue)
    assert isinstance(ask(admitter, "small", 100, 19), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == []
    more = filled(backfill_max=3)
    for name in ("first", "second"):
        assert isinstance(ask(more, name, 100, 60), Enqueue)
    assert isinstance(ask(more, "small", 100, 19), Enqueue)
    assert entered(more.advance(now_ns=0)) == ["small"]


def test_candidates_when_of_other_tenants_then_pass_too_unless_at_their_caps() -> None:
    """Caps hold for who passes as for who is next."""
    caps = TenantConfig({"b": TenantLimits(in_flight_max=1)})
    admitter = filled(tenants=caps)
    assert isinstance(ask(admitter, "b1", 50, 10, tenant="b"), Enqueue)
    assert isinstance(ask(admitter, "b2", 50, 10, tenant="b"), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == ["b1"]
    assert admitter._open.holdings.in_flight("b") == 1


def test_candidates_when_of_another_class_then_do_not_pass() -> None:
    """Between classes the order stays strict."""
    admitter = filled()
    assert isinstance(ask(admitter, "batch", 10, 5, priority=Priority.P2), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == []


def test_promise_when_its_time_is_over_then_nobody_passes_any_more() -> None:
    """However long others turn out to be, the head is not passed for ever."""
    admitter = filled()
    assert isinstance(ask(admitter, "small", 100, 19), Enqueue)
    assert entered(admitter.advance(now_ns=0)) == ["small"]
    admitter.settle(reservation("small"), Usage(100, 20), outcome=Outcome.FINISHED, now_ns=1)
    assert isinstance(ask_at(admitter, "tiny", now_ns=20 * STEP_NS), Enqueue)
    assert entered(admitter.advance(now_ns=20 * STEP_NS)) == []
    admitter.settle(
        reservation("short"), Usage(500, 20), outcome=Outcome.FINISHED, now_ns=21 * STEP_NS
    )
    assert entered(admitter.advance(now_ns=21 * STEP_NS))[0] == "head"
    assert admitter.counts["promises_late"] == 1


def test_promise_when_others_turn_out_longer_then_is_held_to_all_the_same() -> None:
    """Ten steps are left of it: what would end in thirty does not pass, what ends in nine does."""
    for output, passes in ((30, []), (9, ["later"])):
        admitter = filled()
        assert isinstance(ask(admitter, "small", 100, 19), Enqueue)
        assert entered(admitter.advance(now_ns=0)) == ["small"]
        now_ns = 10 * STEP_NS
        used = Usage(100, 19)
        admitter.settle(reservation("small"), used, outcome=Outcome.FINISHED, now_ns=now_ns)
        admitter._ledger.lengthen(reservation("short"), remaining=40)
        later = Request("later", 50, output, "a")
        assert isinstance(admitter.arrive(later, now_ns=now_ns), Enqueue)
        assert entered(admitter.advance(now_ns=now_ns)) == passes


def test_promise_when_kept_then_counted_so() -> None:
    """Who was passed and started in time is told apart from who was late."""
    admitter = filled()
    assert isinstance(ask(admitter, "small", 100, 19), Enqueue)
    admitter.advance(now_ns=0)
    for name in ("small", "short"):
        used = Usage(1, 1)
        admitter.settle(reservation(name), used, outcome=Outcome.FINISHED, now_ns=5 * STEP_NS)
    assert entered(admitter.advance(now_ns=5 * STEP_NS)) == ["head"]
    assert admitter.counts["promises_kept"] == 1
    assert admitter.counts["promises_late"] == 0


def ask_at(admitter: Admitter, name: str, *, now_ns: int) -> Decision:
    """Let a small request arrive later."""
    return admitter.arrive(Request(name, 5, 5, "a"), now_ns=now_ns)


@pytest.mark.parametrize("count", [-1, 17])
def test_config_when_out_of_range_then_says_what_is_allowed(count: int) -> None:
    """Each is tested at every look, so there is a bound."""
    with pytest.raises(ConfigError, match=f"backfill_max {count} is not allowed, allowed: 0 to 16"):
        QueueLimits(backfill_max=count)


rows = st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), min_size=1, max_size=12)


@given(
    batch=rows, steps=st.integers(0, 70), entering=st.lists(st.tuples(*[st.integers(1, 90)] * 2))
)
def test_peak_when_asked_for_later_then_as_if_stepped_there(
    batch: list[tuple[int, int]], steps: int, entering: list[tuple[int, int]]
) -> None:
    """Who has ended by then is gone, and the others have grown."""
    peak = BatchPeak()
    for index, (held, remaining) in enumerate(batch):
        peak.add(reservation(str(index)), held_tokens=held, remaining=remaining)
    later = [(held + steps, left - steps) for held, left in batch if left > steps]
    assert peak.peak_after(steps, entering) == stepped_peak([*later, *entering])
    assert peak.ends() == sorted({remaining for _, remaining in batch})


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(10, 40),
    gap_ms=st.integers(1, 60),
    tenants=st.integers(1, 3),
)
def test_head_when_passed_then_starts_no_later_than_promised(
    seed: int, size: int, gap_ms: int, tenants: int
) -> None:
    """INV-BACKFILL-1, on the simulated engine with true lengths, to the step that is running."""
    rng = random.Random(seed)
    arrivals = [
        Arrival(
            n * gap_ms * NS_PER_MS,
            rng.choice((5, 20, 60, 300, 600)),
            rng.randint(1, 80),
            tenant=f"t{rng.randrange(tenants)}",
        )
        for n in range(size)
    ]
    config = AdmitterConfig(
        queue=QueueLimits(backfill_max=4, wait_ns_max=3_600 * S),
        ordering="fifo",
        fairness="fcfs",
        ledger=LedgerConfig(lease_ns=None, abort_time_ns=0),
        headroom=HeadroomConfig(spread_ratio=0),
        returns=None,
    )
    admitter = Admitter(exact(), rng=FixedRng(), config=config)
    promises: dict[str, int] = {}
    starts: dict[str, int] = {}

    class Watched(Simulation):
        """Notes promises and starts."""

        def _dispatch(self, attempt: Attempt, admit: Admit) -> None:
            starts[attempt.request_id] = self._now_ns
            for entry in admitter._queue.entries.values():
                if entry.promised_ns is not None:
                    promises.setdefault(entry.request.request_id, entry.promised_ns)
            super()._dispatch(attempt, admit)

    scenario = Scenario(
        arrivals=arrivals,
        declared=[arrival.output_tokens for arrival in arrivals],
        draws=[[] for _ in arrivals],
        profile=PACED,
        end_ns=arrivals[-1].arrival_ns + 1,
    )
    with pytest.MonkeyPatch.context() as patch:
        # Told after every step: what is a tenth of a second old lets the head wait for the next.
        patch.setattr("tokenweir.sim.simulator._REPORT_NS", 0)
        record = Watched(scenario, admitter).run()
    assert record.used_tokens_after == 0
    for name, promised_ns in promises.items():
        assert starts[name] <= promised_ns + STEP_NS, name
