"""What arrives, when, how long is it, and what does its client declare?

Randomness is one named uniform stream per question (arrivals, lengths, declarations, clients), so
that two policies, or two declarations, see the same requests. Transforms are our own: results do
not move with a library's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S, Nanos, ns_from_s
from tokenweir.sim.traces import Arrival

__all__ = [
    "DECLARATIONS",
    "ROUTE_OUTPUT_TOKENS_MAX",
    "Surge",
    "article_workload",
    "check_span",
    "declared_maxima",
    "parse_surge",
    "scaled",
    "surged",
    "uniforms",
]

# The article's lengths: lognormal, median and sigma fitted to its published quantiles, and caps.
_PROMPT_MEDIAN, _PROMPT_SIGMA, _PROMPT_CAP = 570, 0.55, 4_000
_OUTPUT_MEDIAN, _OUTPUT_SIGMA, _OUTPUT_CAP = 200, 0.60, 1_200

# What a request is taken to declare where its client declares nothing: the route's default maximum.
ROUTE_OUTPUT_TOKENS_MAX = 4_096

_STREAMS = ("arrivals", "lengths", "declarations", "clients")


def uniforms(seed: int, stream: str, *, size: tuple[int, ...]) -> NDArray[np.float64]:
    """Return draws from [0, 1) of one named stream of one seed.

    Raises:
        ValueError: The stream is unknown.
    """
    if stream not in _STREAMS:
        raise ValueError(f"unknown stream {stream!r}, allowed: {', '.join(_STREAMS)}")
    generator = np.random.Generator(np.random.PCG64([seed, _STREAMS.index(stream)]))
    return generator.random(size)


def article_workload(segments: Sequence[tuple[float, float]], *, seed: int) -> list[Arrival]:
    """Return Poisson arrivals with the article's lengths.

    Args:
        segments: (end in s, rate per s), in order of time, not kept.
        seed: Of all streams.
    """
    times = _poisson_times_s(segments, seed=seed)
    normals = _normals(uniforms(seed, "lengths", size=(len(times), 2)))
    prompts = _lognormal(normals[:, 0], _PROMPT_MEDIAN, sigma=_PROMPT_SIGMA, cap=_PROMPT_CAP)
    outputs = _lognormal(normals[:, 1], _OUTPUT_MEDIAN, sigma=_OUTPUT_SIGMA, cap=_OUTPUT_CAP)
    nanos = np.rint(times * NS_PER_S).astype(np.int64).tolist()
    return [Arrival(t, p, o) for t, p, o in zip(nanos, prompts, outputs, strict=True)]


def _poisson_times_s(segments: Sequence[tuple[float, float]], *, seed: int) -> NDArray[np.float64]:
    """Map unit-rate arrivals through the integral of the rate."""
    starts = np.array([0.0] + [end for end, _ in segments])
    expected = np.concatenate([
        [0.0],
        np.cumsum([(e - s) * r for (e, r), s in zip(segments, starts, strict=False)]),
    ])
    total = float(expected[-1])
    draws = int(total + 8 * total**0.5 + 64)
    unit_times = np.cumsum(-np.log1p(-uniforms(seed, "arrivals", size=(draws,))))
    times: NDArray[np.float64] = np.interp(unit_times[unit_times < total], expected, starts)
    return times


def _normals(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn pairs of uniforms, shape (n, 2), into pairs of independent normals (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log1p(-u[:, 0]))
    angle = 2.0 * np.pi * u[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _lognormal(normals: NDArray[np.float64], median: int, *, sigma: float, cap: int) -> list[int]:
    lengths = np.rint(median * np.exp(sigma * normals)).astype(np.int64)
    result: list[int] = np.clip(lengths, 1, cap).tolist()
    return result


# --- declarations ---------------------------------------------------------------------------------


def _mix(outputs: NDArray[np.int64], u: NDArray[np.float64]) -> NDArray[np.int64]:
    """Declare 512, 1,024 or 4,096 for 30, 40 and 30 % of requests, never below the true output."""
    return np.maximum(outputs, np.where(u < 0.3, 512, np.where(u < 0.7, 1_024, 4_096)))


# name: (true outputs, uniforms) -> declared maxima, both of shape (n,)
DECLARATIONS: dict[str, Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.int64]]] = {
    "exact": lambda outputs, u: outputs,
    "x2": lambda outputs, u: 2 * outputs,
    "4096": lambda outputs, u: np.maximum(outputs, 4_096),
    "mix": _mix,
    "unset": lambda outputs, u: np.maximum(outputs, ROUTE_OUTPUT_TOKENS_MAX),
}


def declared_maxima(arrivals: Sequence[Arrival], declaration: str, *, seed: int) -> list[int]:
    """Return what each request declares as its output maximum, in order.

    Raises:
        ConfigError: No such row in ``DECLARATIONS``.
    """
    if declaration not in DECLARATIONS:
        raise ConfigError(
            f"unknown declared maximum {declaration!r}, allowed: {', '.join(DECLARATIONS)}"
        )
    outputs = np.array([a.output_tokens for a in arrivals], dtype=np.int64)
    draws = uniforms(seed, "declarations", size=(len(arrivals),))
    result: list[int] = DECLARATIONS[declaration](outputs, draws).tolist()
    return result


# --- shaping --------------------------------------------------------------------------------------


_FACTOR_MIN, _FACTOR_MAX = 0.001, 1_000.0
# A run looks at the engine once a second, so its length has a bound whatever its rate.
_SPAN_S_MAX = 7 * 24 * 3_600


@dataclass(frozen=True, slots=True)
class Surge:
    """A sudden step: from ``start_ns`` on, arrivals come ``factor`` times as fast."""

    factor: float
    start_ns: Nanos


def parse_surge(text: str) -> Surge:
    """Read a step such as ``3x@30s``.

    Raises:
        ConfigError: It is not of that form, or the factor is out of range.
    """
    number = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
    match = re.fullmatch(f"{number}x@{number}s", text)
    if match is None or not _FACTOR_MIN <= float(match[1]) <= _FACTOR_MAX:
        raise ConfigError(
            f"step {text[:40]!r} is not allowed, allowed: FACTORx@SECONDSs as in 3x@30s, with a "
            f"factor from {_FACTOR_MIN:g} to {_FACTOR_MAX:,.0f}"
        )
    return Surge(float(match[1]), ns_from_s(float(match[2])))


def check_span(arrivals: Sequence[Arrival]) -> None:
    """Refuse requests, in order of time, that are spread over more time than a run may take.

    Raises:
        ConfigError: They are; the text says what to do.
    """
    span_s = arrivals[-1].arrival_ns / NS_PER_S
    if span_s > _SPAN_S_MAX:
        raise ConfigError(
            f"the {len(arrivals):,} requests are spread over {span_s / 3_600:,.0f} h, allowed: up "
            f"to {_SPAN_S_MAX // 3_600} h; use a higher rate or fewer requests"
        )


def scaled(arrivals: Sequence[Arrival], rate_ratio: float) -> list[Arrival]:
    """Divide inter-arrival times, so that the mean rate is ``rate_ratio`` times what it was."""
    return [replace(a, arrival_ns=round(a.arrival_ns / rate_ratio)) for a in arrivals]


def surged(arrivals: Sequence[Arrival], surge: Surge) -> list[Arrival]:
    """Compress the time after the step's start by its factor."""
    start_ns, factor = surge.start_ns, surge.factor
    return [
        a
        if a.arrival_ns <= start_ns
        else replace(a, arrival_ns=start_ns + round((a.arrival_ns - start_ns) / factor))
        for a in arrivals
    ]
