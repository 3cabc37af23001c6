"""What fits behind a bound on the engine's own waiting line?

Model: w = requests that the engine has taken and not begun: what it said at the last look and what
was sent since, or, where it says nothing, all without a first token; N = the bound.
Rule: admit while w < N.
Trade-off: the engine knows best when it can begin, but it begins whatever fits now: what runs
already outgrows the pool later, and what is behind the bound has its order fixed.
Source: what engines offer themselves, as a maximum of queued requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.protocol import Shortage
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError
from tokenweir.core.reasons import ReasonCode

__all__ = ["EngineQueue"]


@dataclass(frozen=True, slots=True)
class EngineQueue:
    """A cap on requests that wait inside a replica.

    Attributes:
        waiting_max: The cap, 1 or more. 16 are read within a second by most engines.
    """

    waiting_max: int = 16
    needs_occupancy: ClassVar[bool] = True
    tracks_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the range."""
        if self.waiting_max < 1:
            raise ConfigError(f"waiting_max {self.waiting_max} is not allowed, allowed: 1 or more")

    def shortage(
        self, estimate: Estimate, account: Account, *, ceiling_fraction: float = 1.0
    ) -> Shortage | None:
        """Return what is missing; one place is worth a mean reservation."""
        waiting = account.engine_waiting
        limit = max(1, int(self.waiting_max * ceiling_fraction))
        if waiting < limit:
            return None
        mean_tokens = account.reserved_tokens // max(1, account.in_flight)
        return Shortage(
            ReasonCode.OVERLOAD_CONCURRENCY,
            missing_tokens=max(1, mean_tokens) * (waiting - limit + 1),
            used_tokens=waiting,
            limit_tokens=limit,
        )

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Return False: a count knows nothing of size."""
        return False

    def free_tokens(self, account: Account) -> int:
        """Return free places, which stand for tokens here."""
        return self.waiting_max - account.engine_waiting
