"""What must every answer to "whose turn is it?" be able to do?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from tokenweir.core.errors import ConfigError

__all__ = ["Fairness", "FairnessConfig"]


@dataclass(frozen=True, slots=True)
class FairnessConfig:
    """What service is worth.

    Attributes:
        prompt_weight: Units per prompt token that is read, above 0.
        output_weight: Units per output token, above 0; 2 is the reference's, profiles of engines
            say 2.6 to 4.4.
        refusal_tokens: Prompt tokens that a refused attempt is charged as, 0 or more (see
            ``refusals``).
        refusals_max: Refusals that are charged between two requests that enter, 0 or more.
        tenants_max: Tenants remembered, 1 or more; who is idle longest is forgotten first.
    """

    prompt_weight: float = 1.0
    output_weight: float = 2.0
    refusal_tokens: int = 50
    refusals_max: int = 20
    tenants_max: int = 100_000

    def __post_init__(self) -> None:
        """Check ranges."""
        for name in ("prompt_weight", "output_weight"):
            if not 0 < getattr(self, name) <= 1e6:
                raise ConfigError(
                    f"{name} {getattr(self, name)} is not allowed, allowed: above 0 up to 1e6"
                )
        for name in ("refusal_tokens", "refusals_max"):
            if getattr(self, name) < 0:
                raise ConfigError(
                    f"{name} {getattr(self, name)} is not allowed, allowed: 0 or more"
                )
        if self.tenants_max < 1:
            raise ConfigError(f"tenants_max {self.tenants_max} is not allowed, allowed: 1 or more")

    def charge_of(self, *, prompt_tokens: int, output_tokens: int) -> float:
        """Return the service in units."""
        return self.prompt_weight * prompt_tokens + self.output_weight * output_tokens


class Fairness(Protocol):
    """One answer to "whose turn is it?", for the tenants of one class."""

    tells_tenants_apart: ClassVar[bool]
    """Whether who sends makes a difference; where it makes none, nor do shares of the pool."""

    def join(self, tenant: str, *, weight: float, arrival: int) -> None:
        """Let a tenant take part: something of it waits now; ``arrival`` numbers its head."""
        ...

    def head(self, tenant: str, *, arrival: int) -> None:
        """Note that another request of a tenant is its next one."""
        ...

    def turn(self, tenant: str) -> None:
        """Note that a request of a tenant enters, while it still counts among what waits."""
        ...

    def leave(self, tenant: str) -> None:
        """Note that nothing of a tenant waits any more."""
        ...

    def next(self) -> str | None:
        """Return the tenant whose turn it is, or None where nobody takes part."""
        ...

    def charge(self, tenant: str, *, weight: float, prompt_tokens: int, output_tokens: int) -> bool:
        """Charge service that was begun or foreseen; returns whether it was charged.

        What was not charged is not settled.
        """
        ...

    def settle(self, tenant: str, *, prompt_tokens: int, output_tokens: int) -> None:
        """Correct what was charged by what was used: more where positive, less where negative."""
        ...

    def level(self, tenant: str, *, weight: float, own_charge: float) -> float:
        """Return where a newcomer of a tenant stands among those that wait.

        Args:
            tenant: Whose request the newcomer is.
            weight: Its weight.
            own_charge: What waits of it ahead of the newcomer, in units.
        """
        ...

    def units_before(self, level: float, others: Iterable[str]) -> list[float]:
        """Return how much of each of some tenants that wait is served before a level is reached.

        Asked for all of them at each arrival; negative is none, and more than waits is all.
        """
        ...

    def charge_of(self, *, prompt_tokens: int, output_tokens: int) -> float:
        """Return the service in units, before weights."""
        ...
