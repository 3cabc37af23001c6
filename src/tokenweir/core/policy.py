"""Which policies are there? A policy is a named pair of a capacity test and a cost.

Some are guarded: besides the pool, they test the first token and the pace (see ``guards``). Some
are limited: besides all that is predicted, they look at what clients get (see ``aimd``).
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.capacity import CapacityTest, capacity_test
from tokenweir.core.cost import CostModel, Predicted, cost_model
from tokenweir.core.errors import ConfigError
from tokenweir.core.lengths import LengthConfig, LengthMode, LengthPredictor

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


def policy(name: str, *, length_mode: LengthMode | None = None) -> Policy:
    """Build a policy by name.

    Args:
        name: Row of ``POLICIES``.
        length_mode: What its predicted lengths promise, None for the default.

    Raises:
        ConfigError: No such row in ``POLICIES``, or it does not predict lengths.
    """
    try:
        capacity, cost, is_guarded, is_limited = POLICIES[name]
    except KeyError:
        raise ConfigError(f"unknown policy {name!r}, allowed: {', '.join(POLICIES)}") from None
    built = cost_model(cost)
    if length_mode is not None:
        if not isinstance(built, Predicted):
            raise ConfigError(
                f"length_mode {length_mode} does not belong to policy {name!r}, allowed: policies "
                f"{', '.join(row for row in POLICIES if POLICIES[row][1] == 'predicted')}"
            )
        built = Predicted(LengthPredictor(LengthConfig(mode=length_mode)))
    return Policy(name, capacity_test(capacity), built, is_guarded, is_limited)
