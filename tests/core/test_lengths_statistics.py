"""Output-length prediction: is it right on average, in its tails, and after a change?"""

import math
import random
from collections.abc import Callable, Iterator

import pytest

from tokenweir.core.lengths import LengthConfig, LengthMode, LengthPredictor

MAX = 8_192
WARM_UP = 500

Draw = Callable[[random.Random], int]


def lognormal(median: float, sigma: float = 0.6) -> Draw:
    """Return the usual shape of answer lengths."""
    return lambda rng: max(1, round(rng.lognormvariate(math.log(median), sigma)))


def geometric(mean: float) -> Draw:
    """Return lengths of answers that may end at every token alike."""
    return lambda rng: 1 + int(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / mean))


def bimodal(rng: random.Random) -> int:
    """Draw from short verdicts and long explanations."""
    return lognormal(20, 0.3)(rng) if rng.random() < 0.6 else lognormal(900, 0.3)(rng)


SHAPES = {"lognormal": lognormal(200), "geometric": geometric(150), "bimodal": bimodal}


def observe(
    predictor: LengthPredictor, output_tokens: int, *, now_ns: int, is_censored: bool = False
) -> None:
    """Observe one answer of the only tenant."""
    predictor.observe(
        tenant="a",
        route="chat",
        output_tokens_max=MAX,
        output_tokens=output_tokens,
        is_censored=is_censored,
        now_ns=now_ns,
    )


def predict(
    predictor: LengthPredictor, key: str, *, generated: int = 0, mode: LengthMode | None = None
) -> int:
    """Predict for the only tenant."""
    return predictor.predict(
        key, tenant="a", route="chat", output_tokens_max=MAX, generated=generated, mode=mode
    )


def answers(
    draw: Draw, *, count: int, seed: int, censored_fraction: float = 0.0
) -> Iterator[tuple[int, int, bool]]:
    """Yield true lengths, seen lengths and whether the latter are cut short.

    Clients leave after a time of their own, which knows nothing of the answer's length; its scale
    is searched for so that about the wanted share leaves before the end.
    """
    rng = random.Random(seed)
    patience = math.inf
    if censored_fraction:
        sample = [draw(rng) for _ in range(2_000)]
        patience = 1.0
        while share_cut(sample, patience) > censored_fraction:
            patience *= 1.1
    for _ in range(count):
        length = draw(rng)
        left_after = math.inf if math.isinf(patience) else rng.expovariate(1 / patience)
        is_censored = left_after < length
        yield length, int(left_after) if is_censored else length, is_censored


def share_cut(lengths: list[int], patience: float) -> float:
    """Return the mean chance of being cut by an exponential time of this mean."""
    return sum(1 - math.exp(-length / patience) for length in lengths) / len(lengths)


def ks_probability(places: list[float]) -> float:
    """Return the chance that uniform places deviate as much (Kolmogorov, with Stephens' term)."""
    n = len(places)
    ordered = sorted(places)
    distance = max(
        max((index + 1) / n - place, place - index / n) for index, place in enumerate(ordered)
    )
    x = distance * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    if x < 0.3:  # the series converges no more, and the chance is 1 to five digits
        return 1.0
    tail = 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))
    return min(max(tail, 0.0), 1.0)


def test_ks_probability_when_places_are_known_then_is_the_tabulated_one() -> None:
    """The oracle itself: even places are likely, squeezed ones are not, and 1.358 is 5 %."""
    even = [(index + 0.5) / 1_000 for index in range(1_000)]
    assert ks_probability(even) == 1.0
    assert ks_probability([place * 0.9 for place in even]) < 1e-6
    shift = 1.358 / (math.sqrt(1_000) + 0.12 + 0.11 / math.sqrt(1_000)) - 0.0005
    assert ks_probability([min(place + shift, 1.0) for place in even]) == pytest.approx(
        0.05, abs=0.002
    )


