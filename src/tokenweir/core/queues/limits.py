"""How much may wait, and how long?

Model: bounds of the whole queue, and of each class (see ``core/classes.py``); both hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenweir.core.classes import CLASSES, ClassLimits
from tokenweir.core.errors import ConfigError
from tokenweir.core.request import Priority, Request
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["QueueLimits"]

# Each is tested at every look at the queue.
_BACKFILL_MAX = 16


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait.

    Attributes:
        items_max: Entries, 0 or more; 0 means that nothing waits and what does not fit is refused.
        debt_tokens_max: Sum of estimates, 0 or more, or None for no bound beside the others.
        wait_ns_max: Longest wait of a class that names none, above 0. 5 s is what an interactive
            user bears at most.
        first_token_slo_ns: Where known, nothing is queued whose predicted wait is over
            ``slo_fraction`` of it: what is doomed is refused at once.
        first_token_unloaded_ratio: Where the engine's profile is known, a request whose first token
            takes long on an idle engine already may take so many times that; 0 for no such grace.
        slo_fraction: See above, above 0 to 1; the other half is for the prefill inside the engine,
            which a loaded engine needs.
        backfill_max: How many are asked whether they may pass a head that waits for KV (see
            ``backfilling``), 0 for none.
        classes: Ceilings, floors and bounds by class.
    """

    items_max: int = 1_000
    debt_tokens_max: int | None = None
    wait_ns_max: Nanos = 5 * NS_PER_S
    first_token_slo_ns: Nanos | None = None
    first_token_unloaded_ratio: float = 0.0
    slo_fraction: float = 0.5
    backfill_max: int = 0
    classes: Mapping[Priority, ClassLimits] = field(default_factory=lambda: dict(CLASSES))

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.items_max < 0:
            raise ConfigError(f"items_max {self.items_max} is not allowed, allowed: 0 or more")
        if not 0 <= self.backfill_max <= _BACKFILL_MAX:
            raise ConfigError(
                f"backfill_max {self.backfill_max} is not allowed, allowed: 0 to {_BACKFILL_MAX}"
            )
        if self.debt_tokens_max is not None and self.debt_tokens_max < 0:
            raise ConfigError(
                f"debt_tokens_max {self.debt_tokens_max} is not allowed, allowed: 0 or more"
            )
        if not self.first_token_unloaded_ratio >= 0:
            raise ConfigError(
                f"first_token_unloaded_ratio {self.first_token_unloaded_ratio} is not allowed, "
                "allowed: 0 or more"
            )
        missing = [priority.name for priority in Priority if priority not in self.classes]
        if missing:
            raise ConfigError(f"classes lack {', '.join(missing)}, allowed: one row for each class")
        if self.wait_ns_max <= 0:
            raise ConfigError(f"wait_ns_max {self.wait_ns_max} is not allowed, allowed: above 0")
        if self.first_token_slo_ns is not None and self.first_token_slo_ns <= 0:
            raise ConfigError(
                f"first_token_slo_ns {self.first_token_slo_ns} is not allowed, "
                "allowed: above 0, or none"
            )
        if not 0 < self.slo_fraction <= 1:
            raise ConfigError(
                f"slo_fraction {self.slo_fraction} is not allowed, allowed: above 0 up to 1"
            )

    def wait_ns_max_of(self, priority: Priority) -> Nanos:
        """Return the longest wait of a class."""
        of_class = self.classes[priority].wait_ns_max
        return self.wait_ns_max if of_class is None else of_class

    def longest_wait_ns(self, request: Request) -> Nanos:
        """Return the longest wait of a request: its class's, or a shorter one of its own."""
        longest_ns = self.wait_ns_max_of(request.priority)
        own_ns = request.wait_ns_max
        return longest_ns if own_ns is None else min(longest_ns, own_ns)

    def wait_ns_bound(self, priority: Priority = Priority.P1) -> Nanos:
        """Return the longest wait of a class that can still meet the SLO."""
        bound_ns = self.wait_ns_max_of(priority)
        if self.first_token_slo_ns is None or not self.classes[priority].is_interactive:
            return bound_ns
        return min(bound_ns, int(self.first_token_slo_ns * self.slo_fraction))
