"""Short requests beside oversized ones, on engines that limit what a step reads of one prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tokenweir.core.queues import QueueLimits
from tokenweir.core.units import NS_PER_S
from tokenweir.profiles import profile
from tokenweir.sim.results import Slo
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import uniforms
from tokenweir.study.experiment import Experiment, run_experiment

SPAN_S = 60


def short_p99_s(name: str, *, chunk_tokens: int, oversized: int, rate_rps: float) -> float:
    """Return the p99 TTFT of short requests, all served, beside a long prompt every 5 s, or none.

    Args:
        name: Profile.
        chunk_tokens: What its engine reads at most of one prompt in a step.
        oversized: Tokens of the long prompts, 0 for none.
        rate_rps: Of the short ones, of up to 100 prompt tokens.
    """
    gaps = -np.log1p(-uniforms(1, "arrivals", size=(2_000,))) / rate_rps
    times = np.cumsum(gaps)
    times = times[times < SPAN_S]
    lengths = uniforms(1, "lengths", size=(len(times), 2))
    arrivals = [
        Arrival(int(t * NS_PER_S), int(20 + 80 * p), int(20 + 200 * o), "short")
        for t, (p, o) in zip(times, lengths, strict=True)
    ]
    if oversized:
        arrivals += [
            Arrival(second * NS_PER_S, oversized, 50, "long") for second in range(1, SPAN_S, 5)
        ]
    arrivals.sort(key=lambda arrival: arrival.arrival_ns)
    slo = Slo(unloaded_ratio=3.0)
    experiment = Experiment(
        "predictive",
        arrivals=tuple(arrivals),
        declared="mix",
        drains=True,
        engine=replace(profile(name), chunk_tokens_max=chunk_tokens),
        queue=QueueLimits(first_token_slo_ns=slo.ttft_ns, first_token_unloaded_ratio=3.0),
        slo=slo,
        checks=False,
    )
    record = run_experiment(experiment, seed=1)
    short = [a for a in record.attempts if arrivals[a.index].tenant == "short"]
    ttft = [a.first_ns - a.arrive_ns for a in short if a.first_ns is not None]
    assert len(ttft) == len(short)
    return float(np.percentile(ttft, 99)) / NS_PER_S


@pytest.mark.case("CASE-E2")
@pytest.mark.parametrize(
    ("name", "chunk_tokens", "oversized", "rate_rps"),
    [("article", 200, 30_000, 10.0), ("8b-h100", 128, 8_000, 4.0)],
)
def test_short_request_when_an_oversized_one_is_read_beside_it_then_is_nearly_as_soon_as_alone(
    name: str, chunk_tokens: int, oversized: int, rate_rps: float
) -> None:
    """The engine reads both in a step, so the policy must not keep the short one before it."""
    alone, beside = (
        short_p99_s(name, chunk_tokens=chunk_tokens, oversized=tokens, rate_rps=rate_rps)
        for tokens in (0, oversized)
    )
    assert beside <= 1.5 * alone


def test_short_request_when_the_engine_has_no_such_limit_then_waits_for_the_whole_prompt() -> None:
    """What is measured can tell: one prompt after the other takes the short ones far longer."""
    alone, beside = (
        short_p99_s("article", chunk_tokens=400, oversized=tokens, rate_rps=10.0)
        for tokens in (0, 8_000)
    )
    assert beside > 5 * alone
