"""Does background work enter now, or does it pause?

Model: pausable classes wait for spare capacity; p = whether the pool is under pressure: somebody of
an interactive class above is next and does not fit, or, while such a class was asked for in the
last minute, every healthy replica is nearly full or has had its outer limit cut a moment ago.
Rule: what waits of them pauses while p holds, and resumes when p has not held for ``quiet_ns``.
While it pauses, a replica counts as nearly full from ``kv_fraction_down`` on, else from
``kv_fraction_up``.
Properties: what waits is kept, in its order and within its bounds; who has waited half of what its
class may is promoted out of it and enters all the same, so that nobody pauses for ever.
Trade-off: up to ``quiet_ns`` of spare capacity are lost after each pressure; without that, a batch
would slip in at every gap between two urgent requests, which then meet its prompts in the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tokenweir.core.account import Account
from tokenweir.core.classes import ClassDemand, ClassLimits
from tokenweir.core.errors import ConfigError
from tokenweir.core.request import Priority
from tokenweir.core.units import NS_PER_S, Nanos

__all__ = ["PauseCause", "PauseConfig", "Pausing"]


class PauseCause(Enum):
    """Why background work pauses."""

    # Members are single objects; Enum's own hash costs a Python call at every look-up.
    __hash__ = object.__hash__

    URGENT_WAITING = "urgent_waiting"
    HEADROOM = "headroom"
    OUTER_LIMIT = "outer_limit"


@dataclass(frozen=True, slots=True)
class PauseConfig:
    """When it pauses.

    Attributes:
        kv_fraction_up: Share of a replica's KV in use from which it counts as nearly full, above
            ``kv_fraction_down`` to 1; what is left is the room of one large request.
        kv_fraction_down: The same while background work pauses, above 0.
        quiet_ns: How long without pressure until it resumes, 0 or more; longer than the gaps
            between urgent requests under load.
    """

    kv_fraction_up: float = 0.90
    kv_fraction_down: float = 0.80
    quiet_ns: Nanos = 2 * NS_PER_S

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 0 < self.kv_fraction_down < self.kv_fraction_up <= 1:
            raise ConfigError(
                f"kv_fraction_down {self.kv_fraction_down} and kv_fraction_up "
                f"{self.kv_fraction_up} are not allowed, allowed: 0 < down < up <= 1, else it "
                "would pause and resume at every request"
            )
        if self.quiet_ns < 0:
            raise ConfigError(f"quiet_ns {self.quiet_ns} is not allowed, allowed: 0 or more")


class Pausing:
    """Whether the pausable classes of one pool pause, and why.

    Attributes:
        classes: Those that may pause.
        cause: Why they do, None while they do not.
        pauses: How often they began to, by cause.
    """

    def __init__(self, config: PauseConfig, classes: Mapping[Priority, ClassLimits]) -> None:
        """Start without a pause."""
        self.classes = frozenset(p for p, limits in classes.items() if limits.is_pausable)
        self.cause: PauseCause | None = None
        self.pauses: Counter[PauseCause] = Counter()
        self._config = config
        self._urgent = tuple(
            priority
            for priority, limits in classes.items()
            if limits.is_interactive and self.classes and priority < min(self.classes)
        )
        # Of the last pressure: when, and which.
        self._pressed_ns: Nanos = -(1 << 62)
        self._pressure_cause = PauseCause.URGENT_WAITING

    @property
    def paused(self) -> frozenset[Priority]:
        """The classes that pause now."""
        return frozenset() if self.cause is None else self.classes

    def update(
        self,
        accounts: Sequence[Account],
        *,
        short: Priority | None,
        is_waiting: bool,
        demand: ClassDemand,
        now_ns: Nanos,
    ) -> bool:
        """Look at the pressure; returns whether a pause has begun or ended.

        Args:
            accounts: Of all replicas.
            short: Class of who is next and does not fit, None where nobody is.
            is_waiting: Whether there is anything to pause.
            demand: Which classes were asked for lately.
            now_ns: Monotonic time.
        """
        if not self._urgent:
            return False
        pressure = self._pressure(accounts, short=short, demand=demand, now_ns=now_ns)
        if pressure is not None:
            self._pressed_ns, self._pressure_cause = now_ns, pressure
        is_quiet = pressure is None and now_ns >= self._pressed_ns + self._config.quiet_ns
        if self.cause is None and is_waiting and not is_quiet:
            self.cause = self._pressure_cause
            self.pauses[self.cause] += 1
            return True
        if self.cause is not None and is_quiet:
            self.cause = None
            return True
        return False

    def resumes_ns(self) -> Nanos | None:
        """Return when the pause ends if no pressure comes, or None where there is none."""
        return None if self.cause is None else self._pressed_ns + self._config.quiet_ns

    def _pressure(
        self,
        accounts: Sequence[Account],
        *,
        short: Priority | None,
        demand: ClassDemand,
        now_ns: Nanos,
    ) -> PauseCause | None:
        urgent = self._urgent
        if short in urgent:
            return PauseCause.URGENT_WAITING
        if not any(demand.is_asked(priority, now_ns=now_ns) for priority in urgent):
            # What presses is their own, and the capacity tests bound that.
            return None
        config = self._config
        bound = config.kv_fraction_up if self.cause is None else config.kv_fraction_down
        cause = None
        for account in accounts:
            if not account.is_healthy:
                continue
            if account.kv_fraction >= bound:
                cause = cause or PauseCause.HEADROOM
            elif account.limit is not None and account.limit.is_holding:
                cause = PauseCause.OUTER_LIMIT
            else:
                return None
        return cause
