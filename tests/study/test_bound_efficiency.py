"""Efficiency: what goodput is divided by what, for whom, and for which attempts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.study.bound_support import engine, random_arrivals
from tokenweir.core.queues import QueueLimits
from tokenweir.core.request import Priority
from tokenweir.core.retry import RETRY_AFTER_NS_MAX
from tokenweir.core.units import NS_PER_MS, NS_PER_S
from tokenweir.sim.clients import client_model
from tokenweir.sim.results import Slo
from tokenweir.sim.terms import Terms, TermsByTenant
from tokenweir.sim.traces import Arrival
from tokenweir.study.bound.bound import Bound, Figure, levels_for, tightest_level
from tokenweir.study.bound.efficiency import (
    Yardstick,
    attempts_span_ns,
    requests_of,
    with_efficiency,
    yardstick_for,
)
from tokenweir.study.bound.requests import requests_from, values_of
from tokenweir.study.experiment import Experiment
from tokenweir.study.replay import Replay, replay_rows

ARRIVALS = (
    Arrival(0, 10, 10, "a"),
    Arrival(1, 10, 10, "a"),
    Arrival(2, 50, 10, "b"),
)


def experiment(**changes: object) -> Experiment:
    """Return an experiment that 60 requests of two tenants overload."""
    drawn = random_arrivals(random.Random(1), 60, last_ns=NS_PER_S, prompt=60, output=40)
    named = [replace(arrival, tenant="ab"[i % 3 == 0]) for i, arrival in enumerate(drawn)]
    fields: dict[str, object] = {
        "policy": "token",
        "arrivals": tuple(named),
        "engine": engine(step_tokens_max=16, chunk_tokens_max=16, kv_tokens=800),
        "slo": Slo(NS_PER_S // 5, 20 * NS_PER_MS),
        "drains": True,
        "queue": QueueLimits(items_max=10, wait_ns_max=NS_PER_S),
    }
    return Experiment(**{**fields, **changes})  # type: ignore[arg-type]


def test_efficiency_when_a_row_is_measured_then_it_is_goodput_by_bound() -> None:
    """In requests and in tokens, over all and per tenant; what is not possible has none."""
    requests = requests_from(ARRIVALS, Slo())
    shares = values_of(requests, kind="count") * 0 + [1.0, 0.5, 0.0]
    bound = Bound("E", NS_PER_S, {"count": Figure(0.5, shares), "tokens": Figure(0.4, shares)})
    ours = {
        "goodput_unique": 0.25,
        "goodput_tokens": 0.1,
        "preemptions": 0,
        "tenants": {
            "a": {"unique": 2, "goodput_unique": 0.5, "goodput_tokens": 0.6},
            "b": {"unique": 1, "goodput_unique": 0.0, "goodput_tokens": 0.0},
        },
    }
    row = with_efficiency(ours, Yardstick(requests, bound))
    assert row["efficiency_count"] == 0.5
    assert row["efficiency_tokens"] == 0.25
    assert row["bound"]["level"] == "E"
    assert row["bound"]["holds"]
    assert row["tenants"]["a"]["bound_count"] == 0.75
    assert row["tenants"]["a"]["efficiency_count"] == pytest.approx(2 / 3, abs=1e-6)
    assert row["tenants"]["b"]["efficiency_tokens"] is None
    assert "bound" not in ours
    assert not with_efficiency({**ours, "preemptions": 1}, Yardstick(requests, bound))["bound"][
        "holds"
    ]


def test_replay_when_measured_then_rows_have_efficiencies_and_nothing_else_moves() -> None:
    """The same figures as without a yardstick, and at most 1 over all tenants."""
    used = experiment()
    ready = Replay(used.arrivals, 1.0, 1.0)
    yardstick = yardstick_for(used)
    policies = ["token", "none"]
    plain = replay_rows([ready], used, policies=policies, seeds=[1, 2])
    rows = replay_rows([ready], used, policies=policies, seeds=[1, 2], yardsticks=[yardstick])
    for before, after in zip(plain, rows, strict=True):
        figures = after["ours"]
        assert before["ours"].items() <= figures.items()
        assert 0 <= figures["efficiency_count"] <= 1
        assert 0 <= figures["efficiency_tokens"] <= 1
        tenants = figures["tenants"]
        assert set(tenants) == {"a", "b"}
        assert sum(t["unique"] for t in tenants.values()) == 60
        good = sum(t["unique"] * t["goodput_unique"] for t in tenants.values())
        assert good == pytest.approx(60 * figures["goodput_unique"], abs=1e-3)
        best = sum(t["unique"] * t["bound_count"] for t in tenants.values())
        assert best == pytest.approx(60 * figures["bound"]["count"], abs=1e-3)


def test_replay_when_the_trace_has_one_tenant_then_there_is_no_table_of_them() -> None:
    """One tenant's efficiency is that of the row."""
    used = experiment(arrivals=tuple(replace(a, tenant="a") for a in experiment().arrivals))
    rows = replay_rows(
        [Replay(used.arrivals, 1.0, 1.0)],
        used,
        policies=["token"],
        seeds=[1],
        yardsticks=[yardstick_for(used)],
    )
    assert "tenants" not in rows[0]["ours"]


