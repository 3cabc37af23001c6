"""The least work of a request: never more than the engine model takes for it alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.study.bound_support import STEP_NS, arrivals_of, engine
from tokenweir.core.profile import EngineProfile
from tokenweir.engine.batch import Engine
from tokenweir.profiles import PROFILE_NAMES, profile
from tokenweir.sim.results import Slo
from tokenweir.study.bound.requests import requests_from
from tokenweir.study.bound.work import least_work

FOREVER = Slo(10**15, 10**12)
TIME = "time"


def run_alone(used: EngineProfile, prompt: int, output: int) -> tuple[list[int], list[int]]:
    """Return the length of every step in ns, and the KV tokens held in each."""
    alone = Engine(used)
    sequence = alone.submit("r", prompt_tokens=prompt, output_tokens=output)
    lengths, held = [], []
    while not alone.is_idle:
        before = sequence.kv_tokens(step=alone.step_index)
        lengths.append(alone.step().duration_ns)
        held.append(
            max(before, sequence.prefill_tokens)
            + (sequence.generated_tokens(step=alone.step_index) > 1)
        )
    return lengths, held


def random_profile(rng: random.Random) -> EngineProfile:
    """Draw an engine with any of the terms of a step's length."""
    tokens = rng.choice([4, 16, 64])
    return engine(
        step_tokens_max=tokens,
        chunk_tokens_max=rng.choice([3, 16, 100]),
        sequences_max=rng.randint(1, tokens),
        kv_tokens=1_000,
        token_ns=rng.choice([0.0, 33_333.3]),
        kv_token_ns=rng.choice([0.0, 1_234.5]),
        compute_step_ns=rng.choice([0, 6_000_000]),
        compute_token_ns=rng.choice([0.0, 90_000.7]),
        sequence_ns=rng.choice([0.0, 4_400.0]),
        attention_ns=rng.choice([0.0, 3.4]),
    )


@pytest.mark.parametrize("first_seed", range(0, 200, 50))
def test_work_when_a_request_is_alone_then_no_resource_gives_more_than_it_has(
    first_seed: int,
) -> None:
    """What a run alone takes covers the least work in every resource, on 200 random engines."""
    for seed in range(first_seed, first_seed + 50):
        rng = random.Random(seed)
        used, prompt, output = random_profile(rng), rng.randint(1, 150), rng.randint(1, 60)
        requests = requests_from(arrivals_of([(0, prompt, output)]), FOREVER)
        work = least_work(requests, used, pauses=True)
        lengths, held = run_alone(used, prompt, output)
        amounts = {name: float(a.amount[0]) for name, a in work.activities.items()}
        assert work.can_be_good[0]
        for name, resource in work.resources.items():
            takes = sum(charge * amounts[key] for key, charge in resource.charges.items())
            spent = resource.rate * sum(lengths)
            if name == "kv":
                spent = sum(h * t for h, t in zip(held, lengths, strict=True))
            assert takes <= spent * (1 + 1e-12) + 1, f"seed {seed}, {name}, {used}"


def test_work_when_steps_are_fixed_then_it_is_counted_to_the_token() -> None:
    """Nine prompt tokens in chunks of 4 and three output tokens, by hand."""
    requests = requests_from(arrivals_of([(5, 9, 3)]), Slo(7 * STEP_NS, 2 * STEP_NS))
    work = least_work(requests, engine(sequences_max=2), pauses=True)
    kv = work.activities["kv"]
    assert work.activities["prefill"].amount.tolist() == [9]
    assert work.activities["prefill"].deadline_ns.tolist() == [5 + 7 * STEP_NS]
    assert work.activities["decode"].amount.tolist() == [2]
    # Prefill holds 1, 5 and 9, decode 10 and 11.
    assert kv.amount.tolist() == [(1 + 5 + 9 + 10 + 11) * STEP_NS]
    assert kv.deadline_ns.tolist() == [5 + (7 + 4) * STEP_NS]
    assert work.resources["tokens"].rate == pytest.approx(4 / STEP_NS)
    assert work.resources["places"].charges == {"prefill": 0.25, "decode": 1.0}
    unpaused = least_work(requests, engine(), pauses=False)
    assert unpaused.activities["decode"].deadline_ns.tolist() == [5 + (7 + 2) * STEP_NS]
    assert "places" not in unpaused.resources


@pytest.mark.parametrize(
    ("row", "slo", "is_possible"),
    [
        ((0, 8, 1), Slo(2 * STEP_NS, STEP_NS), True),
        ((0, 9, 1), Slo(2 * STEP_NS, STEP_NS), False),  # three chunks in two steps
        ((0, 1, 9), Slo(STEP_NS, STEP_NS), True),
        ((0, 1, 9), Slo(STEP_NS, STEP_NS - 1), False),  # faster than a step
        ((0, 1, 1), Slo(STEP_NS, 1), True),  # no gap to be measured
        ((0, 30, 11), Slo(9 * STEP_NS, STEP_NS), True),  # 40 tokens at most
        ((0, 30, 12), Slo(9 * STEP_NS, STEP_NS), False),
    ],
)
def test_work_when_a_request_cannot_be_good_alone_then_it_is_known(
    row: tuple[int, int, int], slo: Slo, *, is_possible: bool
) -> None:
    """Time for the prompt, the pace, and the pool."""
    work = least_work(requests_from(arrivals_of([row]), slo), engine(), pauses=True)
    assert work.can_be_good.tolist() == [is_possible]


@pytest.mark.parametrize("name", list(PROFILE_NAMES))
def test_work_when_any_profile_is_taken_then_every_activity_is_charged_somewhere(name: str) -> None:
    """Rows that another covers are left out; what is left charges prefill, decode and pool."""
    requests = requests_from(arrivals_of([(0, 500, 100)]), FOREVER)
    work = least_work(requests, profile(name), pauses=True)
    charged = {key for resource in work.resources.values() for key in resource.charges}
    assert charged >= {"prefill", "decode", "kv"}
    assert all(np.all(a.amount >= 0) for a in work.activities.values())
    if not profile(name).is_paced:
        assert any(key.startswith(TIME) for key in work.resources)
