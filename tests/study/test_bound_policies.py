"""Every policy, run in the simulator, stays below every level of the bound."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from tests.study.bound_support import STEP_NS, engine, random_arrivals
from tokenweir.core.policy import POLICIES
from tokenweir.core.profile import EngineProfile
from tokenweir.core.queues import QueueLimits
from tokenweir.core.units import NS_PER_S
from tokenweir.sim.clients import client_model
from tokenweir.sim.results import Slo, summary
from tokenweir.study.bound.bound import KINDS, bounds_of, levels_for
from tokenweir.study.bound.efficiency import requests_of
from tokenweir.study.experiment import Experiment, run_experiment

TOLERANCE = 1e-6
GOODPUT = {"count": "goodput_unique", "tokens": "goodput_tokens"}
BUCKET_NS = 10 * STEP_NS


@dataclass(frozen=True)
class Case:
    """An experiment without policy, and its bounds by level and kind."""

    experiment: Experiment
    bounds: dict[str, dict[str, float]]


def small(rng: random.Random, *, is_paced: bool) -> EngineProfile:
    """Draw an engine that some 60 short requests overload."""
    step_tokens = rng.choice([16, 40])
    varying = (
        {}
        if is_paced
        else {
            "token_ns": rng.choice([0.0, 50_000.0]),
            "kv_token_ns": rng.choice([0.0, 4_000.0]),
            "compute_step_ns": rng.choice([0, 8_000_000]),
            "compute_token_ns": rng.choice([100_000.0, 300_000.0]),
            "sequence_ns": rng.choice([0.0, 100_000.0]),
            "attention_ns": rng.choice([0.0, 500.0]),
        }
    )
    return engine(
        step_tokens_max=step_tokens,
        chunk_tokens_max=rng.choice([8, 64]),
        kv_tokens=rng.choice([150, 400, 4_000]),
        sequences_max=rng.choice([4, step_tokens]),
        **varying,
    )


def case(seed: int, *, is_paced: bool) -> Case:
    """Draw requests, engine, SLO and clients, and work out the bounds."""
    rng = random.Random(seed)
    arrivals = random_arrivals(
        rng, rng.randint(30, 80), last_ns=rng.choice([1, 2]) * NS_PER_S, prompt=60, output=40
    )
    experiment = Experiment(
        policy="none",
        arrivals=arrivals,
        declared=rng.choice(["exact", "x2", "mix"]),
        discipline=rng.choice(["fifo", "first_fit"]),
        engine=small(rng, is_paced=is_paced),
        slo=Slo(
            rng.choice([10, 30, 60]) * STEP_NS,
            rng.choice([1, 2, 4]) * STEP_NS,
            rng.choice([0.0, 0.0, 3.0]),
        ),
        queue=QueueLimits(items_max=rng.choice([0, 20]), wait_ns_max=NS_PER_S // 2),
        clients=client_model(
            rng.choice(["none", "none", "fixed", "obey"]),
            retries_max=1,
            timeout_ns=rng.choice([None, NS_PER_S]),
        ),
        drains=rng.choice([True, True, False]),
    )
    requests = requests_of(experiment)
    bounds = bounds_of(
        requests,
        experiment.engine,
        levels=levels_for("all", experiment.engine),
        # Clients that obey advice may come back a minute later: fewer buckets for such windows.
        width_ns=BUCKET_NS if requests.attempts_ns < 10 * NS_PER_S else 10 * BUCKET_NS,
    )
    values = {
        level: {kind: bound.figures[kind].value for kind in KINDS}
        for level, bound in bounds.items()
    }
    return Case(experiment, values)


@pytest.mark.parametrize("first_seed", range(0, 100, 20))
def test_policies_when_steps_are_fixed_then_stay_below_every_level(first_seed: int) -> None:
    """Policy <= LP-E <= LP-L <= knapsack; a run that preempted is held to LP-L."""
    checked = 0
    for seed in range(first_seed, first_seed + 20):
        drawn = case(seed, is_paced=True)
        for kind in KINDS:
            tight, any_engine, loose = (drawn.bounds[k][kind] for k in ("E", "L", "knapsack"))
            assert tight <= any_engine + TOLERANCE, f"seed {seed}, {kind}"
            assert any_engine <= loose + TOLERANCE, f"seed {seed}, {kind}"
        for name in POLICIES:
            record = run_experiment(replace(drawn.experiment, policy=name), seed=seed)
            figures = summary(record, drawn.experiment.slo)
            level = "L" if record.preemptions else "E"
            checked += level == "E"
            for kind in KINDS:
                assert figures[GOODPUT[kind]] <= drawn.bounds[level][kind] + TOLERANCE, (
                    f"seed {seed}, policy {name}, level {level}, {kind}"
                )
    assert checked >= 20


@pytest.mark.parametrize("first_seed", range(1_000, 1_060, 20))
def test_policies_when_steps_vary_then_stay_below_the_bound(first_seed: int) -> None:
    """With both arms, context, requests and attention in the step time: policy <= LP-L."""
    for seed in range(first_seed, first_seed + 20):
        drawn = case(seed, is_paced=False)
        assert "E" not in drawn.bounds
        for kind in KINDS:
            assert drawn.bounds["L"][kind] <= drawn.bounds["knapsack"][kind] + TOLERANCE
        for name in POLICIES:
            record = run_experiment(replace(drawn.experiment, policy=name), seed=seed)
            figures = summary(record, drawn.experiment.slo)
            for kind in KINDS:
                assert figures[GOODPUT[kind]] <= drawn.bounds["L"][kind] + TOLERANCE, (
                    f"seed {seed}, policy {name}, {kind}"
                )
