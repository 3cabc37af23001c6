"""Workloads: the article's lengths, declarations, scaling, surges, and that seeds repeat."""

from __future__ import annotations

import numpy as np
import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import (
    DECLARATIONS,
    ROUTE_OUTPUT_TOKENS_MAX,
    Surge,
    article_workload,
    declared_maxima,
    parse_surge,
    scaled,
    surged,
    uniforms,
)

LONG = article_workload(((1_000.0, 80.0),), seed=7)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("prompt", {0.5: 572, 0.9: 1_157, 0.99: 2_059}),
        ("output", {0.5: 199, 0.9: 433, 0.99: 808}),
        ("cost", {0.5: 816, 0.99: 2_335}),
    ],
)
def test_article_lengths_when_drawn_then_quantiles_are_the_published_ones(
    what: str, expected: dict[float, int]
) -> None:
    """The article's quantiles are met within 4 %."""
    values = {
        "prompt": [a.prompt_tokens for a in LONG],
        "output": [a.output_tokens for a in LONG],
        "cost": [a.prompt_tokens + a.output_tokens for a in LONG],
    }[what]
    for q, published in expected.items():
        assert np.quantile(values, q) == pytest.approx(published, rel=0.04), (what, q)


def test_arrivals_when_rate_changes_then_each_segment_has_its_own() -> None:
    """Counts in each segment are Poisson around rate times length."""
    arrivals = article_workload(((100.0, 30.0), (200.0, 140.0), (300.0, 30.0)), seed=3)
    times = np.array([a.arrival_ns for a in arrivals]) / 1e9
    for start, rate in ((0, 30), (100, 140), (200, 30)):
        count = int(((times >= start) & (times < start + 100)).sum())
        assert abs(count - 100 * rate) < 4 * (100 * rate) ** 0.5
    assert list(times) == sorted(times)


def test_workload_when_seed_repeats_then_it_is_the_same_and_other_seeds_differ() -> None:
    """A seed fixes every request."""
    segments = ((20.0, 40.0),)
    assert article_workload(segments, seed=5) == article_workload(segments, seed=5)
    assert article_workload(segments, seed=5) != article_workload(segments, seed=6)


def test_streams_when_named_differently_then_they_are_independent() -> None:
    """Drawing more of one stream does not move another, and names do not share draws."""
    assert not np.array_equal(uniforms(1, "arrivals", size=(8,)), uniforms(1, "lengths", size=(8,)))
    with pytest.raises(ValueError, match="weather"):
        uniforms(1, "weather", size=(1,))


@pytest.mark.parametrize("name", DECLARATIONS)
def test_declaration_when_made_then_it_is_never_below_the_true_output(name: str) -> None:
    """Every row of the table is a maximum that the request can live with."""
    declared = declared_maxima(LONG[:5_000], name, seed=1)
    assert all(d >= a.output_tokens for d, a in zip(declared, LONG, strict=False))


def test_declarations_when_compared_then_each_is_what_its_name_says() -> None:
    """Exact is the output, x2 twice it, mix has three levels, unset is the route's default."""
    some = LONG[:4_000]
    outputs = [a.output_tokens for a in some]
    assert declared_maxima(some, "exact", seed=1) == outputs
    assert declared_maxima(some, "x2", seed=1) == [2 * o for o in outputs]
    assert set(declared_maxima(some, "4096", seed=1)) == {4_096}
    assert set(declared_maxima(some, "unset", seed=1)) == {ROUTE_OUTPUT_TOKENS_MAX}
    mix = declared_maxima(some, "mix", seed=1)
    shares = [sum(d <= 512 or d == o for d, o in zip(mix, outputs, strict=True)) / len(mix)]
    shares += [mix.count(level) / len(mix) for level in (1_024, 4_096)]
    assert shares == pytest.approx([0.3, 0.4, 0.3], abs=0.03)
    with pytest.raises(ConfigError, match="exact, x2, 4096, mix, unset"):
        declared_maxima(some, "generous", seed=1)


def test_scaled_when_load_doubles_then_gaps_halve_and_requests_stay() -> None:
    """Scaling moves times only."""
    twice = scaled([Arrival(0, 1, 2), Arrival(1_000, 3, 4, "t")], 2.0)
    assert twice == [Arrival(0, 1, 2), Arrival(500, 3, 4, "t")]


def test_surged_when_step_comes_then_only_what_follows_is_faster() -> None:
    """A step of 3x at 30 s leaves the first 30 s alone and divides gaps after it by three."""
    surge = parse_surge("3x@30s")
    assert surge == Surge(3.0, 30_000_000_000)
    arrivals = [Arrival(s * 10**9, 1, 1) for s in (0, 29, 30, 33, 36)]
    times = [a.arrival_ns // 10**9 for a in surged(arrivals, surge)]
    assert times == [0, 29, 30, 31, 32]


@pytest.mark.parametrize("text", ["3x", "x@30s", "3x@30", "0x@1s", "-1x@3s", "3@30s", ""])
def test_parse_surge_when_text_is_not_a_step_then_the_error_shows_the_form(text: str) -> None:
    """The text shows an example."""
    with pytest.raises(ConfigError, match="3x@30s"):
        parse_surge(text)
