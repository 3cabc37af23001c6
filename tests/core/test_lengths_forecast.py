"""Promises made when a request comes, and judged when its answer is over."""

import random
from collections import deque
from collections.abc import Iterable

import pytest

from tests.core.test_lengths_statistics import MAX, SHAPES, lognormal, observe
from tokenweir.core.lengths import Forecast, LengthPredictor


def forecast(predictor: LengthPredictor, *, output_tokens_max: int = MAX) -> Forecast | None:
    """Promise something to a request of the only tenant."""
    return predictor.forecast(tenant="a", route="chat", output_tokens_max=output_tokens_max)


def promised(predictor: LengthPredictor, *, output_tokens_max: int = MAX) -> Forecast:
    """Promise something, where enough is known."""
    made = forecast(predictor, output_tokens_max=output_tokens_max)
    assert made is not None
    return made


def missed(lengths: Iterable[int], *, in_flight: int, counted_from: int) -> float:
    """Return the share of answers longer than promised when they came.

    Args:
        lengths: Of all answers.
        in_flight: Each answer is over when so many others have come after it.
        counted_from: The first answer that counts.
    """
    predictor = LengthPredictor()
    waiting: deque[tuple[int, Forecast | None]] = deque()
    misses = counted = 0
    for number, length in enumerate(lengths):
        waiting.append((length, forecast(predictor)))
        if len(waiting) <= in_flight:
            continue
        over, made = waiting.popleft()
        if made is not None and number >= counted_from:
            counted += 1
            misses += over > made.tokens
        predictor.observe(
            tenant="a",
            route="chat",
            output_tokens_max=MAX,
            output_tokens=over,
            is_censored=False,
            now_ns=number,
            forecast=made,
        )
    return misses / counted


@pytest.mark.parametrize("in_flight", [0, 5, 20, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_forecast_when_answers_are_in_flight_then_one_in_ten_misses(
    shape: str, in_flight: int
) -> None:
    """Within 0.01 over 2,000 answers, though each is judged long after its promise."""
    rng = random.Random(3)
    lengths = [SHAPES[shape](rng) for _ in range(3_000)]
    assert missed(lengths, in_flight=in_flight, counted_from=1_000) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("in_flight", [5, 20, 100])
@pytest.mark.parametrize(("before", "after"), [(200, 800), (800, 200), (200, 300)])
def test_forecast_when_lengths_change_then_one_in_ten_misses_over_what_follows(
    before: int, after: int, in_flight: int
) -> None:
    """Within 0.01 over 2,000 answers from the change on, those in flight then included."""
    rng = random.Random(1)
    lengths = [lognormal(before)(rng) for _ in range(1_000)]
    lengths += [lognormal(after)(rng) for _ in range(2_000)]
    share = missed(lengths, in_flight=in_flight, counted_from=1_000)
    assert share == pytest.approx(0.1, abs=0.01)


def test_forecast_when_many_answers_are_in_flight_then_the_level_does_not_swing() -> None:
    """With 200 in between, steps of full size would throw the level from end to end."""
    rng = random.Random(5)
    predictor = LengthPredictor()
    waiting: deque[tuple[int, Forecast | None]] = deque()
    levels = []
    for number in range(4_000):
        made = forecast(predictor)
        if made is not None and number > 1_000:
            levels.append(made.level)
        waiting.append((lognormal(200)(rng), made))
        if len(waiting) > 200:
            over, made = waiting.popleft()
            predictor.observe(
                tenant="a",
                route="chat",
                output_tokens_max=MAX,
                output_tokens=over,
                is_censored=False,
                now_ns=number,
                forecast=made,
            )
    assert min(levels) > 0.8
    assert max(levels) < 1.0


def test_forecast_when_too_little_is_known_then_promises_nothing() -> None:
    """The prior is a guess, and no promise."""
    predictor = LengthPredictor()
    for number in range(49):
        observe(predictor, 100, now_ns=number)
        assert forecast(predictor) is None
    observe(predictor, 100, now_ns=50)
    assert promised(predictor).tokens == 100


def test_forecast_when_made_then_is_what_conformal_predicts() -> None:
    """What is promised is what is reserved in that mode."""
    rng = random.Random(6)
    predictor = LengthPredictor()
    for number in range(300):
        observe(predictor, lognormal(200)(rng), now_ns=number)
        if number < 50:
            continue
        for most in (50, 300, MAX):
            expected = predictor.predict(
                "r", tenant="a", route="chat", output_tokens_max=most, mode="conformal"
            )
            assert promised(predictor, output_tokens_max=most).tokens == expected


def test_forecast_when_a_later_answer_changes_what_is_known_then_is_judged_as_it_was() -> None:
    """Promised 100, got 300: a miss, though by its end such lengths were known."""
    predictor = LengthPredictor()
    for number in range(200):
        observe(predictor, 100, now_ns=number)
    made = promised(predictor)
    assert made.tokens == 100
    for number in range(200, 400):
        observe(predictor, 300, now_ns=number)
    hits = predictor.coverage().modes[1].hits
    predictor.observe(
        tenant="a",
        route="chat",
        output_tokens_max=MAX,
        output_tokens=300,
        is_censored=False,
        now_ns=400,
        forecast=made,
    )
    assert predictor.coverage().modes[1].hits == hits


@pytest.mark.parametrize(("length", "is_missed"), [(99, False), (100, False), (101, True)])
def test_forecast_when_it_is_the_declared_maximum_then_only_more_misses(
    length: int, is_missed: bool
) -> None:
    """An answer that was cut at its maximum was covered by it."""
    rng = random.Random(6)
    predictor = LengthPredictor()
    for number in range(300):
        observe(predictor, lognormal(400)(rng), now_ns=number)
    made = promised(predictor, output_tokens_max=100)
    assert made.tokens == 100
    assert made.is_missed_by(length, share=0.5) is is_missed
