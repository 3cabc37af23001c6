"""Whose turn is it if tenants take turns, request by request?

Model: tenants that wait, in a ring.
Rule: the first is served and goes to the end; who comes goes to the end.
Trade-off: needs no counts of tokens, and gives who sends large requests so much more service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from tokenweir.core.fairness.protocol import FairnessConfig

__all__ = ["RoundRobin"]


class RoundRobin:
    """A ring of tenants; weights are not kept."""

    tells_tenants_apart: ClassVar[bool] = True

    def __init__(self, config: FairnessConfig | None = None) -> None:
        """Start with nobody waiting."""
        self._config = config or FairnessConfig()
        self._ring: dict[str, None] = {}

    def join(self, tenant: str, *, weight: float, arrival: int) -> None:
        """Put the tenant at the end of the ring."""
        self._ring[tenant] = None

    def head(self, tenant: str, *, arrival: int) -> None:
        """Change nothing: who leaves its line or passes the others in it uses no turn."""

    def turn(self, tenant: str) -> None:
        """Move on: its turn has been used."""
        del self._ring[tenant]
        self._ring[tenant] = None

    def leave(self, tenant: str) -> None:
        """Take the tenant out."""
        del self._ring[tenant]

    def next(self) -> str | None:
        """Return the first of the ring."""
        return next(iter(self._ring), None)

    def charge(self, tenant: str, *, weight: float, prompt_tokens: int, output_tokens: int) -> bool:
        """Charge nothing: turns are counted, not tokens."""
        return False

    def settle(self, tenant: str, *, prompt_tokens: int, output_tokens: int) -> None:
        """Change nothing: turns are counted, not tokens."""

    def level(self, tenant: str, *, weight: float, own_charge: float) -> float:
        """Return what the tenant has waiting ahead of the newcomer."""
        return own_charge

    def units_before(self, level: float, others: Iterable[str]) -> list[float]:
        """Return as much of each: turns are taken for turns."""
        return [level for _ in others]

    def charge_of(self, *, prompt_tokens: int, output_tokens: int) -> float:
        """Return the service in units."""
        return self._config.charge_of(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
