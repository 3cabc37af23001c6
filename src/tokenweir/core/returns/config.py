"""How are returns paced, and how many retries are let through?"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = ["ReturnConfig"]


@dataclass(frozen=True, slots=True)
class ReturnConfig:
    """Settings of return slots and of the retry budget.

    Attributes:
        share_min: Share of capacity given to returns while first attempts ask for all of it, above
            0 to ``share_max``. What is given is taken from first attempts.
        share_hoped: Share given out for a minute from now, in the hope that overload which has just
            begun will be over; 0 to 1, and never less than what is given now.
        share_max: Share given however little first attempts ask for, up to 1.
        wait_ns_min: Nobody is told to come back sooner, above 0.
        wait_ns_max: Nobody is told to come back later, but not to retry. Clients obey up to 60 s.
        grace_ns: A slot that is not used so long after the time that was told is released.
        slots_max: Slots open at once; beyond them clients are told not to retry.
        budget_fraction: Retries let through without a slot, as a share of the tokens of first
            attempts that were admitted, 0 to 1.
        budget_min_rps: Retries let through whatever was admitted, per tenant, 0 or more.
        budget_window_s: Over which the budget is taken, 1 or more.
        tenants_max: Tenants with a budget of their own; those quiet the longest are forgotten.
        attempts_max: Attempts of one request, 1 or more; further ones are refused.
    """

    share_min: float = 0.01
    share_hoped: float = 0.2
    share_max: float = 0.5
    wait_ns_min: Nanos = 500 * NS_PER_MS
    wait_ns_max: Nanos = 60 * NS_PER_S
    grace_ns: Nanos = 2 * NS_PER_S
    slots_max: int = 20_000
    budget_fraction: float = 0.10
    budget_min_rps: float = 1.0
    budget_window_s: int = 10
    tenants_max: int = 10_000
    attempts_max: int = 3

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0 < self.share_min <= self.share_max <= 1:
            raise ConfigError(
                f"shares {self.share_min} and {self.share_max} are not allowed, "
                "allowed: 0 < share_min <= share_max <= 1"
            )
        if not 0 <= self.share_hoped <= 1:
            raise ConfigError(f"share_hoped {self.share_hoped} is not allowed, allowed: 0 to 1")
        if not 0 < self.wait_ns_min <= self.wait_ns_max:
            raise ConfigError(
                f"waits {self.wait_ns_min} and {self.wait_ns_max} ns are not allowed, "
                "allowed: 0 < wait_ns_min <= wait_ns_max"
            )
        if self.grace_ns < 0:
            raise ConfigError(f"grace_ns {self.grace_ns} is not allowed, allowed: 0 or more")
        if not 0 <= self.budget_fraction <= 1:
            raise ConfigError(
                f"budget_fraction {self.budget_fraction} is not allowed, allowed: 0 to 1"
            )
        if not 0 <= self.budget_min_rps <= 1e6:
            raise ConfigError(
                f"budget_min_rps {self.budget_min_rps} is not allowed, allowed: 0 to 1e6"
            )
        for name in ("slots_max", "budget_window_s", "tenants_max", "attempts_max"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} {value} is not allowed, allowed: 1 or more")
