"""Output-length prediction: what is promised for single calls, back-off, bounds and settings."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.support import S
from tokenweir.core.errors import ConfigError, ContractError
from tokenweir.core.lengths import LengthConfig, LengthMode, LengthPredictor, uniform
from tokenweir.core.lengths.window import LengthWindow

MAX = 4_096


def observe(
    predictor: LengthPredictor,
    *lengths: int,
    tenant: str = "a",
    route: str = "chat",
    output_tokens_max: int = MAX,
    is_censored: bool = False,
    now_ns: int = 0,
) -> None:
    """Observe answers one after another, at one instant."""
    for length in lengths:
        predictor.observe(
            tenant=tenant,
            route=route,
            output_tokens_max=output_tokens_max,
            output_tokens=length,
            is_censored=is_censored,
            now_ns=now_ns,
        )


def predict(
    predictor: LengthPredictor,
    key: str = "r",
    *,
    tenant: str = "a",
    route: str = "chat",
    output_tokens_max: int = MAX,
    generated: int = 0,
    draw: int = 0,
    mode: LengthMode | None = None,
) -> int:
    """Predict with what most tests leave alone."""
    return predictor.predict(
        key,
        tenant=tenant,
        route=route,
        output_tokens_max=output_tokens_max,
        generated=generated,
        draw=draw,
        mode=mode,
    )


def quantile(
    predictor: LengthPredictor,
    q: float = 0.5,
    *,
    tenant: str = "a",
    route: str = "chat",
    output_tokens_max: int = MAX,
    generated: int = 0,
) -> int:
    """Ask for a quantile with what most tests leave alone."""
    return predictor.quantile(
        q, tenant=tenant, route=route, output_tokens_max=output_tokens_max, generated=generated
    )


def mean(predictor: LengthPredictor, *, output_tokens_max: int = MAX, generated: int = 0) -> float:
    """Ask for the mean of one tenant."""
    return predictor.mean(
        tenant="a", route="chat", output_tokens_max=output_tokens_max, generated=generated
    )


def learned(*lengths: int, config: LengthConfig | None = None) -> LengthPredictor:
    """Return a predictor that has seen these lengths, enough of them to use them."""
    predictor = LengthPredictor(config)
    observe(predictor, *lengths)
    assert len(lengths) >= 50
    return predictor


# --- chance ---------------------------------------------------------------------------------------


def test_uniform_when_drawn_in_another_process_then_is_the_same() -> None:
    """No hash seed of a process reaches a decision."""
    code = "from tokenweir.core.lengths import uniform; print(uniform('request-1', 2))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert float(elsewhere) == uniform("request-1", 2)


def test_uniform_when_key_or_draw_differs_then_is_another_and_known_value() -> None:
    """The values are part of golden results, so they are pinned."""
    drawn = [uniform("request-1", 0), uniform("request-1", 1), uniform("request-2", 0)]
    assert [round(u, 6) for u in drawn] == [0.172981, 0.274057, 0.74621]
    assert uniform("1", 11) != uniform("11", 1)


def test_uniform_when_key_is_no_valid_text_then_still_draws() -> None:
    """A lone surrogate, which JSON lets through, does not raise."""
    assert 0 <= uniform("\ud800", 0) < 1


def test_predict_when_asked_again_then_is_the_same() -> None:
    """Nothing flickers: asking, in whatever order and however often, changes nothing."""
    predictor = learned(*range(1, 501))
    first = [predict(predictor, f"r{number}") for number in range(200)]
    observe_nothing = [quantile(predictor, 0.9), mean(predictor), predict(predictor, "other")]
    assert observe_nothing
    again = [predict(predictor, f"r{number}") for number in reversed(range(200))]
    assert again[::-1] == first
    assert len(set(first)) > 100


def test_predict_when_little_was_learned_since_then_moves_little() -> None:
    """Twenty of five hundred replaced move most draws by some twenty ranks, no further."""
    predictor = learned(*range(1, 501))
    first = [predict(predictor, f"r{number}") for number in range(200)]
    observe(predictor, *range(1, 501, 25))
    moved = [abs(predict(predictor, f"r{number}") - first[number]) for number in range(200)]
    assert sorted(moved)[180] <= 25


def test_predict_when_two_predictors_learned_the_same_then_agree() -> None:
    """State is nothing but what was observed."""
    one, other = learned(*range(1, 301)), learned(*range(1, 301))
    for number in range(100):
        assert predict(one, f"r{number}", generated=number) == predict(
            other, f"r{number}", generated=number
        )


# --- cold start and what is beyond ----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sampled", "conformal"])
def test_predict_when_nothing_is_known_then_is_the_prior(mode: LengthMode) -> None:
    """Cold start: the smaller of maximum and prior, then steps of 64, up to the maximum."""
    predictor = LengthPredictor(LengthConfig(mode=mode))
    assert predict(predictor) == 1_024
    assert predict(predictor, output_tokens_max=100) == 100
    assert predict(predictor, generated=1_023) == 1_024
    assert predict(predictor, generated=1_024) == 1_088
    assert predict(predictor, generated=MAX - 1) == MAX
    assert quantile(predictor, 0.1) == quantile(predictor, 0.9) == 1_024
    assert mean(predictor) == 1_024.0
    assert mean(predictor, generated=2_000) == 2_064.0


def test_predict_when_a_route_has_its_prior_then_starts_from_it() -> None:
    """An operator who knows a route can say so."""
    config = LengthConfig(cold_start_tokens=200, cold_start_tokens_by_route={"code": 900})
    predictor = LengthPredictor(config)
    assert predict(predictor, route="code") == 900
    assert predict(predictor, route="chat") == 200


def test_predict_when_fifty_completions_are_known_then_uses_them() -> None:
    """The fiftieth completion ends the cold start."""
    predictor = LengthPredictor()
    observe(predictor, *[7] * 49)
    assert predict(predictor) == 1_024
    observe(predictor, 7)
    assert predict(predictor) == 7


@pytest.mark.parametrize("mode", ["sampled", "conformal"])
def test_predict_when_beyond_the_largest_seen_then_steps_by_64(mode: LengthMode) -> None:
    """What is longer than all known gets a little more, up to its maximum."""
    mixed = [1 + number * 37 % 100 for number in range(100)]
    predictor = learned(*mixed, config=LengthConfig(mode=mode))
    assert predict(predictor, generated=100) == 164
    assert predict(predictor, generated=100, output_tokens_max=150) == 150
    assert quantile(predictor, generated=500) == 564
    assert mean(predictor, generated=500) == 564.0


@pytest.mark.parametrize("mode", ["sampled", "conformal", "declared"])
def test_predict_when_generated_is_at_the_maximum_then_is_that(mode: LengthMode) -> None:
    """Nothing may follow, and less than there is would be no total."""
    predictor = learned(*range(1, 101), config=LengthConfig(mode=mode))
    for generated in (MAX, MAX + 5):
        assert predict(predictor, generated=generated) == generated
        assert quantile(predictor, generated=generated) == generated
        assert mean(predictor, generated=generated) == generated


def test_predict_when_declared_then_is_the_maximum_whatever_was_learned() -> None:
    """Who pays for a guarantee gets it, from the configuration or for one call."""
    predictor = learned(*[10] * 60, config=LengthConfig(mode="declared"))
    assert predict(predictor) == MAX
    assert predict(predictor, generated=3_000) == MAX
    assert quantile(predictor) == 10
    assert predict(learned(*[10] * 60), mode="declared") == MAX


def test_predict_when_given_generated_then_draws_from_what_is_longer() -> None:
    """Given that an answer has passed the first mode, it belongs to the second."""
    predictor = learned(*[100] * 250, *[2_000] * 250)
    drawn = [predict(predictor, f"r{number}", generated=100, draw=1) for number in range(200)]
    assert set(drawn) == {2_000}
    assert mean(predictor, generated=100) == pytest.approx(2_000)
    assert mean(predictor, generated=0) == pytest.approx(1_050, rel=0.07)
    assert mean(predictor, generated=100, output_tokens_max=2_050) == pytest.approx(2_000)


# --- censored observations ------------------------------------------------------------------------


def test_window_when_censored_then_weighs_as_kaplan_and_meier() -> None:
    """A worked example: 2, 3+, 4, 4+, 5, 8+ gives survivals 5/6, 5/8, 5/16 and leaves the rest."""
    window = LengthWindow(completions_max=50, age_ns=S, level=0.9)
    for length, is_censored in (
        (4, False),
        (3, True),
        (8, True),
        (2, False),
        (4, True),
        (5, False),
    ):
        window.add(length, is_censored=is_censored, is_early=is_censored, now_ns=0)
    window.refresh(now_ns=0)
    survivals = [window.survival(length) for length in range(1, 10)]
    expected = [1, 5 / 6, 5 / 6, 5 / 8, 5 / 16, 5 / 16, 5 / 16, 5 / 16, 5 / 16]
    assert survivals == pytest.approx(expected)
    assert window.bounds(4) == pytest.approx((1 / 6, 3 / 8))
    assert window.bounds(9) == pytest.approx((11 / 16, 1))
    assert window.inverse(0.5, generated=0) == 5
    assert window.inverse(0.9, generated=0) is None
    assert window.completions == 3
    assert "3 completions of 6 observations, largest 8" in repr(window)


def test_observe_when_all_stop_at_their_maximum_then_longer_maxima_are_not_thought_short() -> None:
    """Stops say that answers are at least so long: they are reserved in full, up to the prior."""
    predictor = LengthPredictor()
    observe(predictor, *[200] * 100, output_tokens_max=200, is_censored=True)
    assert predict(predictor, output_tokens_max=200) == 200
    assert predict(predictor, output_tokens_max=250) == 250
    assert predict(predictor) == 1_024


def test_observe_when_a_storm_of_cancels_comes_then_what_is_known_stays() -> None:
    """Cancels after a few tokens are no completions: they do not push completions out."""
    predictor = learned(*range(1, 501))
    observe(predictor, *[3] * 400, is_censored=True)
    assert quantile(predictor) == pytest.approx(250, rel=0.03)


def test_observe_when_more_is_cancelled_than_fits_then_stays_bounded_and_careful() -> None:
    """With nothing but cancels left, the prediction is the prior and not the few tokens seen."""
    predictor = learned(*range(1, 501))
    observe(predictor, *[3] * 3_000, is_censored=True)
    assert predict(predictor) == 1_024
    assert len(predictor._model._keys) <= 1_000


def test_observe_when_cancelled_before_the_first_token_then_learns_nothing() -> None:
    """Longer than nothing is no news."""
    predictor = LengthPredictor()
    observe(predictor, *[0] * 100, is_censored=True)
    assert predictor.coverage().cold == 0
    assert predictor.coverage().buckets == 1


def test_observe_when_an_answer_is_empty_or_above_its_maximum_then_counts_it() -> None:
    """What engines should not do does not break the predictor; it misses the declared maximum."""
    predictor = learned(*[0] * 60, *[150] * 60)
    observe(predictor, 200, output_tokens_max=100)
    assert predict(predictor, output_tokens_max=100) in range(1, 101)
    declared = predictor.coverage().modes[2]
    assert (declared.observations, declared.hits) == (121, 120)


# --- back-off -------------------------------------------------------------------------------------


def test_blend_when_a_bucket_is_young_then_weighs_n_by_n_plus_fifty() -> None:
    """With 50 completions of its own a tenant counts half, with 150 three quarters."""
    predictor = LengthPredictor()
    observe(predictor, *[1_000] * 500, tenant="b")
    observe(predictor, *[10] * 49)
    assert quantile(predictor, 0.01) == 10  # known to the route already, by a tenth of its weight
    assert quantile(predictor, 0.2) == 1_000
    observe(predictor, 10)
    assert quantile(predictor, 0.49) == 10
    assert quantile(predictor, 0.60) == 1_000
    observe(predictor, *[10] * 100)
    assert quantile(predictor, 0.74) == 10
    assert quantile(predictor, 0.85) == 1_000


def test_blend_when_the_tenant_is_unknown_then_takes_the_route_and_its_bucket() -> None:
    """A new tenant gets what is usual on the route, and a new route what is usual at all."""
    predictor = LengthPredictor()
    observe(predictor, *[10] * 500, route="chat")
    observe(predictor, *[800] * 500, route="code")
    observe(predictor, *[90] * 500, route="code", output_tokens_max=100)
    assert quantile(predictor, tenant="new", route="chat") == 10
    assert quantile(predictor, tenant="new", route="code") == 800
    assert quantile(predictor, tenant="new", route="code", output_tokens_max=100) == 90
    assert quantile(predictor, tenant="new", route="new") == 90


def test_blend_when_maxima_share_a_power_of_two_then_share_a_bucket() -> None:
    """Buckets reach from above one power of two up to the next."""
    predictor = LengthPredictor()
    observe(predictor, *[30] * 60, output_tokens_max=1_024)
    observe(predictor, *[60] * 500, output_tokens_max=1_025)
    assert quantile(predictor, 0.4, output_tokens_max=513) == 30
    assert quantile(predictor, 0.4, output_tokens_max=512) == 60


# --- window and bounds ----------------------------------------------------------------------------


def test_window_when_an_hour_old_then_is_forgotten() -> None:
    """Of an hour ago nothing is left, not even in a bucket that nobody touches."""
    predictor = LengthPredictor()
    observe(predictor, *[10] * 100, tenant="quiet")
    observe(predictor, *[500] * 100, now_ns=3_600 * S)
    assert quantile(predictor, 0.1, tenant="quiet") == 10
    observe(predictor, 500, now_ns=3_600 * S + 1)
    assert quantile(predictor, 0.1, tenant="quiet") == 500


def test_window_when_young_and_old_then_is_forgotten_too() -> None:
    """Old completions do not help a bucket over its first fifty."""
    predictor = LengthPredictor()
    observe(predictor, *[10] * 49)
    observe(predictor, 10, now_ns=3_600 * S + 1)
    assert predict(predictor) == 1_024


def test_window_when_all_is_old_then_starts_cold() -> None:
    """After an hour of silence the next answer finds nothing."""
    predictor = learned(*[10] * 100)
    observe(predictor, 10, now_ns=3_600 * S + 1)
    assert predict(predictor) == 1_024
    assert predictor.coverage().cold == 51


def test_buckets_when_more_tenants_come_than_allowed_then_the_longest_unseen_goes() -> None:
    """Tenants cannot fill the memory, and those who come and go leave the routes alone."""
    predictor = LengthPredictor(LengthConfig(buckets_max=3))
    observe(predictor, *[10] * 60, tenant="old")
    observe(predictor, *[20] * 60, tenant="kept")
    for number in range(2):
        observe(predictor, 5, tenant=f"new{number}")
        observe(predictor, 20, tenant="kept")
    assert predictor.coverage().buckets == 1 + 1 + 3
    observe(predictor, 5, tenant="last")
    assert predictor.coverage().buckets == 1 + 1 + 3
    assert ("old", "chat", 12) not in predictor._tenants
    assert ("kept", "chat", 12) in predictor._tenants


def test_observe_when_time_goes_back_then_refuses() -> None:
    """Monotonic time is the caller's duty; nothing is learned from a broken one."""
    predictor = LengthPredictor()
    observe(predictor, 10, now_ns=5)
    with pytest.raises(ContractError, match="time went back from 5 to 4 ns"):
        observe(predictor, 10, now_ns=4)
    assert predictor.coverage().cold == 1


