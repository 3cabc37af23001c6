"""Real processes for tests: gateway and emulated engine, on free loopback ports."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import yaml

__all__ = ["Server", "engine", "gateway", "ledger_of", "metric", "run_cli", "started", "status_of"]

_START_S_MAX = 30.0
_READY = re.compile(r"(?:serving on|on) (http://\S+)")
_ADMIN = re.compile(r"admin on (http://\S+)")


class Server:
    """A process that serves and says where on stderr; stopped by leaving the context."""

    def __init__(self, *arguments: str) -> None:
        self._log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tokenweir", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.url = ""
        self.admin_url = ""

    def __enter__(self) -> Self:
        deadline_s = time.monotonic() + _START_S_MAX
        while not (ready := _READY.search(self.log())):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                log = self.log()
                self.__exit__()
                raise AssertionError(f"did not start: {log}")
            time.sleep(0.02)
        self.url = ready[1]
        admin = _ADMIN.search(self.log())
        self.admin_url = admin[1] if admin else ""
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def log(self) -> str:
        """What it has written to stderr."""
        return Path(self._log.name).read_text(encoding="utf-8")

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def wait(self, *, within_s: float) -> int:
        """Wait for its end; returns the exit code."""
        return self._process.wait(timeout=within_s)

    def cpu_s(self) -> float:
        """CPU seconds used so far, of all its threads."""
        fields = (
            Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def engine(*options: str, profile: str = "demo", speed: float = 10.0) -> Server:
    """An emulated engine."""
    return Server("engine", "--profile", profile, "--speed", str(speed), "--port", "0", *options)


@contextlib.asynccontextmanager
async def started(server: Server) -> AsyncIterator[Server]:
    """A server, started and stopped while the event loop goes on: it may have to answer."""
    await asyncio.to_thread(server.__enter__)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.__exit__)


@contextlib.asynccontextmanager
async def gateway(
    *urls: str, settings: dict[str, Any] | None = None, pool: dict[str, Any] | None = None
) -> AsyncIterator[Server]:
    """A gateway in front of upstreams, with an admin listener.

    Args:
        urls: Base URLs of the replicas.
        settings: More of the file's sections.
        pool: More of the only pool's section.
    """
    tree = {
        "listen": {"port": 0},
        "admin": {"listen": {"port": 0}},
        "pools": [{"replicas": [{"url": url} for url in urls], **(pool or {})}],
        **(settings or {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weir.yaml"
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")
        async with started(Server("serve", "--config", str(path))) as server:
            yield server


def ledger_of(server: Server) -> dict[str, Any]:
    """What the gateway's only pool holds."""
    with urllib.request.urlopen(f"{server.admin_url}/admin/v1/ledger", timeout=10) as answer:
        pool: dict[str, Any] = json.load(answer)["pools"][0]
    return pool


def status_of(url: str) -> int:
    """The status of a page."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def metric(url: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels, 0 where there is none."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    total = 0.0
    for line in page.splitlines():
        if re.match(rf"{re.escape(name)}[{{ ]", line) and all(
            f'{key}="{value}"' in line for key, value in labels.items()
        ):
            total += float(line.rsplit(" ", 1)[1])
    return total


def run_cli(*arguments: str, within_s: float = 30) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tokenweir", *arguments],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
