"""Pools for few requests: what length modes and headroom keep the engine from, measured by runs."""

import dataclasses

import pytest

from tokenweir.core.lengths import LengthMode
from tokenweir.core.queues import QueueLimits
from tokenweir.core.units import NS_PER_S
from tokenweir.profiles import profile
from tokenweir.sim.results import Slo, summary
from tokenweir.sim.workload import article_workload
from tokenweir.study.experiment import Experiment, run_experiment

SHARE = 10
# The article's engine for a tenth of its requests, about eleven at once, each as fast as there.
SMALL = dataclasses.replace(
    profile("article"),
    kv_tokens=9_000,
    step_tokens_max=400 // SHARE,
    sequences_max=400 // SHARE,
)


def preempted(mode: LengthMode, *, seed: int) -> tuple[int, float]:
    """Return preemptions and token goodput of 60 s at 1.8 times what the small engine can serve."""
    slo = Slo(ttft_ns=5 * NS_PER_S)
    experiment = Experiment(
        policy="predictive",
        arrivals=tuple(article_workload(((60.0, 80.0 / SHARE),), seed=seed)),
        declared="mix",
        engine=SMALL,
        length_mode=mode,
        slo=slo,
        queue=QueueLimits(first_token_slo_ns=slo.ttft_ns),
        drains=True,
    )
    result = summary(run_experiment(experiment, seed=seed), slo)
    return result["preemptions"], result["goodput_tokens"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_declared_when_a_pool_is_small_and_full_then_nothing_is_ever_preempted(seed: int) -> None:
    """What is reserved in full cannot outgrow the pool, whatever the answers turn out to be."""
    preemptions, goodput = preempted("declared", seed=seed)
    assert preemptions == 0
    assert goodput > 0.1


def test_sampled_when_a_pool_is_small_then_serves_more_and_is_seldom_preempted() -> None:
    """The risk that is taken pays: some preemptions in some hundred requests."""
    preemptions, goodput = preempted("sampled", seed=1)
    assert preemptions <= 5
    assert goodput > 1.3 * preempted("declared", seed=1)[1]
