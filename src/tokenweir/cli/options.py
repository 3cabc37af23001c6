"""Which options do several commands share, and how are their values read?"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import Nanos

__all__ = [
    "Json",
    "collect_seldom",
    "duration",
    "phases",
    "print_json",
    "processes",
    "progress",
    "seeds_of",
    "table_console",
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

# Wide enough that a table piped into a file is not folded to 80 columns.
_PIPED_COLUMNS = 200
# The mean of so many no longer moves in the digits that are shown.
_SEEDS_MAX = 1_000


def duration(text: str, *, option: str) -> Nanos:
    """Read a length of time such as ``80ms``, in ns.

    Raises:
        ConfigError: It is not one; the text names the option.
    """
    # Brings pydantic along, which most commands do without.
    from tokenweir.settings.quantities import parse_duration

    try:
        nanos = parse_duration(text)
    except ValueError as exc:
        raise ConfigError(f"{option} {text!r} is not allowed, allowed: {exc}") from None
    if nanos <= 0:
        raise ConfigError(f"{option} {text!r} is not allowed, allowed: above 0")
    return nanos


def seeds_of(count: int) -> list[int]:
    """Return the seeds 1 to ``count``.

    Raises:
        ConfigError: It is not in the range.
    """
    if not 1 <= count <= _SEEDS_MAX:
        raise ConfigError(f"--seeds {count} is not allowed, allowed: 1 to {_SEEDS_MAX:,}")
    return list(range(1, count + 1))


def collect_seldom() -> None:
    """Let a simulation, which makes many objects and hardly a cycle, look for cycles less often."""
    gc.freeze()
    gc.set_threshold(50_000)


def processes() -> int:
    """Return how many runs may go on at once on this machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def print_json(document: dict[str, Any]) -> None:
    """Print one document to stdout; the same document always gives the same bytes."""
    sys.stdout.write(json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")


def table_console() -> Console:
    """Return the console for tables on stdout."""
    return Console(width=None if sys.stdout.isatty() else _PIPED_COLUMNS, highlight=False)


@contextmanager
def progress(what: str, *, total: int) -> Iterator[Progress]:
    """Show a bar on stderr while something long runs; ``advance(task_ids[0])`` moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        bar.add_task(what, total=total)
        yield bar


@contextmanager
def phases() -> Iterator[Callable[[str, int | None], Callable[[], None]]]:
    """Show one bar on stderr after the other: call with a name and a total for what moves it.

    A total of None says that nobody knows it yet.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:

        def begin(what: str, total: int | None) -> Callable[[], None]:
            task = bar.add_task(what, total=total)
            return lambda: bar.advance(task)

        yield begin
