"""Whose turn is it if tenants make no difference?

Rule: the tenant whose next request came first is served.
Trade-off: who sends most gets most.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import ClassVar

from tokenweir.core.fairness.protocol import FairnessConfig

__all__ = ["FirstCome"]


class FirstCome:
    """Tenants by the arrival of their heads."""

    tells_tenants_apart: ClassVar[bool] = False

    def __init__(self, config: FairnessConfig | None = None) -> None:
        """Start with nobody waiting."""
        self._config = config or FairnessConfig()
        self._arrivals: dict[str, int] = {}
        # (arrival, tenant); what no longer is so stays until it comes up.
        self._heap: list[tuple[int, str]] = []

    def join(self, tenant: str, *, weight: float, arrival: int) -> None:
        """Let the tenant take part."""
        self.head(tenant, arrival=arrival)

    def head(self, tenant: str, *, arrival: int) -> None:
        """Note when its head came."""
        self._arrivals[tenant] = arrival
        heapq.heappush(self._heap, (arrival, tenant))
        if len(self._heap) > 4 * len(self._arrivals) + 64:
            self._heap = [(number, name) for name, number in self._arrivals.items()]
            heapq.heapify(self._heap)

    def turn(self, tenant: str) -> None:
        """Change nothing: its next request has an arrival of its own."""

    def leave(self, tenant: str) -> None:
        """Take the tenant out."""
        del self._arrivals[tenant]

    def next(self) -> str | None:
        """Return whose head came first."""
        heap = self._heap
        while heap and self._arrivals.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def charge(self, tenant: str, *, weight: float, prompt_tokens: int, output_tokens: int) -> bool:
        """Charge nothing: nobody pays."""
        return False

    def settle(self, tenant: str, *, prompt_tokens: int, output_tokens: int) -> None:
        """Change nothing: nobody pays."""

    def level(self, tenant: str, *, weight: float, own_charge: float) -> float:
        """Return the end of the line."""
        return math.inf

    def units_before(self, level: float, others: Iterable[str]) -> list[float]:
        """Return all: whoever waits came earlier."""
        return [level for _ in others]

    def charge_of(self, *, prompt_tokens: int, output_tokens: int) -> float:
        """Return the service in units."""
        return self._config.charge_of(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
