"""What does each request ask for, and until when is it still worth serving?

Times are in ns from the start of the run, as the simulator counts them. A unique request is one
row whatever its attempts: its window opens at its first arrival, and attempts made up to
``attempts_ns`` later count as the same request ("eventual"); 0 counts the first arrival only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenweir.core.errors import ConfigError, ContractError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import Nanos
from tokenweir.sim.results import Slo
from tokenweir.sim.traces import Arrival

__all__ = ["Floats", "Ints", "Requests", "requests_from", "values_of"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Requests:
    """Unique requests as columns, all of shape (n,), by arrival.

    Attributes:
        arrival_ns: First arrival.
        prompt_tokens: At least 1.
        output_tokens: What it really produces, at least 1.
        ttft_ns: Its bound on the time from an attempt's arrival to its first token.
        tpot_ns: Its bound on the mean time between tokens after the first.
        tenants: Who sent it.
        attempts_ns: Latest attempt that counts, after the first arrival; 0 or more.
        ends_ns: When the engine stops, or None where all that is open is served.
        unread_tokens: Of the prompt, what no prefix cache could have spared; None without one.
    """

    arrival_ns: Ints = field(repr=False)
    prompt_tokens: Ints = field(repr=False)
    output_tokens: Ints = field(repr=False)
    ttft_ns: Ints = field(repr=False)
    tpot_ns: Ints = field(repr=False)
    tenants: tuple[str, ...] = field(repr=False)
    attempts_ns: Nanos = 0
    ends_ns: Nanos | None = None
    unread_tokens: Ints | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """Unique requests."""
        return len(self.arrival_ns)

    @property
    def first_token_by_ns(self) -> Ints:
        """Return when the first token of a good request has come at the latest."""
        return self._until_end(self.arrival_ns + self.attempts_ns + self.ttft_ns)

    @property
    def last_token_by_ns(self) -> Ints:
        """Return when the last token of a good request has come at the latest."""
        decode_ns = self.tpot_ns * (self.output_tokens - 1)
        return self._until_end(self.arrival_ns + self.attempts_ns + self.ttft_ns + decode_ns)

    def _until_end(self, when_ns: Ints) -> Ints:
        return when_ns if self.ends_ns is None else np.minimum(when_ns, self.ends_ns)


def requests_from(
    arrivals: Sequence[Arrival],
    slo: Slo,
    *,
    engine: EngineProfile | None = None,
    ttft_ns: Sequence[int] | None = None,
    attempts_ns: Nanos = 0,
    ends_ns: Nanos | None = None,
) -> Requests:
    """Put unique requests into columns.

    Args:
        arrivals: By time, at least one.
        slo: The same for all.
        engine: Whose idle TTFT the SLO refers to; needed where it does.
        ttft_ns: Bounds on TTFT of each request instead of those of ``slo``, shape (n,).
        attempts_ns: See ``Requests``.
        ends_ns: See ``Requests``.

    Raises:
        ConfigError: There is no request.
        ContractError: The SLO refers to an engine, and there is none.
    """
    if not arrivals:
        raise ConfigError("no requests, expected at least one")
    count = len(arrivals)
    if ttft_ns is None:
        ttft_ns = _first_token_bounds_ns(arrivals, slo, engine=engine)
    return Requests(
        arrival_ns=np.array([a.arrival_ns for a in arrivals], dtype=np.int64),
        prompt_tokens=np.array([a.prompt_tokens for a in arrivals], dtype=np.int64),
        output_tokens=np.array([a.output_tokens for a in arrivals], dtype=np.int64),
        ttft_ns=np.array(ttft_ns, dtype=np.int64),
        tpot_ns=np.full(count, slo.tpot_ns, dtype=np.int64),
        tenants=tuple(a.tenant for a in arrivals),
        attempts_ns=attempts_ns,
        ends_ns=ends_ns,
    )


def _first_token_bounds_ns(
    arrivals: Sequence[Arrival], slo: Slo, *, engine: EngineProfile | None
) -> list[Nanos]:
    if slo.unloaded_ratio == 0:
        return [slo.ttft_ns] * len(arrivals)
    if engine is None:
        raise ContractError("an SLO in multiples of an idle engine's TTFT needs the engine")
    return [slo.first_token_ns(a.prompt_tokens, engine) for a in arrivals]


def values_of(requests: Requests, *, kind: str) -> Floats:
    """Return what each request is worth, as a share of all; they add up to 1.

    Args:
        requests: The requests.
        kind: ``count``: each the same; ``tokens``: by prompt and output tokens.
    """
    if kind == "count":
        return np.full(requests.count, 1.0 / requests.count)
    tokens = (requests.prompt_tokens + requests.output_tokens).astype(np.float64)
    shares: Floats = tokens / tokens.sum()
    return shares
