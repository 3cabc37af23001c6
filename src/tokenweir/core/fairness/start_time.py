"""Whose turn is it by start-time fair queueing?

Model: a virtual time v = start tag of what was served last; a tenant's tag is where its served
requests end in virtual time.
Rule: the smallest start tag is served; who comes back starts at v, or at its own tag if that is
later.
Properties: as the virtual counter, but who comes back is put level with the service of now and not
with the one who has had least.
Source: Goyal, Vin and Cheng, Start-time fair queueing, SIGCOMM 1996.
"""

from __future__ import annotations

from tokenweir.core.fairness.virtual_counter import VirtualCounter

__all__ = ["StartTime"]


class StartTime(VirtualCounter):
    """Tags instead of counters: only the lift differs."""

    def turn(self, tenant: str) -> None:
        """Move virtual time to where this service begins."""
        super().turn(tenant)
        self._floor = max(self._floor, self._counters[tenant])

    def _lift(self) -> float:
        return self._floor
