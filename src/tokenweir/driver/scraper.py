"""How often is each replica looked at, and what if one hangs? Each has a loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from tokenweir.core.units import NS_PER_S, Nanos
from tokenweir.driver.pool import PoolDriver
from tokenweir.ports.telemetry import Telemetry

__all__ = ["Scraper"]

_logger = logging.getLogger(__name__)


class Scraper:
    """Looks at every replica of a pool, again and again; a hung one delays only itself."""

    def __init__(
        self, driver: PoolDriver, telemetries: Sequence[Telemetry], *, interval_ns: Nanos
    ) -> None:
        """Prepare; ``start`` begins.

        Args:
            driver: Is told what was seen.
            telemetries: One per replica, kept.
            interval_ns: From one look to the next, above 0.
        """
        self._driver = driver
        self._telemetries = telemetries
        self._interval_s = interval_ns / NS_PER_S
        self._tasks: list[asyncio.Task[None]] = []

    async def look_once(self) -> None:
        """Look at all replicas at the same time, once."""
        await asyncio.gather(*(self._look(telemetry) for telemetry in self._telemetries))

    def start(self) -> None:
        """Start one loop per replica."""
        self._tasks = [asyncio.create_task(self._run(t)) for t in self._telemetries]

    async def stop(self) -> None:
        """End the loops."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    async def _run(self, telemetry: Telemetry) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            due_s = max(due_s + self._interval_s, loop.time())
            await asyncio.sleep(due_s - loop.time())
            await self._look(telemetry)

    async def _look(self, telemetry: Telemetry) -> None:
        try:
            signals = await telemetry.look()
        except Exception:
            # Broad, since a bug in reading a page must not end health checks.
            _logger.exception("pool %s: a look at a replica failed", self._driver.name)
            return
        if signals is not None:
            self._driver.observe(signals)
