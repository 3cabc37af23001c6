"""Several engines in one pool: the same service, shared evenly, and none of it lost with one."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.test_simulator import TINY
from tokenweir.core.errors import ConfigError
from tokenweir.core.policy import POLICIES
from tokenweir.core.queues import QueueLimits
from tokenweir.profiles import profile
from tokenweir.sim.attempt import Fate
from tokenweir.sim.clients import client_model
from tokenweir.sim.results import Slo, is_good, summary
from tokenweir.sim.scenario import Outage, Record
from tokenweir.sim.traces import Arrival, read_trace
from tokenweir.study.experiment import Experiment, run_experiment
from tokenweir.study.replay import prepared

S = 1_000_000_000
# More than one TINY can serve, and less than two: 100 requests a second of 45 tokens.
STREAM = tuple(Arrival(n * 10_000_000, 20 + n % 11, 15 + n % 10) for n in range(400))


def _tiny(policy: str = "token", **changes: object) -> Experiment:
    base = Experiment(
        policy,
        arrivals=STREAM,
        drains=True,
        queue=QueueLimits(items_max=20, wait_ns_max=S),
        engine=TINY,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def _ends_once(record: Record) -> None:
    """Every attempt has one end, and nothing is held afterwards."""
    assert all(a.fate is not Fate.UNSERVED and a.end_ns is not None for a in record.attempts)
    served = Counter(a.index for a in record.attempts if a.fate is Fate.COMPLETED)
    assert max(served.values(), default=0) <= 1
    assert record.used_tokens_after == 0


def test_two_when_load_is_twice_then_goodput_is_that_of_one() -> None:
    """Goodput of two engines at 1 x their capacity is within 2 % of one's at 1 x its own."""
    trace = read_trace("azure-conv", limit=4_000)
    goodput = []
    for replicas in (1, 2):
        base = Experiment(
            "predictive",
            drains=True,
            declared="mix",
            engine=profile("8b-h100"),
            queue=QueueLimits(items_max=1_000, wait_ns_max=5 * S, first_token_slo_ns=S),
            replicas=replicas,
            checks=False,
        )
        ready = prepared(trace, base, load=1.0)
        record = run_experiment(replace(base, arrivals=ready.arrivals), seed=1)
        goodput.append(summary(record, Slo()))
    one, two = goodput
    assert 0.5 < one["goodput_unique"] < 0.999
    for name in ("goodput_unique", "goodput_tokens"):
        assert two[name] == pytest.approx(one[name], rel=0.02), name
    assert "replicas" not in one
    shares = [row["tokens_per_s"] for row in two["replicas"].values()]
    assert min(shares) > 0.8 * max(shares)


def test_load_when_there_are_replicas_then_it_is_a_multiple_of_all() -> None:
    """Three engines have three times the capacity, so that a load comes in a third of the time."""
    trace = read_trace("azure-conv", limit=500)
    one, three = (
        prepared(trace, _tiny(replicas=n, engine=profile("8b-h100")), load=1.0) for n in (1, 3)
    )
    assert three.capacity_rps == pytest.approx(3 * one.capacity_rps)
    assert three.arrivals[-1].arrival_ns == pytest.approx(one.arrivals[-1].arrival_ns / 3, abs=2)


def test_split_when_summed_then_it_is_the_whole() -> None:
    """What replicas did adds up to the run's own figures."""
    record = run_experiment(_tiny(replicas=3), seed=1)
    figures = summary(record, Slo())
    rows = figures["replicas"]
    assert list(rows) == ["replica-0", "replica-1", "replica-2"]
    assert sum(row["completed"] for row in rows.values()) == figures["completed"]
    assert sum(row["sent"] for row in rows.values()) == figures["completed"]
    assert math.isclose(sum(r["tokens_per_s"] for r in rows.values()), figures["tokens_per_s"])


