"""What a request is taken to cost."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.core.support import S, request
from tokenweir.core.cost import (
    AMORTISED_OUTPUT_TOKENS_CAP,
    COSTS,
    Estimate,
    Predicted,
    amortised,
    cost_model,
    declared,
)
from tokenweir.core.errors import ConfigError
from tokenweir.core.request import Outcome, Request, Usage

sizes = st.integers(0, 10**12)
maxima = st.integers(1, 10**12)
COLD_TOKENS = 1_024


def taught(
    *lengths: int, outcome: Outcome = Outcome.FINISHED, declared_tokens: int = 4_096
) -> Predicted:
    """Build a predicted cost that has seen answers of these lengths."""
    cost = Predicted()
    for index, length in enumerate(lengths):
        seen = request(f"seen{index}", output_tokens_max=declared_tokens)
        cost.learn(seen, Usage(100, length), outcome=outcome, now_ns=S)
    return cost


def several(sequences: int, *, output_tokens_max: int, name: str = "r") -> Request:
    """Build a request for several answers."""
    return Request(name, 100, output_tokens_max, sequences=sequences)


@pytest.mark.parametrize("name", COSTS)
@settings(deadline=None, print_blob=True)
@given(prompt_tokens=sizes, output_tokens_max=maxima, more=st.integers(0, 1_000))
def test_cost_when_estimated_then_is_prompt_plus_some_output_and_monotone(
    name: str, prompt_tokens: int, output_tokens_max: int, more: int
) -> None:
    """The prompt counts whole, the output up to its declared maximum, more is never cheaper."""
    cost = cost_model(name)
    small = cost(request("r", prompt_tokens=prompt_tokens, output_tokens_max=output_tokens_max))
    assert small.prompt_tokens == prompt_tokens
    assert 1 <= small.output_tokens <= output_tokens_max
    assert small.tokens == small.prompt_tokens + small.output_tokens
    assert isinstance(small.tokens, int)
    large = cost(
        request("r", prompt_tokens=prompt_tokens, output_tokens_max=output_tokens_max + more)
    )
    assert large.tokens >= small.tokens


@pytest.mark.parametrize("name", COSTS)
def test_cost_when_the_output_is_short_then_is_the_same_in_every_row(name: str) -> None:
    """Where there is nothing to disbelieve the models agree."""
    asked = request("r", prompt_tokens=5, output_tokens_max=AMORTISED_OUTPUT_TOKENS_CAP)
    assert cost_model(name)(asked) == Estimate(5, AMORTISED_OUTPUT_TOKENS_CAP)


def test_declared_when_the_maximum_is_loose_then_reserves_all_of_it() -> None:
    """A declared maximum is held in full."""
    assert declared(request("r", output_tokens_max=4_096)) == Estimate(100, 4_096)


def test_amortised_when_the_maximum_is_loose_then_reserves_the_cap() -> None:
    """Of a loose maximum only what is usual is held."""
    assert amortised(request("r", output_tokens_max=4_096)) == Estimate(100, 320)


def test_amortised_when_several_answers_are_asked_for_then_each_has_its_cap() -> None:
    """What is usual for one answer is usual for each of them."""
    assert amortised(several(3, output_tokens_max=12_288)) == Estimate(100, 3 * 320)


def test_predicted_when_nothing_is_known_then_takes_the_prior() -> None:
    """Before anything was learned a loose maximum is cut at what answers rarely reach."""
    assert Predicted()(request("r", output_tokens_max=4_096)) == Estimate(100, COLD_TOKENS)


def test_predicted_when_asked_again_then_draws_the_same() -> None:
    """A request that is asked about twice does not flicker; another may draw another length."""
    cost = taught(*range(1, 201))
    names = [f"r{index}" for index in range(50)]
    first = [cost(request(name, output_tokens_max=4_096)) for name in names]
    assert first == [cost(request(name, output_tokens_max=4_096)) for name in names]
    assert len(set(first)) > 10


@settings(deadline=None, print_blob=True)
@given(
    lengths=st.lists(st.integers(1, 400), min_size=50, max_size=120),
    generated=st.integers(0, 600),
    draw=st.integers(0, 5),
    sequences=st.integers(1, 5),
    output_tokens_max=st.integers(1, 3_000),
)
def test_predicted_when_drawn_then_is_longer_than_what_there_is_and_within_the_maximum(
    lengths: list[int], generated: int, draw: int, sequences: int, output_tokens_max: int
) -> None:
    """A draw never contradicts what the answer has shown, nor the maximum it was given."""
    asked = several(sequences, output_tokens_max=output_tokens_max)
    total = taught(*lengths).output_tokens(asked, generated=generated, draw=draw)
    assert 1 <= total <= output_tokens_max
    # What the sequences do not share evenly of the maximum is nobody's.
    if generated < output_tokens_max // sequences * sequences:
        assert total > generated


def test_predicted_when_learning_then_forgets_the_declared_maximum() -> None:
    """What answers really got is what the next one is taken to get."""
    cost = taught(*[50] * 200)
    drawn = [cost(request(f"r{index}", output_tokens_max=4_096)) for index in range(100)]
    assert set(drawn) == {Estimate(100, 50)}


def test_predicted_when_there_are_several_answers_then_learns_and_predicts_each() -> None:
    """Sequences share maximum and usage evenly; a prediction is for all of them."""
    cost = Predicted()
    for index in range(200):
        seen = several(4, output_tokens_max=16_384, name=f"seen{index}")
        cost.learn(seen, Usage(100, 4 * 50), outcome=Outcome.FINISHED, now_ns=S)
    assert cost(several(4, output_tokens_max=16_384)) == Estimate(100, 200)
    assert cost(request("r", output_tokens_max=4_096)) == Estimate(100, 50)


def test_predicted_when_the_sequences_outnumber_the_maximum_then_keeps_it() -> None:
    """A maximum smaller than a token for each of them is still the maximum."""
    assert Predicted()(several(3, output_tokens_max=2)) == Estimate(100, 2)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.FINISHED])
def test_predicted_when_answers_were_cut_then_does_not_take_them_for_the_end(
    outcome: Outcome,
) -> None:
    """An answer that was stopped would have gone on: lengths of 50 then say next to nothing."""
    ended = taught(*range(1, 201))
    cut = taught(*range(1, 201))
    for index in range(200):
        cut.learn(
            request(f"cut{index}", output_tokens_max=4_096),
            Usage(100, 50),
            outcome=outcome,
            now_ns=S,
        )
    asked = [request(f"r{index}", output_tokens_max=4_096) for index in range(200)]
    before, after = (sum(cost(r).output_tokens for r in asked) for cost in (ended, cut))
    assert after >= before


def test_predicted_when_nothing_was_produced_then_learns_nothing() -> None:
    """An attempt that ended before its first token says nothing of lengths."""
    cost = taught(*[0] * 200, outcome=Outcome.ERROR)
    assert cost.lengths.coverage().cold == 0
    assert cost(request("r", output_tokens_max=4_096)) == Estimate(100, COLD_TOKENS)


def test_cost_when_unknown_then_lists_the_allowed() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(
        ConfigError, match="unknown cost 'guess', allowed: declared, amortised, pred"
    ):
        cost_model("guess")


def test_predicted_when_a_request_asks_for_another_mode_then_it_alone_has_it() -> None:
    """Who pays for the declared maximum gets it reserved, and stays there however long it runs."""
    cost = Predicted()
    plain = Request("plain", 100, 400)
    for number in range(60):
        cost.learn(plain, Usage(100, 50), outcome=Outcome.FINISHED, now_ns=number)
    paying = Request("paying", 100, 400, length_mode="declared")
    assert (cost(plain).output_tokens, cost(paying).output_tokens) == (50, 400)
    assert cost.output_tokens(paying, generated=60, draw=1) == 400
