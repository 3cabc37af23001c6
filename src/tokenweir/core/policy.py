"""Which policies are there? A policy is a named pair of a capacity test and a cost.

Some are guarded: besides the pool, they test the first token and the pace (see ``guards``). Some
are limited: besides all that is predicted, they look at what clients get (see ``aimd``).
"""

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
    is_guarded: bool = False
    is_limited: bool = False

    @property
    def needs_progress(self) -> bool:
        """Whether each request's progress and the engine's preemptions must be told."""
        return self.capacity.tracks_batch or self.is_limited


# By name: the row of CAPACITIES, the row of COSTS, whether it is guarded, whether limited.
POLICIES: dict[str, tuple[str, str, bool, bool]] = {
    "none": ("none", "declared", False, False),
    "concurrency": ("concurrency", "declared", False, False),
    "aimd": ("seats", "declared", False, True),
    "engine_queue": ("engine_queue", "declared", False, False),
    "token": ("occupancy", "declared", False, False),
    "token_amort": ("occupancy", "amortised", False, False),
    "ledger": ("token_reservation", "declared", False, False),
    "hard_gate": ("hard_gate", "declared", False, False),
    "predictive": ("future_peak", "predicted", True, True),
}

# The one that is bound by whatever binds the engine: its pool, its seats or its computing.
DEFAULT_POLICY = "predictive"


def policy(name: str) -> Policy:
    """Build a policy by name.

    Raises:
        ConfigError: No such row in ``POLICIES``.
    """
    try:
        capacity, cost, is_guarded, is_limited = POLICIES[name]
    except KeyError:
        raise ConfigError(f"unknown policy {name!r}, allowed: {', '.join(POLICIES)}") from None
    return Policy(name, capacity_test(capacity), cost_model(cost), is_guarded, is_limited)