@pytest.mark.parametrize("policy", POLICIES)
def test_outage_when_one_of_two_dies_then_its_work_ends_once_and_the_other_serves(
    policy: str,
) -> None:
    """What it had fails at that time, what waited is served by the other, nothing stays held."""
    record = run_experiment(_tiny(policy, replicas=2, outages=(Outage(0, 2 * S),)), seed=1)
    _ends_once(record)
    failed = [a for a in record.attempts if a.fate is Fate.FAILED]
    assert failed
    assert {(a.replica_id, a.end_ns) for a in failed} == {("replica-0", 2 * S)}
    late = [a for a in record.attempts if a.fate is Fate.COMPLETED and a.end_ns > 2 * S]
    assert {a.replica_id for a in late} == {"replica-1"}
    assert summary(record, Slo())["failed"] == len(failed)
    # The other is kept busy: it works on about what it can.
    after_s = (STREAM[-1].arrival_ns - 2 * S) / S
    worked = sum(a.prompt_tokens + a.output_tokens for a in late)
    assert worked > 0.7 * TINY.tokens_per_s * after_s


def test_outage_when_engine_comes_back_then_it_serves_again() -> None:
    """A second later it takes requests again, with an empty pool."""
    record = run_experiment(_tiny(replicas=2, outages=(Outage(1, S, up_ns=2 * S),)), seed=1)
    _ends_once(record)
    starts = [a.first_ns for a in record.attempts if a.replica_id == "replica-1" and a.first_ns]
    assert not [ns for ns in starts if S < ns < 2 * S]
    assert [ns for ns in starts if ns > 2 * S]


def test_outage_when_the_only_engine_dies_then_requests_are_refused_until_it_is_back() -> None:
    """Nobody is let in without an engine; what clients try again is served afterwards."""
    record = run_experiment(
        _tiny(
            outages=(Outage(0, S, up_ns=2 * S),),
            clients=client_model("fixed", retries_max=3, timeout_ns=None),
        ),
        seed=1,
    )
    _ends_once(record)
    reasons = {a.reason.value for a in record.attempts if a.reason and S < (a.end_ns or 0) < 2 * S}
    assert "no_healthy_replica" in reasons
    failed = {a.index for a in record.attempts if a.fate is Fate.FAILED}
    again = {a.index for a in record.attempts if a.number > 0 and a.fate is Fate.COMPLETED}
    assert failed & again


@given(
    outages=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4_000), st.integers(1, 2_000)), max_size=4
    ),
    policy=st.sampled_from(sorted(POLICIES)),
    kv=st.sampled_from(["whole", "blocks"]),
    timeout_ms=st.one_of(st.none(), st.integers(1, 500)),
)
@settings(max_examples=40, deadline=None)
def test_outages_when_any_then_every_attempt_ends_once(
    outages: list[tuple[int, int, int]], policy: str, kv: str, timeout_ms: int | None
) -> None:
    """Engines that go and come back, retries and patience: one end each, and a ledger at 0."""
    record = run_experiment(
        _tiny(
            policy,
            arrivals=STREAM[:120],
            replicas=3,
            kv=kv,
            outages=tuple(Outage(r, 10**6 * a, 10**6 * (a + b)) for r, a, b in outages),
            clients=client_model(
                "exponential",
                retries_max=2,
                timeout_ns=None if timeout_ms is None else timeout_ms * 10**6,
            ),
        ),
        seed=1,
    )
    _ends_once(record)
    assert not any(is_good(a, Slo(), engine=TINY) for a in record.attempts if a.fate is Fate.FAILED)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"replicas": 0}, "replicas 0"),
        ({"replicas": 65}, "replicas 65"),
        ({"kv": "paged"}, "KV model 'paged'"),
        ({"replicas": 2, "outages": (Outage(2, 0),)}, "replica 2"),
    ],
)
def test_scenario_when_it_is_wrong_then_the_error_says_what_is_allowed(
    changes: dict[str, object], text: str
) -> None:
    """Counts and words are checked, and outages name replicas that there are."""
    with pytest.raises(ConfigError, match=text):
        run_experiment(_tiny(**changes), seed=1)
