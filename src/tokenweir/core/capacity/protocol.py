"""What must every answer to "what fits now?" be able to say?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from tokenweir.core.account import Account
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError
from tokenweir.core.reasons import ReasonCode

__all__ = ["CapacityTest", "Shortage", "check_fraction"]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a request does not fit now.

    Attributes:
        reason: Which limit.
        missing_tokens: How much must become free first; Retry-After is computed from it.
        used_tokens: What is in use of the limit.
        limit_tokens: The limit.
    """

    reason: ReasonCode
    missing_tokens: int
    used_tokens: int
    limit_tokens: int


class CapacityTest(Protocol):
    """One answer to "what fits now?": stateless, reads an account, changes nothing."""

    needs_occupancy: ClassVar[bool]
    """Whether the answer depends on the engine's KV, so that its telemetry must be exact."""

    tracks_batch: ClassVar[bool]
    """Whether the answer depends on each request's progress, so that it must be told."""

    def shortage(
        self, estimate: Estimate, account: Account, *, ceiling_fraction: float = 1.0
    ) -> Shortage | None:
        """Return None where the request fits into a share of the limit, else what is missing."""
        ...

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Tell whether the request would not fit an empty replica either."""
        ...

    def free_tokens(self, account: Account) -> int:
        """Return how much is free, to choose between replicas; may be negative."""
        ...


def check_fraction(name: str, fraction: float) -> None:
    """Check that a fraction lies above 0 and up to 1.

    Raises:
        ConfigError: It does not.
    """
    if not 0 < fraction <= 1:
        raise ConfigError(f"{name} {fraction} is not allowed, allowed: above 0 up to 1")
