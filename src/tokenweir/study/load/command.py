"""How does one load run from plan to figures? What ``tokenweir load`` and the demo share."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from collections.abc import Sequence

import aiohttp
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tokenweir.core.units import s_from_ns
from tokenweir.study.cpu import CpuMeter
from tokenweir.study.load.plan import PlannedRequest
from tokenweir.study.load.results import LoadOutcome
from tokenweir.study.load.run import LoadRun, LoadTarget, open_session, probe_model
from tokenweir.study.prompts import PromptLibrary
from tokenweir.testing.engine_loop import loop_factory

__all__ = ["planned_rate_rps", "progress_bar", "run_command", "run_load", "scrape_total"]

_REFRESH_S = 0.25


def planned_rate_rps(plan: Sequence[PlannedRequest]) -> float:
    """Return the mean rate of a plan, per second, 0 for less than two requests."""
    if not plan:
        return 0.0
    span_s = s_from_ns(plan[-1].due_ns)
    return (len(plan) - 1) / span_s if span_s > 0 else 0.0


def run_command(
    plan: Sequence[PlannedRequest], target: LoadTarget, *, drain_s: float, seed: int
) -> LoadOutcome:
    """Run a load in a loop of its own, with a bar; SIGINT and SIGTERM end it early.

    Raises:
        ConfigError: See ``run_load``.
    """

    async def main() -> LoadOutcome:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, stop.set)
        with progress_bar() as progress:
            return await run_load(
                plan, target, stop=stop, drain_s=drain_s, seed=seed, progress=progress
            )

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())


async def run_load(
    plan: Sequence[PlannedRequest],
    target: LoadTarget,
    *,
    stop: asyncio.Event,
    drain_s: float,
    seed: int = 1,
    progress: Progress | None = None,
) -> LoadOutcome:
    """Send a plan to a target and measure.

    Args:
        plan: In order of time, not empty.
        target: See there.
        stop: Set it to end early; what was measured so far is returned.
        drain_s: How long to wait for answers after the last arrival.
        seed: Of texts and of the clients' backoff.
        progress: Shown while it runs, where given.

    Raises:
        ConfigError: Nothing answers at the target, or the prompt texts are missing.
    """
    library = PromptLibrary()
    _allow_open_files()
    async with open_session(target) as session:
        model = await probe_model(session, target)
        before = await scrape_total(session, "vllm:num_preemptions_total")
        run = LoadRun(plan, target.retries, library, model, seed)
        meter = CpuMeter()
        showing = asyncio.create_task(_show(run, progress)) if progress else None
        try:
            is_complete = await run.run(session, stop=stop, drain_s=drain_s)
        finally:
            cpu_fraction = meter.fraction()
            if showing is not None:
                showing.cancel()
        after = await scrape_total(session, "vllm:num_preemptions_total")
    return LoadOutcome(
        plan=plan[: run.sent],
        attempts=run.attempts,
        span_ns=run.span_ns,
        preemptions=None if before is None or after is None else round(after - before),
        is_complete=is_complete,
        capped=run.capped,
        lag_ns_max=run.lag_ns_max,
        cpu_fraction=cpu_fraction,
    )


async def scrape_total(session: aiohttp.ClientSession, name: str) -> float | None:
    """Return the sum of a metric over its labels at ``/metrics``, None where there is none."""
    with contextlib.suppress(aiohttp.ClientError, OSError, ValueError):
        async with session.get("/metrics", timeout=aiohttp.ClientTimeout(total=5)) as response:
            lines = (await response.text()).splitlines()
        values = [
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(name) and line[len(name) : len(name) + 1] in ("{", " ")
        ]
        return sum(values) if values else None
    return None


def progress_bar() -> Progress:
    """Return the bar that ``run_load`` fills; the caller starts and stops it."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


async def _show(run: LoadRun, progress: Progress) -> None:
    task = progress.add_task("requests sent", total=len(run.plan), state="")
    while True:
        await asyncio.sleep(_REFRESH_S)
        progress.update(task, completed=run.sent, state=f"{run.in_flight} in flight")


def _allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: a request in flight is a socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
