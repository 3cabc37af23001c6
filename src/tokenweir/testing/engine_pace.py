"""When does the engine's running step end on a wall clock, and what happens when the loop is late?

Rule: a step of duration T ends T / speed after the one before it ended, or after work arrived at an
idle engine, which takes no steps. A late loop runs what it missed at once; what it is late beyond
``LATE_STEPS_MAX`` steps is let go, as an engine whose host stood still would.
"""

from __future__ import annotations

from tokenweir.core.units import Nanos

__all__ = ["LATE_STEPS_MAX", "StepPace"]

LATE_STEPS_MAX = 10


class StepPace:
    """The end times of steps on a monotonic clock."""

    def __init__(self, *, speed: float) -> None:
        """Start idle.

        Args:
            speed: How many times faster than the profile, above 0.
        """
        self.lost_ns: Nanos = 0
        self._speed = speed
        self._end_ns: Nanos = 0

    def resume(self, *, now_ns: Nanos) -> None:
        """Note that work has arrived at an idle engine."""
        self._end_ns = now_ns

    def begin_step(self, duration_ns: Nanos, *, now_ns: Nanos) -> None:
        """Begin the next step where the last one ended.

        Args:
            duration_ns: By the profile, at its own speed.
            now_ns: To see how late the loop is.
        """
        length_ns = max(round(duration_ns / self._speed), 1)
        late_ns = now_ns - self._end_ns - LATE_STEPS_MAX * length_ns
        if late_ns > 0:
            self.lost_ns += late_ns
            self._end_ns += late_ns
        self._end_ns += length_ns

    def wait_ns(self, *, now_ns: Nanos) -> Nanos:
        """Return the time until the running step ends, 0 where it should have ended."""
        return max(self._end_ns - now_ns, 0)
