"""What requests carry that no trace tells, and what the policy is told of the engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokenweir.core.capacity.concurrency import Concurrency
from tokenweir.core.lengths import LengthMode
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Priority
from tokenweir.core.units import NS_PER_MS, NS_PER_S
from tokenweir.profiles import profile
from tokenweir.sim.terms import Terms, TermsByTenant
from tokenweir.sim.traces import Arrival
from tokenweir.study.experiment import Experiment, run_experiment


def test_policy_when_the_profile_is_not_told_then_lets_wait_in_vain_what_cannot_be_in_time() -> (
    None
):
    """Who knows how long prompts take to be read refuses those at once."""
    arrivals = tuple(Arrival(n, 8_000, 10) for n in range(6))
    queue = replace(Experiment(policy="none").queue, items_max=5, first_token_slo_ns=NS_PER_S)
    refused: dict[bool, set[ReasonCode | None]] = {}
    for tells in (True, False):
        experiment = Experiment(
            policy="predictive",
            arrivals=arrivals,
            engine=profile("8b-a100"),
            queue=queue,
            tells_profile=tells,
            drains=True,
        )
        attempts = run_experiment(experiment, seed=1).attempts
        refused[tells] = {attempt.reason for attempt in attempts[1:]}
    assert refused == {True: {ReasonCode.OVERLOAD_PREFILL}, False: {ReasonCode.QUEUE_TIMEOUT}}


@pytest.mark.parametrize(
    ("terms", "reasons"),
    [
        (Terms(), {None}),
        (Terms(wait_ns_max=0), {None, ReasonCode.OVERLOAD_CONCURRENCY}),
    ],
)
def test_terms_when_they_allow_no_wait_then_who_does_not_fit_is_refused(
    terms: Terms, reasons: set[ReasonCode | None]
) -> None:
    """Requests of the simulator carry them."""
    queue = replace(Experiment(policy="none").queue, items_max=10, wait_ns_max=600 * NS_PER_S)
    experiment = Experiment(
        policy="concurrency",
        capacity=Concurrency(in_flight_max=1),
        arrivals=tuple(Arrival(n, 10, 10) for n in range(4)),
        queue=queue,
        terms=TermsByTenant(others=terms),
        drains=True,
    )
    record = run_experiment(experiment, seed=1)
    assert {attempt.reason for attempt in record.attempts} == reasons


def test_terms_when_they_promise_the_declared_maximum_then_it_is_reserved() -> None:
    """Two of 4,096 do not fit side by side, though both answers have ten tokens."""
    refused = {}
    modes: tuple[LengthMode | None, ...] = (None, "declared")
    for mode in modes:
        experiment = Experiment(
            policy="predictive",
            declared="4096",
            arrivals=tuple(Arrival(n * 50 * NS_PER_MS, 100, 10) for n in range(10)),
            engine=replace(profile("8b-a100"), kv_tokens=6_000),
            terms=TermsByTenant(others=Terms(length_mode=mode)),
            drains=True,
        )
        attempts = run_experiment(experiment, seed=1).attempts
        refused[mode] = sum(attempt.reason is not None for attempt in attempts)
    assert refused == {None: 0, "declared": 5}


def test_class_when_a_tenant_has_a_more_urgent_one_then_it_is_served_first() -> None:
    """Whoever came first waits behind P0."""
    arrivals = (
        Arrival(0, 10, 50, "first"),
        Arrival(1, 10, 10, "normal"),
        Arrival(2, 10, 10, "urgent"),
    )
    ends = {}
    for priority in (Priority.P1, Priority.P0):
        experiment = Experiment(
            policy="concurrency",
            capacity=Concurrency(in_flight_max=1),
            arrivals=arrivals,
            queue=replace(Experiment(policy="none").queue, items_max=10),
            ordering="fifo",
            fairness="fcfs",
            terms=TermsByTenant({"urgent": Terms(priority=priority)}),
            drains=True,
        )
        attempts = run_experiment(experiment, seed=1).attempts
        ends[priority] = sorted(range(3), key=lambda n: attempts[n].end_ns or 0)
    assert ends == {Priority.P1: [0, 1, 2], Priority.P0: [0, 2, 1]}


def test_terms_when_they_name_one_tenant_for_all_then_the_policy_sees_one() -> None:
    """Turns between tenants become one line."""
    crowd = [Arrival(n, 10, 10, "many") for n in range(6)]
    arrivals = (*crowd, Arrival(7, 10, 10, "few"))
    places = {}
    for tenant in (None, "default"):
        experiment = Experiment(
            policy="concurrency",
            capacity=Concurrency(in_flight_max=1),
            arrivals=arrivals,
            queue=replace(Experiment(policy="none").queue, items_max=10),
            ordering="fifo",
            terms=TermsByTenant(others=Terms(tenant)),
            drains=True,
        )
        attempts = run_experiment(experiment, seed=1).attempts
        places[tenant] = sorted(range(7), key=lambda n: attempts[n].end_ns or 0).index(6)
    assert places["default"] == 6
    assert places[None] is not None
    assert places[None] < 6
