"""Which formats of measured curves can be read? One file each; ``FORMATS`` is the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenweir.core.errors import ConfigError
from tokenweir.study.fitting.curves import Curve, Reading
from tokenweir.study.fitting.formats import (
    layer_timings,
    metrics_history,
    operator_tables,
    prefill_decode,
    served_requests,
    served_totals,
)
from tokenweir.study.fitting.formats.wanted import Wanted
from tokenweir.study.fitting.rows import first_line

__all__ = ["FORMATS", "Format", "Wanted", "read_curves"]

_FILES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of files.

    Attributes:
        name: As messages call it.
        is_of: Whether a file with this first line is one.
        read: All files of one fit that are.
        holds_several: Whether its files hold several engines, of which rows have to be picked.
    """

    name: str
    is_of: Callable[[str], bool]
    read: Callable[[Sequence[Path], Wanted], Reading]
    holds_several: bool = False


FORMATS: tuple[Format, ...] = (
    Format("prefill and decode curves", prefill_decode.is_of, prefill_decode.read),
    Format("timings per layer", layer_timings.is_of, layer_timings.read),
    Format("timings per operator", operator_tables.is_of, operator_tables.read, holds_several=True),
    Format(
        "TTFT and TPOT at a concurrency",
        served_totals.is_of,
        served_totals.read,
        holds_several=True,
    ),
    Format("served requests", served_requests.is_of, served_requests.read, holds_several=True),
    Format("/metrics pages of an engine", metrics_history.is_of, metrics_history.read),
)


def read_curves(paths: Sequence[Path], wanted: Wanted) -> Reading:
    """Read all files together, whatever their formats; a folder stands for the files in it.

    Raises:
        ConfigError: A file cannot be read, or is of no known format.
    """
    by_format: dict[str, list[Path]] = {}
    for path in _files(paths):
        line = first_line(path)
        row = next((row for row in FORMATS if row.is_of(line)), None)
        if row is None:
            raise ConfigError(
                f"{path}: what it holds is not known, allowed: "
                f"{', '.join(row.name for row in FORMATS)}"
            )
        by_format.setdefault(row.name, []).append(path)
    if wanted.where and not any(row.holds_several for row in FORMATS if row.name in by_format):
        raise ConfigError(
            f"--where {wanted.where[0][0]} picks nothing from {', '.join(by_format)}, allowed: for "
            f"{', '.join(row.name for row in FORMATS if row.holds_several)}"
        )
    readings = [row.read(by_format[row.name], wanted) for row in FORMATS if row.name in by_format]
    curves: list[Curve] = [curve for reading in readings for curve in reading.curves]
    return Reading(
        tuple(curves),
        source="; ".join(reading.source for reading in readings),
        told=tuple(told for reading in readings for told in reading.told),
    )


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(p for p in path.iterdir() if p.is_file() and _is_data(p))
            if not found:
                raise ConfigError(f"{path}: no data files in it, allowed: a folder with some")
            files.extend(found)
        else:
            files.append(path)
    if len(files) > _FILES_MAX:
        raise ConfigError(f"{len(files):,} files are not allowed, allowed: up to {_FILES_MAX:,}")
    return files


def _is_data(path: Path) -> bool:
    # An empty file is a scrape that failed.
    return not path.name.startswith((".", "README")) and path.stat().st_size > 0
