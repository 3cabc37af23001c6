"""The bound against exhaustive search: no schedule of a tiny engine exceeds it."""

from __future__ import annotations

import random

import pytest

from tests.study.bound_support import STEP_NS, arrivals_of, best_goodput, engine, random_arrivals
from tokenweir.core.profile import EngineProfile
from tokenweir.sim.results import Slo
from tokenweir.sim.traces import Arrival
from tokenweir.study.bound.bound import KINDS, bounds_of
from tokenweir.study.bound.requests import requests_from, values_of

EXACT = 1e-9


def instance(seed: int) -> tuple[tuple[Arrival, ...], EngineProfile, Slo]:
    """Draw requests, an engine and an SLO; eight requests are short and come one after another."""
    rng = random.Random(seed)
    count = rng.choice([3, 4, 5, 8])
    size = 2 if count == 8 else 3
    arrivals = random_arrivals(rng, count, last_ns=(count + 1) * STEP_NS, prompt=size, output=size)
    step_tokens = rng.choice([1, 2, 3])
    profile = engine(
        step_tokens_max=step_tokens,
        chunk_tokens_max=rng.choice([1, 2, 4]),
        kv_tokens=rng.choice([4, 6, 40]),
        sequences_max=rng.randint(1, step_tokens),
    )
    slo = Slo(rng.choice([2, 3, 4]) * STEP_NS, rng.choice([1, 2]) * STEP_NS)
    return arrivals, profile, slo


@pytest.mark.parametrize("pauses", [False, True], ids=["E", "L"])
@pytest.mark.parametrize("first_seed", range(0, 60, 20))
def test_bound_when_every_schedule_is_tried_then_none_exceeds_it(
    first_seed: int, pauses: bool
) -> None:
    """The best of all schedules is at most the bound, in requests and tokens, for two widths."""
    level = "L" if pauses else "E"
    for seed in range(first_seed, first_seed + 20):
        arrivals, profile, slo = instance(seed)
        requests = requests_from(arrivals, slo)
        for kind in KINDS:
            best = best_goodput(
                arrivals,
                profile,
                slo,
                values=values_of(requests, kind=kind).tolist(),
                pauses=pauses,
            )
            for width in (STEP_NS, 3 * STEP_NS + 1):
                bound = bounds_of(requests, profile, levels=[level], width_ns=width)[level]
                assert best <= bound.figures[kind].value + EXACT, f"seed {seed}, {kind}, {width}"


def test_bound_when_steps_are_buckets_and_work_fits_exactly_then_it_is_reached() -> None:
    """Two of three equal requests fit into their common window: bound and optimum are 2/3."""
    arrivals = arrivals_of([(0, 2, 1), (0, 2, 1), (0, 2, 1)])
    profile, slo = engine(step_tokens_max=2, sequences_max=2), Slo(2 * STEP_NS, STEP_NS)
    requests = requests_from(arrivals, slo)
    values = values_of(requests, kind="count").tolist()
    best = best_goodput(arrivals, profile, slo, values=values, pauses=True)
    bound = bounds_of(requests, profile, levels=["L"], width_ns=STEP_NS)["L"]
    assert best == pytest.approx(2 / 3)
    assert bound.figures["count"].value == pytest.approx(2 / 3)


def test_search_when_pool_is_full_then_only_one_request_is_served() -> None:
    """The oracle itself respects the pool: two requests of the pool's size cannot both be open."""
    arrivals = arrivals_of([(0, 2, 2), (0, 2, 2)])
    profile = engine(step_tokens_max=4, kv_tokens=3)
    values = [0.5, 0.5]
    short, long = Slo(STEP_NS, STEP_NS), Slo(9 * STEP_NS, STEP_NS)
    assert best_goodput(arrivals, profile, short, values=values, pauses=True) == 0.5
    assert best_goodput(arrivals, profile, long, values=values, pauses=True) == 1.0
