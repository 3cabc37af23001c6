"""Which requests are sent, when, how long are they, and what do they declare?

Rule: take consecutive requests of a trace, multiply their lengths by ``length_ratio``, divide their
times so that their own mean rate is the one asked for (or by ``speed``), then compress what comes
after a surge. Declared maxima follow from the true output of the trace and are scaled with it: a
maximum of 4,096 beside lengths of a quarter would be a declaration nobody makes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import NS_PER_S, Nanos, s_from_ns
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import Surge, check_span, declared_maxima, scaled, surged
from tokenweir.study.prompts import PROMPT_TOKENS_MIN

__all__ = [
    "LOAD_MAX",
    "LOAD_MIN",
    "LoadShape",
    "PlannedRequest",
    "capacity_rps",
    "plan_requests",
    "rate_for_load",
]

# Multiples of an engine's capacity that a run may be asked for.
LOAD_MIN, LOAD_MAX = 0.001, 1_000.0
# Text of 4 MB.
PROMPT_TOKENS_MAX = 1_000_000

# The error shrinks with each; trace lengths hardly drift, so that 3 would do for the shipped ones.
_RATE_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class LoadShape:
    """How a trace becomes a load.

    Attributes:
        rate_rps: Mean rate of the requests taken, or None to keep the trace's own times.
        speed: Times as fast as the trace; used where no rate is given.
        requests_max: Take at most so many requests.
        duration_ns: Arrivals end then.
        skip_ns: The trace's first part is left out, 0 or more.
        length_ratio: Lengths are multiplied by it, above 0, 1,000 or less.
        declaration: What is declared as output maximum, a row of ``DECLARATIONS``.
        surge: A sudden step of the rate.
        seed: Of the declarations and the texts, 0 or more.
    """

    rate_rps: float | None = None
    speed: float = 1.0
    requests_max: int | None = None
    duration_ns: Nanos | None = None
    skip_ns: Nanos = 0
    length_ratio: float = 1.0
    declaration: str = "exact"
    surge: Surge | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        """Check ranges."""
        for name, value in (
            ("duration", self.duration_ns),
            ("requests", self.requests_max),
        ):
            if value is not None and not value > 0:
                raise ConfigError(f"{name} {value} is not allowed, allowed: above 0")
        for name, ratio, most in (
            ("rate", self.rate_rps, 1e6),
            ("speed", self.speed, 1e6),
            ("scale-tokens", self.length_ratio, 1e3),
        ):
            if ratio is not None and not 1e-6 <= ratio <= most:
                raise ConfigError(
                    f"{name} {ratio:g} is not allowed, allowed: above 0, 1e-6 to {most:,.0f}"
                )
        if not 0 <= self.seed < 1 << 63:
            raise ConfigError(f"seed {self.seed} is not allowed, allowed: 0 to {(1 << 63) - 1}")


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One unique request.

    Attributes:
        index: Place in the plan.
        due_ns: When it is sent first, from the start of the run.
        prompt_tokens: By the emulated engine's rule.
        output_tokens: What an emulated engine is told to produce.
        output_tokens_max: What is declared, or None where nothing is.
        tenant: Who sends it.
    """

    index: int
    due_ns: Nanos
    prompt_tokens: int
    output_tokens: int
    output_tokens_max: int | None
    tenant: str


def plan_requests(arrivals: Sequence[Arrival], shape: LoadShape) -> list[PlannedRequest]:
    """Return what is sent, in order of time.

    Args:
        arrivals: A trace in order of time, its first arrival at 0, not kept.
        shape: See there.

    Raises:
        ConfigError: Nothing is left to send, the declaration is unknown, or it would be too long.
    """
    arrivals = _skipped(arrivals, shape.skip_ns)
    taken = _taken(arrivals, shape)
    timed = _timed(arrivals, taken, shape=shape)
    if shape.surge is not None:
        timed = surged(timed, shape.surge)
    if shape.duration_ns is not None:
        timed = [a for a in timed if a.arrival_ns < shape.duration_ns]
    if not timed:
        raise ConfigError("no request is left to send, allow more time or more requests")
    check_span(timed)
    maxima = _maxima(timed, shape)
    return [
        PlannedRequest(
            index=index,
            due_ns=arrival.arrival_ns,
            prompt_tokens=_prompt_tokens(arrival, shape.length_ratio),
            output_tokens=_output_tokens(arrival, shape.length_ratio),
            output_tokens_max=maximum,
            tenant=arrival.tenant,
        )
        for index, (arrival, maximum) in enumerate(zip(timed, maxima, strict=True))
    ]


