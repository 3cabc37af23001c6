"""Warm-up, measured requests and cool-down."""

from __future__ import annotations

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.profiles import profile
from tokenweir.sim.results import summary
from tokenweir.sim.traces import Arrival
from tokenweir.study.experiment import Experiment, run_experiment
from tokenweir.study.window import Window, window_figures, windowed

ENGINE = profile("article")


def trace(count: int, *, gap_ns: int = 20_000_000) -> list[Arrival]:
    """Return equal requests at equal distances."""
    return [Arrival(i * gap_ns, 600, 200) for i in range(count)]


def figures(window: Window, *, policy: str = "predictive") -> dict[str, float | None]:
    """Run a window and measure it."""
    experiment = Experiment(policy=policy, arrivals=window.arrivals, engine=ENGINE, drains=True)
    return window_figures(run_experiment(experiment, seed=1), experiment.slo, window=window)


def test_windowed_when_cut_then_the_measured_part_comes_at_the_load() -> None:
    """Warm-up and cool-down are run, and the rate in between is load x capacity."""
    window = windowed(trace(1_000), ENGINE, load=1.5, requests=600, warmup=100, cooldown=50)
    assert (window.first, window.last, len(window.arrivals)) == (100, 700, 750)
    assert len(window.measured) == 600
    assert 600 / window.span_s == pytest.approx(1.5 * window.capacity_rps, rel=1e-6)


def test_windowed_when_the_trace_ends_then_what_is_left_is_measured() -> None:
    """A short trace has a shorter cool-down, and all of it can be asked for."""
    short = windowed(trace(300), ENGINE, load=1, requests=1_000, warmup=100, cooldown=50)
    assert (short.first, short.last, len(short.arrivals)) == (100, 300, 300)
    whole = windowed(trace(300), ENGINE, load=1, requests=None, warmup=100, cooldown=50)
    assert (whole.first, whole.last, len(whole.arrivals)) == (100, 250, 300)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"load": float("nan")}, "--load nan"),
        ({"requests": 1}, "--requests 1"),
        ({"warmup": -1}, "--warmup -1"),
        ({"cooldown": -1}, "--cooldown -1"),
        ({"warmup": 300}, "leaves 0 after 300 of warm-up"),
    ],
)
def test_windowed_when_a_value_is_wrong_then_what_is_allowed_is_said(
    changes: dict[str, float], expected: str
) -> None:
    """One line that names the option."""
    asked = {"load": 1.0, "requests": 100, "warmup": 10, "cooldown": 10} | changes
    with pytest.raises(ConfigError, match=expected):
        windowed(trace(300), ENGINE, **asked)  # type: ignore[arg-type]  # the point of the test


def test_windowed_when_all_arrive_at_once_then_there_is_no_rate() -> None:
    """A burst cannot be scaled."""
    with pytest.raises(ConfigError, match="arrive at once"):
        windowed(trace(300, gap_ns=0), ENGINE, load=1, requests=100, warmup=10, cooldown=10)


def test_window_figures_when_nothing_is_left_out_then_they_are_those_of_the_summary() -> None:
    """Without warm-up and cool-down the shares are the same as everywhere else."""
    window = windowed(trace(600), ENGINE, load=2, requests=600, warmup=0, cooldown=0)
    experiment = Experiment(policy="token", arrivals=window.arrivals, engine=ENGINE, drains=True)
    record = run_experiment(experiment, seed=1)
    ours, whole = (
        window_figures(record, experiment.slo, window=window),
        summary(record, experiment.slo),
    )
    assert ours["goodput_requests"] == pytest.approx(whole["goodput_unique"], abs=1e-6)
    assert ours["goodput_tokens"] == pytest.approx(whole["goodput_tokens"], abs=1e-6)
    assert ours["refused_fraction"] == pytest.approx(whole["refused"] / 600, abs=1e-6)


def test_window_figures_when_overloaded_for_longer_then_the_rate_is_the_same() -> None:
    """Goodput per second is a property of engine and policy, not of how long was measured."""
    rates = [
        figures(windowed(trace(6_000), ENGINE, load=2, requests=n, warmup=500))["goodput_rps"]
        for n in (1_500, 3_000)
    ]
    assert rates[0] == pytest.approx(rates[1], rel=0.03)
