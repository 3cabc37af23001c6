"""How is load led up and down again?

Model: steps of equal length; load rises from the lowest to the highest by equal differences and
falls the same way, the highest twice. Arrivals are Poisson, new ones for every seed; lengths are
drawn like the article's, or taken in order from a trace, which begins anew when it is used up.
Both steps of a load have the same requests at the same distances (common random numbers), so that
what differs between them is what came before, and not the luck of the draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tokenweir.core.errors import ConfigError
from tokenweir.core.profile import EngineProfile
from tokenweir.core.units import ns_from_s
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import article_workload, check_span
from tokenweir.study.plan import is_drawn, trace_from

__all__ = ["Stairs", "climbed"]

_STEPS_MAX = 200
# Rounding of the loads, so that 0.1 + 0.2 is 0.3 in a table.
_DIGITS = 6
# Enough requests to know a mix by, where it is drawn.
_SAMPLE = ((600.0, 100.0),)
_REQUESTS_MAX = 5_000_000


@dataclass(frozen=True, slots=True)
class Stairs:
    """Loads of the way up, and how long each lasts.

    Attributes:
        low: Lowest load, above 0.
        high: Highest load, above ``low``.
        step: Difference of two loads, above 0.
        seconds: Length of a step, above 0.
    """

    low: float = 0.5
    high: float = 2.0
    step: float = 0.1
    seconds: float = 60.0
    loads: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Check ranges and list the loads."""
        if not 0.001 <= self.low < self.high <= 1_000:
            raise ConfigError(
                f"--from {self.low:g} --to {self.high:g} is not allowed, allowed: 0.001 to 1,000, "
                "from below to"
            )
        if not self.step > 0 or (self.high - self.low) / self.step > _STEPS_MAX:
            raise ConfigError(
                f"--by {self.step:g} is not allowed, allowed: up to {_STEPS_MAX} steps"
            )
        if not 1 <= self.seconds <= 3_600:
            raise ConfigError(f"--hold {self.seconds:g}s is not allowed, allowed: 1s to 60m")
        count = round((self.high - self.low) / self.step)
        loads = tuple(round(self.low + i * self.step, _DIGITS) for i in range(count + 1))
        object.__setattr__(self, "loads", loads)

    def course(self) -> list[float]:
        """Return the load of each step, up and down."""
        return [*self.loads, *reversed(self.loads)]


def climbed(
    stairs: Stairs, engine: EngineProfile, *, trace: str, seed: int
) -> tuple[list[Arrival], float]:
    """Return the arrivals of a run, and the capacity that loads are multiples of.

    Raises:
        ConfigError: See ``trace_from``; or it would be too many requests, or too long a time.
    """
    mix = _lengths(trace, seed)
    capacity = engine.capacity_rps([(prompt, output) for prompt, output, _ in mix])
    total = sum(stairs.course()) * stairs.seconds * capacity
    if total > _REQUESTS_MAX:
        raise ConfigError(
            f"that would be {total:,.0f} requests, allowed: up to {_REQUESTS_MAX:,}; use shorter "
            "steps, or fewer"
        )
    count = len(stairs.loads)
    segments = [
        ((number + 1) * stairs.seconds, load * capacity) for number, load in enumerate(stairs.loads)
    ]
    rising = article_workload(segments, seed=seed)
    if not is_drawn(trace):
        rising = [
            Arrival(arrival.arrival_ns, *mix[index % len(mix)])
            for index, arrival in enumerate(rising)
        ]
    width_ns = ns_from_s(stairs.seconds)
    falling = [
        # Step i of the way up comes again as step 2 n - 1 - i.
        replace(
            a, arrival_ns=a.arrival_ns + (2 * (count - a.arrival_ns // width_ns) - 1) * width_ns
        )
        for a in rising
    ]
    arrivals = rising + sorted(falling, key=lambda a: a.arrival_ns)
    check_span(arrivals)
    return arrivals, capacity


@lru_cache(maxsize=4)
def _lengths(trace: str, seed: int) -> Sequence[tuple[int, int, str]]:
    drawn = article_workload(_SAMPLE, seed=seed) if is_drawn(trace) else trace_from(trace)
    return [(a.prompt_tokens, a.output_tokens, a.tenant) for a in drawn]