def capacity_rps(plan: Sequence[PlannedRequest], profile: EngineProfile) -> float:
    """Return 1 / mean engine seconds per request: full batch, whole prompt, true output."""
    return profile.capacity_rps([(r.prompt_tokens, r.output_tokens) for r in plan])


def rate_for_load(
    arrivals: Sequence[Arrival], shape: LoadShape, *, load: float, profile: EngineProfile
) -> float:
    """Return the rate per second that is ``load`` times the profile's capacity.

    Capacity depends on the requests taken and their number on the rate: some rounds settle it.

    Raises:
        ConfigError: The load is out of range.
    """
    if not LOAD_MIN <= load <= LOAD_MAX:
        raise ConfigError(f"load {load:g} is not allowed, allowed: {LOAD_MIN:g} to {LOAD_MAX:,.0f}")
    arrivals = _skipped(arrivals, shape.skip_ns)
    rate = 1.0
    for _ in range(_RATE_ROUNDS):
        taken = _taken(arrivals, dataclasses.replace(shape, rate_rps=rate))
        lengths = [
            (_prompt_tokens(a, shape.length_ratio), _output_tokens(a, shape.length_ratio))
            for a in taken
        ]
        rate = load * profile.capacity_rps(lengths)
    return rate


def _skipped(arrivals: Sequence[Arrival], skip_ns: Nanos) -> Sequence[Arrival]:
    if skip_ns == 0:
        return arrivals
    left = [a for a in arrivals if a.arrival_ns >= skip_ns]
    if not left:
        raise ConfigError(
            f"skip {s_from_ns(skip_ns):g} s leaves nothing, allowed: less than the trace's "
            f"{s_from_ns(arrivals[-1].arrival_ns):.0f} s"
        )
    start_ns = left[0].arrival_ns
    return [dataclasses.replace(a, arrival_ns=a.arrival_ns - start_ns) for a in left]


def _taken(arrivals: Sequence[Arrival], shape: LoadShape) -> Sequence[Arrival]:
    count = len(arrivals) if shape.requests_max is None else shape.requests_max
    if shape.rate_rps is not None and shape.duration_ns is not None:
        horizon_ns: float = shape.duration_ns
        surge = shape.surge
        if surge is not None and surge.start_ns < shape.duration_ns:
            horizon_ns = surge.start_ns + surge.factor * (shape.duration_ns - surge.start_ns)
        count = min(count, max(round(shape.rate_rps * horizon_ns / NS_PER_S), 1))
    return arrivals[:count]


def _timed(
    arrivals: Sequence[Arrival], taken: Sequence[Arrival], *, shape: LoadShape
) -> list[Arrival]:
    if shape.rate_rps is None:
        return scaled(taken, shape.speed)
    # The last gap counts too: with n requests from 0 on, request n marks the end of the span.
    count = len(taken)
    last_ns = (arrivals[count] if count < len(arrivals) else taken[-1]).arrival_ns
    if last_ns <= 0:
        return list(taken)
    return scaled(taken, shape.rate_rps * s_from_ns(last_ns) / count)


def _maxima(timed: Sequence[Arrival], shape: LoadShape) -> list[int | None]:
    declared = declared_maxima(timed, shape.declaration, seed=shape.seed)
    if shape.declaration == "unset":
        return [None] * len(timed)
    return [
        max(math.ceil(maximum * shape.length_ratio), _output_tokens(arrival, shape.length_ratio))
        for maximum, arrival in zip(declared, timed, strict=True)
    ]


def _prompt_tokens(arrival: Arrival, length_ratio: float) -> int:
    tokens = max(round(arrival.prompt_tokens * length_ratio), PROMPT_TOKENS_MIN)
    if tokens > PROMPT_TOKENS_MAX:
        raise ConfigError(
            f"a prompt of {tokens:,} tokens is not allowed, allowed: up to {PROMPT_TOKENS_MAX:,}; "
            "choose a smaller scale-tokens"
        )
    return tokens


def _output_tokens(arrival: Arrival, length_ratio: float) -> int:
    return max(round(arrival.output_tokens * length_ratio), 1)
