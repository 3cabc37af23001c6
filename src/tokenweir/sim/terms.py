"""What do a tenant's requests carry that no trace tells: their class, and how long they wait?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenweir.core.lengths import LengthMode
from tokenweir.core.request import Priority
from tokenweir.core.units import Nanos

__all__ = ["Terms", "TermsByTenant"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What requests carry.

    Attributes:
        tenant: As whom the policy knows their sender, None for the trace's own name of it.
        priority: Class.
        wait_ns_max: Longest wait, None for the class's own.
        length_mode: What is promised of their lengths, None for what the pool promises.
    """

    tenant: str | None = None
    priority: Priority = Priority.P1
    wait_ns_max: Nanos | None = None
    length_mode: LengthMode | None = None


@dataclass(frozen=True, slots=True)
class TermsByTenant:
    """Terms by the trace's names of tenants, and of who is not named."""

    named: Mapping[str, Terms] = field(default_factory=dict)
    others: Terms = field(default_factory=Terms)

    def of(self, tenant: str) -> Terms:
        """Return the terms of a tenant."""
        return self.named.get(tenant, self.others)

    @property
    def priorities(self) -> frozenset[Priority]:
        """The classes that somebody may have."""
        return frozenset(terms.priority for terms in (*self.named.values(), self.others))
