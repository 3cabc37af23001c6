"""How does the engine model run on a wall clock, behind a socket?

The model is ``tokenweir.engine.Engine``, the same that the simulator steps; here a loop steps it at
the profile's pace, on uvicorn (with httptools and uvloop where they are installed).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

import uvicorn

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import NS_PER_S
from tokenweir.engine.batch import Engine
from tokenweir.testing.engine_app import EngineApp
from tokenweir.testing.engine_pace import StepPace

__all__ = ["EngineServer", "start_engine"]

_START_S_MAX = 10.0


class EngineServer:
    """A running emulated engine; made by ``start_engine``, ended by ``stop``."""

    def __init__(self, app: EngineApp, *, listener: socket.socket, pace: StepPace) -> None:
        host, self.port = listener.getsockname()[:2]
        self.url = f"http://{host}:{self.port}"
        self.app = app
        self.engine = app.engine
        self.pace = pace
        self._listener = listener
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            access_log=False,
            # An answer that is cut off on purpose is an error to uvicorn.
            log_level="critical",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
        )
        self._server = _QuietServer(config)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to serve; returns once connections are taken."""
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        self._tasks = [serving, asyncio.create_task(self._run_steps())]
        async with asyncio.timeout(_START_S_MAX):
            await self._server.is_up.wait()

    async def wait(self) -> None:
        """Return when the server has ended, and raise what ended it."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Cut off what is streaming, stop serving, and end the stepping loop."""
        self.app.stop()
        self._server.should_exit = True
        serving, stepping = self._tasks
        await asyncio.gather(serving, return_exceptions=True)
        stepping.cancel()
        await asyncio.gather(stepping, return_exceptions=True)

    async def _run_steps(self) -> None:
        app, engine, pace = self.app, self.engine, self.pace
        while True:
            if engine.is_idle:
                app.has_work.clear()
                await app.has_work.wait()
                pace.resume(now_ns=time.monotonic_ns())
            # What is in a step is settled when it begins; its tokens exist when it ends.
            result = engine.step()
            pace.begin_step(result.duration_ns, now_ns=time.monotonic_ns())
            await asyncio.sleep(pace.wait_ns(now_ns=time.monotonic_ns()) / NS_PER_S)
            app.deliver(result, now_ns=time.monotonic_ns())


async def start_engine(
    profile: EngineProfile,
    *,
    host: str,
    port: int,
    speed: float = 1.0,
    discipline: str = "fifo",
    queued_max: int | None = None,
) -> EngineServer:
    """Start an emulated engine in the running event loop.

    Args:
        profile: Its speed and size.
        host: Address to listen on.
        port: Port to listen on, 0 for any that is free; see ``EngineServer.url``.
        speed: How many times faster than the profile it runs, above 0.
        discipline: A row of ``tokenweir.engine.batch.DISCIPLINES``.
        queued_max: Requests running or waiting before it answers 503, or None.

    Raises:
        ConfigError: A setting is out of range, or the address cannot be listened on.
    """
    if not 0 < speed <= 1_000:
        raise ConfigError(f"speed {speed:g} is not allowed, allowed: above 0, up to 1000")
    if queued_max is not None and queued_max < 1:
        raise ConfigError(f"max-queued {queued_max} is not allowed, allowed: 1 or more")
    engine = Engine(profile, discipline=discipline)
    listener = _listen(host, port)
    app = EngineApp(engine, queued_max=queued_max)
    server = EngineServer(app, listener=listener, pace=StepPace(speed=speed))
    await server.start()
    return server


class _QuietServer(uvicorn.Server):
    """Leaves signals to whoever embeds it, and says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise ConfigError(f"port {port} is not allowed, allowed: 0 to 65535, 0 for any free one")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2_048)
    except OSError as exc:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {exc.strerror or exc}") from exc
    listener.setblocking(False)  # noqa: FBT003 - the only form it has
    return listener
