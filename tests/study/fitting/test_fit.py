"""From curves to a profile."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.profiles import PROFILE_NAMES, profile
from tokenweir.study.fitting.curves import Curve, Measured, Reading, Step, predicted_ns
from tokenweir.study.fitting.fit import curve_errors, fit_profile, with_step_overhead

SIZES = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512, 768, 1_024, 2_048]


def measured(engine: EngineProfile, step: Step, *, extra_ns: float = 0.0) -> Measured:
    """Return what an engine would have measured of a step."""
    point = Measured(1.0, (step,))
    return dataclasses.replace(point, value_ns=predicted_ns(point, engine) + extra_ns)


def curves_of(engine: EngineProfile, *, overhead_ns: float = 0.0) -> tuple[Curve, ...]:
    """Return decode and prefill curves of an engine."""
    decode = [Step(n, n * context, n) for n in SIZES[:11] for context in (16, 512, 4_096)]
    prefill = [Step(n, sequences=1, attention=n * n / 2) for n in SIZES]
    return (
        Curve("decode", tuple(measured(engine, step) for step in decode)),
        Curve(
            "first token",
            tuple(measured(engine, step, extra_ns=overhead_ns) for step in prefill),
            has_overhead=overhead_ns > 0,
        ),
    )


@pytest.mark.parametrize("name", ["8b-a100", "8b-h100", "70b-4xh100", "8b-fp8-h200"])
def test_fit_when_curves_are_a_profile_s_own_then_it_is_found(name: str) -> None:
    """Exact curves of a profile give its step times back within half a per cent."""
    engine = profile(name)
    fit = fit_profile(Reading(curves_of(engine), "test"), like=profile("8b-h100"), name="found")
    assert fit.borrowed == ()
    assert all(error.p90 < 0.005 for error in fit.errors), fit.errors
    assert fit.profile.name == "found"
    assert fit.profile.kv_tokens == profile("8b-h100").kv_tokens


def test_fit_when_first_tokens_hold_an_overhead_then_it_is_told_apart() -> None:
    """What the server adds to a first token is no part of the engine."""
    engine = profile("8b-h100")
    reading = Reading(curves_of(engine, overhead_ns=14e6), "test")
    fit = fit_profile(reading, like=engine, name="found")
    assert fit.errors[1].overhead_ns == pytest.approx(14e6, rel=0.02)
    assert fit.profile.step_ns == pytest.approx(engine.step_ns, rel=0.02)


def test_fit_when_one_value_in_ten_is_wild_then_the_rest_decide() -> None:
    """Values three times too long move the fit less than a per cent."""
    engine, rng = profile("8b-a100"), random.Random(5)
    wild = [
        dataclasses.replace(
            curve,
            points=tuple(
                dataclasses.replace(p, value_ns=p.value_ns * (3.0 if rng.random() < 0.1 else 1.0))
                for p in curve.points
            ),
        )
        for curve in curves_of(engine)
    ]
    fit = fit_profile(Reading(tuple(wild), "test"), like=engine, name="found")
    assert all(error.median < 0.01 for error in curve_errors(curves_of(engine), fit.profile))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_fit_when_curves_are_anything_then_the_profile_is_allowed(seed: int) -> None:
    """Whatever was measured, no coefficient is negative, and the second arm is the steeper one."""
    rng = random.Random(seed)
    points = tuple(
        Measured(
            rng.uniform(1e5, 1e9),
            (Step(rng.randint(1, 4_000), rng.randint(0, 90_000), rng.randint(1, 300)),),
        )
        for _ in range(rng.randint(3, 40))
    )
    fit = fit_profile(Reading((Curve("any", points),), "test"), like=profile("article"), name="any")
    found = fit.profile
    assert found.compute_token_ns == 0 or found.compute_token_ns >= found.token_ns
    assert found.compute_step_ns <= found.step_ns
    assert "attention_ns" in fit.borrowed


def test_fit_when_a_term_does_not_vary_then_it_is_borrowed_and_taken_off() -> None:
    """Timings without attention leave that term to the other profile, and say so."""
    engine = profile("8b-a100")
    points = tuple(measured(engine, Step(n, 1_000, 1)) for n in SIZES)
    fit = fit_profile(Reading((Curve("dense", points),), "test"), like=engine, name="found")
    assert fit.borrowed == ("kv_token_ns", "sequence_ns", "attention_ns")
    assert fit.profile.kv_token_ns == engine.kv_token_ns
    assert fit.errors[0].p90 < 0.005


def test_fit_when_the_borrowed_terms_exceed_what_was_measured_then_says_so() -> None:
    """A profile to be like that is slower than the measurement cannot lend its terms."""
    points = tuple(Measured(1e5, (Step(n, 10_000, 1),)) for n in SIZES)
    with pytest.raises(ConfigError, match=r"8b-a100 gives for kv_token_ns, .* more than was meas"):
        fit_profile(
            Reading((Curve("dense", points),), "test"), like=profile("8b-a100"), name="found"
        )


def test_fit_when_there_are_two_values_then_is_refused() -> None:
    """Two values say nothing about six coefficients."""
    points = tuple(Measured(1e6, (Step(n),)) for n in (1, 2))
    with pytest.raises(ConfigError, match="2 measured values cannot be fitted, allowed: 3 or more"):
        fit_profile(Reading((Curve("two", points),), "t"), like=profile("article"), name="x")


def test_fit_when_values_are_few_then_says_that_it_is_thin() -> None:
    """Ten values for six coefficients fit, and need not hold elsewhere."""
    engine = profile("8b-h100")
    few = tuple(dataclasses.replace(c, points=c.points[:5]) for c in curves_of(engine))
    assert fit_profile(Reading(few, "test"), like=engine, name="few").is_thin
    full = fit_profile(Reading(curves_of(engine), "test"), like=engine, name="full")
    assert not full.is_thin


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_step_overhead_when_added_then_every_step_takes_so_much_longer(name: str) -> None:
    """Both arms move, and where there is one arm it alone."""
    engine = profile(name)
    slower = with_step_overhead(engine, 2_000_000)
    for tokens in (1, 100, 400):
        added = slower.duration_ns(tokens=tokens) - engine.duration_ns(tokens=tokens)
        assert added == pytest.approx(2_000_000, abs=1)
