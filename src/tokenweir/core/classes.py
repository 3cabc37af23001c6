"""What may each class of requests take, and how long may it wait?

Model: four classes, P0 the most urgent. A ceiling is the share of every capacity limit up to which
a class may enter; a floor is the share of dispatched tokens that a waiting class gets whatever
waits above it.
Rule: a ceiling below 1 binds only while a class above was asked for in the last minute, so that an
engine that serves one class alone gives it everything.
Trade-off: hold-back keeps room for who may come, at the price of room that is not used when nobody
does; the memory of a minute bounds that price.
A pausable class uses spare capacity only (see ``pausing``).
Source: the shape of priority hold-back in llm-d, ceilings and floors of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from tokenweir.core.errors import ConfigError
from tokenweir.core.request import PRIORITIES, Priority
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos

__all__ = ["CLASSES", "ClassDemand", "ClassLimits", "Interruptible"]

_DEMAND_MEMORY_NS = 60 * NS_PER_S
_NEVER_NS = -(1 << 62)


class Interruptible(Enum):
    """How far a running request may be interrupted."""

    # Members are single objects; Enum's own hash costs a Python call at every look-up.
    __hash__ = object.__hash__

    NEVER = "never"
    BEFORE_FIRST_BYTE = "before_first_byte"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class ClassLimits:
    """Bounds of one class.

    Attributes:
        ceiling_fraction: Share of the limits up to which it may enter, above 0 to 1.
        floor_fraction: Share of dispatched tokens it gets while it waits, 0 to below 1.
        wait_ns_max: Longest wait, above 0, or None for the queue's own.
        items_max: Entries, or None for the queue's own bound alone.
        debt_tokens_max: Sum of estimates, or None for the queue's own bound alone.
        is_interactive: Whether a first token must come within the queue's SLO.
        interruptible: How far a running request of it may give way to one of an interactive class
            above that would be refused otherwise (see ``interrupting``).
        is_pausable: Whether it pauses while the interactive classes above need the pool.
    """

    ceiling_fraction: float = 1.0
    floor_fraction: float = 0.0
    wait_ns_max: Nanos | None = None
    items_max: int | None = None
    debt_tokens_max: int | None = None
    is_interactive: bool = True
    is_pausable: bool = False
    interruptible: Interruptible = Interruptible.NEVER

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0 < self.ceiling_fraction <= 1:
            raise ConfigError(
                f"ceiling_fraction {self.ceiling_fraction} is not allowed, allowed: above 0 up to 1"
            )
        if not 0 <= self.floor_fraction < 1:
            raise ConfigError(
                f"floor_fraction {self.floor_fraction} is not allowed, allowed: 0 to below 1"
            )
        if self.wait_ns_max is not None and self.wait_ns_max <= 0:
            raise ConfigError(
                f"wait_ns_max {self.wait_ns_max} is not allowed, allowed: above 0, or none"
            )
        for name in ("items_max", "debt_tokens_max"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"{name} {value} is not allowed, allowed: 0 or more, or none")


# P1 is what a request is that says nothing, so the queue's own wait is its.
CLASSES: Mapping[Priority, ClassLimits] = MappingProxyType({
    Priority.P0: ClassLimits(wait_ns_max=500 * NS_PER_MS),
    Priority.P1: ClassLimits(ceiling_fraction=0.92, floor_fraction=0.10),
    Priority.P2: ClassLimits(
        ceiling_fraction=0.85,
        floor_fraction=0.05,
        wait_ns_max=30 * NS_PER_S,
        is_interactive=False,
        interruptible=Interruptible.BEFORE_FIRST_BYTE,
    ),
    Priority.P3: ClassLimits(
        ceiling_fraction=0.70,
        wait_ns_max=600 * NS_PER_S,
        is_interactive=False,
        is_pausable=True,
        interruptible=Interruptible.BEFORE_FIRST_BYTE,
    ),
})


class ClassDemand:
    """Which classes were asked for lately, and so which ceilings bind."""

    __slots__ = ("_asked_ns", "_classes")

    def __init__(self, classes: Mapping[Priority, ClassLimits]) -> None:
        """Start with nobody having asked."""
        self._classes = classes
        self._asked_ns = dict.fromkeys(Priority, _NEVER_NS)

    def note(self, priority: Priority, *, now_ns: Nanos) -> None:
        """Note that a request of a class arrived."""
        self._asked_ns[priority] = now_ns

    def is_asked(self, priority: Priority, *, now_ns: Nanos) -> bool:
        """Tell whether a class was asked for in the last minute."""
        return self._asked_ns[priority] > now_ns - _DEMAND_MEMORY_NS

    def ceiling_fraction(self, priority: Priority, *, now_ns: Nanos) -> float:
        """Return the share of every limit up to which a class may enter now."""
        since_ns = now_ns - _DEMAND_MEMORY_NS
        asked_ns = self._asked_ns
        for above in PRIORITIES:
            if above >= priority:
                return 1.0
            if asked_ns[above] > since_ns:
                return self._classes[priority].ceiling_fraction
        return 1.0