# --- the whole distribution -----------------------------------------------------------------------


@pytest.mark.parametrize("censored_fraction", [0.0, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_predict_when_true_lengths_are_ranked_among_draws_then_ranks_are_uniform(
    shape: str, censored_fraction: float
) -> None:
    """The draws come from the distribution the true lengths come from, cut short or not."""
    predictor = LengthPredictor()
    rng = random.Random(11)
    places = []
    is_cut = []
    stream = answers(SHAPES[shape], count=2_000, seed=5, censored_fraction=censored_fraction)
    for number, (length, seen, is_censored) in enumerate(stream):
        is_cut.append(is_censored)
        if number >= WARM_UP:
            drawn = [predict(predictor, f"{number}/{index}") for index in range(20)]
            below = sum(tokens < length for tokens in drawn)
            equal = sum(tokens == length for tokens in drawn)
            places.append((below + rng.random() * (equal + 1)) / (len(drawn) + 1))
        observe(predictor, seen, is_censored=is_censored, now_ns=number)
    assert sum(is_cut) / len(is_cut) == pytest.approx(censored_fraction, abs=0.04)
    assert ks_probability(places) > 0.01


@pytest.mark.parametrize("censored_fraction", [0.0, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_coverage_when_lengths_are_stationary_then_deciles_and_hits_are_as_promised(
    shape: str, censored_fraction: float
) -> None:
    """What is exported says of a right prediction that it is right."""
    predictor = LengthPredictor()
    stream = answers(SHAPES[shape], count=5_000, seed=6, censored_fraction=censored_fraction)
    for number, (_, seen, is_censored) in enumerate(stream):
        observe(predictor, seen, is_censored=is_censored, now_ns=number)
    view = predictor.coverage()
    assert view.observations + view.cold >= 4_900
    for count in view.pit_deciles:
        assert count / view.observations == pytest.approx(0.1, abs=0.02)
    sampled, conformal, declared = view.modes
    assert sampled.fraction == pytest.approx(0.5, abs=0.03)
    assert conformal.fraction == pytest.approx(0.9, abs=0.01)
    assert declared.fraction == 1.0
    assert view.censored / view.observations == pytest.approx(censored_fraction, abs=0.04)


def test_coverage_when_lengths_double_each_hundred_then_says_that_it_is_wrong() -> None:
    """A prediction that always lags behind is seen in the deciles."""
    predictor = LengthPredictor()
    rng = random.Random(3)
    for number in range(600):
        observe(predictor, lognormal(10 * 2 ** (number / 100))(rng), now_ns=number)
    deciles = predictor.coverage().pit_deciles
    assert sum(deciles[5:]) > 2 * sum(deciles[:5])


@pytest.mark.parametrize("generated", [50, 200, 600])
def test_predict_when_answers_have_passed_some_length_then_is_right_for_those(
    generated: int,
) -> None:
    """Given k, draws and the mean have the distribution of the answers longer than k."""
    rng = random.Random(8)
    draw = lognormal(200)
    predictor = LengthPredictor(LengthConfig(window_completions=4_000))
    for number in range(4_000):
        observe(predictor, draw(rng), now_ns=number)
    truths = [length for length in (draw(rng) for _ in range(100_000)) if length > generated]
    expected = sum(truths) / len(truths)
    drawn = [predict(predictor, f"r{number}", generated=generated) for number in range(4_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(expected, rel=0.06)
    mean = predictor.mean(tenant="a", route="chat", output_tokens_max=MAX, generated=generated)
    assert mean == pytest.approx(expected, rel=0.06)


# --- sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("censored_fraction", [0.0, 0.3])
@pytest.mark.parametrize("shape", SHAPES)
def test_predict_when_summed_over_many_requests_then_is_unbiased(
    shape: str, censored_fraction: float
) -> None:
    """Sums over 2,000 requests are right within 2 % on the mean of twelve streams.

    One stream has the chance of 2,000 lengths and of as many draws in it, a standard deviation of
    2 % (lognormal) to 4 % (bimodal) that no predictor can be without.
    """
    errors = []
    for seed in range(12):
        predictor = LengthPredictor()
        true = predicted = 0
        stream = answers(SHAPES[shape], count=2_500, seed=seed, censored_fraction=censored_fraction)
        for number, (length, seen, is_censored) in enumerate(stream):
            if number >= WARM_UP:
                true += length
                predicted += predict(predictor, f"{seed}-{number}")
            observe(predictor, seen, is_censored=is_censored, now_ns=number)
        errors.append(predicted / true - 1)
    assert abs(sum(errors) / len(errors)) <= 0.02, errors
    assert max(abs(error) for error in errors) <= 0.16, errors


# --- change ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(200, 800), (800, 200)])
def test_quantile_when_lengths_change_then_the_median_follows_within_500_completions(
    before: int, after: int
) -> None:
    """After 500 completions of the new kind the median is theirs, within its own error."""
    rng = random.Random(9)
    predictor = LengthPredictor()
    for number in range(1_500):
        observe(predictor, lognormal(before if number < 1_000 else after)(rng), now_ns=number)
    median = predictor.quantile(0.5, tenant="a", route="chat", output_tokens_max=MAX)
    assert median == pytest.approx(after, rel=0.10)


def missed(predictor: LengthPredictor, lengths: list[int], *, now_ns: int) -> float:
    """Return the share of answers longer than a conformal prediction made for each before."""
    misses = 0
    for number, length in enumerate(lengths):
        misses += length > predict(predictor, str(number), mode="conformal")
        observe(predictor, length, now_ns=now_ns + number)
    return misses / len(lengths)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_conformal_when_lengths_are_stationary_then_misses_one_in_ten(
    shape: str, seed: int
) -> None:
    """Within 0.01 over 2,000 completions."""
    rng = random.Random(seed)
    predictor = LengthPredictor()
    missed(predictor, [SHAPES[shape](rng) for _ in range(WARM_UP)], now_ns=0)
    lengths = [SHAPES[shape](rng) for _ in range(2_000)]
    assert missed(predictor, lengths, now_ns=WARM_UP) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("before", "after"), [(200, 800), (800, 200), (200, 300)])
def test_conformal_when_lengths_change_then_misses_one_in_ten_over_what_follows(
    before: int, after: int, seed: int
) -> None:
    """Within 0.01 over the 2,000 completions from the change on, the change itself included."""
    rng = random.Random(seed)
    predictor = LengthPredictor()
    missed(predictor, [lognormal(before)(rng) for _ in range(1_000)], now_ns=0)
    lengths = [lognormal(after)(rng) for _ in range(2_000)]
    assert missed(predictor, lengths, now_ns=1_000) == pytest.approx(0.1, abs=0.01)


def test_conformal_when_lengths_grow_without_end_then_misses_stay_within_the_bound() -> None:
    """No distribution fits, and still 600 completions miss by at most 0.01 more than allowed."""
    rng = random.Random(4)
    predictor = LengthPredictor()
    missed(predictor, [50] * 50, now_ns=0)
    lengths = [lognormal(50 * 2 ** (number / 150))(rng) for number in range(600)]
    assert max(lengths) <= MAX
    assert missed(predictor, lengths, now_ns=50) <= 0.11


def test_conformal_when_most_answers_share_one_length_then_does_not_swing() -> None:
    """Where hits cannot be as rare as allowed, the prediction covers more and stays where it is."""
    rng = random.Random(2)
    predictor = LengthPredictor()
    drawn = set()
    for number in range(2_000):
        if number >= WARM_UP:
            drawn.add(predict(predictor, "r", mode="conformal"))
        observe(predictor, 64 if rng.random() < 0.4 else rng.randint(1, 63), now_ns=number)
    assert drawn == {64}
