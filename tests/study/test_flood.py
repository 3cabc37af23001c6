"""What a flood costs its neighbours: a quiet tenant beside one, and recorded traces without it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.study.test_arena import page_text
from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S
from tokenweir.sim.results import Slo
from tokenweir.sim.traces import Arrival
from tokenweir.study.experiment import Experiment, run_experiment
from tokenweir.study.flood.pair import FLOODS, Cell, cells_from, pair_rows
from tokenweir.study.flood.quiet import FLOODER, QUIET, Neighbours, quiet_rows, tenant_figures
from tokenweir.study.flood.report import pair_page, quiet_page
from tokenweir.study.flood.tables import (
    pair_table,
    pair_verdicts,
    quiet_table,
    quiet_verdicts,
    tenants_table,
    verdicts_table,
)
from tokenweir.study.plan import experiment_from


def experiment(**changes: Any) -> Experiment:
    """Return the default policy on the article's engine."""
    from tokenweir.cli.study_options import wishes_from

    return replace(experiment_from(wishes_from(slo=Slo(), **changes)), policy="predictive")


def test_neighbours_when_the_flood_is_left_out_then_the_quiet_ones_requests_are_the_same() -> None:
    """Common random numbers: what differs is the flood."""
    neighbours = Neighbours(flood_rps=5.0, quiet_rps=1.0, span_s=30.0)
    alone = neighbours.arrivals(seed=3, has_flood=False)
    beside = neighbours.arrivals(seed=3, has_flood=True)
    assert tuple(a for a in beside if a.tenant == QUIET) == alone
    assert {a.tenant for a in beside} == {QUIET, FLOODER}
    assert [a.arrival_ns for a in beside] == sorted(a.arrival_ns for a in beside)
    assert alone != neighbours.arrivals(seed=4, has_flood=False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"flood_rps": 0.0}, "--flood 0 is not allowed"),
        ({"quiet_rps": 20_000.0}, "--quiet 20000 is not allowed"),
        ({"span_s": 0.0}, "--for 0s is not allowed"),
        ({"span_s": 7_200.0}, "--for 7200s is not allowed"),
    ],
)
def test_neighbours_when_a_rate_is_out_of_range_then_says_which(
    changes: dict[str, float], expected: str
) -> None:
    """One line each."""
    values = {"flood_rps": 5.0, "quiet_rps": 1.0, "span_s": 30.0, **changes}
    with pytest.raises(ConfigError, match=expected):
        Neighbours(**values)


def test_neighbours_when_the_quiet_one_sends_nothing_then_says_so() -> None:
    """No quantile of nothing."""
    with pytest.raises(ConfigError, match="--quiet 1e-06 sends nothing"):
        Neighbours(flood_rps=5.0, quiet_rps=1e-6, span_s=1.0).arrivals(seed=1, has_flood=False)


def test_tenant_figures_when_one_is_refused_then_counts_are_of_each_tenant() -> None:
    """Counts by hand: a seat for one, nobody waits."""
    arrivals = (
        Arrival(0, 100, 50, "a"),
        Arrival(1, 100, 50, "b"),
        Arrival(2 * NS_PER_S, 300, 1, "b"),
    )
    bare = replace(experiment(wait_items=0), policy="concurrency", arrivals=arrivals)
    from tokenweir.core.capacity import Concurrency

    run = replace(bare, capacity=Concurrency(in_flight_max=1))
    found = tenant_figures(run_experiment(run, seed=1), run)
    assert (found["a"]["requests"], found["a"]["refused"], found["a"]["goodput"]) == (1, 0, 1.0)
    assert (found["b"]["requests"], found["b"]["refused"], found["b"]["good"]) == (2, 1, 1)
    assert found["b"]["goodput_tokens"] == pytest.approx(301 / 451)
    assert found["b"]["refused_fraction"] == 0.5
    assert found["a"]["ttft_p50_s"] == pytest.approx(0.01)


