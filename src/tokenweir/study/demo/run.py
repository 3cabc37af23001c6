"""How do the two sides become one document? Without admission first, then with it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from tokenweir.study.demo.setup import DemoSetup, Side
from tokenweir.study.demo.side import run_side

__all__ = ["run_demo"]


async def run_demo(
    setup: DemoSetup, *, rate_rps: float, on_side: Callable[[Side], None]
) -> tuple[dict[str, Any], bool]:
    """Run both sides; SIGINT, SIGTERM and SIGHUP end the demo early with what it has.

    Args:
        setup: See there.
        rate_rps: Mean rate sent to each side.
        on_side: Told before a side begins.

    Returns:
        The document of the JSON output (without a side that did not run), and whether the demo came
        to its end.

    Raises:
        ProcessFailed: A process did not start or ended early.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, stop.set)
    document: dict[str, Any] = {"ledger_after": None}
    queue = "none" if setup.queue_items == 0 else f"fifo {setup.queue_items}"
    for side in setup.sides:
        if stop.is_set():
            break
        on_side(side)
        result = await run_side(setup, side, rate_rps=rate_rps, stop=stop)
        if result is None:
            break
        document[side.name] = result.to_json(load=setup.load, side=side, queue=queue)
        document["ledger_after"] = result.ledger_after_tokens
    return document, not stop.is_set()
