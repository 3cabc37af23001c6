"""What fits under a fixed number of requests?

Model: f = requests in flight, queued inside the engine included; L = the limit.
Rule: admit while f < L.
Trade-off: needs no token count at all, but two requests can differ a thousandfold in cost, so L is
too loose for long requests and too tight for short ones at the same time.
Source: the article's ``concurrency`` policy, L = 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokenweir.core.account import Account
from tokenweir.core.capacity.protocol import Shortage
from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError
from tokenweir.core.reasons import ReasonCode

__all__ = ["Concurrency"]


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A hard cap on requests in flight on a replica.

    Attributes:
        in_flight_max: The cap, 1 or more. 100 is the article's and suits its engine only.
    """

    in_flight_max: int = 100
    needs_occupancy: ClassVar[bool] = False
    tracks_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the range."""
        if self.in_flight_max < 1:
            raise ConfigError(
                f"in_flight_max {self.in_flight_max} is not allowed, allowed: 1 or more"
            )

    def shortage(
        self, estimate: Estimate, account: Account, *, ceiling_fraction: float = 1.0
    ) -> Shortage | None:
        """Return what is missing; one permit is worth a mean reservation."""
        in_flight = account.in_flight
        limit = max(1, int(self.in_flight_max * ceiling_fraction))
        if in_flight < limit:
            return None
        mean_tokens = account.reserved_tokens // max(1, in_flight)
        return Shortage(
            ReasonCode.OVERLOAD_CONCURRENCY,
            missing_tokens=mean_tokens * (in_flight - limit + 1),
            used_tokens=in_flight,
            limit_tokens=limit,
        )

    def is_impossible(self, estimate: Estimate, account: Account) -> bool:
        """Return False: a count knows nothing of size."""
        return False

    def free_tokens(self, account: Account) -> int:
        """Return free permits, which stand for tokens here."""
        return self.in_flight_max - account.in_flight