@pytest.fixture(scope="module", params=[32.0, 80.0])
def neighbours(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Two minutes beside 32 requests/s, 0.7 of what the engine serves, and 80, 1.8 times that."""
    rates = Neighbours(flood_rps=request.param, quiet_rps=1.0, span_s=120.0)
    return quiet_rows(experiment(), rates, seeds=[1, 2])


@pytest.mark.case("CASE-E4")
def test_quiet_tenant_when_another_floods_then_is_served_as_if_nearly_alone(
    neighbours: list[dict[str, Any]],
) -> None:
    """Its p99 is within 0.1 s of what it is alone and no less of it is good; nothing it costs."""
    found = {row["target"]: row for row in quiet_verdicts(neighbours)}
    for row in found.values():
        assert row["holds"], row
    for name in ("its p99 <= alone + 0.10 s", "its good requests >= alone - 0.02"):
        assert found[name]["holds_in"] == found[name]["runs"] == 2


def test_quiet_tenant_when_nothing_is_bounded_in_the_engine_then_waits_there(
    neighbours: list[dict[str, Any]],
) -> None:
    """What is measured can tell: turns before the engine alone are worth half as much."""
    _, beside, unbounded = (row["mean"]["quiet"] for row in neighbours)
    assert unbounded["ttft_p99_s"] > 1.5 * beside["ttft_p99_s"]


def test_quiet_tenant_when_shown_then_table_and_page_have_every_case(
    neighbours: list[dict[str, Any]],
) -> None:
    """Three cases, and six targets."""
    found = quiet_verdicts(neighbours)
    assert quiet_table(neighbours, title="quiet").row_count == 3
    assert verdicts_table(found).row_count == 6
    text = page_text(quiet_page(neighbours, found, lead=["quiet"], command="tokenweir flood quiet"))
    assert "beside the flood" in text


def test_cells_when_asked_for_then_are_all_combinations() -> None:
    """Traces x profiles x loads; who is not known to flood is told."""
    cells = cells_from("servegen-cheap", "8b-h100,article", loads=[None, 2.0])
    assert cells == [
        Cell("servegen-cheap", engine, load)
        for engine in ("8b-h100", "article")
        for load in (None, 2.0)
    ]
    with pytest.raises(ConfigError, match="'azure-conv' nobody is known to flood"):
        cells_from("azure-conv", "8b-h100", loads=[None])
    with pytest.raises(ConfigError, match="unknown profile 'gpu'"):
        cells_from("servegen-cheap", "gpu", loads=[None])


@pytest.fixture(scope="module")
def pair() -> list[dict[str, Any]]:
    """The costly trace up to its flood's first minutes, at twice the capacity."""
    cells = [Cell("servegen-costly", "8b-h100", 2.0)]
    return pair_rows(experiment(), cells, seeds=[1], requests=12_000)


def test_pair_when_the_flood_is_left_out_then_the_others_are_the_same(
    pair: list[dict[str, Any]],
) -> None:
    """All of the others' requests are in both runs, at less load."""
    (row,) = pair
    assert row["flooder"]["tenant"] == FLOODS["servegen-costly"]
    assert row["others"]["requests"] == row["others_without"]["requests"]
    assert row["others"]["requests"] + row["flooder"]["requests"] == 12_000
    assert row["load"] == pytest.approx(2.0)
    assert row["load_without"] < row["load"]
    counts = Counter({tenant["tenant"]: tenant["requests"] for tenant in row["tenants"]})
    assert sum(counts.values()) == row["others"]["requests"]
    worst = [tenant["refused_more"] for tenant in row["tenants"]]
    assert worst == sorted(worst, reverse=True)
    assert row["refused_more_max"] == worst[0]


def test_pair_when_one_floods_then_it_bears_more_of_it_than_the_others(
    pair: list[dict[str, Any]],
) -> None:
    """Contained: who sends too much is refused most."""
    (row,) = pair
    assert row["flooder"]["refused_fraction"] > 2 * row["others"]["refused_fraction"]


def test_pair_when_shown_then_table_and_page_have_every_tenant(pair: list[dict[str, Any]]) -> None:
    """One line per cell, the tenants it costs most, and all of them on the page."""
    found = pair_verdicts(pair)
    assert [row["target"] for row in found] == [
        "the others lose at most 2 % of their good requests"
    ]
    assert pair_table(pair, title="pair").row_count == 1
    assert tenants_table(pair[0]).row_count == 8
    text = page_text(pair_page(pair, found, lead=["pair"], command="tokenweir flood pair"))
    assert all(tenant["tenant"] in text for tenant in pair[0]["tenants"])


def test_pair_when_a_tenant_is_small_then_one_request_is_not_one_in_a_hundred() -> None:
    """A tenant of 20 may have one refused more, one of 400 four."""
    from tokenweir.study.flood.pair import _tenant

    def harmed(requests: int, refused: int) -> bool:
        counts = {"requests": requests, "tokens": 1, "good": 0, "good_tokens": 0}
        row = _tenant(
            "t",
            beside={**counts, "refused": refused},
            alone={**counts, "refused": 0},
            seeds=1,
        )
        return bool(row["is_harmed"])

    assert [harmed(20, n) for n in (0, 1, 2)] == [False, False, True]
    assert [harmed(400, n) for n in (4, 5)] == [False, True]


def test_pair_when_the_trace_ends_before_the_flood_then_says_so() -> None:
    """No comparison with nothing."""
    with pytest.raises(ConfigError, match="--requests 100 ends before the flood"):
        pair_rows(experiment(), [Cell("servegen-costly", "8b-h100", 1.0)], seeds=[1], requests=100)
