"""Classes in the simulator: urgent requests among a batch that fills the engine."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import pytest

from tokenweir.core.admitter import Admitter
from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.classes import CLASSES, Interruptible
from tokenweir.core.ledger import LedgerConfig
from tokenweir.core.policy import policy
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Priority
from tokenweir.core.units import NS_PER_MS, NS_PER_S
from tokenweir.sim.attempt import Fate
from tokenweir.sim.scenario import Record, Scenario
from tokenweir.sim.simulator import simulate
from tokenweir.sim.terms import Terms, TermsByTenant
from tokenweir.sim.traces import Arrival

# 20 tokens and 10 ms a step; three of the batch's requests fill the pool for three seconds each.
ENGINE = EngineProfile(
    name="small",
    source="made up for these tests",
    step_ns=10 * NS_PER_MS,
    step_tokens_max=20,
    chunk_tokens_max=20,
    kv_tokens=1_500,
    sequences_max=8,
)
BATCH = [Arrival(n * 700 * NS_PER_MS, 150, 300, tenant="batch") for n in range(30)]
URGENT = [Arrival((n * 900 + 350) * NS_PER_MS, 400, 20, tenant="urgent") for n in range(30)]


def run(
    interruptible: Interruptible, *, batch: Priority = Priority.P2, load: str = "both"
) -> Record:
    """Run batch and urgent requests together."""
    classes = {
        priority: dataclasses.replace(row, ceiling_fraction=1.0, interruptible=interruptible)
        for priority, row in CLASSES.items()
    }
    config = AdmitterConfig(
        queue=QueueLimits(classes=classes, first_token_slo_ns=NS_PER_S),
        ledger=LedgerConfig(lease_ns=None, abort_time_ns=20 * NS_PER_MS),
        returns=None,
    )
    arrivals = sorted(
        URGENT if load == "urgent" else BATCH + URGENT, key=lambda arrival: arrival.arrival_ns
    )
    scenario = Scenario(
        arrivals=arrivals,
        declared=[arrival.output_tokens for arrival in arrivals],
        draws=[[] for _ in arrivals],
        profile=ENGINE,
        end_ns=arrivals[-1].arrival_ns + 1,
        terms=TermsByTenant({
            "urgent": Terms(priority=Priority.P0),
            "batch": Terms(priority=batch),
        }),
    )
    return simulate(scenario, Admitter(policy("predictive"), rng=random.Random(1), config=config))


def fates(record: Record, tenant: str) -> Counter[Fate]:
    """Count how a tenant's attempts ended."""
    arrivals = record.scenario.arrivals
    return Counter(a.fate for a in record.attempts if arrivals[a.index].tenant == tenant)


@pytest.mark.parametrize("interruptible", Interruptible)
def test_run_when_classes_meet_then_everybody_ends_and_nothing_is_left(
    interruptible: Interruptible,
) -> None:
    """Whatever is interrupted, each request is served once or told why not."""
    record = run(interruptible)
    assert record.used_tokens_after == 0
    for tenant in ("batch", "urgent"):
        assert set(fates(record, tenant)) <= {Fate.COMPLETED, Fate.REFUSED}
        assert sum(fates(record, tenant).values()) == 30
    assert all(a.interruptions <= 1 for a in record.attempts)


def test_urgent_when_the_batch_may_be_interrupted_then_fewer_are_refused() -> None:
    """What is for a batch's patience is not paid by somebody who waits for an answer."""
    refused = {
        interruptible: fates(run(interruptible), "urgent")[Fate.REFUSED]
        for interruptible in Interruptible
    }
    never, before, always = (refused[each] for each in Interruptible)
    assert never > 0
    assert before <= never
    assert always < never / 2
    assert fates(run(Interruptible.NEVER, load="urgent"), "urgent")[Fate.REFUSED] == 0


def test_batch_when_told_then_by_its_own_reason_and_only_what_had_begun() -> None:
    """What had not begun is served after all."""
    record = run(Interruptible.ALWAYS)
    hit = [a for a in record.attempts if a.interruptions]
    told = [a for a in hit if a.reason is ReasonCode.INTERRUPTED]
    assert told
    assert all(a.first_ns is not None for a in told)
    assert all(a.fate is Fate.REFUSED for a in told)
    gentle = run(Interruptible.BEFORE_FIRST_BYTE)
    assert not [a for a in gentle.attempts if a.reason is ReasonCode.INTERRUPTED]


def test_background_when_urgent_requests_press_then_enters_between_them_only() -> None:
    """P3 pauses while they come, all of it is kept, and all of it is served in the end."""
    record = run(Interruptible.NEVER, batch=Priority.P3)
    assert fates(record, "batch") == {Fate.COMPLETED: 30}
    assert record.used_tokens_after == 0
    as_agents = run(Interruptible.NEVER, batch=Priority.P2)
    assert fates(record, "urgent")[Fate.REFUSED] < fates(as_agents, "urgent")[Fate.REFUSED]
