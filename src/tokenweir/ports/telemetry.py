"""How does a driver learn what an engine says of itself?"""

from __future__ import annotations

from typing import Protocol

from tokenweir.core.signals import Signals

__all__ = ["Telemetry"]


class Telemetry(Protocol):
    """Looks at one replica. It never raises for what an engine does: that is a signal too."""

    async def look(self) -> Signals | None:
        """Ask the engine once, within a bounded time.

        Returns:
            Its signals, unhealthy where it does not answer at all; None where this look told
            nothing, so that what was known stays.
        """
        ...
