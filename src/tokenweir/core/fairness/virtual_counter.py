"""Whose turn is it, if every tenant is to get service by weight while it has work?

Model: c_i = virtual counter of tenant i: service charged to it, in units divided by its weight.
Rule: the smallest counter is served. A request is charged what is predicted when it enters, more
when it outgrows that, and at its end the difference to what it used. A tenant that comes back is
lifted to the smallest counter of those that wait, or where nobody waits to that of the last that
did: idleness earns no credit. Where others are then given back what was foreseen for them in vain
and fall below what it was lifted to, it comes down with them, waiting or not: it is ahead by what
it got itself, and no more. Service while nobody waits is charged to nobody: it costs nobody
anything, and what of it was foreseen in vain must not come back as credit. Ties go by who came
first, but who is lifted, and so has had less than anybody that waits, passes those it is now level
with; after one that did, somebody else has a turn before the next one may.
Properties: counters of tenants that wait differ by at most U, the largest charge between two
choices; services of two that wait all the time differ by at most 2 U, however long. Between two
turns of others at most one newcomer passes them by a tie.
Trade-off: U grows with what one tenant may have in the batch; charging predictions makes it smaller
than charging each token as it comes.
Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024; the predicted variant.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import ClassVar

from tokenweir.core.fairness.protocol import FairnessConfig

__all__ = ["VirtualCounter"]

# Far below where a float would lose single tokens.
_REBASE_AT = 1e12


class VirtualCounter:
    """A counter per tenant and a heap of those that wait."""

    tells_tenants_apart: ClassVar[bool] = True

    def __init__(self, config: FairnessConfig | None = None) -> None:
        """Start with nobody known."""
        self._config = config or FairnessConfig()
        # Ordered by last use, so that who is idle longest is forgotten first.
        self._counters: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        # What each was last lifted to, and the largest of that among those that wait, or more.
        self._bases: dict[str, float] = {}
        self._base_max = 0.0
        # Of who takes part: its number, by which ties go.
        self._waiting: dict[str, int] = {}
        # (counter, number, tenant); what no longer is so stays until it comes up.
        self._heap: list[tuple[float, int, str]] = []
        self._joined = 0
        self._floor = 0.0
        # Who passed the others last; nobody, once another has had a turn.
        self._passer: str | None = None

    def join(self, tenant: str, *, weight: float, arrival: int) -> None:
        """Lift the tenant to those that wait, and let it take part."""
        self._joined += 1
        counter, lift = self._lifted(tenant), self._lift()
        base = min(self._bases.get(tenant, lift), lift) if counter > lift else lift
        self._bases[tenant] = base
        self._base_max = max(self._base_max, base)
        number = self._joined
        if self._waiting and self._passer is None and self._counters.get(tenant, 0.0) < lift:
            self._passer, number = tenant, -number
        self._remember(tenant, counter, weight=weight)
        self._waiting[tenant] = number
        self._push(tenant)
        self._forget_idle()

    def head(self, tenant: str, *, arrival: int) -> None:
        """Change nothing: requests of one tenant are its own affair."""

    def turn(self, tenant: str) -> None:
        """Let a newcomer pass again; service is charged, not turns."""
        if tenant != self._passer:
            self._passer = None

    def leave(self, tenant: str) -> None:
        """Keep the counter, for when it comes back."""
        del self._waiting[tenant]
        if not self._waiting:
            self._floor = max(self._floor, self._counters[tenant])
            self._heap.clear()
            self._rebase()

    def next(self) -> str | None:
        """Return who has the smallest counter; ties by who came first."""
        self._drop_stale()
        return self._heap[0][2] if self._heap else None

    def charge(self, tenant: str, *, weight: float, prompt_tokens: int, output_tokens: int) -> bool:
        """Add service while anybody waits; else it is nobody's loss."""
        if not self._waiting:
            return False
        units = self._config.charge_of(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        counter = self._counters.get(tenant, 0.0) + units / weight
        self._remember(tenant, counter, weight=weight)
        if tenant in self._waiting:
            self._push(tenant)
        self._forget_idle()
        return True

    def settle(self, tenant: str, *, prompt_tokens: int, output_tokens: int) -> None:
        """Correct the counter; of who is forgotten there is nothing to correct."""
        if tenant not in self._counters:
            return
        units = self._config.charge_of(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        self._counters[tenant] += units / self._weights[tenant]
        if tenant in self._waiting:
            self._push(tenant)
            if units < 0 and self._counters[tenant] < self._base_max:
                self._bring_down_to(tenant)

    def level(self, tenant: str, *, weight: float, own_charge: float) -> float:
        """Return the counter that the tenant will have when it is the newcomer's turn."""
        return self._lifted(tenant) + own_charge / weight

    def units_before(self, level: float, others: Iterable[str]) -> list[float]:
        """Return what each gets until its counter is there."""
        counters, weights = self._counters, self._weights
        return [(level - counters[other]) * weights[other] for other in others]

    def charge_of(self, *, prompt_tokens: int, output_tokens: int) -> float:
        """Return the service in units."""
        return self._config.charge_of(prompt_tokens=prompt_tokens, output_tokens=output_tokens)

    def _lifted(self, tenant: str) -> float:
        counter = self._counters.get(tenant, 0.0)
        if tenant in self._waiting:
            return counter
        lift = self._lift()
        return max(counter - max(0.0, self._bases.get(tenant, lift) - lift), lift)

    def _bring_down_to(self, fallen: str) -> None:
        """Let those that were lifted above a counter that has fallen fall with it."""
        level = self._counters[fallen]
        self._bases[fallen] = min(self._bases[fallen], level)
        for tenant in self._waiting:
            excess = self._bases[tenant] - level
            if excess > 0:
                self._bases[tenant] = level
                self._counters[tenant] -= excess
                self._push(tenant)
        self._base_max = level

    def _lift(self) -> float:
        """Return the counter below which nobody comes back."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else self._floor

    def _remember(self, tenant: str, counter: float, *, weight: float) -> None:
        self._counters.pop(tenant, None)
        self._counters[tenant] = counter
        self._weights[tenant] = weight

    def _push(self, tenant: str) -> None:
        heapq.heappush(self._heap, (self._counters[tenant], self._waiting[tenant], tenant))
        if len(self._heap) > 4 * len(self._waiting) + 64:
            self._heap = [
                (self._counters[name], number, name) for name, number in self._waiting.items()
            ]
            heapq.heapify(self._heap)

    def _drop_stale(self) -> None:
        heap = self._heap
        while heap:
            counter, number, tenant = heap[0]
            if self._waiting.get(tenant) == number and self._counters[tenant] == counter:
                return
            heapq.heappop(heap)

    def _forget_idle(self) -> None:
        excess = len(self._counters) - self._config.tenants_max
        if excess <= 0:
            return
        idle = (name for name in list(self._counters) if name not in self._waiting)
        for _, name in zip(range(excess), idle, strict=False):
            del self._counters[name], self._weights[name]
            self._bases.pop(name, None)

    def _rebase(self) -> None:
        """Take from all counters what they have in common; called while nobody waits."""
        if self._floor < _REBASE_AT:
            return
        self._counters = {name: c - self._floor for name, c in self._counters.items()}
        self._bases = {name: base - self._floor for name, base in self._bases.items()}
        self._base_max -= self._floor
        self._floor = 0.0
