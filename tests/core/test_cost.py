"""What a request is taken to cost."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.core.support import request
from tokenweir.core.cost import (
    AMORTISED_OUTPUT_TOKENS_CAP,
    COSTS,
    Estimate,
    amortised,
    cost_model,
    declared,
)
from tokenweir.core.errors import ConfigError

sizes = st.integers(0, 10**12)
maxima = st.integers(1, 10**12)


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


def test_cost_when_unknown_then_lists_the_allowed() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(ConfigError, match="unknown cost 'guess', allowed: declared, amortised"):
        cost_model("guess")
