"""When is the engine's next step due on a wall clock, and what happens when it is late?

Rule: steps are due every T = ``step_ns`` / speed after the moment work began; a late loop runs the
missed steps at once, at most ``CATCH_UP_STEPS_MAX``, and lets the rest of the delay go, as an
engine whose host stood still would. An idle engine takes no steps; its next one ends T after work
arrives.
"""

from __future__ import annotations

from tokenweir.core.units import Nanos

__all__ = ["CATCH_UP_STEPS_MAX", "StepSchedule"]

CATCH_UP_STEPS_MAX = 10


class StepSchedule:
    """The due times of steps on a monotonic clock."""

    def __init__(self, period_ns: Nanos) -> None:
        """Start idle; ``period_ns`` is at least 1."""
        self.period_ns = period_ns
        self.lost_steps = 0
        self._due_ns: Nanos = 0

    def begin(self, *, now_ns: Nanos) -> None:
        """Note that work has arrived at an idle engine."""
        self._due_ns = now_ns + self.period_ns

    def wait_ns(self, *, now_ns: Nanos) -> Nanos:
        """Return the time until the next step is due, at least 0."""
        return max(self._due_ns - now_ns, 0)

    def take(self, *, now_ns: Nanos) -> int:
        """Return how many steps to run now, and schedule the one after them."""
        if now_ns < self._due_ns:
            return 0
        steps = (now_ns - self._due_ns) // self.period_ns + 1
        self._due_ns += steps * self.period_ns
        lost = max(steps - CATCH_UP_STEPS_MAX, 0)
        self.lost_steps += lost
        return steps - lost
