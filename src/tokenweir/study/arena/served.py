"""What became of each request: of a run here, or of one that others measured?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S
from tokenweir.sim.attempt import Fate
from tokenweir.sim.scenario import Record
from tokenweir.sim.traces import bundled
from tokenweir.study.fitting.rows import read_table

__all__ = ["MEASURED", "Served", "measured", "served_of"]

MEASURED = "vtc-arena/measured_a10g.csv.gz"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Served:
    """Served requests, one entry of each array per request, in the same order.

    Attributes:
        tenants: Names, as many as requests.
        arrive_s: When it came.
        first_s: When its first token came.
        end_s: When its last one did.
        prompts: Prompt tokens.
        outputs: Output tokens.
        unserved: Requests that were not; their tenants are in no array.
    """

    tenants: tuple[str, ...]
    arrive_s: Floats
    first_s: Floats
    end_s: Floats
    prompts: Floats
    outputs: Floats
    unserved: int = 0

    @property
    def ttft_s(self) -> Floats:
        """Times to the first token."""
        return self.first_s - self.arrive_s

    def of_small(self, requests_below: int) -> NDArray[np.bool_]:
        """Tell of each request whether its tenant sent fewer than so many."""
        counts = Counter(self.tenants)
        return np.array([counts[tenant] < requests_below for tenant in self.tenants], dtype=bool)


def _served(rows: Sequence[tuple[str, float, float, float, int, int]], unserved: int) -> Served:
    tenants = tuple(row[0] for row in rows)
    arrive_s, first_s, end_s, prompts, outputs = (
        np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 5).T
    )
    return Served(tenants, arrive_s, first_s, end_s, prompts, outputs, unserved)


def served_of(record: Record) -> Served:
    """Return what a run served."""
    arrivals = record.scenario.arrivals
    rows = [
        (
            arrivals[a.index].tenant,
            a.arrive_ns / NS_PER_S,
            a.first_ns / NS_PER_S,
            a.end_ns / NS_PER_S,
            a.prompt_tokens,
            a.output_tokens,
        )
        for a in record.attempts
        if a.fate is Fate.COMPLETED and a.first_ns is not None and a.end_ns is not None
    ]
    return _served(rows, len(record.attempts) - len(rows))


def measured(policy: str) -> Served:
    """Return what was measured under one policy of the data's authors.

    Raises:
        ConfigError: There are no such rows.
    """
    table = read_table(bundled(MEASURED))
    kept = [row for row in table.rows if row.values.get("policy") == policy]
    if not kept:
        known = sorted({row.values.get("policy", "") for row in table.rows})
        raise ConfigError(f"no measured policy {policy!r}, allowed: {', '.join(known)}")
    rows: list[Any] = []
    for row in kept:
        arrive_s, first_s = row.number("arrival_s"), row.number("first_token_latency_s")
        if first_s < 0:
            continue
        rows.append((
            row.values["tenant"],
            arrive_s,
            arrive_s + first_s,
            arrive_s + row.number("request_latency_s"),
            int(row.positive("prompt_tokens")),
            int(row.positive("output_tokens")),
        ))
    return _served(rows, len(kept) - len(rows))
