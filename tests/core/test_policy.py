"""The table of policies."""

from types import FunctionType
from typing import get_args

import pytest

from tests.core.support import S, admitter_with, request
from tokenweir.core.capacity import CAPACITIES
from tokenweir.core.cost import COSTS, Predicted
from tokenweir.core.decision import Admit
from tokenweir.core.errors import ConfigError
from tokenweir.core.lengths import LengthMode
from tokenweir.core.policy import DEFAULT_POLICY, POLICIES, policy
from tokenweir.core.request import Outcome, Usage


@pytest.mark.parametrize("name", POLICIES)
def test_policy_when_built_then_is_the_pair_of_its_row(name: str) -> None:
    """A name stands for one capacity test and one cost, and says what is asked besides."""
    capacity, cost, is_guarded, is_limited = POLICIES[name]
    built = policy(name)
    assert built.name == name
    assert isinstance(built.capacity, type(CAPACITIES[capacity]()))
    assert isinstance(built.cost, type(COSTS[cost]()))
    assert built.is_guarded is is_guarded
    assert built.is_limited is is_limited


@pytest.mark.parametrize("name", POLICIES)
def test_policy_when_built_twice_then_what_it_learns_is_not_shared(name: str) -> None:
    """A cost that remembers belongs to one policy alone; a plain function may be anybody's."""
    one, other = policy(name).cost, policy(name).cost
    assert isinstance(one, FunctionType) or one is not other


@pytest.mark.parametrize("name", POLICIES)
def test_policy_when_its_cost_is_predicted_then_its_capacity_follows_the_batch(name: str) -> None:
    """A prediction is replaced as the answer grows, so somebody has to take the new one."""
    built = policy(name)
    assert isinstance(built.cost, Predicted) is built.capacity.tracks_batch


@pytest.mark.parametrize("name", POLICIES)
def test_policy_when_the_pool_is_empty_then_admits_and_returns_everything(name: str) -> None:
    """Every row serves a request that fits, and holds nothing afterwards."""
    admitter = admitter_with(name)
    decision = admitter.arrive(request("r"), now_ns=0)
    assert isinstance(decision, Admit)
    assert decision.reserved_tokens == 200
    admitter.settle(decision.reservation_id, Usage(100, 50), outcome=Outcome.FINISHED, now_ns=S)
    assert admitter.snapshot(now_ns=S).used_tokens == 0


@pytest.mark.parametrize("mode", get_args(LengthMode))
def test_policy_when_a_length_mode_is_chosen_then_lengths_are_predicted_so(
    mode: LengthMode,
) -> None:
    """Known to be 50 long, an answer is taken for that, or for what was declared."""
    cost = policy("predictive", length_mode=mode).cost
    assert isinstance(cost, Predicted)
    for number in range(60):
        cost.learn(request(str(number)), Usage(100, 50), outcome=Outcome.FINISHED, now_ns=number)
    assert cost(request("r")).output_tokens == (100 if mode == "declared" else 50)


def test_policy_when_it_predicts_nothing_then_has_no_length_mode() -> None:
    """What is reserved as declared has nothing to choose."""
    with pytest.raises(ConfigError, match="length_mode sampled does not belong to policy 'token'"):
        policy("token", length_mode="sampled")


def test_policies_when_listed_then_use_every_answer() -> None:
    """No capacity test and no cost stands in a table that no policy can reach."""
    assert {capacity for capacity, *_ in POLICIES.values()} == set(CAPACITIES)
    assert {cost for _, cost, *_ in POLICIES.values()} == set(COSTS)


def test_default_when_looked_up_then_is_a_row() -> None:
    """What is used where nothing is said exists."""
    assert DEFAULT_POLICY in POLICIES


def test_policy_when_unknown_then_lists_the_allowed() -> None:
    """A wrong name is answered with the right ones."""
    allowed = ", ".join(POLICIES)
    with pytest.raises(ConfigError, match=f"unknown policy 'magic', allowed: {allowed}"):
        policy("magic")