@pytest.mark.parametrize("q", [-0.1, 1.1])
def test_quantile_when_out_of_range_then_refuses(q: float) -> None:
    """A quantile is asked for by a probability."""
    with pytest.raises(ContractError, match="possible: 0 to 1"):
        quantile(LengthPredictor(), q)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mode": "guess"}, "mode 'guess'"),
        ({"level": 0.0}, "level 0.0"),
        ({"level": 1.0}, "level 1.0"),
        ({"window_completions": 49}, "window_completions 49"),
        ({"window_age_ns": 0}, "window_age_ns 0"),
        ({"cold_start_tokens": 0}, "cold_start_tokens 0"),
        ({"cold_start_tokens_by_route": {"chat": 0}}, "cold_start_tokens_by_route 'chat': 0"),
        ({"buckets_max": 0}, "buckets_max 0"),
    ],
)
def test_config_when_out_of_range_then_says_what_is_allowed(
    config: dict[str, object], message: str
) -> None:
    """A wrong setting names the key, the value and what is allowed."""
    with pytest.raises(ConfigError, match=f"{message}.*allowed: "):
        LengthConfig(**config)  # type: ignore[arg-type]  # one field at a time, by name


# --- properties -----------------------------------------------------------------------------------

OBSERVATIONS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([16, 100, 1_000, MAX]),
        st.integers(0, 5_000),
        st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(
    observations=OBSERVATIONS,
    repeats=st.integers(1, 12),
    mode=st.sampled_from(["sampled", "conformal", "declared"]),
    output_tokens_max=st.integers(1, 6_000),
    generated=st.integers(0, 5_999),
    key=st.text(max_size=8),
)
def test_predict_when_anything_was_observed_then_is_above_generated_and_up_to_the_maximum(
    observations: list[tuple[str, int, int, bool]],
    repeats: int,
    mode: LengthMode,
    output_tokens_max: int,
    generated: int,
    key: str,
) -> None:
    """Whatever was seen, lengths are possible ones and quantiles do not cross."""
    predictor = LengthPredictor(LengthConfig(mode=mode, window_completions=60))
    for second in range(repeats):
        for tenant, maximum, length, is_censored in observations:
            observe(
                predictor,
                min(length, maximum),
                tenant=tenant,
                output_tokens_max=maximum,
                is_censored=is_censored,
                now_ns=second * S,
            )
    generated = min(generated, output_tokens_max - 1)
    possible = range(generated + 1, output_tokens_max + 1)
    for draw in range(3):
        drawn = predict(
            predictor, key, output_tokens_max=output_tokens_max, generated=generated, draw=draw
        )
        assert drawn in possible
    quantiles = [
        quantile(predictor, q / 20, output_tokens_max=output_tokens_max, generated=generated)
        for q in range(21)
    ]
    assert quantiles == sorted(quantiles)
    assert quantiles[0] in possible
    assert quantiles[-1] in possible
    expected = mean(predictor, output_tokens_max=output_tokens_max, generated=generated)
    assert generated + 1 <= expected <= output_tokens_max
    assert quantiles[0] - 1e-6 <= expected <= quantiles[-1] + 1e-6
    view = predictor.coverage()
    assert sum(view.pit_deciles) == view.observations
    assert all(0 <= row.hits <= row.observations for row in view.modes)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 3_000), min_size=50, max_size=120),
    others=st.lists(st.integers(1, 3_000), min_size=50, max_size=120),
    generated=st.integers(0, 3_000),
)
def test_quantile_when_levels_differ_then_agrees_with_the_share_of_draws(
    lengths: list[int], others: list[int], generated: int
) -> None:
    """Draws and quantiles are of one distribution: a draw is below as often as that says."""
    predictor = LengthPredictor()
    observe(predictor, *others, tenant="b")
    observe(predictor, *lengths)
    drawn = sorted(
        predict(predictor, f"r{number}", generated=generated, draw=1) for number in range(400)
    )
    assert quantile(predictor, 0.35, generated=generated) <= drawn[199]
    assert drawn[199] <= quantile(predictor, 0.65, generated=generated)
    assert mean(predictor, generated=generated) == pytest.approx(
        sum(drawn) / 400, abs=6 * spread(drawn) / 20 + 1
    )


def spread(values: list[int]) -> float:
    """Return the standard deviation."""
    middle = sum(values) / len(values)
    return float(sum((value - middle) ** 2 for value in values) / len(values)) ** 0.5