def test_attempts_when_clients_never_retry_then_only_the_first_arrival_counts() -> None:
    """Patience alone prolongs nothing."""
    clients = client_model("none", retries_max=3, timeout_ns=NS_PER_S)
    assert attempts_span_ns(experiment(clients=clients)) == 0


@pytest.mark.parametrize(
    ("retry", "timeout_ns", "items_max", "expected_ns"),
    [
        ("fixed", None, 10, 2 * (NS_PER_S + NS_PER_S)),  # waits 1 s in the queue, then 1 s
        ("fixed", None, 0, 2 * NS_PER_S),
        ("fixed", 3 * NS_PER_S, 10, 2 * (3 * NS_PER_S + NS_PER_S)),
        ("exponential", None, 0, (200 + 400) * NS_PER_MS),
        ("obey", None, 0, 2 * RETRY_AFTER_NS_MAX),
    ],
)
def test_attempts_when_clients_retry_then_the_latest_one_possible_counts(
    retry: str, timeout_ns: int | None, items_max: int, expected_ns: int
) -> None:
    """Stay plus delay, twice."""
    used = experiment(
        clients=client_model(retry, retries_max=2, timeout_ns=timeout_ns),
        queue=QueueLimits(items_max=items_max, wait_ns_max=NS_PER_S),
    )
    assert attempts_span_ns(used) == expected_ns
    assert requests_of(used).attempts_ns == expected_ns


def test_attempts_when_a_tenant_has_a_class_that_waits_longer_then_its_wait_counts() -> None:
    """P2 waits 30 s, and that of a tenant that is not named 1 s."""
    used = experiment(
        clients=client_model("fixed", retries_max=1, timeout_ns=None),
        queue=QueueLimits(items_max=10, wait_ns_max=NS_PER_S),
        terms=TermsByTenant({"a": Terms(priority=Priority.P2)}),
    )
    assert attempts_span_ns(used) == 30 * NS_PER_S + NS_PER_S


def test_requests_when_a_run_is_cut_then_windows_end_with_it() -> None:
    """A cut run ends with its last arrival, and so does what could have been good."""
    used = experiment(drains=False)
    requests = requests_of(used)
    assert requests.last_token_by_ns.max() == used.arrivals[-1].arrival_ns + 1
    assert requests_of(experiment()).last_token_by_ns.max() > requests.last_token_by_ns.max()


def test_levels_when_steps_vary_then_level_e_is_left_out() -> None:
    """``all`` means all that fit."""
    paced, varying = engine(), engine(token_ns=1.0)
    assert levels_for("all", paced) == ["E", "L", "knapsack"]
    assert levels_for("all", varying) == ["L", "knapsack"]
    assert (tightest_level(paced), tightest_level(varying)) == ("E", "L")
