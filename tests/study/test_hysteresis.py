"""Load up and down again."""

from __future__ import annotations

from typing import Any

import pytest

from tokenweir.cli.study_options import wishes_from
from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S
from tokenweir.profiles import profile
from tokenweir.sim.results import Slo
from tokenweir.study.hysteresis.run import climbs, hysteresis_rows, measured_climbs
from tokenweir.study.hysteresis.stairs import Stairs, climbed
from tokenweir.study.sweep.contenders import contenders_from

QUICK = Stairs(0.5, 2.0, 0.5, 20.0)


def rows_of(policies: str, *, seeds: list[int]) -> list[dict[str, Any]]:
    """Climb the quick stairs with impatient clients."""
    wishes = wishes_from(slo=Slo(), retry="exponential", retries=3, timeout="5s")
    runs = climbs(
        contenders_from(policies),
        trace="article-lengths",
        stairs=QUICK,
        seeds=seeds,
        wishes=wishes,
    )
    measured: list[tuple[Any, dict[str, Any]]] = []
    measured_climbs(runs, processes=1, on_run=lambda run, figures: measured.append((run, figures)))
    return hysteresis_rows(measured, stairs=QUICK)


def test_stairs_when_made_then_loads_go_up_and_down_in_round_numbers() -> None:
    """0.5 to 2 in steps of 0.1: sixteen loads, the highest twice in a row."""
    loads = Stairs().loads
    assert len(loads) == 16
    assert loads[3] == 0.8
    assert Stairs().course()[15:17] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"low": 0.0}, "--from 0"),
        ({"low": 3.0}, "--from 3"),
        ({"high": float("nan")}, "--to nan"),
        ({"step": 0.0}, "--by 0"),
        ({"step": 1e-9}, "--by 1e-09"),
        ({"seconds": 0.5}, "--hold 0.5s"),
    ],
)
def test_stairs_when_a_value_is_wrong_then_the_option_is_named(
    changes: dict[str, float], expected: str
) -> None:
    """One line that says what is allowed."""
    with pytest.raises(ConfigError, match=expected):
        Stairs(**changes)


@pytest.mark.parametrize("trace", ["article-lengths", "azure-conv"])
def test_climbed_when_led_up_and_down_then_both_steps_of_a_load_have_the_same_requests(
    trace: str,
) -> None:
    """In order of time, at load x capacity, the way down mirrored step by step."""
    engine = profile("article")
    arrivals, capacity = climbed(QUICK, engine, trace=trace, seed=1)
    times = [a.arrival_ns for a in arrivals]
    assert times == sorted(times)
    width_ns = int(QUICK.seconds * NS_PER_S)
    steps: dict[int, list[tuple[int, int, int]]] = {}
    for a in arrivals:
        step, offset_ns = divmod(a.arrival_ns, width_ns)
        steps.setdefault(step, []).append((offset_ns, a.prompt_tokens, a.output_tokens))
    assert sorted(steps) == list(range(8))
    for number, load in enumerate(QUICK.loads):
        assert steps[number] == steps[7 - number]
        assert len(steps[number]) == pytest.approx(load * capacity * 20, rel=0.3)


def test_climbed_when_it_would_take_too_long_then_one_line_says_so() -> None:
    """Hours at hundreds of times the capacity are refused before they are drawn."""
    with pytest.raises(ConfigError, match="allowed: up to 5,000,000"):
        climbed(Stairs(1, 1_000, 100, 3_600), profile("article"), trace="article-lengths", seed=1)


def test_hysteresis_when_clients_retry_then_none_stays_down_and_predictive_comes_back() -> None:
    """The area tells a policy that recovers from one that does not."""
    predictive, none = rows_of("predictive,none", seeds=[1])
    assert predictive["area"] < 0.03
    assert none["area"] > 0.1
    assert none["attempts_per_unique"] > predictive["attempts_per_unique"]
    assert none["steps"][1]["up"] > none["steps"][1]["down"]


def test_hysteresis_when_seeds_are_several_then_the_area_has_an_interval() -> None:
    """Two seeds: a mean and how sure it is."""
    (row,) = rows_of("token", seeds=[1, 2])
    assert row["seeds"] == 2
    assert row["area_ci95"] >= 0
