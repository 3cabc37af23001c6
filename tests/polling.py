"""Waiting for something to become true, with a bound instead of a fixed sleep."""

import asyncio
import time
from collections.abc import Callable

__all__ = ["eventually", "eventually_sync"]


async def eventually(
    check: Callable[[], object], *, within_s: float = 5.0, every_s: float = 0.01
) -> float:
    """Wait until a check holds; returns how long that took, in seconds.

    Raises:
        AssertionError: It did not within the bound.
    """
    start_s = time.monotonic()
    while not check():
        waited_s = time.monotonic() - start_s
        assert waited_s < within_s, f"not within {within_s} s: {check}"
        await asyncio.sleep(every_s)
    return time.monotonic() - start_s


def eventually_sync(
    check: Callable[[], object], *, within_s: float = 5.0, every_s: float = 0.01
) -> float:
    """``eventually`` where there is no event loop."""
    start_s = time.monotonic()
    while not check():
        waited_s = time.monotonic() - start_s
        assert waited_s < within_s, f"not within {within_s} s: {check}"
        time.sleep(every_s)
    return time.monotonic() - start_s
