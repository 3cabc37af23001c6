"""Which policies are there? A policy is a named pair of a capacity test and a cost."""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.capacity import CapacityTest, capacity_test
from tokenweir.core.cost import CostModel, cost_model
from tokenweir.core.errors import ConfigError

__all__ = ["DEFAULT_POLICY", "POLICIES", "Policy", "policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What is tested, and what a request is taken to cost."""

    name: str
    capacity: CapacityTest
    cost: CostModel


# name: (row of CAPACITIES, row of COSTS)
POLICIES: dict[str, tuple[str, str]] = {
    "none": ("none", "declared"),
    "concurrency": ("concurrency", "declared"),
    "token": ("occupancy", "declared"),
    "token_amort": ("occupancy", "amortised"),
    "ledger": ("token_reservation", "declared"),
    "hard_gate": ("hard_gate", "declared"),
}

# Declared maxima are loose in practice, so the policy that does not believe them.
DEFAULT_POLICY = "token_amort"


def policy(name: str) -> Policy:
    """Build a policy by name.

    Raises:
        ConfigError: No such row in ``POLICIES``.
    """
    try:
        capacity, cost = POLICIES[name]
    except KeyError:
        raise ConfigError(f"unknown policy {name!r}, allowed: {', '.join(POLICIES)}") from None
    return Policy(name, capacity_test(capacity), cost_model(cost))
