"""Which options do the commands share that run the simulator?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from tokenweir.cli.options import duration, processes
from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, Nanos
from tokenweir.profiles import PROFILE_NAMES
from tokenweir.study.parallel import BACKENDS, check_backend
from tokenweir.study.plan import (
    DECLARATION_NAMES,
    DISCIPLINE_NAMES,
    FAIRNESS_NAMES,
    ORDERING_NAMES,
    RETRY_NAMES,
    TRACE_NAMES,
    Slo,
    Wishes,
)

__all__ = [
    "Backend",
    "Cooldown",
    "Declared",
    "Discount",
    "Fairness",
    "File",
    "Html",
    "Jobs",
    "KvBlocks",
    "Ordering",
    "Profile",
    "PrefixCache",
    "Queue",
    "Replicas",
    "Requests",
    "Retries",
    "Retry",
    "Seeds",
    "SloTpot",
    "SloTtft",
    "SloUnloaded",
    "Step",
    "Timeout",
    "Wait",
    "WaitItems",
    "Warmup",
    "command_line",
    "jobs_from",
    "load_from",
    "slo_from",
    "wishes_from",
]

File = Annotated[str, typer.Argument(help=f"A trace, or {', '.join(TRACE_NAMES)}.", metavar="FILE")]
Profile = Annotated[str, typer.Option(help=f"{', '.join(PROFILE_NAMES)}, or a file.")]
Requests = Annotated[int | None, typer.Option(help="Only the first N.")]
Step = Annotated[str | None, typer.Option(help="Sudden step, as in 3x@30s.")]
Queue = Annotated[str, typer.Option(help=f"The engine's own line: {', '.join(DISCIPLINE_NAMES)}.")]
Declared = Annotated[str, typer.Option(help=f"Declared maximum: {', '.join(DECLARATION_NAMES)}.")]
Fairness = Annotated[str, typer.Option(help=f"Turns of tenants: {', '.join(FAIRNESS_NAMES)}.")]
Ordering = Annotated[
    str, typer.Option(help=f"Order of a tenant's own: {', '.join(ORDERING_NAMES)}.")
]
WaitItems = Annotated[int, typer.Option(help="Requests that may wait before it.")]
Wait = Annotated[str, typer.Option(help="Longest wait before it.")]
Retry = Annotated[str, typer.Option(help=f"Clients: {', '.join(RETRY_NAMES)}.")]
Retries = Annotated[int, typer.Option(help="Attempts after the first.")]
Timeout = Annotated[
    str | None, typer.Option(help="Clients give up without a first token, as in 10s.")
]
SloTtft = Annotated[str, typer.Option(help="Bound on TTFT.")]
SloTpot = Annotated[str, typer.Option(help="Bound on TPOT.")]
SloUnloaded = Annotated[
    float, typer.Option(help="Or so many times the TTFT of an idle engine, if that is more.")
]
KvBlocks = Annotated[
    bool, typer.Option("--kv-blocks", help="Engines take KV in blocks, chunk by chunk.")
]
PrefixCache = Annotated[
    bool,
    typer.Option(
        "--prefix-cache", help="And find what prompts share; for traces that tell what they share."
    ),
]
Discount = Annotated[
    bool,
    typer.Option("--discount/--no-discount", help="Charge less for what it is thought to have."),
]
Replicas = Annotated[int, typer.Option(help="Engines in the pool; load is a multiple of all.")]
Seeds = Annotated[int, typer.Option(help="Average over seeds 1 to N.")]
Warmup = Annotated[int, typer.Option(help="Requests run before, not counted.")]
Cooldown = Annotated[int, typer.Option(help="Requests run after, not counted.")]
Jobs = Annotated[int | None, typer.Option(help="Runs at once; else one per core.")]
Backend = Annotated[
    str | None,
    typer.Option(help=f"Of joblib, instead of this machine's processes: {', '.join(BACKENDS)}."),
]
Html = Annotated[
    Path | None, typer.Option("--html", help="Write a report with plots to FILE; opens offline.")
]

_JOBS_MAX = 1_024
# So many words of a command line say what was run; a shell would take more.
_COMMAND_CHARS_MAX = 4_000


def command_line() -> str:
    """Return the command as it was given."""
    return shlex.join(["tokenweir", *sys.argv[1:]])[:_COMMAND_CHARS_MAX]


def jobs_from(count: int | None, *, backend: str | None) -> int:
    """Return how many runs go on at once.

    Raises:
        ConfigError: It is not in the range, or the backend cannot be used.
    """
    check_backend(backend)
    if count is None:
        return processes()
    if not 1 <= count <= _JOBS_MAX:
        raise ConfigError(f"--jobs {count} is not allowed, allowed: 1 to {_JOBS_MAX:,}")
    return count


def load_from(text: str) -> float | None:
    """Read a multiple of capacity, or ``recorded`` for a trace's own times, as None.

    Raises:
        ConfigError: It is neither; its range is checked where it is used.
    """
    if text == "recorded":
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"--load {text!r} is not allowed, allowed: a multiple of capacity, or recorded"
        ) from None


def slo_from(ttft: str, tpot: str, *, unloaded: float) -> Slo:
    """Read an SLO from its options.

    Raises:
        ConfigError: One is not a length of time, or out of range.
    """
    return Slo(duration(ttft, option="--slo-ttft"), duration(tpot, option="--slo-tpot"), unloaded)


def wishes_from(
    *,
    slo: Slo,
    profile: str = "article",
    queue: str = "fifo",
    declared: str = "mix",
    retry: str = "none",
    retries: int = 0,
    timeout: str | None = None,
    wait_items: int = 1_000,
    wait_ns: Nanos = 5 * NS_PER_S,
    drains: bool = True,
    checks: bool = False,
    fairness: str = "vtc",
    ordering: str = "earliest_deadline",
    kv_blocks: bool = False,
    prefix_cache: bool = False,
    discount: bool = True,
    replicas: int = 1,
) -> Wishes:
    """Put what was asked for together; what is left out is as in ``replay``, without recounts."""
    return Wishes(
        profile=profile,
        queue=queue,
        declared=declared,
        retry=retry,
        retries=retries,
        timeout_ns=None if timeout is None else duration(timeout, option="--timeout"),
        wait_items=wait_items,
        wait_ns=wait_ns,
        slo=slo,
        drains=drains,
        checks=checks,
        fairness=fairness,
        ordering=ordering,
        kv="prefix_cache" if prefix_cache else "blocks" if kv_blocks else "whole",
        discounts=discount,
        replicas=replicas,
    )
