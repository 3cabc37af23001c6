"""How are the demo's processes started, watched and, whatever happens, stopped?

Each runs in a session of its own, so that Ctrl-C reaches the demo alone, which then stops the
others in order; where it is killed they notice (``leash.py``). Standard error of a service is kept,
to be shown where it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp

from tokenweir.core.errors import ConfigError, TokenweirError
from tokenweir.study.cpu import CpuMeter
from tokenweir.study.demo.leash import VARIABLE

__all__ = ["COMMAND", "Child", "ProcessFailed", "free_ports", "start_child", "wait_until_up"]

# How this package is run as a process of its own.
COMMAND: tuple[str, ...] = (sys.executable, "-m", "tokenweir")

_UP_S_MAX = 20.0
_STOP_S_MAX = 5.0
_POLL_S = 0.05
_TAIL_BYTES = 2_000


class ProcessFailed(TokenweirError):
    """A process of the demo did not start, or ended before its time."""


class Child:
    """One process the demo has started."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, *, stderr_path: Path | None
    ) -> None:
        self.name = name
        self.process = process
        self.cpu = CpuMeter(process.pid)
        self._stderr_path = stderr_path

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.returncode is None

    def end_early(self) -> None:
        """Ask it to end and say what it has; one that is still starting just ends."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def failure(self) -> ProcessFailed:
        """Return the error that names it, with the last line it wrote."""
        tail = b""
        if self._stderr_path is not None:
            with contextlib.suppress(OSError):
                tail = self._stderr_path.read_bytes()[-_TAIL_BYTES:]
        lines = tail.decode("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1]}" if lines else ""
        return ProcessFailed(f"{self.name} ended with code {self.process.returncode}{last}")

    async def stop(self) -> None:
        """End it: terminate, wait, kill."""
        if not self.is_running:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(_STOP_S_MAX):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


@contextlib.asynccontextmanager
async def start_child(
    name: str, arguments: Sequence[str], *, is_load: bool = False
) -> AsyncIterator[Child]:
    """Run a command of this package until the block is left.

    Args:
        name: In messages.
        arguments: After ``tokenweir``.
        is_load: Its standard output is read by the caller, and its progress is shown.
    """
    with tempfile.TemporaryFile() as sink:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, VARIABLE: "1"},
            stdout=asyncio.subprocess.PIPE if is_load else asyncio.subprocess.DEVNULL,
            stderr=None if is_load else sink,
            start_new_session=True,
        )
        # The file has no name; /proc shows it as long as this process holds it open.
        path = None if is_load else Path(f"/proc/{os.getpid()}/fd/{sink.fileno()}")
        child = Child(name, process, stderr_path=path)
        try:
            yield child
        finally:
            await asyncio.shield(child.stop())


async def wait_until_up(child: Child, session: aiohttp.ClientSession, *, url: str) -> None:
    """Return once the process answers at an address.

    Raises:
        ProcessFailed: It ended, or answered nothing in time.
    """
    end_s = time.monotonic() + _UP_S_MAX
    while time.monotonic() < end_s:
        if not child.is_running:
            raise child.failure()
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=1)) as response:
                if response.status == 200:
                    return
        await asyncio.sleep(_POLL_S)
    raise ProcessFailed(f"{child.name} did not answer at {url} within {_UP_S_MAX:g} s")


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that were free a moment ago.

    Raises:
        ConfigError: There are none.
    """
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", 0))
            except OSError as exc:
                raise ConfigError(f"no free port on 127.0.0.1: {exc.strerror}") from exc
            ports.append(int(probe.getsockname()[1]))
    return ports
