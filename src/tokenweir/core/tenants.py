"""How much may one tenant hold, and how much does it hold?

Model: a tenant has a weight, and may have a cap on its requests in flight. Its fair part of a
contended KV pool is its weight over those of all tenants that hold or wait.
Rule (caps): a cap on requests holds always. The share of KV, twice the fair part and never less
than one request, holds only while somebody else waits for KV: else it would waste room.
Rule (shares): while others have asked in the last minute, who holds more than its fair part is
heavy, and who would still hold no more with one request more is light. The part is of what all hold
for the heavy, since the pool is never full where seats or time are short, and of the pool for the
light. The heavy leave less to be read in engines, and a seat, and the light may use a part of the
headroom (see ``placement``): a turn that comes at once is worth little behind prompts that are
being read, or before an engine that is full.
Properties: INV-TENANT-1 (what a tenant holds is the sum over its open reservations; who holds
nothing is forgotten).
Source: a bound on what one tenant can hold in the batch bounds the unfairness of a virtual token
counter (Sheng et al., OSDI 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["Share", "TenantConfig", "TenantHoldings", "TenantLimits"]

_KV_SHARES_MAX = 2.0
# Who has asked in this time is taken to come again.
_ASKED_MEMORY_NS = 60 * NS_PER_S
_NEVER_NS = -(1 << 62)


class Share(Enum):
    """What a tenant holds against its fair part of the pool; see the rule."""

    LIGHT = "light"
    FAIR = "fair"
    HEAVY = "heavy"


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What one tenant may have.

    Attributes:
        weight: Its share against other tenants', above 0.
        in_flight_max: Requests in engines at once, 1 or more, or None for no cap.
    """

    weight: float = 1.0
    in_flight_max: int | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0 < self.weight <= 1e6:
            raise ConfigError(f"weight {self.weight} is not allowed, allowed: above 0 up to 1e6")
        if self.in_flight_max is not None and self.in_flight_max < 1:
            raise ConfigError(
                f"in_flight_max {self.in_flight_max} is not allowed, allowed: 1 or more, or none"
            )


@dataclass(frozen=True, slots=True)
class TenantConfig:
    """Limits by tenant, and of who is not named."""

    named: Mapping[str, TenantLimits] = field(default_factory=dict)
    others: TenantLimits = field(default_factory=TenantLimits)

    def of(self, tenant: str) -> TenantLimits:
        """Return a tenant's limits."""
        return self.named.get(tenant, self.others)


class TenantHoldings:
    """Requests and tokens that each tenant holds in the engines of one pool."""

    def __init__(self, config: TenantConfig) -> None:
        """Start with nobody holding anything."""
        self.config = config
        self._in_flight: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._weights = 0.0
        self._held_tokens = 0
        # Who asked last, and who other than that one, and when.
        self._asked: tuple[str, Nanos] = ("", _NEVER_NS)
        self._asked_before: tuple[str, Nanos] = ("", _NEVER_NS)

    def note_asked(self, tenant: str, *, now_ns: Nanos) -> None:
        """Note that a tenant's request arrived."""
        if tenant != self._asked[0]:
            self._asked_before = self._asked
        self._asked = (tenant, now_ns)

    def open(self, tenant: str, *, tokens: int) -> None:
        """Count a reservation that was made."""
        count = self._in_flight.get(tenant, 0)
        if count == 0:
            self._weights += self.config.of(tenant).weight
        self._in_flight[tenant] = count + 1
        self._tokens[tenant] = self._tokens.get(tenant, 0) + tokens
        self._held_tokens += tokens

    def close(self, tenant: str, *, tokens: int) -> None:
        """Count a reservation that has ended."""
        count = self._in_flight[tenant] - 1
        self._held_tokens -= tokens
        if count:
            self._in_flight[tenant] = count
            self._tokens[tenant] -= tokens
            return
        del self._in_flight[tenant], self._tokens[tenant]
        # Rounding must not add up over a long life.
        left = self._weights - self.config.of(tenant).weight
        self._weights = left if self._in_flight else 0.0

    def in_flight(self, tenant: str) -> int:
        """Return how many requests a tenant has in engines."""
        return self._in_flight.get(tenant, 0)

    def tokens(self, tenant: str) -> int:
        """Return how many tokens a tenant's reservations hold."""
        return self._tokens.get(tenant, 0)

    def is_at_cap(self, tenant: str) -> bool:
        """Tell whether a tenant has as many requests in engines as it may."""
        limit = self.config.of(tenant).in_flight_max
        return limit is not None and self._in_flight.get(tenant, 0) >= limit

    def is_over_share(self, tenant: str, *, pool_tokens: int) -> bool:
        """Tell whether a tenant holds more of a contended pool than it may; see the rule."""
        held = self._tokens.get(tenant, 0)
        if held == 0 or pool_tokens == 0:
            return False
        return held > _KV_SHARES_MAX * self._fair_tokens(tenant, pool_tokens=pool_tokens)

    def is_alone(self, tenant: str, *, now_ns: Nanos) -> bool:
        """Tell whether nobody else has asked lately."""
        other_ns = (self._asked_before if tenant == self._asked[0] else self._asked)[1]
        return other_ns <= now_ns - _ASKED_MEMORY_NS

    def share_of(self, tenant: str, *, tokens: int, pool_tokens: int, now_ns: Nanos) -> Share:
        """Return how a tenant stands that wants so many tokens more; see the rule."""
        if pool_tokens == 0 or self.is_alone(tenant, now_ns=now_ns):
            return Share.FAIR
        held = self._tokens.get(tenant, 0)
        # Where seats or time are short, the pool never is: what is held is what there is to share.
        if held > self._fair_tokens(tenant, pool_tokens=self._held_tokens):
            return Share.HEAVY
        fair = self._fair_tokens(tenant, pool_tokens=pool_tokens)
        return Share.LIGHT if held + tokens <= fair else Share.FAIR

    def _fair_tokens(self, tenant: str, *, pool_tokens: int) -> float:
        weight = self.config.of(tenant).weight
        others = self._weights - (weight if tenant in self._tokens else 0.0)
        # Whoever else asks holds nothing perhaps, and then counts as one more like it.
        return pool_tokens * weight / (weight + max(others, weight))

    def __len__(self) -> int:
        """Count the tenants that hold something."""
        return len(self._in_flight)
