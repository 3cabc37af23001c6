"""What time is it, for a driver?"""

from __future__ import annotations

import time
from typing import Protocol

from tokenweir.core.units import Nanos

__all__ = ["Clock", "monotonic_clock", "wall_offset_ns"]


class Clock(Protocol):
    """Tells monotonic time; never goes back."""

    def __call__(self) -> Nanos:
        """Return monotonic nanoseconds."""
        ...


monotonic_clock: Clock = time.monotonic_ns


def wall_offset_ns() -> Nanos:
    """Return what is to be added to monotonic time to get the wall clock's, as it stands now.

    For what several processes must mean the same time by; a step of the wall clock is not followed.
    """
    return time.time_ns() - time.monotonic_ns()
