"""What time is it, for a driver?"""

from __future__ import annotations

import time
from typing import Protocol

from tokenweir.core.units import Nanos

__all__ = ["Clock", "monotonic_clock"]


class Clock(Protocol):
    """Tells monotonic time; never goes back."""

    def __call__(self) -> Nanos:
        """Return monotonic nanoseconds."""
        ...


monotonic_clock: Clock = time.monotonic_ns
