"""The bound with a prefix cache, and of several engines: still above every policy."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.study.bound_support import STEP_NS, random_arrivals
from tests.study.test_bound_policies import BUCKET_NS, GOODPUT, TOLERANCE, small
from tokenweir.core.policy import POLICIES
from tokenweir.core.prefix import Prefix
from tokenweir.core.queues import QueueLimits
from tokenweir.core.units import NS_PER_S
from tokenweir.sim.results import Slo, summary
from tokenweir.sim.traces import Arrival
from tokenweir.study.bound.bound import KINDS, bounds_of, levels_for
from tokenweir.study.bound.efficiency import requests_of, yardstick_for
from tokenweir.study.bound.work import least_work
from tokenweir.study.experiment import Experiment, run_experiment

BLOCK = 8


def _shared(rng: random.Random) -> tuple[Arrival, ...]:
    """Draw requests of a few families that begin alike, up to where each goes its own way."""
    drawn = random_arrivals(
        rng, rng.randint(30, 80), last_ns=rng.choice([1, 2]) * NS_PER_S, prompt=80, output=30
    )
    arrivals = []
    for number, arrival in enumerate(drawn):
        family, alike = rng.randrange(3), rng.randrange(11)
        ids = tuple((family if depth < alike else 10 + number) * 100 + depth for depth in range(10))
        arrivals.append(replace(arrival, prefix=Prefix(BLOCK, ids)))
    return tuple(arrivals)


def _drawn(seed: int, *, is_paced: bool, replicas: int) -> Experiment:
    rng = random.Random(seed)
    return Experiment(
        policy="none",
        arrivals=_shared(rng),
        declared=rng.choice(["exact", "x2"]),
        discipline=rng.choice(["fifo", "first_fit"]),
        engine=replace(small(rng, is_paced=is_paced), kv_block_tokens=rng.choice([2, 8])),
        slo=Slo(rng.choice([5, 10, 30]) * STEP_NS, rng.choice([1, 2, 4]) * STEP_NS),
        queue=QueueLimits(items_max=20, wait_ns_max=NS_PER_S // 2),
        drains=rng.choice([True, False]),
        kv="prefix_cache",
        replicas=replicas,
    )


@pytest.mark.parametrize("is_paced", [True, False])
@pytest.mark.parametrize("replicas", [1, 3])
def test_policies_when_there_is_a_prefix_cache_then_stay_below_every_level(
    is_paced: bool, replicas: int
) -> None:
    """Goodput with an engine's cache is at most the bound with one that forgets nothing."""
    nearest = 0.0
    for seed in range(12):
        experiment = _drawn(seed, is_paced=is_paced, replicas=replicas)
        bounds = bounds_of(
            requests_of(experiment),
            experiment.engine,
            levels=levels_for("all", experiment.engine),
            width_ns=BUCKET_NS,
            replicas=replicas,
        )
        for name in POLICIES:
            record = run_experiment(replace(experiment, policy=name), seed=seed)
            figures = summary(record, experiment.slo)
            for level, bound in bounds.items():
                if level == "E" and record.preemptions:
                    continue
                for kind in KINDS:
                    reached, most = figures[GOODPUT[kind]], bound.figures[kind].value
                    assert reached <= most + TOLERANCE, f"seed {seed}, {name}, {level}, {kind}"
                    nearest = max(nearest, reached / most) if 0.05 < most < 0.95 else nearest
    # A bound that nobody comes near would say nothing.
    assert nearest > 0.6


def test_least_work_when_prompts_share_then_only_what_is_new_is_charged() -> None:
    """Of two prompts of 24 that share 16, the second is charged 8 tokens, and less KV."""
    prefix = Prefix(BLOCK, (1, 2, 3))
    arrivals = (
        Arrival(0, 24, 3, prefix=prefix),
        Arrival(1, 24, 3, prefix=prefix._replace(ids=(1, 2, 4))),
    )
    base = _drawn(0, is_paced=True, replicas=1)
    engine = replace(
        base.engine, step_tokens_max=16, chunk_tokens_max=4, sequences_max=4, kv_tokens=150
    )
    experiment = replace(base, arrivals=arrivals, engine=engine, drains=True)
    with_cache = least_work(requests_of(experiment), engine, pauses=False)
    without = least_work(requests_of(replace(experiment, kv="whole")), engine, pauses=False)
    assert with_cache.activities["prefill"].amount.tolist() == [24.0, 8.0]
    assert without.activities["prefill"].amount.tolist() == [24.0, 24.0]
    # u in the last step of the prompt, and u + 1, u + 2 in the two steps of output.
    assert with_cache.activities["kv"].amount.tolist() == [
        STEP_NS * (24 + 25 + 26),
        STEP_NS * (8 + 9 + 10),
    ]
    assert np.all(with_cache.activities["kv"].amount < without.activities["kv"].amount)
    assert with_cache.activities["decode"].amount.tolist() == [2.0, 2.0]


def test_least_work_when_there_are_replicas_then_each_resource_has_as_many_times() -> None:
    """Three engines give three times the rates, and charge the same."""
    experiment = _drawn(1, is_paced=False, replicas=1)
    requests = requests_of(experiment)
    one, three = (
        least_work(requests, experiment.engine, pauses=True, replicas=n).resources for n in (1, 3)
    )
    assert one.keys() == three.keys()
    for name, resource in one.items():
        assert three[name].rate == pytest.approx(3 * resource.rate)
        assert three[name].charges == resource.charges


def test_yardstick_when_there_are_replicas_then_the_bound_is_that_of_all() -> None:
    """More engines or a cache never lower the bound."""
    experiment = replace(_drawn(2, is_paced=True, replicas=1), kv="whole")
    values = [
        yardstick_for(chosen).bound.figures["count"].value
        for chosen in (
            experiment,
            replace(experiment, kv="prefix_cache"),
            replace(experiment, kv="prefix_cache", replicas=3),
        )
    ]
    assert values == sorted(values)
    assert values[0] < values[-1]
