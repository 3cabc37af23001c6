"""``tokenweir engine``: an emulated engine on a wall clock, with vLLM's paths and metrics."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from typing import Annotated

import typer

from tokenweir.core.profile import EngineProfile
from tokenweir.engine.batch import DISCIPLINES
from tokenweir.profiles import PROFILE_NAMES, profile
from tokenweir.testing.engine_loop import loop_factory

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def engine(
        name: Annotated[
            str,
            typer.Option(
                "--profile", help=f"Speed and size: {', '.join(PROFILE_NAMES)}, or a file."
            ),
        ] = "demo",
        host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(help="Port; 0 takes any that is free.")] = 0,
        speed: Annotated[float, typer.Option(help="Times faster than the profile.")] = 1.0,
        discipline: Annotated[
            str, typer.Option(help=f"Who enters the batch next: {', '.join(DISCIPLINES)}.")
        ] = "fifo",
        kv_tokens: Annotated[
            int | None, typer.Option(help="Size of the KV pool instead of the profile's.")
        ] = None,
        max_queued: Annotated[
            int | None,
            typer.Option(help="Answer 503 above this many requests running or waiting."),
        ] = None,
    ) -> None:
        """Serve an emulated engine: OpenAI paths, vLLM's metrics, KV pool and preemption."""
        chosen = profile(name)
        if kv_tokens is not None:
            chosen = dataclasses.replace(chosen, kv_tokens=kv_tokens)
        serving = _serve(
            chosen,
            host=host,
            port=port,
            speed=speed,
            discipline=discipline,
            queued_max=max_queued,
        )
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serving)


async def _serve(
    chosen: EngineProfile,
    *,
    host: str,
    port: int,
    speed: float,
    discipline: str,
    queued_max: int | None,
) -> None:
    from tokenweir.testing.engine_server import start_engine

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stopped.set)
    server = await start_engine(
        chosen, host=host, port=port, speed=speed, discipline=discipline, queued_max=queued_max
    )
    sys.stderr.write(f"tokenweir engine: {chosen.name} on {server.url}\n")
    sys.stderr.flush()
    ended = asyncio.create_task(server.wait())
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait((ended, waiting), return_when=asyncio.FIRST_COMPLETED)
    await server.stop()
    waiting.cancel()
    await ended
