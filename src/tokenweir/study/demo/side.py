"""How does one side of the demo run? Engine, gateway and load, each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tokenweir.study.cpu import CPU_FRACTION_MAX
from tokenweir.study.demo.processes import (
    Child,
    ProcessFailed,
    free_ports,
    start_child,
    wait_until_up,
)
from tokenweir.study.demo.setup import DemoSetup, Side, gateway_config
from tokenweir.study.load.command import scrape_total

__all__ = ["SideResult", "run_side"]

_WATCH_S = 0.5
_SETTLE_S_MAX = 8.0


@dataclass(slots=True)
class SideResult:
    """What one side of the demo showed.

    Attributes:
        row: Of the load, as ``tokenweir load --json`` prints it.
        kv_fraction_max: Highest KV use seen on the engine's metrics page.
        engine_waiting_max: Longest line inside the engine seen there.
        preemptions: The engine's count.
        cpu_fractions: Of one core, by process.
        ledger_after_tokens: Reserved and draining tokens in the gateway's ledger after the run.
    """

    row: dict[str, Any]
    kv_fraction_max: float = 0.0
    engine_waiting_max: int = 0
    preemptions: int = 0
    cpu_fractions: dict[str, float] = field(default_factory=dict)
    ledger_after_tokens: int | None = None

    @property
    def is_void(self) -> bool:
        """Whether a process was so short of CPU that the figures say nothing."""
        return any(share > CPU_FRACTION_MAX for share in self.cpu_fractions.values())

    @property
    def is_complete(self) -> bool:
        """Whether it was not interrupted."""
        return bool(self.row["ours"]["is_complete"])

    def to_json(self, *, load: float, side: Side, queue: str) -> dict[str, Any]:
        """Return the side as a row; its figures also stand beside ``ours``."""
        figures = {
            **self.row["ours"],
            "preemptions": self.preemptions,
            "kv_max_fraction": round(self.kv_fraction_max, 4),
            "engine_waiting_max": self.engine_waiting_max,
            "cpu_fractions": {name: round(cpu, 3) for name, cpu in self.cpu_fractions.items()},
            "is_void": self.is_void,
            "ledger_after": self.ledger_after_tokens,
        }
        head = {"group": "demo", "load": load, "policy": side.policy, "queue": queue, "seeds": 1}
        return {**head, **figures, "ours": figures, "series": self.row["series"]}


async def run_side(
    setup: DemoSetup, side: Side, *, rate_rps: float, stop: asyncio.Event
) -> SideResult | None:
    """Start the three processes, wait for the load to end, and stop them.

    Returns:
        What was measured, or None where ``stop`` came before the load had begun.

    Raises:
        ProcessFailed: One of them did not start or ended early.
    """
    engine_port, gateway_port, admin_port = free_ports(3)
    engine_url = f"http://127.0.0.1:{engine_port}"
    gateway_url = f"http://127.0.0.1:{gateway_port}"
    admin_url = f"http://127.0.0.1:{admin_port}"
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        engine_arguments = ("engine", "--profile", setup.profile_name, "--port", str(engine_port))
        engine = await stack.enter_async_context(start_child("engine", engine_arguments))
        await wait_until_up(engine, session, url=f"{engine_url}/health")
        # Gone as soon as it is read, so that nothing is left of a demo that is killed.
        with tempfile.TemporaryDirectory(prefix="tokenweir-") as folder:
            config = Path(folder) / "tokenweir.yaml"
            gateway_config(
                config, setup, side=side, engine_url=engine_url, ports=(gateway_port, admin_port)
            )
            gateway = await stack.enter_async_context(
                start_child("gateway", ("serve", "--config", str(config)))
            )
            await wait_until_up(gateway, session, url=f"{gateway_url}/healthz")
        load_arguments = setup.load_arguments(gateway_url, rate_rps=rate_rps)
        load = await stack.enter_async_context(start_child("load", load_arguments, is_load=True))
        result = await _watch(load, (engine, gateway), engine_url=engine_url, stop=stop)
        if result is None:
            return None
        result.ledger_after_tokens = await _ledger_after(session, admin_url)
        return result


async def _watch(
    load: Child, services: tuple[Child, ...], *, engine_url: str, stop: asyncio.Event
) -> SideResult | None:
    """Look at the engine while the load runs, then take in its report."""
    stdout = load.process.stdout
    assert stdout is not None
    result = SideResult({})
    for child in services:
        child.cpu.restart()
    reading = asyncio.create_task(stdout.read())
    stopping = asyncio.create_task(stop.wait())
    async with aiohttp.ClientSession(engine_url) as session:
        try:
            while not reading.done():
                for child in services:
                    if not child.is_running:
                        raise child.failure()
                await _look(session, result)
                await asyncio.wait(
                    (reading, stopping), timeout=_WATCH_S, return_when=asyncio.FIRST_COMPLETED
                )
                if stopping.done() and not reading.done():
                    load.end_early()
                    await asyncio.wait((reading,), timeout=_SETTLE_S_MAX)
                    break
        finally:
            stopping.cancel()
            for child in services:
                result.cpu_fractions[child.name] = child.cpu.fraction()
        result.preemptions = round(await scrape_total(session, "vllm:num_preemptions_total") or 0)
    try:
        async with asyncio.timeout(_SETTLE_S_MAX):
            output = await reading
            await load.process.wait()
    except TimeoutError:
        raise ProcessFailed("load did not end when it was told to") from None
    if not output and stop.is_set():
        return None
    result.row = _row_of(load, output)
    result.cpu_fractions[load.name] = result.row["ours"]["client_cpu_fraction"]
    return result


def _row_of(load: Child, output: bytes) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(output)["rows"][0]
    except (ValueError, KeyError, IndexError):
        raise load.failure() from None
    return row


async def _look(session: aiohttp.ClientSession, result: SideResult) -> None:
    kv_fraction = await scrape_total(session, "vllm:kv_cache_usage_perc") or 0.0
    waiting = await scrape_total(session, "vllm:num_requests_waiting") or 0.0
    result.kv_fraction_max = max(result.kv_fraction_max, kv_fraction)
    result.engine_waiting_max = max(result.engine_waiting_max, round(waiting))


async def _ledger_after(session: aiohttp.ClientSession, admin_url: str) -> int:
    """Return what the ledger still holds; what drains is given its time.

    Raises:
        ProcessFailed: The gateway does not tell.
    """
    tokens = -1
    for _ in range(round(_SETTLE_S_MAX / _WATCH_S)):
        try:
            async with session.get(f"{admin_url}/admin/v1/ledger") as response:
                pools = (await response.json())["pools"]
            tokens = sum(pool["reserved_tokens"] + pool["draining_tokens"] for pool in pools)
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as exc:
            raise ProcessFailed(f"gateway does not show its ledger: {exc!r}") from exc
        if tokens == 0:
            break
        await asyncio.sleep(_WATCH_S)
    return tokens
