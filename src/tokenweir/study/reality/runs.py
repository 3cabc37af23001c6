"""What did a real engine do with requests that came faster than it could serve?

A run is a folder with ``requests.jsonl``, a line per request, and ``timeseries.csv``, a line a
second, both plain or gzip. Times count from the first request's arrival at the engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import ns_from_s
from tokenweir.sim.traces import Arrival
from tokenweir.study.fitting.rows import read_table, read_text

__all__ = ["Figures", "MeasuredRun", "figures_of", "read_run"]

_REQUESTS, _SECONDS = "requests.jsonl", "timeseries.csv"
_FIELDS = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run comes to.

    Attributes:
        waiting_max: Most requests that waited in the engine, looking once a second.
        running_max: Most that ran.
        drain_s: From the first arrival to the last token.
        ttft_s: p50, p90 and p99 of the time to the first token.
        tpot_ms: p50 and p99 of the mean gap after it, over requests.
    """

    waiting_max: int
    running_max: int
    drain_s: float
    ttft_s: tuple[float, float, float]
    tpot_ms: tuple[float, float]


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run of a real engine.

    Attributes:
        name: Of its folder.
        arrivals: Requests with the lengths they had.
        figures: What it came to.
    """

    name: str
    arrivals: tuple[Arrival, ...] = field(repr=False)
    figures: Figures


def figures_of(
    requests: Sequence[tuple[float, float, float, int]], *, waiting_max: int, running_max: int
) -> Figures:
    """Return what served requests come to.

    Args:
        requests: (arrival, first token, last token) in s, and output tokens of each, at least one.
        waiting_max: Most that waited.
        running_max: Most that ran.
    """
    arrival_s, first_s, last_s, outputs = (np.array(part) for part in zip(*requests, strict=True))
    several = outputs > 1
    gaps_ms = 1_000 * (last_s - first_s)[several] / (outputs[several] - 1)
    ttft = np.quantile(first_s - arrival_s, (0.5, 0.9, 0.99))
    tpot = np.quantile(gaps_ms, (0.5, 0.99)) if several.any() else (0.0, 0.0)
    return Figures(
        waiting_max=waiting_max,
        running_max=running_max,
        drain_s=float(last_s.max() - arrival_s.min()),
        ttft_s=(float(ttft[0]), float(ttft[1]), float(ttft[2])),
        tpot_ms=(float(tpot[0]), float(tpot[1])),
    )


def read_run(folder: Path) -> MeasuredRun:
    """Read a measured run.

    Raises:
        ConfigError: A file is missing or broken; the text names file and line.
    """
    requests = _requests(_file(folder, _REQUESTS))
    start_s = min(row["queued_ts"] for row in requests)
    arrivals = tuple(
        Arrival(
            ns_from_s(row["queued_ts"] - start_s), int(row["input_toks"]), int(row["output_toks"])
        )
        for row in requests
    )
    seconds = read_table(_file(folder, _SECONDS)).rows
    figures = figures_of(
        [
            (row["queued_ts"], row["first_token_ts"], row["last_token_ts"], int(row["output_toks"]))
            for row in requests
        ],
        waiting_max=int(max(row.number("waiting") for row in seconds)),
        running_max=int(max(row.number("running") for row in seconds)),
    )
    return MeasuredRun(folder.name, arrivals, figures)


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise ConfigError(
        f"{folder}: {name} is missing, allowed: a folder that has {_REQUESTS} and {_SECONDS}"
    )


def _requests(path: Path) -> list[dict[str, float]]:
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            values: Any = json.loads(line)
            row = {name: float(values[name]) for name in _FIELDS}
        except (ValueError, TypeError, KeyError, RecursionError):
            row = {}
        if not row or not _is_served(row):
            raise ConfigError(
                f"{path} line {number}: not a served request, expected JSON with "
                f"{', '.join(_FIELDS)}"
            )
        rows.append(row)
    if not rows:
        raise ConfigError(f"{path}: no requests in it, expected at least one line")
    return sorted(rows, key=lambda row: row["queued_ts"])


def _is_served(row: dict[str, float]) -> bool:
    return (
        all(np.isfinite(value) for value in row.values())
        and min(row["input_toks"], row["output_toks"]) >= 1
        and row["queued_ts"] <= row["first_token_ts"] <= row["last_token_ts"]
    )
